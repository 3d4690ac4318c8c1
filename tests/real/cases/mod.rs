//! What both servers must do alike, and what gpudeck must do on both: a file for each part.

pub(crate) mod access;
pub(crate) mod actors;
pub(crate) mod bad_input;
mod binary;
pub(crate) mod custom;
pub(crate) mod figures;
mod fixture;
pub(crate) mod gpu;
pub(crate) mod inventory;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod outage;
pub(crate) mod pods;
pub(crate) mod queues;
pub(crate) mod read_only;
pub(crate) mod restarts;
pub(crate) mod samples;
pub(crate) mod scheduling;
mod session;
pub(crate) mod watches;

use std::time::Duration;

use kube::core::Status;

/// The server's own account of a refused request.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected the server to refuse, got {other:?}"),
    }
}

/// What `probe` gives as soon as it gives something; a server that needs half a minute has hung.
/// For what the API offers no event for.
async fn eventually<T>(what: &str, probe: impl AsyncFn() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited 30 s in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
