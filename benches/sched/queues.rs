//! Clusters with queues: what a guarantee takes back, jobs that wait, and why one does.

use std::sync::Arc;

use gpudeck::model::{Change, Delta, Meta, Pod, Queue, QueueTerms, Str, Uid};
use gpudeck::plan::{Action, Plan};
use gpudeck::sched::{State, decide};

use crate::site::{Pods, come, empty, now};

/// Who holds the cluster.
pub const LENDER: &str = "lender";
/// Who has a guarantee.
pub const OWNER: &str = "owner";

/// A queue of one namespace, by its name and, below another, by that.
fn queue(name: &str, parent: Option<&str>, guaranteed_gpus: i64) -> Delta {
    Delta::Queue(Change::Set(Arc::new(Queue {
        meta: Meta {
            uid: Uid(format!("queue-{name}").into()),
            name: name.into(),
            ..Meta::default()
        },
        parent: parent.map(Str::from),
        namespaces: [Str::from(name)].into(),
        terms: [QueueTerms {
            guaranteed_milli_gpu: guaranteed_gpus * 1_000,
            ..QueueTerms::default()
        }]
        .into(),
        ..Queue::default()
    })))
}

/// So many full nodes: each in use by pods of so many GPUs of the lender. Half of them say how long
/// they run.
pub fn lent(nodes: usize, gpus: i64, pods: &mut Pods) -> State {
    let mut state = empty(nodes);
    state.apply(&queue(LENDER, None, 0));
    let owned = i64::try_from(nodes).expect("small") * 8 / 10;
    state.apply(&queue(OWNER, None, owned.max(8)));
    for node in 0..nodes {
        for at in 0..8 / gpus {
            let estimate = (at % 2 == 0).then_some(200_000 + i64::try_from(node).expect("small"));
            state.apply(&come(&pods.running(LENDER, gpus, node, estimate)));
        }
    }
    // Somebody small waits, so that there is a picture, as there is in a cluster that lives.
    state.apply(&come(&pods.of(LENDER, 8)));
    decide(&state, now());
    state
}

/// A gang of 8-GPU pods of the owner, so many GPUs in all.
pub fn claim(gpus: usize, pods: &mut Pods) -> Vec<Delta> {
    pods.together(OWNER, gpus / 8, None)
        .iter()
        .map(come)
        .collect()
}

/// GPUs of those who leave by a plan.
pub fn leaving_gpus(plan: &Plan, each: i64) -> i64 {
    let leaves = |a: &&Action| matches!(a, Action::Evict { .. });
    i64::try_from(plan.actions().filter(leaves).count()).expect("small") * each
}

/// A full cluster of so many nodes with so many jobs that wait: most alone, every eighth a gang of
/// four, in one queue or over fifty.
pub fn waiting(nodes: usize, jobs: usize, queues: usize, pods: &mut Pods) -> (State, Vec<Pod>) {
    let mut state = empty(nodes);
    let name = |at: usize| format!("team-{at}");
    let owned = i64::try_from(nodes * 8 / queues / 2).expect("small");
    for at in 0..queues {
        state.apply(&queue(&name(at), None, owned));
    }
    let mut running = Vec::new();
    for node in 0..nodes {
        for at in 0..8 {
            let of = name((node * 8 + at) % queues);
            running.push(pods.running(&of, 1, node, None));
        }
    }
    for pod in &running {
        state.apply(&come(pod));
    }
    for at in 0..jobs {
        let of = name(at % queues);
        if at % 8 == 0 {
            let gang = pods.together(&of, 4, Some("required=spine,preferred=leaf"));
            gang.iter().for_each(|pod| state.apply(&come(pod)));
        } else {
            let pod = pods.single_in(&of);
            state.apply(&come(&pod));
        }
    }
    (state, running)
}

/// Ten queues over five over three, each of the last with a pod that runs and one that waits.
pub fn tree(nodes: usize, pods: &mut Pods) -> State {
    let mut state = empty(nodes);
    for a in 0..10 {
        let top = format!("org-{a}");
        state.apply(&queue(&top, None, 500));
        for b in 0..5 {
            let middle = format!("{top}-dept-{b}");
            state.apply(&queue(&middle, Some(&top), 100));
            for c in 0..3 {
                let leaf = format!("{middle}-team-{c}");
                state.apply(&queue(&leaf, Some(&middle), 30));
                let node = (a * 15 + b * 3 + c) % nodes;
                state.apply(&come(&pods.running(&leaf, 8, node, None)));
            }
        }
    }
    for node in 150..nodes {
        state.apply(&come(&pods.running(LENDER, 8, node, None)));
    }
    state
}
