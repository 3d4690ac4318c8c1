//! Where pods fit: what is free on each node, and a whole group at a time or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sandbox::actors::objects::{Node, Pod};

/// The resource that decides which node is the fullest.
const GPU: &str = "nvidia.com/gpu";

type Amounts = BTreeMap<String, i128>;

#[derive(Debug, Default)]
struct Room {
    /// `None` while only pods of the node were seen.
    node: Option<Arc<Node>>,
    allocatable: Amounts,
    used: Amounts,
}

impl Room {
    fn free(&self, name: &str) -> i128 {
        let has = self.allocatable.get(name).copied().unwrap_or(0);
        has - self.used.get(name).copied().unwrap_or(0)
    }
}

/// Nodes, and what bound pods hold of them.
#[derive(Debug, Default)]
pub(super) struct Placer {
    rooms: BTreeMap<String, Room>,
    /// Node and requests of each bound pod that has not ended.
    held: BTreeMap<String, (String, Amounts)>,
}

impl Placer {
    pub(super) fn node_set(&mut self, node: Arc<Node>) {
        let room = self.rooms.entry(node.metadata.name.clone()).or_default();
        room.allocatable = node.allocatable_milli();
        room.node = Some(node);
    }

    pub(super) fn node_gone(&mut self, uid: &str) {
        let gone = |room: &Room| {
            let node = room.node.as_ref();
            node.is_some_and(|node| node.metadata.uid == uid)
        };
        for room in self.rooms.values_mut().filter(|room| gone(room)) {
            room.node = None;
        }
        self.rooms
            .retain(|_, room| room.node.is_some() || room.used.values().any(|n| *n > 0));
    }

    pub(super) fn pod_set(&mut self, pod: &Pod) {
        let uid = &pod.metadata.uid;
        if pod.is_terminal() {
            self.pod_gone(uid);
        } else if !pod.spec.node_name.is_empty() {
            self.hold(uid, &pod.spec.node_name, asks(pod));
        }
    }

    /// Counts a pod on a node, once.
    pub(super) fn hold(&mut self, uid: &str, node: &str, asks: Amounts) {
        if self.held.contains_key(uid) {
            return;
        }
        let room = self.rooms.entry(node.to_owned()).or_default();
        for (name, amount) in &asks {
            *room.used.entry(name.clone()).or_default() += amount;
        }
        self.held.insert(uid.to_owned(), (node.to_owned(), asks));
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some((node, asks)) = self.held.remove(uid) else {
            return;
        };
        if let Some(room) = self.rooms.get_mut(&node) {
            for (name, amount) in asks {
                *room.used.entry(name).or_default() -= amount;
            }
        }
    }

    /// A node for each of `pods`, all of them or none; else why not, as `N reason` parts.
    pub(super) fn place(&self, pods: &[Arc<Pod>]) -> Result<Vec<String>, Vec<String>> {
        let mut taken: BTreeMap<&str, Amounts> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(pods.len());
        for pod in pods {
            let asks = asks(pod);
            let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
            let mut best: Option<(i128, &str)> = None;
            for (name, room) in &self.rooms {
                let Some(node) = &room.node else { continue };
                let already = taken.get(name.as_str());
                match refuses(room, node, pod, &asks, already) {
                    Some(reason) => *reasons.entry(reason).or_default() += 1,
                    None => {
                        let held = already.and_then(|held| held.get(GPU)).copied().unwrap_or(0);
                        let left = room.free(GPU) - held;
                        // The fullest that fits: large holes stay for large pods.
                        if best.is_none_or(|(least, _)| left < least) {
                            best = Some((left, name));
                        }
                    }
                }
            }
            let Some((_, name)) = best else {
                let parts = reasons.into_iter();
                return Err(parts
                    .map(|(reason, count)| format!("{count} {reason}"))
                    .collect());
            };
            let held = taken.entry(name).or_default();
            for (resource, amount) in &asks {
                *held.entry(resource.clone()).or_default() += amount;
            }
            nodes.push(name.to_owned());
        }
        Ok(nodes)
    }

    /// Whether the pod fits on this node.
    pub(super) fn fits(&self, pod: &Pod, node: &str) -> bool {
        let Some(room) = self.rooms.get(node) else {
            return false;
        };
        let object = room.node.as_ref();
        object.is_some_and(|object| refuses(room, object, pod, &asks(pod), None).is_none())
    }

    /// Thousandths of GPUs that nobody holds on a node.
    pub(super) fn free_gpus(&self, node: &str) -> i128 {
        self.rooms.get(node).map_or(0, |room| room.free(GPU))
    }

    /// The nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.rooms.values().filter_map(|room| room.node.as_deref())
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.rooms
            .values()
            .filter(|room| room.node.is_some())
            .count()
    }
}

/// What a pod asks for, itself included.
pub(super) fn asks(pod: &Pod) -> Amounts {
    let mut asks = pod.requests_milli();
    asks.insert("pods".to_owned(), 1_000);
    asks.retain(|_, amount| *amount > 0);
    asks
}

fn refuses(
    room: &Room,
    node: &Node,
    pod: &Pod,
    asks: &Amounts,
    taken: Option<&Amounts>,
) -> Option<String> {
    if node.spec.unschedulable {
        return Some("node(s) were unschedulable".to_owned());
    }
    if !pod.spec.bears_all(&node.spec.taints) || node.ready() != Some("True") {
        return Some("node(s) had untolerated taint(s)".to_owned());
    }
    let labels = &node.metadata.labels;
    let mut wanted = pod.spec.node_selector.iter();
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let short = asks.iter().find(|(name, amount)| {
        let held = taken
            .and_then(|taken| taken.get(*name))
            .copied()
            .unwrap_or(0);
        // A node that says nothing of pods or storage is not asked for them.
        let silent = !name.contains('/') && !room.allocatable.contains_key(*name);
        !silent && room.free(name) - held < **amount
    });
    short.map(|(name, _)| format!("Insufficient {name}"))
}
