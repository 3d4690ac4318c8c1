//! Evictions that are on their way, and the places that are held for those they were made for.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::config::SchedConfig;
use super::gang::GangKey;
use crate::model::{Pod, Str, Uid};
use crate::plan::HeldPlace;

/// A place that is held, with the pod that it was proven with.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) pod: Arc<Pod>,
    pub(super) place: HeldPlace,
}

/// The places of one job.
#[derive(Clone, Debug)]
struct Kept {
    since: Option<Timestamp>,
    places: Vec<Held>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    kept: BTreeMap<Str, Kept>,
    /// Evictions, and since when it is not known whether the server has taken them.
    evicting: BTreeMap<Uid, Option<Timestamp>>,
    /// Pods that are left alone, and since when.
    refused: BTreeMap<Uid, Option<Timestamp>>,
}

impl Holds {
    /// An eviction is written.
    pub(super) fn evicting(&mut self, pod: &Uid) {
        self.evicting.insert(pod.clone(), None);
    }

    /// The eviction was never sent.
    pub(super) fn not_evicting(&mut self, pod: &Uid) {
        self.evicting.remove(pod);
    }

    /// The server gave no certain answer to an eviction.
    pub(super) fn doubt_eviction(&mut self, pod: &Uid, since: Option<Timestamp>) {
        if let Some(doubted) = self.evicting.get_mut(pod) {
            *doubted = since;
        }
    }

    /// The server refused an eviction: the pod stays, and is left alone for a while.
    pub(super) fn eviction_refused(&mut self, pod: &Uid, now: Option<Timestamp>) {
        if self.evicting.remove(pod).is_some() {
            self.refused.insert(pod.clone(), now);
        }
    }

    /// The pod does not exist any more.
    pub(super) fn gone(&mut self, pod: &Uid) {
        self.evicting.remove(pod);
        self.refused.remove(pod);
    }

    /// All that are on their way out by our decision.
    pub(super) fn all_evicting(&self) -> impl Iterator<Item = &Uid> {
        self.evicting.keys()
    }

    /// It is on its way out by our decision.
    pub(super) fn is_evicting(&self, pod: &Uid) -> bool {
        self.evicting.contains_key(pod)
    }

    /// It is left alone.
    pub(super) fn is_left_alone(&self, pod: &Uid) -> bool {
        self.refused.contains_key(pod)
    }

    /// Keeps places for a job beside those that it has; the time starts anew.
    pub(super) fn keep(&mut self, owner: &Str, places: Vec<Held>, now: Option<Timestamp>) {
        let kept = self.kept.entry(owner.clone()).or_insert_with(|| Kept {
            since: now,
            places: Vec::new(),
        });
        kept.since = now;
        kept.places.extend(places);
    }

    /// A pod of the job is bound: a place is given up, the one on this node if there is one.
    pub(super) fn release(&mut self, owner: &str, node: &str) {
        let Some(kept) = self.kept.get_mut(owner) else {
            return;
        };
        let at = kept.places.iter().position(|h| &*h.place.node == node);
        kept.places.remove(at.unwrap_or(0));
        if kept.places.is_empty() {
            self.kept.remove(owner);
        }
    }

    /// What a job's places were proven with does not hold: they are not held any more.
    pub(super) fn give_up(&mut self, owner: &str) {
        self.kept.remove(owner);
    }

    /// A node is gone, and with it the proof of those with a place there.
    pub(super) fn lose(&mut self, node: &str) {
        let on_it = |kept: &Kept| kept.places.iter().any(|h| &*h.place.node == node);
        self.kept.retain(|_, kept| !on_it(kept));
    }

    /// All jobs with places.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Str, &[Held])> {
        self.kept.iter().map(|(owner, k)| (owner, &k.places[..]))
    }

    /// Gives up what has waited too long, and tells the pods of which it is given up that they
    /// leave or are left alone, and whether a place is not held any more.
    pub(super) fn expire(&mut self, now: Timestamp, config: &SchedConfig) -> (Vec<Uid>, bool) {
        let over = |since: &mut Option<Timestamp>, secs: i64| {
            // A clock that was set back must not hold a place for ever.
            let from = since.map_or(now, |s| s.min(now));
            *since = Some(from);
            now.duration_since(from) >= SignedDuration::from_secs(secs)
        };
        let held = self.kept.len();
        self.kept
            .retain(|_, kept| !over(&mut kept.since, config.hold_secs));
        let mut pods = Vec::new();
        self.evicting.retain(|pod, doubted| {
            let gone = doubted.is_some() && over(doubted, config.hold_secs);
            if gone {
                pods.push(pod.clone());
            }
            !gone
        });
        self.refused.retain(|pod, since| {
            let gone = over(since, config.eviction_backoff_secs);
            if gone {
                pods.push(pod.clone());
            }
            !gone
        });
        (pods, self.kept.len() != held)
    }
}

/// What a pod's job is known by, also when its pods are made anew: its gang, else its controller,
/// else itself.
pub(super) fn owner_of(pod: &Pod, gang: Option<&GangKey>) -> Str {
    match gang {
        Some(GangKey::Group {
            namespace,
            kind,
            name,
        }) => format!("group/{namespace}/{kind}/{name}").into(),
        Some(GangKey::Job(uid)) => format!("job/{uid}").into(),
        None => match pod.meta.controller() {
            Some(owner) => format!("owner/{}", owner.uid).into(),
            None => format!("pod/{}", pod.meta.uid).into(),
        },
    }
}
