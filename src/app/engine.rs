//! The tasks behind one session: watchers, the bus, and the scheduler when it is on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bus::{Batch, Bus};
use super::explain::Question;
use super::schedule::{self, Scheduling};
use super::telemetry;
use crate::cluster::fetch::{hyper_nodes, topologies};
use crate::cluster::source::ClientSource;
use crate::cluster::watch::{Scope, Watcher};
use crate::model::{Delta, FabricRules, Kind};
use crate::tui::Leader;

/// How often Topology objects are asked for.
const TOPOLOGIES_EVERY: Duration = Duration::from_secs(300);

/// Batches between the watchers and the bus: small, so that a slow consumer slows the reading.
const INTAKE: usize = 64;

/// Questions that wait for the scheduler.
const QUESTIONS: usize = 4;

/// What a session looks at, and whether it decides.
pub struct Options {
    /// Clients of the cluster.
    pub source: ClientSource,
    /// All namespaces or one.
    pub scope: Scope,
    /// The scheduler; `None`: it is off, and no writer is built.
    pub scheduling: Option<Scheduling>,
    /// Who tells what GPUs measure; `None`: nobody is asked.
    pub telemetry: Option<telemetry::Asked>,
    /// What is stated of the fabric.
    pub fabric: FabricRules,
}

/// The running tasks; dropping it ends them.
pub struct Engine {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// What a running engine tells.
pub struct Feed {
    /// All deltas, the scheduler's decisions among them.
    pub deltas: mpsc::Receiver<Batch>,
    /// Who decides, whenever that changes.
    pub leader: mpsc::Receiver<Leader>,
    /// Questions to the scheduler, if it is on.
    pub questions: Option<mpsc::Sender<Question>>,
}

impl Engine {
    /// Starts the tasks.
    pub fn start(options: Options) -> (Self, Feed) {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (intake, source) = mpsc::channel::<Vec<Delta>>(INTAKE);
        let (leader_tx, leader) = mpsc::channel(8);
        let mut bus = Bus::default();
        let deltas = bus.subscribe();
        let mut questions = None;
        if let Some(scheduling) = options.scheduling {
            let (asker, asked) = mpsc::channel(QUESTIONS);
            questions = Some(asker);
            let batches = bus.subscribe();
            // Decisions go through the bus like everything else, so every consumer has them.
            let task = schedule::run(
                scheduling,
                options.source.clone(),
                schedule::Feeds {
                    batches,
                    questions: asked,
                    intake: intake.clone(),
                    leader: leader_tx,
                },
                stop.clone(),
            );
            tasks.spawn(task);
        }
        if let Some(asked) = options.telemetry {
            let feeds = telemetry::Feeds {
                batches: bus.subscribe(),
                intake: intake.clone(),
                shown: asked.shown,
            };
            let source = options.source.clone();
            tasks.spawn(telemetry::run(asked.settings, source, feeds, stop.clone()));
        }
        let levels = options.source.clone();
        tasks.spawn(fabric(levels, options.fabric, intake.clone(), stop.clone()));
        let kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .chain(Kind::EXTRA)
            .chain(Kind::foreign())
            .collect();
        let watcher = Watcher::start(&options.source, &options.scope, &kinds, &intake, &stop);
        tasks.spawn(watcher.join());
        tasks.spawn(bus.run(source));
        let feed = Feed {
            deltas,
            leader,
            questions,
        };
        (Engine { stop, tasks }, feed)
    }

    /// Ends all tasks and waits for them: the lease is given back.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Tells what is stated of the fabric: at once what the user's configuration says, and then with what
/// Topology objects and HyperNodes say, which change rarely.
async fn fabric(
    source: ClientSource,
    own: FabricRules,
    intake: mpsc::Sender<Vec<Delta>>,
    stop: CancellationToken,
) {
    let work = async {
        let mut told = FabricRules::default();
        let mut rules = own.clone();
        loop {
            if rules != told {
                told = rules.clone();
                let delta = Delta::Fabric(Arc::new(rules));
                if intake.send(vec![delta]).await.is_err() {
                    return;
                }
            }
            rules = own.clone();
            rules.levels.extend(topologies(&source).await);
            rules.hyper_nodes = hyper_nodes(&source).await;
            if rules == told {
                tokio::time::sleep(TOPOLOGIES_EVERY).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
