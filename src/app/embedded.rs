//! The embedded cluster with its actors, as `demo` and `sandbox` run it.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::sandbox::actors::{self, load};
use crate::sandbox::calls::CallError;
use crate::sandbox::inventory::Fleet;
use crate::sandbox::{ApiServer, SandboxError, Time};

/// How an embedded cluster is to live.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Seed of the fleet and of the load.
    pub seed: u64,
    /// How much faster than real time work runs.
    pub speed: f64,
    /// Nodes; 0 leaves the cluster empty and without load.
    pub nodes: u32,
    /// Where the actors' time stamps come from; the server's should come from the same.
    pub time: Time,
}

/// Why it could not be brought to life.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The server.
    #[error(transparent)]
    Server(#[from] SandboxError),
    /// The fleet was not written.
    #[error("the fleet could not be written: {0}")]
    Fleet(#[from] CallError),
}

impl World {
    /// Writes the fleet and starts the actors; they end with `stop`.
    ///
    /// # Errors
    /// The server refused an object of the fleet.
    pub async fn start(
        &self,
        server: &ApiServer,
        stop: &CancellationToken,
    ) -> Result<JoinSet<()>, WorldError> {
        let options = actors::Options {
            speed: self.speed,
            seed: self.seed,
            load: (self.nodes > 0).then(load::Settings::default),
            time: self.time,
            ..actors::Options::default()
        };
        // The actors come first: a fleet without kubelets would be NotReady for a moment.
        let tasks = actors::start(server.client(), &options, stop);
        if self.nodes > 0 {
            let nodes = usize::try_from(self.nodes).unwrap_or(usize::MAX);
            Fleet::sized(nodes, self.seed)
                .write_at(server.client(), self.time)
                .await?;
        }
        Ok(tasks)
    }
}
