//! Where each node stands in the network, as the labels of topograph and of the clouds tell it,
//! and the NVLink domain of rack systems.
//!
//! Sources: topograph's node-labels reference (both generations), AWS, GKE, OCI and CoreWeave
//! documentation, NVIDIA's GPU feature discovery for the clique.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pick::NodePick;
use crate::sandbox::actors::agenda::Agenda;
use crate::sandbox::actors::clock::{Clock, hash};
use crate::sandbox::actors::objects::Node;
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};

/// Label of the NVLink domain and clique.
pub const CLIQUE: &str = "nvidia.com/gpu.clique";
/// Trays of an NVL72 rack: 18 nodes of 4 GPUs.
pub const NVL72_NODES: usize = 18;
/// On a node: its place, so that a later run leaves it where it is.
const PLACE: &str = "sandbox.gpudeck.dev/network-place";

/// Whose labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// topograph 1.0 and later: `fabric.topograph.run/tier-0` is the closest switch.
    Topograph,
    /// topograph up to 0.5: `network.topology.nvidia.com/{leaf,spine,core}`.
    TopographOld,
    /// AWS: `topology.k8s.aws/network-node-layer-1` is the farthest, `-3` the closest.
    Aws,
    /// GKE: block, subblock and host.
    Gke,
    /// OCI: island, network block, local block and host.
    Oci,
    /// CoreWeave: fabric, superpod and leaf group.
    CoreWeave,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Topograph,
        Self::TopographOld,
        Self::Aws,
        Self::Gke,
        Self::Oci,
        Self::CoreWeave,
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Topograph => "topograph",
            Self::TopographOld => "topograph-old",
            Self::Aws => "aws",
            Self::Gke => "gke",
            Self::Oci => "oci",
            Self::CoreWeave => "coreweave",
        }
    }
}

/// A node's place: leaf, spine and core switch, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The switch it hangs on.
    pub leaf: usize,
    /// The switch above.
    pub spine: usize,
    /// The switch above that.
    pub core: usize,
}

/// The labels of a place in one scheme. The same seed gives the same opaque ids.
pub fn labels(scheme: Scheme, place: Place, host: &str, seed: u64) -> BTreeMap<String, String> {
    let Place { leaf, spine, core } = place;
    let id = |level: &str, number: &str, salt: u64| hash(seed ^ salt, &format!("{level}/{number}"));
    let hex = |level: &str, number: &str| {
        format!("{:016x}{:016x}", id(level, number, 0), id(level, number, 1))
    };
    let (l, s, c) = (leaf.to_string(), spine.to_string(), core.to_string());
    let base36 = |level: &str, number: &str| short(id(level, number, 0));
    // AWS ids have 17 hex digits.
    let nn = |level: &str, number: &str| {
        format!(
            "nn-{:016x}{:x}",
            id(level, number, 0),
            id(level, number, 1) & 15
        )
    };
    let pairs: Vec<(&str, String)> = match scheme {
        Scheme::Topograph => vec![
            ("fabric.topograph.run/tier-0", format!("leaf-{leaf:02}")),
            ("fabric.topograph.run/tier-1", format!("spine-{spine:02}")),
            ("fabric.topograph.run/tier-2", format!("core-{core}")),
        ],
        Scheme::TopographOld => vec![
            ("network.topology.nvidia.com/leaf", format!("IBLeaf-{leaf}")),
            (
                "network.topology.nvidia.com/spine",
                format!("IBSpine-{spine}"),
            ),
            ("network.topology.nvidia.com/core", format!("IBCore-{core}")),
        ],
        Scheme::Aws => vec![
            ("topology.k8s.aws/network-node-layer-1", nn("core", &c)),
            ("topology.k8s.aws/network-node-layer-2", nn("spine", &s)),
            ("topology.k8s.aws/network-node-layer-3", nn("leaf", &l)),
        ],
        Scheme::Gke => vec![
            ("cloud.google.com/gce-topology-block", hex("spine", &s)),
            ("cloud.google.com/gce-topology-subblock", hex("leaf", &l)),
            ("cloud.google.com/gce-topology-host", hex("host", host)),
        ],
        Scheme::Oci => vec![
            ("oci.oraclecloud.com/rdma.hpc_island_id", base36("core", &c)),
            (
                "oci.oraclecloud.com/rdma.network_block_id",
                base36("spine", &s),
            ),
            (
                "oci.oraclecloud.com/rdma.local_block_id",
                base36("leaf", &l),
            ),
            ("oci.oraclecloud.com/rdma.host_id", base36("host", host)),
        ],
        Scheme::CoreWeave => vec![
            ("backend.coreweave.cloud/enabled", "true".to_owned()),
            ("backend.coreweave.cloud/flavor", "infiniband".to_owned()),
            (
                "backend.coreweave.cloud/fabric",
                format!("us-east-04-ib{core}"),
            ),
            ("backend.coreweave.cloud/superpod", s.clone()),
            ("backend.coreweave.cloud/leafgroup", l.clone()),
            (
                "backend.coreweave.cloud/leafgroup-name",
                format!("dh{core}-lg{leaf}"),
            ),
            ("ib.coreweave.cloud/fabric", format!("us-east-04-ib{core}")),
            ("ib.coreweave.cloud/leafgroup", l.clone()),
            ("ib.coreweave.cloud/speed.current", "400G".to_owned()),
        ],
    };
    let owned = pairs.into_iter();
    owned.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Eleven characters of base 36, as OCI's RDMA ids look.
fn short(mut bits: u64) -> String {
    let mut text = String::with_capacity(11);
    for _ in 0..11 {
        let digit = u32::try_from(bits % 36).unwrap_or(0);
        text.push(char::from_digit(digit, 36).unwrap_or('a'));
        bits /= 36;
    }
    text
}

/// The NVLink clique of the `domain`th rack: its cluster UUID and clique 32766, the default one.
pub fn clique(domain: usize, seed: u64) -> String {
    let bits = hash(seed, &format!("clique/{domain}"));
    let more = hash(seed, &format!("clique/{domain}/more"));
    let (a, b) = (bits.to_be_bytes(), more.to_be_bytes());
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let uuid = format!(
        "{}-{}-4{}-8{}-{}",
        hex(a.get(..4).unwrap_or_default()),
        hex(a.get(4..6).unwrap_or_default()),
        hex(a.get(6..).unwrap_or_default())
            .get(1..)
            .unwrap_or("000"),
        hex(b.get(..2).unwrap_or_default())
            .get(1..)
            .unwrap_or("000"),
        hex(b.get(2..).unwrap_or_default()),
    );
    format!("{uuid}.32766")
}

/// How the fabric is built and labelled.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Nodes with a place in the fabric; the count is not used.
    pub nodes: NodePick,
    /// Whose labels, several where a cluster changes from one to another.
    pub schemes: Vec<Scheme>,
    /// Nodes at a leaf.
    pub nodes_per_leaf: usize,
    /// Leaves at a spine.
    pub leaves_per_spine: usize,
    /// Spines at a core.
    pub spines_per_core: usize,
    /// Nodes of one NVLink domain, such as [`NVL72_NODES`]; they fill one leaf each. `None`: the
    /// GPUs of a node only reach each other.
    pub nvlink_nodes: Option<usize>,
    /// The share of nodes without any label of the fabric: an agent that failed, a new machine.
    pub unlabelled_share: f64,
    /// Seconds of the actors' time from a node's registration to its labels.
    pub lag_secs: f64,
}

impl Default for Settings {
    /// topograph's present labels on all GPU nodes: 8 nodes a leaf, 4 leaves a spine, 4 spines a core.
    fn default() -> Self {
        Self {
            nodes: NodePick::labelled("nvidia.com/gpu.present", "true"),
            schemes: vec![Scheme::Topograph],
            nodes_per_leaf: 8,
            leaves_per_spine: 4,
            spines_per_core: 4,
            nvlink_nodes: None,
            unlabelled_share: 0.0,
            lag_secs: 20.0,
        }
    }
}

impl Settings {
    /// Nodes that share a leaf: a whole rack where there is NVLink between nodes.
    fn group(&self) -> usize {
        self.nvlink_nodes.unwrap_or(self.nodes_per_leaf).max(1)
    }

    /// The place of the `slot`th node.
    pub fn place(&self, slot: usize) -> Place {
        let leaf = slot / self.group();
        let spine = leaf / self.leaves_per_spine.max(1);
        Place {
            leaf: leaf + 1,
            spine: spine + 1,
            core: spine / self.spines_per_core.max(1) + 1,
        }
    }

    /// All labels of the `slot`th node, whose name is `host`; empty for one that is left out.
    pub fn labels(&self, slot: usize, host: &str, clock: Clock) -> BTreeMap<String, String> {
        if clock.unit(&format!("unlabelled/{host}")) < self.unlabelled_share {
            return BTreeMap::new();
        }
        let place = self.place(slot);
        let schemes = self.schemes.iter();
        let mut all: BTreeMap<String, String> = schemes
            .flat_map(|scheme| labels(*scheme, place, host, clock.seed()))
            .collect();
        if let Some(nodes) = self.nvlink_nodes {
            all.insert(
                CLIQUE.to_owned(),
                clique(slot / nodes.max(1) + 1, clock.seed()),
            );
        }
        all
    }
}

/// Which places are taken.
#[derive(Default)]
struct Slots {
    by_uid: BTreeMap<String, usize>,
    taken: BTreeSet<usize>,
    /// None below this one is free.
    full_below: usize,
}

impl Slots {
    fn take(&mut self, slot: usize, uid: &str) {
        self.taken.insert(slot);
        self.by_uid.insert(uid.to_owned(), slot);
    }

    fn free(&mut self, uid: &str) {
        if let Some(slot) = self.by_uid.remove(uid) {
            self.taken.remove(&slot);
            self.full_below = self.full_below.min(slot);
        }
    }

    fn of(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The lowest free one.
    fn lowest(&mut self) -> usize {
        while self.taken.contains(&self.full_below) {
            self.full_below += 1;
        }
        self.full_below
    }
}

/// Labels each node once. Places go by name at first, then to whoever comes, into the gaps that
/// nodes left which are gone.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    settings: Settings,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut slots = Slots::default();
    let mut known: BTreeMap<String, Arc<Node>> = BTreeMap::new();
    let mut agenda = Agenda::default();
    let mut synced = false;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) if settings.nodes.matches(&node) => {
                    let name = node.metadata.name.clone();
                    match slot_of(&node) {
                        Some(slot) => {
                            slots.take(slot, &node.metadata.uid);
                        }
                        None if synced => {
                            agenda.at_latest(&name, Instant::now() + clock.real(settings.lag_secs));
                        }
                        None => {}
                    }
                    known.insert(name, node);
                }
                Some(Change::Set(_)) => {}
                Some(Change::Gone(uid)) => {
                    slots.free(&uid);
                    known.retain(|_, node| node.metadata.uid != uid);
                }
                Some(Change::Synced) => {
                    synced = true;
                    let due = Instant::now() + clock.real(settings.lag_secs);
                    for (name, node) in &known {
                        if slot_of(node).is_none() {
                            agenda.at_latest(name, due);
                        }
                    }
                }
                None => return,
            },
            () = agenda.due() => {
                let Some(name) = agenda.pop(Instant::now()) else { continue };
                let Some(node) = known.get(&name) else { continue };
                if slots.of(&node.metadata.uid) {
                    continue;
                }
                let slot = slots.lowest();
                let labels = settings.labels(slot, &name, clock);
                let written = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    written = write(&calls, node, slot, &labels) => written,
                };
                if written {
                    slots.take(slot, &node.metadata.uid);
                } else {
                    agenda.set(&name, Instant::now() + std::time::Duration::from_secs(1));
                }
            }
        }
    }
}

fn slot_of(node: &Node) -> Option<usize> {
    node.metadata.annotations.get(PLACE)?.parse().ok()
}

/// Writes the labels, and takes away those of other schemes.
async fn write(calls: &Calls, node: &Node, slot: usize, labels: &BTreeMap<String, String>) -> bool {
    let name = &node.metadata.name;
    let place = Place {
        leaf: 1,
        spine: 1,
        core: 1,
    };
    let all = Scheme::ALL
        .iter()
        .flat_map(|scheme| self::labels(*scheme, place, name, 0));
    let strange = all.map(|(key, _)| key).chain([CLIQUE.to_owned()]);
    let mut patch: Map<String, Value> = strange
        .filter(|key| node.metadata.labels.contains_key(key))
        .map(|key| (key, Value::Null))
        .collect();
    let own = labels.iter();
    patch.extend(own.map(|(key, value)| (key.clone(), json!(value))));
    let patch = json!({"metadata": {
        "labels": patch,
        "annotations": {PLACE: slot.to_string()},
    }});
    let at = format!("{}/{name}", path::NODES);
    match calls
        .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
        .await
    {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(%error, "network labels not written");
            false
        }
    }
}
