//! What happened: kinds, signs, and the chain that one of them belongs to.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::timeline::Happening;
use crate::model::{Cluster, Event, ForeignKind, Str, WorkloadKey, Xid, XidClass};
use crate::tui::glyphs::Glyph;
use crate::tui::theme::Meaning;

/// How far apart the links of a chain may be.
const CHAIN: SignedDuration = SignedDuration::from_hours(2);
/// Links that are shown, the ones nearest in time.
const LINKS: usize = 60;

/// What kind of thing happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum What {
    /// Work was displaced by other work.
    Preempted,
    /// Work was sent away from its node.
    Evicted,
    /// Work got its node.
    Placed,
    /// Work was let into, or sent back to, its queue.
    Queued,
    /// Work waits.
    Waits,
    /// Hardware or a node failed.
    Fault,
    /// A machine is taken away, or is told to go.
    Reclaim,
    /// The layout of MIG changed.
    Mig,
    /// Machines come and go, drains and maintenance.
    Fleet,
    /// Anything else that somebody should look at.
    Warning,
    /// Anything else.
    Other,
}

impl What {
    /// All of them.
    pub const ALL: [What; 11] = [
        What::Preempted,
        What::Evicted,
        What::Placed,
        What::Queued,
        What::Waits,
        What::Fault,
        What::Reclaim,
        What::Mig,
        What::Fleet,
        What::Warning,
        What::Other,
    ];

    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            What::Preempted => "preempted",
            What::Evicted => "evicted",
            What::Placed => "placed",
            What::Queued => "queued",
            What::Waits => "waits",
            What::Fault => "fault",
            What::Reclaim => "reclaim",
            What::Mig => "mig",
            What::Fleet => "fleet",
            What::Warning => "warning",
            What::Other => "other",
        }
    }

    /// Its sign.
    pub fn sign(self) -> (Glyph, Meaning) {
        match self {
            What::Preempted => (Glyph::Takes, Meaning::Warn),
            What::Evicted => (Glyph::GpuCordoned, Meaning::Warn),
            What::Placed => (Glyph::Arrow, Meaning::Ok),
            What::Queued => (Glyph::Into, Meaning::Accent),
            What::Waits => (Glyph::NotLive, Meaning::Waiting),
            What::Fault => (Glyph::GpuSick, Meaning::Danger),
            What::Reclaim => (Glyph::Down, Meaning::Danger),
            What::Mig => (Glyph::GpuMig, Meaning::Mig),
            What::Fleet => (Glyph::GpuShared, Meaning::Muted),
            What::Warning => (Glyph::GpuSick, Meaning::Warn),
            What::Other => (Glyph::Dot, Meaning::Muted),
        }
    }

    /// The kind of a Kubernetes Event, by its reason and what it is about.
    pub fn of_event(event: &Event) -> Self {
        let reason = &*event.reason;
        let has = |words: &[&str]| words.iter().any(|w| reason.contains(w));
        let of_node = matches!(&*event.subject_kind, "Node" | "NodeClaim");
        let warns = event.severity == crate::model::Severity::Warning;
        if of_node
            && has(&[
                "Spot",
                "Rebalance",
                "PreemptScheduled",
                "OnInterruption",
                "Interrupted",
            ])
            || has(&[
                "InstanceStopping",
                "InstanceTerminating",
                "TerminationGracePeriodExpiring",
            ])
        {
            return What::Reclaim;
        }
        if let Some(xid) = xid(event) {
            return match xid.class {
                XidClass::Ignore => What::Other,
                _ => What::Fault,
            };
        }
        if !of_node && has(&["Preempt"]) {
            return What::Preempted;
        }
        if !of_node && has(&["Evict", "Disrupted", "Stopped", "NodeShutdown"]) {
            return What::Evicted;
        }
        if has(&["Mig", "MIG"]) || event.message.contains("mig.config") {
            return What::Mig;
        }
        if of_node && has(&["NotReady", "Unhealthy", "HasIssues", "XID", "Xid", "NVLink"])
            || of_node && reason.ends_with("Ready") && warns
        {
            return What::Fault;
        }
        if of_node
            && has(&[
                "Drain",
                "Cordon",
                "ScaleDown",
                "Disrupt",
                "Upgrade",
                "Shutdown",
                "Registered",
                "Removing",
                "Scheduled",
                "NodeReady",
                "Deleting",
                "Maintenance",
            ])
        {
            return What::Fleet;
        }
        match reason {
            "Scheduled" | "Bound" | "Binding" => return What::Placed,
            "Admitted" | "QuotaReserved" | "Requeued" | "Suspended" | "Resumed" | "Started"
                if !of_node && &*event.subject_kind != "Pod" =>
            {
                return What::Queued;
            }
            "FailedScheduling" | "Unschedulable" | "WaitingForQuota" | "Pending" | "NotReady"
            | "NotTriggerScaleUp" | "ExceedsMaxQuota" => return What::Waits,
            _ => {}
        }
        if warns { What::Warning } else { What::Other }
    }
}

/// The Xid that an event of a node tells of.
pub(crate) fn xid(event: &Event) -> Option<Xid> {
    let named = |text: &str| text.contains("xid") || text.contains("Xid") || text.contains("XID");
    if !named(&event.reason) && !named(&event.message) {
        return None;
    }
    Xid::in_condition(&event.reason, &event.reason, &event.message)
}

/// A code in one sentence.
pub(super) fn told(xid: &Xid) -> String {
    let name = if xid.switch { "SXid" } else { "Xid" };
    format!("{name} {}: {}; {}", xid.code, xid.meaning, xid.action)
}

/// The workload of a pod by the pod's name: of those in its namespace the one whose name is the
/// longest beginning of it. The pod itself may be gone.
fn workload_named<'a>(cluster: &'a Cluster, namespace: &str, pod: &str) -> Option<&'a WorkloadKey> {
    let begins = |key: &&WorkloadKey| {
        *key.namespace == *namespace
            && pod
                .strip_prefix(&*key.name)
                .is_some_and(|r| r.is_empty() || r.starts_with('-'))
    };
    cluster
        .workload_keys()
        .filter(begins)
        .max_by_key(|key| key.name.len())
}

/// The workload that something is about.
fn about(h: &Happening, cluster: &Cluster) -> Option<WorkloadKey> {
    match h {
        Happening::Decision(d, _) => {
            let known = cluster.workload_of(&d.pod).cloned();
            known.or_else(|| workload_named(cluster, &d.namespace, &d.name).cloned())
        }
        Happening::Fault(_) => None,
        Happening::Series(series) => series.first().and_then(|h| about(h, cluster)),
        Happening::Event(_) if h.kind() == "Pod" => {
            workload_named(cluster, h.namespace(), h.name()).cloned()
        }
        Happening::Event(_) if matches!(h.kind(), "Workload" | "PodGroup") => {
            // Kueue and the gang schedulers name their objects after the job: job-NAME-hash.
            let keys = cluster
                .workload_keys()
                .filter(|k| *k.namespace == *h.namespace());
            let inside = keys.filter(|k| h.name().contains(&*k.name));
            inside.max_by_key(|k| k.name.len()).cloned()
        }
        Happening::Event(_) => {
            let key = WorkloadKey {
                namespace: h.namespace().into(),
                kind: h.kind().into(),
                name: h.name().into(),
            };
            (!h.namespace().is_empty()).then_some(key)
        }
    }
}

/// Names that a message says displaced somebody: `Preempted by ns/name …`, `by pod UID …`.
fn displacers(h: &Happening, cluster: &Cluster) -> Vec<WorkloadKey> {
    let Happening::Event(event) = h else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for word in event.message.split([' ', ',', ';', '(', ')']) {
        if let Some((namespace, name)) = word.split_once('/')
            && let Some(key) = workload_named(cluster, namespace, name)
        {
            found.push(key.clone());
        }
        if word.len() == 36 {
            let uid = crate::model::Uid(word.into());
            found.extend(cluster.workload_of(&uid).cloned());
            let job = cluster
                .foreign(ForeignKind::KueueWorkload, &uid)
                .and_then(|f| f.entry());
            found.extend(job.map(|e| e.workload.clone()));
        }
    }
    found
}

/// All that belongs together with something: of the workloads that it is about and that displaced
/// those, and of the nodes that they were on, in the order of time.
pub fn chain(start: &Happening, all: &[Happening], cluster: &Cluster) -> Vec<Happening> {
    let Some(at) = start.at() else {
        return Vec::new();
    };
    let near = |h: &Happening| h.at().is_some_and(|t| t.duration_since(at).abs() <= CHAIN);
    let mut keys: BTreeSet<WorkloadKey> = about(start, cluster).into_iter().collect();
    keys.extend(displacers(start, cluster));
    let mut nodes: BTreeSet<Str> = BTreeSet::new();
    if start.kind() == "Node" {
        nodes.insert(start.name().into());
    }
    let weighty = |h: &Happening| !matches!(h.what(), What::Other | What::Warning);
    let near: Vec<(&Happening, Option<WorkloadKey>)> = all
        .iter()
        .filter(|h| near(h) && weighty(h))
        .map(|h| (h, about(h, cluster)))
        .collect();
    // Whom the same workload displaced belongs to the chain too.
    for (h, key) in &near {
        let named = displacers(h, cluster);
        if key.as_ref().is_some_and(|k| keys.contains(k)) || named.iter().any(|k| keys.contains(k))
        {
            keys.extend(named);
            if h.what() == What::Preempted {
                keys.extend(key.clone());
            }
        }
    }
    let mut found: Vec<(Timestamp, Happening)> = Vec::new();
    for (h, key) in near {
        let of_node = h.kind() == "Node" && nodes.contains(h.name());
        if of_node || key.is_some_and(|k| keys.contains(&k)) {
            found.extend(h.at().map(|t| (t, h.clone())));
        }
    }
    // The links nearest to the start, when there are too many.
    found.sort_by_key(|(t, _)| t.duration_since(at).abs());
    found.truncate(LINKS);
    found.sort_by_key(|(t, _)| *t);
    super::timeline::merge(found.into_iter().map(|(_, h)| h).collect())
}
