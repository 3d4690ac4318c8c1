//! How pods come, hold a place and go: the part of the state that follows each pod.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::amounts::Ask;
use super::class::{Class, ClassId};
use super::gang;
use super::holds::owner_of;
use super::problem;
use super::shape;
use super::state::{Assumed, QueueKey, State, Tracked};
use crate::model::{Kind, Pod, Str, Uid};
use crate::plan::Action;

impl State {
    pub(super) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.meta.uid;
        if let Some(tracked) = self.pods.get_mut(uid)
            && tracked.waiting.is_none()
            && !self.assumed.contains_key(uid)
            && holds_the_same(&tracked.pod, pod)
        {
            let leaves = tracked.pod.meta.deleting.is_none() && pod.meta.deleting.is_some();
            if tracked.class.is_some() && !asks_alike(&tracked.pod, pod) {
                let class = Class::of_pod(pod, &self.config);
                tracked.class = Some(self.classes.shared(class));
            }
            // It may have been left alone for its age.
            let older = tracked.pod.started != pod.started;
            tracked.pod = pod.clone();
            if leaves && tracked.place.is_some() {
                self.deleting.insert(uid.clone());
                self.freed += 1;
            } else if older {
                self.freed += 1;
            }
            self.changed.push(uid);
            return;
        }
        if pod.node.is_some() || pod.is_terminal() {
            self.assumed.remove(uid);
        }
        let before = self.pods.get(uid).map(|t| t.place.is_some());
        let class = self.class_of(pod);
        let place = self.move_to_place(pod, class.as_deref());
        // The new one enters its class before the old one leaves, so that the class lives on.
        let waiting = self.waiting_entry(pod, class.as_ref());
        self.unlist(uid);
        let problem = waiting
            .as_ref()
            .and_then(|_| problem::of_pod(pod, &self.config));
        let gang = gang::key_of(pod);
        if let Some(gang) = &gang {
            let members = self.gangs.entry(gang.clone()).or_default();
            Arc::make_mut(members).insert(uid.clone());
        }
        if let Some((key, _)) = &waiting {
            self.queue.insert(key.clone(), uid.clone());
        }
        let runs = place.is_some();
        let milli_gpu = self.milli_gpu_of(class.as_deref(), place.as_ref());
        self.learn(class.as_deref(), before, runs);
        self.changed.push(uid);
        if pod.scheduler == self.config.scheduler_name {
            self.meet_namespace(&pod.meta.namespace);
        }
        if runs && pod.meta.deleting.is_some() {
            self.deleting.insert(uid.clone());
        } else {
            self.deleting.remove(uid);
        }
        // A pod that waits frees nothing; one that is seen to run may be moved.
        if waiting.is_none() || before == Some(true) {
            self.freed += 1;
        }
        self.pods.insert(
            uid.clone(),
            Tracked {
                pod: pod.clone(),
                gang,
                class,
                waiting,
                problem,
                place,
                milli_gpu,
            },
        );
    }

    /// What a pod of ours asks; read anew only if that may have changed.
    fn class_of(&self, pod: &Pod) -> Option<Arc<Class>> {
        if pod.scheduler != self.config.scheduler_name {
            return None;
        }
        let before = self.pods.get(&pod.meta.uid);
        let before = before.filter(|t| asks_alike(&t.pod, pod));
        let known = before.and_then(|t| t.class.clone());
        let read = || self.classes.shared(Class::of_pod(pod, &self.config));
        Some(known.unwrap_or_else(read))
    }

    pub(super) fn remove_pod(&mut self, uid: &Uid) {
        self.assumed.remove(uid);
        self.leave_place(uid);
        if let Some(tracked) = self.unlist(uid)
            && tracked.place.is_some()
        {
            self.learn(tracked.class.as_deref(), Some(true), false);
        }
        self.decisions.remove(uid);
        self.holds.gone(uid);
        self.deleting.remove(uid);
        self.changed.push(uid);
        self.freed += 1;
    }

    /// Lets the rows count the pod where it is now, and tells where that is. What was counted
    /// before and is still right stays as it is.
    fn move_to_place(&mut self, pod: &Pod, class: Option<&Class>) -> Option<Str> {
        let uid = &pod.meta.uid;
        let (node, device) = match (pod.holds_node(), self.assumed.get(uid)) {
            (Some(node), _) => (Some(node.clone()), pod.device()),
            (None, Some(assumed)) => (Some(assumed.node.clone()), assumed.device),
            (None, None) => (None, None),
        };
        let ask = asked(pod, class);
        let stays = self.pods.get(uid).is_some_and(|t| {
            t.place == node
                && asked(&t.pod, t.class.as_deref()) == ask
                && node.as_ref().zip(device).is_none_or(|(node, device)| {
                    self.rows.held(node, uid).is_some_and(|h| h.is_on(device))
                })
        });
        if !stays {
            self.leave_place(uid);
            if let Some(node) = &node {
                self.rows.take(node, uid, &ask, device);
                self.count_sibling(pod, node, true);
            }
        }
        node
    }

    /// Counts a pod that is kept apart from its siblings into a node, or out of it.
    fn count_sibling(&mut self, pod: &Pod, node: &str, comes: bool) {
        let spreads = pod
            .meta
            .annotation(super::needs::TYPE)
            .and_then(|kind| self.config.types.get(kind))
            .is_some_and(|profile| profile.spread);
        let (Some(owner), Some(row)) = (pod.meta.controller(), self.rows.id(node)) else {
            return;
        };
        if !spreads {
            return;
        }
        let rows = self.siblings.entry(owner.uid.clone()).or_default();
        let count = rows.entry(row).or_default();
        *count = if comes {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        if *count == 0 {
            rows.remove(&row);
        }
        if rows.is_empty() {
            self.siblings.remove(&owner.uid);
        }
    }

    fn leave_place(&mut self, uid: &Uid) {
        if let Some(tracked) = self.pods.get(uid)
            && let Some(node) = tracked.place.clone()
        {
            let (pod, class) = (tracked.pod.clone(), tracked.class.clone());
            self.count_sibling(&pod, &node, false);
            self.rows.give(&node, uid, &asked(&pod, class.as_deref()));
        }
    }

    /// Takes a pod out of every list.
    fn unlist(&mut self, uid: &Uid) -> Option<Tracked> {
        let mut tracked = self.pods.remove(uid)?;
        if let Some(gang) = &tracked.gang
            && let Some(members) = self.gangs.get_mut(gang)
        {
            Arc::make_mut(members).remove(uid);
            if members.is_empty() {
                self.gangs.remove(gang);
            }
        }
        self.leave_queue(tracked.waiting.take());
        Some(tracked)
    }

    /// The demand is that of the pods we place: each counts when it is first seen (`before` is
    /// `None`), and its coming to a node and leaving it tell how lively the cluster is.
    fn learn(&mut self, class: Option<&Class>, before: Option<bool>, runs: bool) {
        let Some(class) = class else {
            return;
        };
        match (before.unwrap_or(false), runs) {
            (false, true) => self.rows.pricing.moved(1),
            (true, false) => self.rows.pricing.moved(-1),
            _ => {}
        }
        if before.is_none() {
            let shape = shape::of(class, &self.rows.models);
            self.rows.slices_arrived(&class.ask.extended);
            self.rows.pricing.arrived(&shape);
            self.rows.reprice_if_due();
        }
    }

    fn leave_queue(&mut self, waiting: Option<(QueueKey, ClassId)>) {
        if let Some((key, class)) = waiting {
            self.queue.remove(&key);
            if let Some(forgotten) = self.classes.leave(class) {
                self.memo.forget(forgotten);
            }
        }
    }

    /// Counts a pod into its class if it waits for us.
    fn waiting_entry(
        &mut self,
        pod: &Pod,
        class: Option<&Arc<Class>>,
    ) -> Option<(QueueKey, ClassId)> {
        let class = class?;
        let waits = pod.is_waiting() && !self.assumed.contains_key(&pod.meta.uid);
        waits.then(|| {
            let key = self.queue_key(pod);
            (key, self.classes.enter(class))
        })
    }

    /// The priority of a pod: its own, or that of its class when the server has not resolved it.
    pub(super) fn priority_of(&self, pod: &Pod) -> i32 {
        // The API server resolves the class at admission; a server that does not leaves 0.
        self.priority_classes
            .get(&pod.priority_class)
            .filter(|_| pod.priority == 0)
            .map_or(pod.priority, |c| c.value)
    }

    fn queue_key(&self, pod: &Pod) -> QueueKey {
        QueueKey {
            priority: std::cmp::Reverse(self.priority_of(pod)),
            created: pod.meta.created.unwrap_or(Timestamp::MAX),
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            uid: pod.meta.uid.clone(),
        }
    }

    /// Gives the waiting pods of a priority class their place anew.
    pub(super) fn requeue(&mut self, priority_class: &Str) {
        let moved: Vec<(QueueKey, Uid, QueueKey)> = self
            .queue
            .iter()
            .filter_map(|(old, uid)| {
                let pod = &self.pods.get(uid)?.pod;
                let new = (pod.priority_class == *priority_class).then(|| self.queue_key(pod))?;
                (new != *old).then(|| (old.clone(), uid.clone(), new))
            })
            .collect();
        for (old, uid, new) in moved {
            self.queue.remove(&old);
            if let Some((key, _)) = self.pods.get_mut(&uid).and_then(|t| t.waiting.as_mut()) {
                *key = new.clone();
            }
            self.queue.insert(new, uid);
        }
    }

    /// A binding is about to be written: it counts as use until the watch shows it or it is
    /// forgotten, however late the watch or the server's answer is; see [`State::doubt`]. A pod that
    /// is not waiting (any more) is left as it is. An eviction counts as on its way until the pod is
    /// gone or it is forgotten.
    pub fn assume(&mut self, action: &Action) {
        let (uid, node, device) = match action {
            Action::Bind {
                pod, node, device, ..
            } => (pod, node, device),
            Action::Evict { pod, .. } => {
                self.holds.evicting(pod);
                self.changed.push(pod);
                self.freed += 1;
                return;
            }
            Action::TellQueue { name, version, .. } => {
                let told = (version.clone(), self.clock);
                self.told_queues.insert(name.clone(), told);
                return;
            }
        };
        let Some(tracked) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(waiting) = tracked.waiting.take() else {
            return;
        };
        tracked.place = Some(node.clone());
        let (pod, class) = (tracked.pod.clone(), tracked.class.clone());
        let owner = owner_of(&pod, tracked.gang.as_ref());
        self.holds.release(&owner, node);
        let milli_gpu = self.milli_gpu_of(class.as_deref(), Some(node));
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.milli_gpu = milli_gpu;
        }
        self.changed.push(uid);
        self.leave_queue(Some(waiting));
        self.rows
            .take(node, uid, &asked(&pod, class.as_deref()), *device);
        self.count_sibling(&pod, node, true);
        self.assumed.insert(
            uid.clone(),
            Assumed {
                node: node.clone(),
                device: *device,
                doubted: None,
            },
        );
        self.learn(class.as_deref(), Some(false), true);
    }

    /// The binding was refused: the pod waits again. Or the eviction was: the pod stays, and is
    /// left alone for [`super::SchedConfig::eviction_backoff_secs`]. Without a matching
    /// [`State::assume`] this does nothing.
    pub fn forget(&mut self, action: &Action) {
        let (uid, node) = match action {
            Action::Bind { pod, node, .. } => (pod, node),
            Action::Evict { pod, preemptor, .. } => {
                self.holds.eviction_refused(pod, self.clock);
                self.give_up_places(pod, preemptor);
                return;
            }
            Action::TellQueue { .. } => return,
        };
        if self.assumed.get(uid).is_some_and(|a| a.node == *node) {
            self.unassume(uid);
        }
    }

    /// It was never sent: as if it had not been assumed.
    pub fn take_back(&mut self, action: &Action) {
        match action {
            Action::Bind { .. } => self.forget(action),
            Action::Evict { pod, preemptor, .. } => {
                self.holds.not_evicting(pod);
                self.give_up_places(pod, preemptor);
            }
            Action::TellQueue { name, .. } => {
                self.told_queues.remove(name);
            }
        }
    }

    /// A pod stays: whoever it was to leave for has no proven place any more, nor has the pod itself
    /// a new one.
    fn give_up_places(&mut self, pod: &Uid, (namespace, name): &(Str, Str)) {
        let is_it = |t: &&Tracked| t.pod.meta.name == *name && t.pod.meta.namespace == *namespace;
        let waiting = self.queue.values().filter_map(|uid| self.pods.get(uid));
        let both = waiting.filter(is_it).chain(self.pods.get(pod));
        let owners: Vec<Str> = both.map(|t| owner_of(&t.pod, t.gang.as_ref())).collect();
        for owner in owners {
            self.holds.give_up(&owner);
        }
        self.changed.push(pod);
        self.freed += 1;
    }

    /// The server gave no certain answer to a write: unless the watch shows its effect, it is given
    /// up after a while (see [`State::expire`]). An eviction likewise.
    pub fn doubt(&mut self, action: &Action) {
        let since = Some(self.clock.unwrap_or(Timestamp::MIN));
        match action {
            Action::Bind { pod, node, .. } => {
                if let Some(assumed) = self.assumed.get_mut(pod).filter(|a| a.node == *node) {
                    assumed.doubted = since;
                }
            }
            Action::Evict { pod, .. } => self.holds.doubt_eviction(pod, since),
            Action::TellQueue { .. } => {}
        }
    }

    /// Moves the scheduler's clock on: doubted bindings that the watch has not shown within
    /// [`super::SchedConfig::assume_secs`] are given up and their pods wait again. Call it before
    /// [`super::decide`], with the same time.
    ///
    /// While the pods' source is not live nothing ages: what the watch could not show may well
    /// have happened.
    pub fn expire(&mut self, now: Timestamp) {
        self.clock = Some(now);
        if self.source_trouble(Kind::Pod).is_some() {
            for assumed in self.assumed.values_mut() {
                assumed.doubted = assumed.doubted.map(|_| now);
            }
            return;
        }
        self.count_use(now);
        let (pods, given_up) = self.holds.expire(now, &self.config);
        if given_up || !pods.is_empty() {
            self.freed += 1;
        }
        for pod in &pods {
            self.changed.push(pod);
        }
        let limit = SignedDuration::from_secs(self.config.assume_secs);
        let mut expired = Vec::new();
        for (uid, assumed) in &mut self.assumed {
            // A clock that was set back must not hold a place for ever.
            let Some(since) = assumed.doubted.map(|s| s.min(now)) else {
                continue;
            };
            assumed.doubted = Some(since);
            if now.duration_since(since) >= limit {
                expired.push(uid.clone());
            }
        }
        for uid in &expired {
            self.unassume(uid);
        }
    }

    fn unassume(&mut self, uid: &Uid) {
        if self.assumed.remove(uid).is_none() {
            return;
        }
        self.changed.push(uid);
        self.freed += 1;
        self.leave_place(uid);
        let Some((pod, class)) = self.pods.get_mut(uid).map(|t| {
            t.place = None;
            (t.pod.clone(), t.class.clone())
        }) else {
            return;
        };
        self.learn(class.as_deref(), Some(true), false);
        let waiting = self.waiting_entry(&pod, class.as_ref());
        if let Some((key, _)) = &waiting {
            self.queue.insert(key.clone(), uid.clone());
        }
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.problem = waiting
                .as_ref()
                .and_then(|_| problem::of_pod(&pod, &self.config));
            tracked.waiting = waiting;
        }
    }
}

/// What a pod asks, which its class knows if it is ours.
fn asked<'a>(pod: &Pod, class: Option<&'a Class>) -> Cow<'a, Ask> {
    match class {
        Some(class) => Cow::Borrowed(&class.ask),
        None => Cow::Owned(Ask::of_pod(pod)),
    }
}

/// Nothing differs that a class is read from.
fn asks_alike(old: &Pod, new: &Pod) -> bool {
    let same = Arc::ptr_eq(&old.constraints, &new.constraints);
    old.requests == new.requests
        && (same || old.constraints == new.constraints)
        && old.meta.annotations == new.meta.annotations
        && old.meta.namespace == new.meta.namespace
}

/// A bound pod of which nothing that counts has changed.
fn holds_the_same(old: &Pod, new: &Pod) -> bool {
    new.node.is_some()
        && old.node == new.node
        && old.is_terminal() == new.is_terminal()
        && old.requests == new.requests
        && old.constraints.host_ports == new.constraints.host_ports
        && old.group == new.group
        && old.meta.owners == new.meta.owners
        && old.meta.annotations == new.meta.annotations
}
