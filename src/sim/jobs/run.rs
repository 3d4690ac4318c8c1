//! One pool for all jobs, under an order of theirs.

use super::job::{JobsError, Trace};
use super::nodes::{Nodes, Part};
use super::podwise;
use super::policy::{Manner, Policy};
use super::stage::{Happened, Stage};
use super::tally::Outcome;
use super::waiting::{Turn, Waiting};
use crate::sched::odds::Odds;

/// Backfill looks at so many waiting jobs, as Slurm's default does (`bf_max_job_test`).
const BACKFILL_DEPTH: usize = 500;
/// Odds that differ by less than this factor are no reason to interrupt anybody: what is learnt
/// while both run does not turn them round at once.
pub(super) const MUCH_BETTER: f64 = 1.5;

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Nodes of the pool.
    pub nodes: u32,
    /// GPUs of each.
    pub gpus_per_node: u32,
    /// Who goes first.
    pub policy: Policy,
    /// What an interruption costs the interrupted job, in seconds: its checkpoint and restart.
    pub restart_s: f64,
    /// Of the arrival of pods, where they come one by one.
    pub seed: u64,
}

/// Runs a trace to its end.
///
/// # Errors
/// A job that is larger than the pool.
pub fn run(trace: &Trace, setting: Setting) -> Result<Outcome, JobsError> {
    let nodes = Nodes::new(setting.nodes, setting.gpus_per_node);
    if let Some(job) = trace.jobs.iter().find(|j| j.gpus > nodes.gpus()) {
        let (job, pool) = (job.gpus, nodes.gpus());
        return Err(JobsError::TooLarge { job, pool });
    }
    if setting.policy == Policy::Gangless {
        return Ok(podwise::run(trace, setting));
    }
    let mut run = Run {
        stage: Stage::new(trace, setting.policy, setting.restart_s, nodes.gpus()),
        policy: setting.policy,
        on_node: vec![Vec::new(); nodes.count()],
        nodes,
        waiting: Waiting::default(),
        odds: Odds::default(),
    };
    while let Some(happened) = run.stage.next(run.nodes.gpus() - run.nodes.free_gpus()) {
        happened.into_iter().for_each(|what| run.take(what));
        run.schedule();
    }
    Ok(run.stage.tally.outcome(trace, &run.stage.progress))
}

struct Run<'a> {
    stage: Stage<'a>,
    policy: Policy,
    nodes: Nodes,
    /// Jobs that hold GPUs of each node.
    on_node: Vec<Vec<usize>>,
    waiting: Waiting,
    odds: Odds,
}

impl Run<'_> {
    fn take(&mut self, what: Happened) {
        match what {
            Happened::Arrived(at) => self.wait(at),
            Happened::Done(at, parts) => {
                self.release(at, &parts);
                self.odds.done(self.stage.service(at));
            }
            Happened::LeftBand(_, band) => self.odds.left(band),
        }
    }

    fn wait(&mut self, at: usize) {
        let (band, gpus) = (self.stage.band(at), self.stage.gpus(at));
        self.waiting.add(band, gpus, self.stage.turn(at));
    }

    fn release(&mut self, at: usize, parts: &[Part]) {
        self.nodes.give(parts);
        for part in parts {
            if let Some(jobs) = self.on_node.get_mut(part.node) {
                jobs.retain(|job| *job != at);
            }
        }
    }

    fn start(&mut self, at: usize, parts: Vec<Part>) {
        let (band, gpus) = (self.stage.band(at), self.stage.gpus(at));
        self.waiting.remove(band, gpus, self.stage.turn(at));
        self.nodes.take(&parts);
        for part in &parts {
            if let Some(jobs) = self.on_node.get_mut(part.node) {
                jobs.push(at);
            }
        }
        self.stage.start(at, parts);
    }

    /// How good a band is; the higher the better.
    fn rank(&self, band: u8) -> f64 {
        match self.policy {
            Policy::Ours => self.odds.index(band),
            _ => -f64::from(band),
        }
    }

    fn heads(&self) -> Vec<(u8, u32, Turn)> {
        self.waiting.heads(|band| self.rank(band))
    }

    fn schedule(&mut self) {
        match self.policy.manner() {
            Manner::HeadOfLine => {
                while let Some((_, gpus, turn)) = self.heads().first().copied()
                    && let Some(parts) = self.nodes.fit(gpus)
                {
                    self.start(turn.job, parts);
                }
            }
            Manner::Greedy => self.greedy(),
            Manner::Backfill => self.backfill(),
        }
    }

    fn greedy(&mut self) {
        // Sizes that fit nowhere, with the rank from which on down that was tried.
        let mut failed: Vec<(u32, f64)> = Vec::new();
        'again: loop {
            for (band, gpus, turn) in self.heads() {
                let rank = self.rank(band);
                if failed.iter().any(|(g, r)| *g == gpus && *r >= rank) {
                    continue;
                }
                if let Some(parts) = self.nodes.fit(gpus) {
                    self.start(turn.job, parts);
                    continue 'again;
                }
                if self.policy.interrupts()
                    && let Some(room) = self
                        .nodes
                        .cheapest_room(gpus, |node, gpus| self.clear(node, gpus, turn, band))
                {
                    for victim in room.victims {
                        let parts = self.stage.interrupt(victim);
                        self.release(victim, &parts);
                        self.wait(victim);
                    }
                    self.start(turn.job, room.parts);
                    failed.clear();
                    continue 'again;
                }
                // The next of this size have no better rank or key, and no other victims.
                failed.push((gpus, rank));
            }
            return;
        }
    }

    /// The cheapest victims that leave so many GPUs of a node free, and the GPUs that they lose.
    fn clear(&self, node: usize, gpus: u32, turn: Turn, band: u8) -> Option<(u32, Vec<usize>)> {
        let jobs = self.on_node.get(node)?.iter().copied();
        let victims = jobs.filter(|at| self.may_interrupt(*at, turn, band));
        cheapest(&self.stage, node, self.nodes.free_on(node), gpus, victims)
    }

    fn may_interrupt(&self, victim: usize, turn: Turn, band: u8) -> bool {
        let stage = &self.stage;
        let found = stage.progress.get(victim).zip(stage.trace.jobs.get(victim));
        found.is_some_and(|(progress, job)| match self.policy {
            Policy::Srtf => job.duration_s - progress.done_at(stage.now) > turn.key,
            Policy::Ours => self.rank(band) > MUCH_BETTER * self.rank(progress.band),
            _ => progress.band > band,
        })
    }

    fn backfill(&mut self) {
        let order = self.waiting.first(BACKFILL_DEPTH, |band| self.rank(band));
        let mut order = order.into_iter().peekable();
        while let Some((_, gpus, turn)) = order.peek().copied() {
            let Some(parts) = self.nodes.fit(gpus) else {
                break;
            };
            self.start(turn.job, parts);
            order.next();
        }
        let Some((_, head, _)) = order.next() else {
            return;
        };
        let Some((shadow_s, mut then)) = self.shadow(head) else {
            return;
        };
        for (_, gpus, turn) in order {
            let Some(parts) = self.nodes.fit(gpus) else {
                continue;
            };
            let job = self.stage.trace.jobs.get(turn.job);
            if job.is_none_or(|job| self.stage.now + job.duration_s > shadow_s) {
                let mut tried = then.clone();
                tried.take(&parts);
                if tried.fit(head).is_none() {
                    continue;
                }
                then = tried;
            }
            self.start(turn.job, parts);
        }
    }

    /// When the first job will fit, and the pool at that time without it.
    fn shadow(&self, gpus: u32) -> Option<(f64, Nodes)> {
        let stage = &self.stage;
        let running = self.on_node.iter().flatten();
        let mut ends: Vec<(f64, usize)> = running
            .filter_map(|at| {
                let (job, progress) = stage.trace.jobs.get(*at).zip(stage.progress.get(*at))?;
                Some((progress.end(job), *at))
            })
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ends.dedup_by_key(|(_, at)| *at);
        let mut then = self.nodes.clone();
        for (end, at) in ends {
            then.give(stage.parts(at));
            if then.fit(gpus).is_some() {
                return Some((end, then));
            }
        }
        None
    }
}

/// Of the victims on a node those that lose least and leave so many of its GPUs free, with the GPUs
/// that they lose in all: grown by the least loss, then freed of those it turned out not to need.
pub(super) fn cheapest(
    stage: &Stage<'_>,
    node: usize,
    mut free: u32,
    gpus: u32,
    victims: impl Iterator<Item = usize>,
) -> Option<(u32, Vec<usize>)> {
    let mut candidates: Vec<(u32, usize, u32)> = victims
        .map(|at| {
            let here = stage.parts(at).iter().filter(|p| p.node == node);
            (stage.gpus(at), at, here.map(|p| p.gpus).sum())
        })
        .collect();
    candidates.sort_unstable();
    let mut taken: Vec<(u32, usize, u32)> = Vec::new();
    for candidate in candidates {
        if free >= gpus {
            break;
        }
        free += candidate.2;
        taken.push(candidate);
    }
    if free < gpus {
        return None;
    }
    for n in (0..taken.len()).rev() {
        if let Some((_, _, here)) = taken.get(n).copied()
            && free - here >= gpus
        {
            free -= here;
            taken.remove(n);
        }
    }
    let cost = taken.iter().map(|t| t.0).sum();
    Some((cost, taken.into_iter().map(|t| t.1).collect()))
}
