//! The embedded cluster that is measured against, filled once for all sections.

use std::path::PathBuf;

use gpudeck::model::Delta;
use gpudeck::sandbox::bulk::{self, Filled};
use gpudeck::sandbox::listen::Listener;
use gpudeck::sandbox::{ApiServer, Options};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The size that the figures are stated for.
pub const NODES: usize = 5_000;
pub const PODS: usize = 100_000;
const SEED: u64 = 42;

/// A filled server on a loopback port.
pub struct Served {
    pub server: ApiServer,
    pub filled: Filled,
    listener: Listener,
    folder: TempDir,
}

impl Served {
    /// Starts a server with `options` and fills it.
    pub fn start(runtime: &Runtime, options: Options, nodes: usize, pods: usize) -> Self {
        runtime.block_on(async {
            let server = ApiServer::new(options).expect("the embedded cluster starts");
            let filled = bulk::fill(server.client(), nodes, pods, SEED)
                .await
                .expect("the embedded cluster takes its objects");
            let listener = server
                .listen(([127, 0, 0, 1], 0).into())
                .await
                .expect("a loopback port is free");
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let served = Served {
                server,
                filled,
                listener,
                folder,
            };
            served
                .server
                .write_kubeconfig(&served.kubeconfig(), served.listener.addr())
                .expect("the kubeconfig can be written");
            served
        })
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

/// What sections share; each part is made when it is first asked for.
#[derive(Default)]
pub struct World {
    large: Option<Served>,
    deltas: Option<Vec<Delta>>,
}

impl World {
    /// The cluster of 5,000 nodes and 100,000 pods.
    pub fn large(&mut self, runtime: &Runtime) -> &Served {
        self.large
            .get_or_insert_with(|| Served::start(runtime, Options::default(), NODES, PODS))
    }

    /// The large cluster, once it is there.
    pub fn served(&self) -> &Served {
        self.large
            .as_ref()
            .expect("the large cluster has been filled")
    }

    /// All that the console is told of the large cluster until it is live.
    pub fn deltas(&mut self, runtime: &Runtime) -> &[Delta] {
        if self.deltas.is_none() {
            let client = {
                let served = self.large(runtime);
                let _in_runtime = runtime.enter();
                served.server.client()
            };
            self.deltas = Some(runtime.block_on(crate::sync::collect(client)));
        }
        self.deltas.as_deref().unwrap_or_default()
    }
}
