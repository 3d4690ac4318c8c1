//! The embedded cluster with its actors, as `demo` and `sandbox` run it.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::sandbox::scenario::{Play, PlayError, Scenario, ScenarioError};
use crate::sandbox::{ApiServer, SandboxError};

/// How an embedded cluster is to live.
#[derive(Debug, Clone)]
pub struct World {
    /// What lives in it and what happens.
    pub scenario: Scenario,
    /// How that is played.
    pub play: Play,
}

/// Why it could not be brought to life.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The server.
    #[error(transparent)]
    Server(#[from] SandboxError),
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The fleet was not written.
    #[error("the fleet could not be written: {0}")]
    Fleet(#[from] PlayError),
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
        Ok(self.scenario.start(server, &self.play, stop).await?)
    }
}
