//! The loop of an actor that follows the nodes and does things at their time.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::objects::Node;
use super::watch::Change;

/// What such an actor decides. It never waits: what takes time is given to its [`Plans`].
pub(super) trait Actor {
    /// What a piece of work tells when it ends.
    type Done: Send + 'static;

    /// A node is new or different.
    fn seen(&mut self, _node: &Arc<Node>, _plans: &mut Plans<Self::Done>) {}

    /// All nodes of the start have been seen.
    fn begun(&mut self, _plans: &mut Plans<Self::Done>) {}

    /// A node that was not there at the start has been seen.
    fn came(&mut self, _name: &str, _plans: &mut Plans<Self::Done>) {}

    /// A node is gone, and none has come under its name.
    fn gone(&mut self, _node: &Node, _plans: &mut Plans<Self::Done>) {}

    /// The time of `key` has come.
    fn due(&mut self, key: &str, plans: &mut Plans<Self::Done>);

    /// A piece of work has ended.
    fn done(&mut self, done: Self::Done, plans: &mut Plans<Self::Done>);
}

/// What is there, what is to be done later, and what is being done.
pub(super) struct Plans<D> {
    /// The nodes, by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Keys with their time.
    pub agenda: Agenda,
    /// All nodes of the start are known.
    begun: bool,
    work: JoinSet<D>,
}

impl<D: Send + 'static> Plans<D> {
    /// Begins a piece of work; it ends with the actor at the latest.
    pub(super) fn begin(&mut self, work: impl Future<Output = D> + Send + 'static) {
        self.work.spawn(work);
    }
}

/// Folds a change into the nodes and tells the actor.
fn follow<A: Actor>(actor: &mut A, change: Change<Node>, plans: &mut Plans<A::Done>) {
    match change {
        Change::Set(node) => {
            let name = node.metadata.name.clone();
            let before = plans.nodes.insert(name.clone(), Arc::clone(&node));
            actor.seen(&node, plans);
            if before.is_none() && plans.begun {
                actor.came(&name, plans);
            }
        }
        Change::Gone(uid) => {
            let mut nodes = plans.nodes.iter();
            let gone = nodes.find(|(_, node)| node.metadata.uid == uid);
            let Some(name) = gone.map(|(name, _)| name.clone()) else {
                return;
            };
            if let Some(node) = plans.nodes.remove(&name) {
                actor.gone(&node, plans);
            }
        }
        Change::Synced if !plans.begun => {
            plans.begun = true;
            actor.begun(plans);
        }
        Change::Synced => {}
    }
}

/// Works until `cancel` or the end of the feed.
pub(super) async fn run<A: Actor>(
    mut actor: A,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut plans = Plans {
        nodes: BTreeMap::new(),
        agenda: Agenda::default(),
        begun: false,
        work: JoinSet::new(),
    };
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(change) => follow(&mut actor, change, &mut plans),
                None => return,
            },
            Some(done) = plans.work.join_next(), if !plans.work.is_empty() => {
                // Work that panicked tells nothing.
                if let Ok(done) = done {
                    actor.done(done, &mut plans);
                }
            }
            () = plans.agenda.due() => {
                if let Some(key) = plans.agenda.pop(Instant::now()) {
                    actor.due(&key, &mut plans);
                }
            }
        }
    }
}
