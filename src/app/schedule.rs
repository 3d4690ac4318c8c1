//! The scheduler's task: folds deltas into `sched::State`, decides, and carries the Plan out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ahash::{AHashMap, AHashSet};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bus::Batch;
use super::explain::Question;
use crate::cluster::elect::{self, Election, Leadership, Role};
use crate::cluster::events::{self, EventRecorder};
use crate::cluster::source::ClientSource;
use crate::cluster::write::{Outcome, WriteMode, Writer};
use crate::model::{Change, Decision, DecisionKind, Delta, Reason, Str, Uid};
use crate::plan::{Action, Plan};
use crate::sched::{self, SchedConfig, State};
use crate::tui::Leader;

/// Namespace and name of the Lease that one deciding scheduler holds.
const LEASE: (&str, &str) = ("kube-system", "gpudeck-scheduler");
/// Time from a change to the decision on it, in which more changes are taken in.
const GATHER: Duration = Duration::from_millis(15);
/// How often it is decided again although nothing came: assumed bindings expire by time.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often queues are told what they use, where that has changed.
const TELL_QUEUES: SignedDuration = SignedDuration::from_secs(5);
/// Groups that are written at once.
const GROUPS_IN_FLIGHT: usize = 32;
/// Groups decided and not yet written, above which no more is decided.
const BACKLOG: usize = 256;
/// Longest that the end waits for the answers to writes under way.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What a scheduler needs to be started.
pub struct Scheduling {
    /// Proof that this process may write.
    pub mode: WriteMode,
    /// The election that it takes part in.
    pub election: Election,
    /// Its settings.
    pub config: SchedConfig,
}

impl Scheduling {
    /// The usual scheduler of this process.
    pub fn new(mode: WriteMode, host: Option<&str>) -> Self {
        let identity = elect::identity(host);
        Scheduling {
            mode,
            election: Election::new(LEASE.0, LEASE.1, &identity),
            config: SchedConfig::default(),
        }
    }
}

type Written = (Vec<Action>, Vec<Outcome>);

struct Loop {
    /// The cluster's clock.
    source: ClientSource,
    state: State,
    writer: Arc<Writer>,
    recorder: EventRecorder,
    /// Placements whose binding is not confirmed: their Event is written when it is.
    unconfirmed: AHashMap<Uid, Arc<Decision>>,
    /// Pods of gangs of which a part was bound: each is tried again at once, but only once.
    cut_off: AHashSet<Uid>,
    /// Decisions on their way to every consumer. Unbounded: the bus waits for this task, so this
    /// task must never wait for the bus.
    told: mpsc::UnboundedSender<Vec<Delta>>,
    /// When queues were told last what they use.
    queues_told: Option<Timestamp>,
    backlog: VecDeque<Vec<Action>>,
    in_flight: JoinSet<Written>,
    /// What the tasks in flight were given.
    sent: AHashMap<task::Id, Vec<Action>>,
}

/// What the task takes in and tells.
pub struct Feeds {
    /// Everything that is known.
    pub batches: mpsc::Receiver<Batch>,
    /// Why pods wait.
    pub questions: mpsc::Receiver<Question>,
    /// Where decisions go.
    pub intake: mpsc::Sender<Vec<Delta>>,
    /// Who leads.
    pub leader: mpsc::Sender<Leader>,
}

/// Runs until `stop`; then waits for the answers to what it has sent, and gives the lease back.
pub async fn run(
    scheduling: Scheduling,
    source: ClientSource,
    feeds: Feeds,
    stop: CancellationToken,
) {
    let Feeds {
        mut batches,
        mut questions,
        intake,
        leader,
    } = feeds;
    let identity = scheduling.election.identity.clone();
    // Ends after `stop`: who comes next must not decide while writes of ours are under way.
    let answered = CancellationToken::new();
    let (mut leadership, elector) = elect::start(
        &scheduling.mode,
        source.clone(),
        scheduling.election,
        answered.clone(),
    );
    let writer = Writer::new(
        &scheduling.mode,
        source.clone(),
        Arc::new(leadership.clone()),
    );
    let (recorder, event_writer) =
        events::start(&scheduling.mode, source.clone(), identity, answered.clone());
    let (told, forward) = mpsc::unbounded_channel();
    let forwarder = tokio::spawn(forward_all(forward, intake));
    let mut this = Loop {
        source,
        state: State::new(scheduling.config),
        writer: Arc::new(writer),
        recorder,
        unconfirmed: AHashMap::new(),
        cut_off: AHashSet::new(),
        told,
        queues_told: None,
        backlog: VecDeque::new(),
        in_flight: JoinSet::new(),
        sent: AHashMap::new(),
    };
    let mut due = Instant::now() + HEARTBEAT;
    // A receiver that is gone only means that nobody shows who leads.
    let _ = leader.send(shown(&leadership.role())).await;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            alive = leadership.changed() => {
                let _ = leader.send(shown(&leadership.role())).await;
                if !alive {
                    break;
                }
                due = due.min(Instant::now() + GATHER);
            }
            Some(written) = this.in_flight.join_next_with_id(), if !this.in_flight.is_empty() => {
                this.answered(written);
                this.write_more();
                due = due.min(Instant::now() + GATHER);
            }
            batch = batches.recv() => {
                let Some(batch) = batch else { break };
                this.fold(&batch);
                while let Ok(batch) = batches.try_recv() {
                    this.fold(&batch);
                }
                due = due.min(Instant::now() + GATHER);
            }
            Some(question) = questions.recv() => {
                question.answer_beside(&this.state, this.source.now());
            }
            () = tokio::time::sleep_until(due) => {
                due = Instant::now() + HEARTBEAT;
                if this.decide(&leadership) {
                    due = Instant::now() + GATHER;
                }
            }
        }
    }
    // Nothing is folded any more, and the bus must not wait for us.
    drop(batches);
    if !this.last_answers().await {
        // A binding without an answer may still be made: the lease is left to expire.
        elector.abort();
    }
    answered.cancel();
    drop(this);
    // Tasks that panicked have told so by the panic hook.
    let _ = event_writer.await;
    let _ = elector.await;
    let _ = forwarder.await;
}

async fn forward_all(mut from: mpsc::UnboundedReceiver<Vec<Delta>>, to: mpsc::Sender<Vec<Delta>>) {
    while let Some(batch) = from.recv().await {
        if to.send(batch).await.is_err() {
            return;
        }
    }
}

/// A role in the console's words.
fn shown(role: &Role) -> Leader {
    match role {
        Role::Leader { .. } => Leader::Here,
        Role::Standby {
            holder: Some(holder),
            ..
        } => Leader::Other {
            holder: holder.clone(),
            standby: true,
        },
        Role::Standby { holder: None, .. } => Leader::None,
    }
}

impl Loop {
    fn fold(&mut self, batch: &Batch) {
        for delta in batch.iter() {
            self.state.apply(delta);
            if let Delta::Pod(Change::Gone(gone)) = delta {
                self.cut_off.remove(&gone.uid);
            }
        }
    }

    /// Decides if we lead and the cluster is known; whether there is more to decide at once.
    fn decide(&mut self, leadership: &Leadership) -> bool {
        let now = self.source.now();
        self.state.expire(now);
        if leadership.term().is_none() || self.backlog.len() >= BACKLOG {
            return false;
        }
        let plan = sched::decide(&self.state, now);
        // Nobody leaves before the place that is freed is held.
        self.state.hold(&plan);
        let Plan {
            groups,
            decisions,
            more,
            ..
        } = plan;
        for action in groups.iter().flatten() {
            self.state.assume(action);
        }
        self.tell(decisions);
        self.backlog.extend(groups);
        if !more {
            self.tell_queues(now);
        }
        self.write_more();
        more
    }

    /// Tells queues what they use, once in a while.
    fn tell_queues(&mut self, now: Timestamp) {
        let age = self.queues_told.map(|at| now.duration_since(at));
        if age.is_some_and(|age| !age.is_negative() && age < TELL_QUEUES) {
            return;
        }
        self.queues_told = Some(now);
        for action in sched::tell_queues(&self.state, now) {
            self.state.assume(&action);
            self.backlog.push_back(vec![action]);
        }
    }

    /// Folds decisions into our own state at once (they must not be made twice) and tells all.
    fn tell(&mut self, decisions: Vec<Arc<Decision>>) {
        if decisions.is_empty() {
            return;
        }
        let mut batch = Vec::with_capacity(decisions.len());
        for decision in decisions {
            match decision.kind {
                DecisionKind::Placed { .. } => {
                    self.unconfirmed
                        .insert(decision.pod.clone(), decision.clone());
                }
                DecisionKind::Waiting(_) | DecisionKind::Leaves { .. } => self.record(&decision),
            }
            let delta = Delta::Decision(decision);
            self.state.apply(&delta);
            batch.push(delta);
        }
        // Nobody listens any more: the session ends.
        let _ = self.told.send(batch);
    }

    fn record(&self, decision: &Arc<Decision>) {
        if !self.recorder.record(decision) {
            tracing::debug!(pod = %decision.name, "too many Events are queued; this one is not written");
        }
    }

    fn write_more(&mut self) {
        while self.in_flight.len() < GROUPS_IN_FLIGHT {
            let Some(group) = self.backlog.pop_front() else {
                return;
            };
            let writer = self.writer.clone();
            let sent = group.clone();
            let task = self.in_flight.spawn(async move {
                let outcomes = writer.execute(&group).await;
                (group, outcomes)
            });
            self.sent.insert(task.id(), sent);
        }
    }

    /// Takes in the answers to one group; whether it is known what became of all of it. A write
    /// that broke off may have been made.
    fn answered(&mut self, written: Result<(task::Id, Written), JoinError>) -> bool {
        let (id, written) = match written {
            Ok((id, written)) => (id, Some(written)),
            Err(e) => (e.id(), None),
        };
        let sent = self.sent.remove(&id).unwrap_or_default();
        let written = written.unwrap_or_else(|| {
            let why = "the write broke off";
            let unknown = |_: &Action| Outcome::Unknown { why: why.into() };
            let outcomes = sent.iter().map(unknown).collect();
            (sent, outcomes)
        });
        let known = !written
            .1
            .iter()
            .any(|o| matches!(o, Outcome::Unknown { .. }));
        self.settle(&written);
        known
    }

    /// Takes in the answers to writes under way, for a while; whether it is known of all what
    /// became of them.
    async fn last_answers(&mut self) -> bool {
        self.backlog.clear();
        let all = async {
            let mut known = true;
            while let Some(written) = self.in_flight.join_next_with_id().await {
                known &= self.answered(written);
            }
            known
        };
        tokio::time::timeout(LAST_ANSWERS, all)
            .await
            .unwrap_or(false)
    }

    fn settle(&mut self, (group, outcomes): &Written) {
        let now = self.source.now();
        let cut = cut(outcomes);
        let mut news = Vec::new();
        for (action, outcome) in group.iter().zip(outcomes) {
            let (pod, namespace, name) = match action {
                Action::Bind {
                    pod,
                    namespace,
                    name,
                    ..
                } => (pod, namespace, name),
                Action::Evict { .. } => {
                    news.extend(self.settle_eviction(action, outcome));
                    continue;
                }
                // A queue that has changed is told again when the watch shows it.
                Action::TellQueue { .. } => {
                    if matches!(outcome, Outcome::NotBegun { .. }) {
                        self.state.take_back(action);
                    }
                    if *outcome != Outcome::Done {
                        tracing::debug!(%action, ?outcome, "not told");
                    }
                    continue;
                }
            };
            let placement = self.unconfirmed.remove(pod);
            let reason = match outcome {
                Outcome::Done => {
                    self.cut_off.remove(pod);
                    if let Some(placement) = placement {
                        self.record(&placement);
                    }
                    continue;
                }
                // The place is held until the watch shows what became of it, or it expires.
                Outcome::Unknown { why } => {
                    tracing::warn!(%namespace, %name, %why, "no answer to a binding");
                    self.state.doubt(action);
                    Reason::Unanswered {
                        message: why.clone(),
                    }
                }
                Outcome::NotBegun { .. } => {
                    self.state.take_back(action);
                    let Some(cut) = &cut else { continue };
                    cut.clone()
                }
                Outcome::Refused { code, message } => {
                    self.state.forget(action);
                    match &cut {
                        // A refusal keeps a pod from being tried for a while; a gang that runs
                        // in part must not wait for that the first time.
                        Some(cut) if self.cut_off.insert(pod.clone()) => cut.clone(),
                        _ => Reason::Refused {
                            message: refusal(*code, message),
                        },
                    }
                }
            };
            news.push(Arc::new(Decision {
                pod: pod.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                kind: DecisionKind::Waiting(reason),
                at: now,
            }));
        }
        self.tell(news);
    }

    /// A refused victim stays where it is and is left alone for a while; whoever it was to leave
    /// for asks again. What is told of one that leaves.
    fn settle_eviction(&mut self, action: &Action, outcome: &Outcome) -> Option<Arc<Decision>> {
        match outcome {
            Outcome::Done => {
                tracing::info!(%action, "evicted");
                return self.leaves(action);
            }
            Outcome::Unknown { why } => {
                tracing::warn!(%action, %why, "no answer to an eviction");
                self.state.doubt(action);
            }
            Outcome::NotBegun { why } => {
                tracing::debug!(%action, %why, "not evicted");
                self.state.take_back(action);
            }
            Outcome::Refused { code, message } => {
                tracing::info!(%action, code, %message, "the eviction was refused");
                self.state.forget(action);
            }
        }
        None
    }

    fn leaves(&self, action: &Action) -> Option<Arc<Decision>> {
        let Action::Evict {
            pod,
            namespace,
            name,
            node,
            preemptor,
            why,
        } = action
        else {
            return None;
        };
        Some(Arc::new(Decision {
            pod: pod.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            kind: DecisionKind::Leaves {
                node: node.clone(),
                preemptor: preemptor.clone(),
                why: why.clone(),
            },
            at: self.source.now(),
        }))
    }
}

/// The server's words with its code.
fn refusal(code: u16, message: &str) -> Str {
    format!("{message} (HTTP {code})").into()
}

/// Why the rest waits, when a part of a group was bound and a part was not.
fn cut(outcomes: &[Outcome]) -> Option<Reason> {
    let bound = outcomes.iter().filter(|o| **o == Outcome::Done).count();
    let message = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Refused { code, message } => Some(refusal(*code, message)),
        Outcome::Unknown { why } => Some(why.clone()),
        Outcome::Done | Outcome::NotBegun { .. } => None,
    })?;
    (bound > 0).then(|| Reason::GangCut {
        bound: u32::try_from(bound).unwrap_or(u32::MAX),
        of: u32::try_from(outcomes.len()).unwrap_or(u32::MAX),
        message,
    })
}

#[cfg(test)]
mod tests;
