//! Why a workload or pod is where it is: its place in line, what its system says, and what our
//! scheduler tried, in full.

use std::sync::Arc;

use ratatui::text::{Line, Span};

use super::explaining::{WhyAnswer, Whys};
use super::format;
use super::theme::Meaning;
use super::view::{Ctx, Target};
use super::views::queue_line;
use crate::model::{
    DecisionKind, FilterCount, OUR_SCHEDULER, Pod, Reason, Uid, WorkloadKey, WorkloadState,
};
use crate::sched::{Change, Explanation};

/// The explanation; `None` when there is nothing of that name.
pub(super) fn lines(target: &Target, whys: &Whys, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    match target {
        Target::Workload(key) => workload(key, whys, ctx),
        Target::Pod(uid) => {
            let pod = ctx.cluster.pod(uid)?;
            let mut text = Text::new(ctx);
            text.pod(pod);
            if let Some(key) = ctx.cluster.workload_of(uid) {
                text.queue(key);
            }
            if let Some(pod) = explained_pod(target, ctx) {
                text.would_start(&pod, whys);
            }
            Some(text.lines)
        }
        _ => None,
    }
}

/// The pod of a thing of which our scheduler can tell what would start it.
pub(super) fn explained_pod(target: &Target, ctx: &Ctx<'_>) -> Option<Uid> {
    let pod = match target {
        Target::Pod(uid) => ctx.cluster.pod(uid)?,
        Target::Workload(key) => slowest(key, ctx)?,
        _ => return None,
    };
    let ours = pod.is_waiting() && *pod.scheduler == *OUR_SCHEDULER;
    ours.then(|| pod.meta.uid.clone())
}

/// The pod that holds the others of a workload up: the one that has waited longest, else the oldest
/// that is not ready.
fn slowest<'a>(key: &WorkloadKey, ctx: &Ctx<'a>) -> Option<&'a Arc<Pod>> {
    let pods = ctx.cluster.workload_pods(key);
    let oldest = |pods: &mut dyn Iterator<Item = &'a Arc<Pod>>| {
        pods.min_by_key(|p| (p.meta.created, p.meta.name.clone()))
    };
    let stuck = |p: &Arc<Pod>| !p.is_terminal() && !p.ready;
    oldest(&mut pods.iter().copied().filter(|p| p.is_waiting()))
        .or_else(|| oldest(&mut pods.iter().copied().filter(|p| stuck(p))))
}

/// A change in a word, for the column before what it does.
fn word(change: Change) -> &'static str {
    match change {
        Change::Limit => "limit",
        Change::Guarantee => "guarantee",
        Change::Priority => "priority",
        Change::Topology => "topology",
        Change::Preemptible => "preemption",
        Change::Nodes => "nodes",
        Change::Wait => "time",
        Change::MinRuntime => "patience",
        Change::Budget => "budget",
    }
}

struct Text<'a> {
    ctx: &'a Ctx<'a>,
    lines: Vec<Line<'static>>,
}

impl<'a> Text<'a> {
    fn new(ctx: &'a Ctx<'a>) -> Self {
        Text {
            ctx,
            lines: Vec::new(),
        }
    }

    fn say(&mut self, text: impl Into<String>, meaning: Meaning) {
        self.lines
            .push(Line::styled(text.into(), self.ctx.style(meaning)));
    }

    fn head(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.say(text, Meaning::Header);
    }

    fn item(&mut self, number: &str, text: String) {
        self.lines.push(Line::from(vec![
            Span::styled(format!("  {number:>6}  "), self.ctx.style(Meaning::Muted)),
            Span::styled(text, self.ctx.style(Meaning::Text)),
        ]));
    }

    fn filters(&mut self, filters: &[FilterCount]) {
        for count in filters {
            self.item(
                &format::count(count.nodes.into()),
                format!("nodes: {}", count.why),
            );
        }
    }

    fn reason(&mut self, reason: &Reason) {
        match reason {
            Reason::NoNodeFits { nodes, filters } => {
                let text = format!("None of {} nodes fits:", format::count((*nodes).into()));
                self.say(text, Meaning::Text);
                self.filters(filters);
            }
            Reason::GangDoesNotFit {
                fits,
                need,
                filters,
            } => {
                let text = format!(
                    "Only {fits} of the {need} pods that have to start together would fit, so none \
                     is placed. What stopped the next one:"
                );
                self.say(text, Meaning::Text);
                self.filters(filters);
            }
            other => self.say(other.to_string(), Meaning::Text),
        }
    }

    /// Its place in the line of its queue, and what that queue's system says.
    fn queue(&mut self, key: &WorkloadKey) {
        let cluster = self.ctx.cluster;
        let Some(entry) = cluster.entry_of(key) else {
            return self.our_queue(key);
        };
        self.head(&format!(
            "Queue {} of {}",
            entry.queue, entry.queue.admitter
        ));
        match cluster.position(key) {
            Some((place, of)) => {
                let text =
                    format!("It is number {place} of {of} in line, by priority and then time.");
                self.say(text, Meaning::Text);
            }
            None => self.say(format!("It is {}.", entry.state.name()), Meaning::Text),
        }
        if let Some(reason) = &entry.reason {
            self.say(format!("{}: {reason}", entry.queue.admitter), Meaning::Text);
        }
        if let Some(displaced) = &entry.displaced {
            let times = match entry.evictions {
                0 | 1 => String::new(),
                n => format!(" ({n} times sent back)"),
            };
            self.say(format!("{displaced}{times}"), Meaning::Muted);
        }
        let queue = cluster.queue(&entry.queue).and_then(|q| q.queue());
        if let Some(why) = queue.and_then(|q| q.why.as_ref()) {
            self.say(format!("The queue itself: {why}"), Meaning::Warn);
        }
    }

    /// Its place in the line of one of our own queues.
    fn our_queue(&mut self, key: &WorkloadKey) {
        let cluster = self.ctx.cluster;
        let Some((queue, place, of)) = queue_line::our_place(cluster, key, self.ctx.now) else {
            return;
        };
        self.head(&format!("Queue {queue} of {}", queue.admitter));
        let text = format!(
            "It is number {place} of {of} in line, by priority with points for waiting and then time."
        );
        self.say(text, Meaning::Text);
        let queue = cluster.queue(&queue).and_then(|q| q.queue());
        if let Some(why) = queue.and_then(|q| q.why.as_ref()) {
            self.say(format!("The queue itself: {why}"), Meaning::Warn);
        }
    }

    fn change(&mut self, word: &str, text: String) {
        self.lines.push(Line::from(vec![
            Span::styled(format!("  {word:<10}  "), self.ctx.style(Meaning::Muted)),
            Span::styled(text, self.ctx.style(Meaning::Text)),
        ]));
    }

    /// What would start a pod, as it was tried.
    fn would_start(&mut self, pod: &Uid, whys: &Whys) {
        const HEAD: &str = "What would start it";
        let Some(told) = whys.told(pod) else {
            if whys.is_asked(pod) {
                self.head(HEAD);
                self.say("… being tried out", Meaning::Muted);
            }
            return;
        };
        match &told.answer {
            WhyAnswer::NotOurs => {}
            WhyAnswer::Failed(why) => {
                self.head(HEAD);
                self.say(format!("It cannot be tried out: {why}"), Meaning::Unknown);
            }
            WhyAnswer::Waits(explanation) => {
                self.head(HEAD);
                self.tried(explanation);
                let text = if told.from_here {
                    "Tried one by one on what this console sees, without past use and held places."
                } else {
                    "Tried one by one on a copy of the scheduler's picture."
                };
                self.say(text, Meaning::Muted);
            }
        }
    }

    fn tried(&mut self, explanation: &Explanation) {
        let start = match explanation.predicted_start {
            Some(at) => {
                let secs = format::secs_since(self.ctx.now, at);
                let within = format::duration(secs);
                format!("about {} (in {within}), ", format::clock(at, self.ctx.now))
            }
            None => "— ".to_owned(),
        };
        self.change("start", format!("{start}{}", explanation.start_by));
        let (place, of) = (explanation.position, explanation.waiting);
        self.change("turn", format!("number {place} of {of} over all queues"));
        // The line of the start says when by time alone.
        let changes = &explanation.near_misses;
        let mut told = false;
        for miss in changes.iter().filter(|m| m.change != Change::Wait) {
            self.change(word(miss.change), miss.text.to_string());
            told = true;
        }
        if !told {
            let text = "No single change of its queue, priority, topology or the nodes was found \
                        that would start it.";
            self.say(text, Meaning::Muted);
        }
    }

    fn pod(&mut self, pod: &Pod) {
        self.head(&format!("Pod {}/{}", pod.meta.namespace, pod.meta.name));
        match self
            .ctx
            .cluster
            .decision(&pod.meta.uid)
            .map(|d| (&d.kind, d.at))
        {
            Some((DecisionKind::Waiting(reason), at)) if pod.is_waiting() => {
                let ago = format::age(Some(at), self.ctx.now);
                self.say(
                    format!("Our scheduler looked at it {ago} ago."),
                    Meaning::Muted,
                );
                self.reason(reason);
            }
            Some((DecisionKind::Placed { node, why }, _)) => {
                self.say(
                    format!("Our scheduler placed it on {node}: {why}"),
                    Meaning::Text,
                );
            }
            _ => {}
        }
        match &pod.reason {
            Some(reason) => self.say(reason.to_string(), Meaning::Text),
            None if pod.is_waiting() && self.lines.len() < 2 => {
                let text = format!("{} has said nothing about it yet.", pod.scheduler);
                self.say(text, Meaning::Unknown);
            }
            None => {}
        }
        if !pod.gates.is_empty() {
            self.say(
                format!("Held by the gates {}.", pod.gates.join(", ")),
                Meaning::Text,
            );
        }
        if let (Some(node), None) = (&pod.node, &pod.reason) {
            self.say(format!("It is on {node}, {}.", pod.phase), Meaning::Text);
        }
    }
}

fn workload(key: &WorkloadKey, whys: &Whys, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let row = ctx.cluster.workload(key)?;
    let mut text = Text::new(ctx);
    let mut head = format!("{} is {}", key.name, row.state.name());
    if row.waiting > 0 {
        head.push_str(&format!(
            ": {} of its {} pods wait for a node",
            format::count(row.waiting.into()),
            format::count(row.pods.into())
        ));
    }
    text.say(format!("{head}."), Meaning::Text);
    if let (WorkloadState::Suspended | WorkloadState::Failed, Some(reason)) =
        (row.state, &row.reason)
    {
        text.say(reason.to_string(), Meaning::Text);
    }
    text.queue(key);
    if let Some(pod) = slowest(key, ctx) {
        text.pod(pod);
    }
    if let Some(pod) = explained_pod(&Target::Workload(key.clone()), ctx) {
        text.would_start(&pod, whys);
    }
    Some(text.lines)
}
