//! How a `kube::Client` is set up: one place for time-outs, retry policy and the crypto provider.

use std::time::Duration;

use kube::{Client, Config};

/// Why a client could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration was read but no client could be made of it.
    #[error("{}", super::http::explain(&server.as_str().into(), source))]
    Build {
        /// The API server's address.
        server: String,
        /// What kube said.
        source: kube::Error,
    },
    /// The kubeconfig, read anew, does not lead to a client any more; in words.
    #[error("{0}")]
    Context(String),
}

/// Longest until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Installs ring as the process-wide TLS provider; later calls change nothing.
pub fn install_crypto() {
    // An error only says that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Makes a client from `config` with kube's own retries off: they would repeat an eviction
/// that a PodDisruptionBudget refused for minutes before the caller saw the 429.
pub fn from_config(mut config: Config) -> Result<Client, ClientError> {
    install_crypto();
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ClientError::Build { server, source })
}
