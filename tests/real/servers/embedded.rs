//! The embedded cluster, served on loopback from a runtime of its own, so that it answers while
//! a case blocks and outlives the case's runtime.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gpudeck::sandbox::listen::Listener;
use gpudeck::sandbox::{ApiServer, Options, User};
use kube::config::{AuthInfo, Context, Kubeconfig, NamedAuthInfo, NamedContext};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::audit::Record;

/// The users of tests/controlplane with their groups; the first is the kubeconfig's current one.
const USERS: [(&str, &[&str]); 4] = [
    ("admin", &["system:masters"]),
    ("viewer", &[]),
    ("team-lead", &[]),
    ("nobody", &[]),
];

/// A running embedded API server.
pub(crate) struct Embedded {
    runtime: Runtime,
    server: ApiServer,
    address: SocketAddr,
    listener: Mutex<Option<Listener>>,
    kubeconfig: PathBuf,
    _dir: TempDir,
}

impl Embedded {
    /// Starts an empty server.
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let options = Options {
            audit_entries: usize::MAX,
            ..Options::default()
        };
        let server = ApiServer::new(options).unwrap();
        let listener = blocking(&runtime, {
            let server = server.clone();
            async move { listen_anywhere(&server).await }
        });
        let address = listener.addr();
        let dir = tempfile::Builder::new()
            .prefix("embedded-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig, address).unwrap();
        add_users(&server, &kubeconfig);
        let listener = Mutex::new(Some(listener));
        Self {
            runtime,
            server,
            address,
            listener,
            kubeconfig,
            _dir: dir,
        }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn audit(&self) -> Vec<Record> {
        let record = |entry: gpudeck::sandbox::AuditEntry| Record {
            resource: super::audit::with_subresource(&entry.resource, &entry.subresource),
            user: entry.user,
            verb: entry.verb,
            namespace: entry.namespace,
            name: entry.name,
            status: entry.code,
        };
        self.server.audit().into_iter().map(record).collect()
    }

    pub(crate) fn kill(&self) {
        let listener = self
            .listener
            .lock()
            .unwrap()
            .take()
            .expect("the server runs");
        blocking(&self.runtime, listener.stop());
    }

    pub(crate) fn resume(&self) {
        let (server, address) = (self.server.clone(), self.address);
        let listener = blocking(&self.runtime, async move {
            server.listen(address).await.unwrap()
        });
        *self.listener.lock().unwrap() = Some(listener);
    }

    pub(crate) fn compact(&self) {
        self.server.compact();
    }
}

/// Runs a future on `runtime` from wherever the caller is, and waits for it.
fn blocking<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let value = future.await;
        // The receiver waits below for as long as this task lives.
        let _ = sender.send(value);
    });
    receiver.recv().expect("the task ended without a panic")
}

/// Listens on a port below those that the kernel gives to connections: while the server is
/// killed nobody else may get its port.
async fn listen_anywhere(server: &ApiServer) -> Listener {
    for _ in 0..100 {
        let port = fastrand::u16(18_000..32_000);
        if let Ok(listener) = server.listen((Ipv4Addr::LOCALHOST, port).into()).await {
            return listener;
        }
    }
    panic!("no free port found on 127.0.0.1 between 18000 and 31999");
}

/// Makes the test users known to the server and gives each a context in the kubeconfig.
fn add_users(server: &ApiServer, path: &Path) {
    let mut kubeconfig = Kubeconfig::read_from(path).unwrap();
    let cluster = kubeconfig.clusters[0].name.clone();
    kubeconfig.contexts.clear();
    kubeconfig.auth_infos.clear();
    for (name, groups) in USERS {
        let token = format!("token-of-{name}");
        server.register_token(token.as_str(), User::new(name, groups));
        kubeconfig.auth_infos.push(NamedAuthInfo {
            name: name.into(),
            auth_info: Some(AuthInfo {
                token: Some(token.into()),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        });
        kubeconfig.contexts.push(NamedContext {
            name: name.into(),
            context: Some(Context {
                cluster: cluster.clone(),
                user: Some(name.into()),
                ..Context::default()
            }),
            ..NamedContext::default()
        });
    }
    kubeconfig.current_context = Some(USERS[0].0.into());
    // JSON is YAML too.
    std::fs::write(path, serde_json::to_vec(&kubeconfig).unwrap()).unwrap();
}
