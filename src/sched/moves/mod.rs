//! Moves: running work that can go on elsewhere makes room for a job that fits nowhere.
//!
//! The rule is that of the backtests (`gpudeck simulate churn --moves`): only for jobs that fit
//! nowhere; on each node the fewest pods go, devices with fewest pods first; the cheapest parts of
//! the fabric are tried; and nothing is proposed unless the job and every pod that moves have their
//! places, found by the scheduler itself on a fork. How many moves there may be is bounded.
//!
//! A proposal changes nothing: who carries it out spends a [`MoveBudget`].

mod budget;
mod holes;
mod recut;
mod trial;

use jiff::Timestamp;

use super::state::State;
use crate::model::{Str, Uid};

pub use budget::MoveBudget;
pub use recut::{RecutLimits, RecutProposal, propose_recuts};

/// How far others may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveLimits {
    /// Moves that may be proposed in all: what is left of the budget.
    pub moves: usize,
    /// Moves for one job.
    pub for_one_job: usize,
    /// GPUs that a job has to ask for.
    pub from_gpus: u32,
    /// Jobs that are looked at, in the order of the queue.
    pub jobs: usize,
    /// Parts of the fabric that are tried for one job, cheapest first.
    pub tried: usize,
    /// Work that a moved pod loses, in seconds, until it runs as before.
    pub restart_secs: u32,
    /// Seconds of the job's GPUs that a hole is worth: more work is not lost for it.
    pub worth_secs: u32,
}

impl Default for MoveLimits {
    fn default() -> Self {
        Self {
            moves: 64,
            for_one_job: 8,
            from_gpus: 2,
            jobs: 8,
            tried: 8,
            restart_secs: 60,
            worth_secs: 600,
        }
    }
}

/// A pod that moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// Its UID.
    pub pod: Uid,
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// The node that it leaves.
    pub from: Str,
    /// Where it fits once the job has its place; the scheduler may find better by then.
    pub to: Str,
}

/// Moves that let one job start.
#[derive(Clone, PartialEq, Debug)]
pub struct MoveProposal {
    /// The job's pods and the nodes that they get.
    pub starts: Vec<(Uid, Str)>,
    /// Who moves.
    pub moves: Vec<Move>,
    /// GPU-seconds of work that the moves cost.
    pub lost_gpu_secs: f64,
    /// GPUs that start.
    pub gpus: f64,
    /// All of it in words.
    pub why: Str,
}

/// Moves for the jobs that fit nowhere, first come first served, within the limits. Each proposal
/// counts on those before it.
///
/// Pods move only if they say that they can: a checkpoint contract (`gpudeck.dev/checkpoint-*`) or
/// `gpudeck.dev/preemptible: "true"`; if somebody makes them anew (an owner); if we place them; and
/// unless they are part of a gang.
///
/// Pure, and dear: each try forks the state. Call it once in a while, not in every round.
#[must_use]
pub fn propose_moves(state: &State, now: Timestamp, limits: &MoveLimits) -> Vec<MoveProposal> {
    if state.blocked().is_some() || limits.moves == 0 {
        return Vec::new();
    }
    let mut trial = trial::Trial::new(state, now, *limits);
    let mut proposals = Vec::new();
    let mut left = limits.moves;
    for job in trial.jobs(state) {
        let most = left.min(limits.for_one_job);
        if let Some(proposal) = trial.make_room(&job, most) {
            left = left.saturating_sub(proposal.moves.len());
            proposals.push(proposal);
        }
        if left == 0 {
            break;
        }
    }
    proposals
}
