//! `gpudeck sandbox fault`: asks a running embedded cluster to fail.

use std::io::Write;
use std::path::PathBuf;

use color_eyre::eyre::{Result, bail, eyre};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::cli::{ClusterArgs, FaultArgs, FaultWhat};
use super::place::Place;
use super::serve::KUBECONFIG;
use crate::sandbox::faults::{ActiveFault, CONTROL_PATH, Fault, FaultKind};

#[derive(Deserialize)]
struct Listed {
    faults: Vec<ActiveFault>,
}

#[derive(Deserialize)]
struct Cleared {
    cleared: usize,
}

#[derive(Deserialize)]
struct Added {
    number: u64,
}

/// Does what is asked for; without `--kubeconfig` on the cluster of this folder.
///
/// # Errors
/// A cluster that is no embedded one, or a fault that makes no sense.
pub async fn run(args: &FaultArgs, cluster: &ClusterArgs) -> Result<()> {
    let mut cluster = cluster.clone();
    cluster
        .kubeconfig
        .get_or_insert_with(|| PathBuf::from(KUBECONFIG));
    let place = Place::connect(&cluster, false).await?;
    match kind(args.what) {
        Ok(kind) => {
            let fault = fault(args, kind);
            // Refused here with the same words as there, and without a server.
            fault.check()?;
            let body = serde_json::to_vec(&fault)?;
            let Added { number } = ask(&place, "POST", body).await?;
            say(&format!("fault {number} is in force: {kind}"))
        }
        Err(Other::List) => {
            let Listed { faults } = ask(&place, "GET", Vec::new()).await?;
            if faults.is_empty() {
                say("no fault is in force")?;
            }
            for ActiveFault {
                number,
                left,
                fault,
            } in faults
            {
                let left = left.map_or_else(
                    || "until it is cleared".to_owned(),
                    |left| format!("for another {left}"),
                );
                say(&format!("{number}  {}  {left}", fault.kind))?;
            }
            Ok(())
        }
        Err(Other::Clear) => {
            let Cleared { cleared } = ask(&place, "DELETE", Vec::new()).await?;
            say(&format!("{cleared} faults ended"))
        }
    }
}

enum Other {
    List,
    Clear,
}

fn kind(what: FaultWhat) -> Result<FaultKind, Other> {
    Ok(match what {
        FaultWhat::Latency => FaultKind::Latency,
        FaultWhat::DropWatches => FaultKind::DropWatches,
        FaultWhat::SilentWatches => FaultKind::SilentWatches,
        FaultWhat::Gone => FaultKind::Gone,
        FaultWhat::TooManyRequests => FaultKind::TooManyRequests,
        FaultWhat::Conflict => FaultKind::Conflict,
        FaultWhat::InternalError => FaultKind::InternalError,
        FaultWhat::Restart => FaultKind::Restart,
        FaultWhat::ClockSkew => FaultKind::ClockSkew,
        FaultWhat::List => return Err(Other::List),
        FaultWhat::Clear => return Err(Other::Clear),
    })
}

fn fault(args: &FaultArgs, kind: FaultKind) -> Fault {
    Fault {
        kind,
        lasts: args.lasts,
        delay: args.delay,
        retry_after: args.retry_after,
        keep_history: args.keep_history.then_some(true),
        ahead: args.ahead,
        behind: args.behind,
        percent: args.percent,
        verbs: args.verbs.clone(),
        resources: args.resources.clone(),
    }
}

async fn ask<T: DeserializeOwned>(place: &Place, method: &str, body: Vec<u8>) -> Result<T> {
    let request = http::Request::builder()
        .method(method)
        .uri(CONTROL_PATH)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)?;
    match place.source.client().request::<T>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 403 => {
            let server = place.source.server();
            bail!(
                "{server} is no cluster of `gpudeck sandbox`, or not its administrator asks; use --kubeconfig with the file that it wrote"
            )
        }
        Err(kube::Error::Api(status)) => bail!("{}", status.message),
        Err(error) => Err(eyre!("{}: {error}", place.source.server())),
    }
}

/// Prints a line; a closed pipe ends nothing.
fn say(line: &str) -> Result<()> {
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(())
}
