//! The two kinds of server a case runs against, behind one face.

pub(crate) mod audit;
mod embedded;
mod real;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use audit::Record;

/// Native gangs, which the embedded cluster serves and Kubernetes 1.37 keeps behind a gate.
const REAL_ARGUMENTS: [&str; 4] = [
    "--feature-gates",
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,DRAWorkloadResourceClaims=true",
    "--runtime-config",
    "scheduling.k8s.io/v1beta1=true",
];

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// etcd and kube-apiserver.
    Real,
    /// `gpudeck::sandbox`.
    Embedded,
}

/// One API server with the users admin (may do everything), viewer, team-lead and nobody (may do
/// nothing until a case grants it).
pub(crate) struct Server {
    backend: Backend,
    namespaces: AtomicU32,
}

enum Backend {
    Real(Box<real::ControlPlane>),
    Embedded(Box<embedded::Embedded>),
}

impl Server {
    /// Starts a server that no other case uses. It ends on drop.
    pub(crate) fn start(kind: Kind) -> Self {
        let backend = match kind {
            Kind::Real => Backend::Real(Box::new(real::ControlPlane::start(&REAL_ARGUMENTS))),
            Kind::Embedded => Backend::Embedded(Box::new(embedded::Embedded::start())),
        };
        Self {
            backend,
            namespaces: AtomicU32::new(0),
        }
    }

    /// The server that cases share; started by the first of them, it ends with this process.
    pub(crate) fn shared(kind: Kind) -> &'static Self {
        static REAL: OnceLock<Server> = OnceLock::new();
        static EMBEDDED: OnceLock<Server> = OnceLock::new();
        let cell = match kind {
            Kind::Real => &REAL,
            Kind::Embedded => &EMBEDDED,
        };
        cell.get_or_init(|| Self::start(kind))
    }

    /// The kubeconfig; it has one context for each user, named as the user, and admin's is current.
    pub(crate) fn kubeconfig(&self) -> &Path {
        match &self.backend {
            Backend::Real(real) => &real.described.kubeconfig,
            Backend::Embedded(embedded) => embedded.kubeconfig(),
        }
    }

    /// Whether it is a real API server: the embedded one does not evaluate a kind's CEL rules.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.backend, Backend::Real(_))
    }

    /// A client that acts as `user`.
    pub(crate) async fn client(&self, user: &str) -> Client {
        gpudeck::cluster::client::from_config(self.config(user).await).unwrap()
    }

    /// A client that may do everything.
    pub(crate) async fn admin(&self) -> Client {
        self.client("admin").await
    }

    /// The configuration of a client that acts as `user`, to be changed before use.
    pub(crate) async fn config(&self, user: &str) -> Config {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let options = KubeConfigOptions {
            context: Some(user.into()),
            ..Default::default()
        };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap()
    }

    /// Everything the server was asked and has answered since its start, oldest first.
    pub(crate) fn audit(&self) -> Vec<Record> {
        match &self.backend {
            Backend::Real(real) => {
                audit::parse(&std::fs::read_to_string(&real.described.audit_log).unwrap())
            }
            Backend::Embedded(embedded) => embedded.audit(),
        }
    }

    /// Kills the API server as a crash would; its data stays. Connections break, and new ones
    /// are refused until `resume`.
    pub(crate) fn kill(&self) {
        match &self.backend {
            Backend::Real(real) => real.command("stop-apiserver"),
            Backend::Embedded(embedded) => embedded.kill(),
        }
    }

    /// Starts the killed API server at the same address; returns when it is ready.
    pub(crate) fn resume(&self) {
        match &self.backend {
            Backend::Real(real) => real.command("start-apiserver"),
            Backend::Embedded(embedded) => embedded.resume(),
        }
    }

    /// Drops the history of changes, so that old resourceVersions are gone.
    pub(crate) fn compact(&self) {
        match &self.backend {
            Backend::Real(real) => real.command("compact"),
            Backend::Embedded(embedded) => embedded.compact(),
        }
    }

    /// Makes a namespace for one case and returns its name, which begins with `case`.
    pub(crate) async fn namespace(&self, case: &str) -> String {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{case}-{number}");
        let namespace = object::<Namespace>(json!({"metadata": {"name": name}}));
        let namespaces: Api<Namespace> = Api::all(self.admin().await);
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        name
    }
}

/// A typed object from JSON, so that a case shows only the fields it is about.
pub(crate) fn object<K: serde::de::DeserializeOwned>(json: serde_json::Value) -> K {
    serde_json::from_value(json).unwrap()
}
