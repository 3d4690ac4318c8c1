//! The loop of an actor that follows the nodes and does things at their time.

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

    /// A node came, changed or went, or all are known.
    fn changed(&mut self, change: Change<Node>, plans: &mut Plans<Self::Done>);

    /// The time of `key` has come.
    fn due(&mut self, key: &str, plans: &mut Plans<Self::Done>);

    /// A piece of work has ended.
    fn done(&mut self, done: Self::Done, plans: &mut Plans<Self::Done>);
}

/// What is to be done later, and what is being done.
pub(super) struct Plans<D> {
    /// Keys with their time.
    pub agenda: Agenda,
    work: JoinSet<D>,
}

impl<D: Send + 'static> Plans<D> {
    /// Begins a piece of work; it ends with the actor at the latest.
    pub(super) fn begin(&mut self, work: impl Future<Output = D> + Send + 'static) {
        self.work.spawn(work);
    }
}

/// Works until `cancel` or the end of the feed.
pub(super) async fn run<A: Actor>(
    mut actor: A,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut plans = Plans {
        agenda: Agenda::default(),
        work: JoinSet::new(),
    };
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(change) => actor.changed(change, &mut plans),
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
