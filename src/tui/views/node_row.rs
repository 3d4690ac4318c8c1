//! A node as the Fleet and Nodes views see it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;

use super::list::{Source, in_order};
use crate::model::{
    Cluster, GpuCell, Kind, MigConfigState, MigCount, Node, NodeLabels, NodePart, NodeTelemetry,
    NodeUse, Place, Pricing, Readiness, Str, Tier, natural_key,
};
use crate::tui::filter::{FilterColumn, Unit, Value};
use crate::tui::sort_key::SortKey;
use crate::tui::table::Row;
use crate::tui::theme::Meaning;

/// A node with what its pods hold.
#[derive(Clone, Debug)]
pub struct NodeRow {
    /// Name.
    pub name: Str,
    /// The node; `None` when only its pods may be seen.
    pub node: Option<Arc<Node>>,
    /// Its GPUs as cells; empty when it has none or their number is not known.
    pub cells: Vec<GpuCell>,
    /// Held by pods, in whole-GPU equivalents; `None` when pods may not be seen.
    pub used_gpus: Option<f64>,
    /// Free and to be had, in whole-GPU equivalents; `None` when not known.
    pub free_gpus: Option<f64>,
    /// GPUs that are not given out although the node is well.
    pub sick_gpus: f64,
    /// Live pods.
    pub pods: Option<u32>,
    /// CPU requested, in percent of what is allocatable.
    pub cpu_percent: Option<i64>,
    /// Memory requested, in percent of what is allocatable.
    pub mem_percent: Option<i64>,
    /// MIG profiles with counts.
    pub mig: Vec<MigCount>,
    /// What its GPUs measured last, or why that is not known; `None`: nobody asked yet.
    pub telemetry: Option<Arc<NodeTelemetry>>,
    /// State in words, the worst first.
    pub state: String,
    /// How bad that is.
    pub severity: Severity,
    /// Whether it is Ready.
    pub(super) ready: bool,
    /// Texts that a person looks for, in lower case, one a line.
    pub(super) texts: Box<str>,
    /// What its labels tell.
    pub(super) labels: Arc<NodeLabels>,
    /// Rules for its tier.
    pub(super) pricing: Arc<Pricing>,
}

/// How bad the state of a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Takes pods.
    Ready,
    /// Not known.
    Unknown,
    /// Takes no new pods, by somebody's will.
    Cordoned,
    /// A part of it does not work.
    Degraded,
    /// It does not work.
    Down,
}

impl Severity {
    /// The meaning whose style it is drawn in.
    pub fn meaning(self) -> Meaning {
        match self {
            Severity::Ready => Meaning::Ok,
            Severity::Unknown => Meaning::Unknown,
            Severity::Cordoned => Meaning::Cordoned,
            Severity::Degraded => Meaning::Warn,
            Severity::Down => Meaning::Danger,
        }
    }
}

impl Row for NodeRow {
    type Key = Str;

    fn key(&self) -> Str {
        self.name.clone()
    }

    fn place(&self) -> SortKey {
        SortKey::str(&natural_key(&self.name)).or_last(self.node.is_none())
    }

    fn key_order(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

/// All nodes by name, then those that only pods tell of.
pub fn all(cluster: &Cluster) -> Vec<NodeRow> {
    in_order(unordered(cluster))
}

/// The row of one node, if it is known or pods tell of it.
pub(super) fn one(cluster: &Cluster, name: &str) -> Option<NodeRow> {
    if let Some((node, held)) = cluster.node(name) {
        return Some(NodeRow::of(node, held, cluster));
    }
    let (name, held) = cluster.unknown_node(name)?;
    let nodes_known = cluster.is_known(Kind::Node);
    Some(NodeRow::of_unknown(name, held, nodes_known))
}

/// The names of all nodes, and of those that only pods tell of.
pub(super) fn names(cluster: &Cluster) -> impl Iterator<Item = &Str> {
    let known = cluster.nodes().map(|(node, _)| &node.meta.name);
    known.chain(cluster.unknown_nodes().map(|(name, _)| name))
}

/// All nodes, and those that only pods tell of.
pub(super) fn unordered(cluster: &Cluster) -> Vec<NodeRow> {
    let nodes_known = cluster.is_known(Kind::Node);
    let known = cluster
        .nodes()
        .map(|(node, held)| NodeRow::of(node, held, cluster));
    let unknown = cluster
        .unknown_nodes()
        .map(|(name, held)| NodeRow::of_unknown(name, held, nodes_known));
    known.chain(unknown).collect()
}

impl Source<NodeRow> for Cluster {
    fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = &Str>> {
        self.nodes_changed_since(version)
    }

    fn keys(&self) -> impl Iterator<Item = &Str> {
        names(self)
    }

    fn row(&self, name: &Str) -> Option<NodeRow> {
        one(self, name)
    }

    fn all(&self) -> Vec<NodeRow> {
        unordered(self)
    }
}

/// Order of names in which numbers count as numbers: `n2` before `n10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let same = x
            .bytes()
            .zip(y.bytes())
            .take_while(|(a, b)| a == b && !a.is_ascii_digit())
            .count();
        x = x.get(same..).unwrap_or_default();
        y = y.get(same..).unwrap_or_default();
        let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
        let (dx, dy) = (digits(x), digits(y));
        if dx == 0 || dy == 0 {
            // Names alike but for leading zeros still need an order.
            return x.cmp(y).then_with(|| a.cmp(b));
        }
        let (nx, ny) = (x.get(..dx).unwrap_or(x), y.get(..dy).unwrap_or(y));
        let (nx, ny) = (nx.trim_start_matches('0'), ny.trim_start_matches('0'));
        let order = nx.len().cmp(&ny.len()).then_with(|| nx.cmp(ny));
        if order != Ordering::Equal {
            return order;
        }
        x = x.get(dx..).unwrap_or_default();
        y = y.get(dy..).unwrap_or_default();
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl NodeRow {
    /// The row of a known node.
    pub fn of(node: &Arc<Node>, held: &NodeUse, cluster: &Cluster) -> Self {
        let pods_known = cluster.is_known(Kind::Pod);
        let cells = cluster.cells(node, held);
        let unhealthy: f64 = cells.iter().map(GpuCell::sick_share).sum();
        let used: f64 = cells.iter().map(GpuCell::used_share).sum();
        let part = NodePart::of(node, &cells);
        let known = node.gpus.count.is_some();
        let percent = |used, of| {
            pods_known
                .then(|| crate::tui::format::percent_of(used, of))
                .flatten()
        };
        let (state, severity) = state(node, unhealthy);
        NodeRow {
            name: node.meta.name.clone(),
            used_gpus: (pods_known && known).then_some(used),
            free_gpus: (pods_known && known).then_some(part.free),
            sick_gpus: part.sick,
            pods: pods_known.then(|| small(held.pods.len())),
            cpu_percent: percent(held.requests.cpu_milli, node.allocatable.cpu_milli),
            mem_percent: percent(held.requests.mem_bytes, node.allocatable.mem_bytes),
            mig: held.mig(node),
            telemetry: cluster
                .telemetry(&node.meta.name)
                .map(|log| log.latest.clone()),
            labels: cluster.node_labels(&node.meta.name),
            pricing: cluster.pricing().clone(),
            node: Some(node.clone()),
            ready: node.readiness() == Readiness::Ready,
            texts: Box::default(),
            cells,
            state,
            severity,
        }
        .with_texts()
    }

    /// The row of a node that only its pods tell of.
    pub fn of_unknown(name: &Str, held: &NodeUse, nodes_known: bool) -> Self {
        NodeRow {
            name: name.clone(),
            node: None,
            cells: Vec::new(),
            #[allow(clippy::cast_precision_loss)]
            used_gpus: Some(held.requests.extended("nvidia.com/gpu").max(0) as f64),
            free_gpus: None,
            sick_gpus: 0.0,
            pods: Some(small(held.pods.len())),
            cpu_percent: None,
            mem_percent: None,
            mig: Vec::new(),
            telemetry: None,
            // Where nodes may be listed, one that only its pods name has left.
            state: if nodes_known { "gone" } else { "nodes denied" }.to_owned(),
            severity: Severity::Unknown,
            ready: false,
            texts: Box::default(),
            labels: Arc::default(),
            pricing: Arc::default(),
        }
        .with_texts()
    }

    /// Whether it stands at the same place of a map as another row of the same node, so that
    /// nothing moves when it is put there instead.
    pub(super) fn stands_as(&self, other: &NodeRow) -> bool {
        match (&self.node, &other.node) {
            (None, None) => true,
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
            (Some(_), Some(_)) => {
                self.shared_leaf() == other.shared_leaf()
                    && self.shared_zone() == other.shared_zone()
                    && self.model() == other.model()
            }
            _ => false,
        }
    }

    /// Short model name.
    pub fn model(&self) -> Option<&str> {
        self.node
            .as_ref()
            .and_then(|n| n.gpus.model.as_ref())
            .map(crate::model::GpuModel::short)
    }

    /// Tier as screens write it.
    pub fn tier(&self) -> Option<&'static str> {
        self.labels.tier().map(Tier::name)
    }

    /// Physical GPUs; `None` when not known.
    pub fn gpus(&self) -> Option<u32> {
        self.node.as_ref().and_then(|n| n.gpus.count)
    }

    /// Has GPUs, or is not known to have none.
    pub fn has_gpus(&self) -> bool {
        match &self.node {
            None => true,
            Some(node) => {
                !self.cells.is_empty() || (node.gpus.count.is_none() && self.model().is_some())
            }
        }
    }

    /// Creation time.
    pub fn created(&self) -> Option<Timestamp> {
        self.node.as_ref().and_then(|n| n.meta.created)
    }

    /// Whether it is Ready.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether it is cordoned.
    pub fn is_cordoned(&self) -> bool {
        self.node.as_ref().is_some_and(|n| n.unschedulable)
    }

    /// The closest switch above it.
    pub fn leaf(&self) -> Option<&str> {
        self.shared_leaf().map(|leaf| &**leaf)
    }

    pub(super) fn shared_leaf(&self) -> Option<&Str> {
        self.place().leaf()
    }

    /// Where it hangs in the network.
    pub fn place(&self) -> &Place {
        self.labels.place()
    }

    /// Its zone.
    pub fn zone(&self) -> Option<&str> {
        self.shared_zone().as_deref()
    }

    pub(super) fn shared_zone(&self) -> &Option<Str> {
        self.labels.zone()
    }

    /// How busy its GPUs are on average, 0 to 1.
    pub fn activity(&self) -> Option<f64> {
        self.telemetry.as_ref()?.activity()
    }

    /// How much of its GPUs' memory is in use on average, 0 to 1.
    pub fn memory_share(&self) -> Option<f64> {
        self.telemetry.as_ref()?.memory_share()
    }

    /// Whether one of the texts that a person looks for contains `word`, given in lower case.
    pub fn search(&self, word: &str) -> bool {
        self.texts.contains(word)
    }

    /// Puts the texts together that a person looks for: a filter looks at all rows at once.
    fn with_texts(mut self) -> Self {
        let texts = [
            Some(&*self.name),
            self.model(),
            self.tier(),
            Some(&*self.state),
            self.leaf(),
            self.zone(),
        ];
        let mut all = String::with_capacity(128);
        for text in texts.into_iter().flatten() {
            all.push_str(text);
            all.push('\n');
        }
        if all.is_ascii() {
            all.make_ascii_lowercase();
        } else {
            all = all.to_lowercase();
        }
        self.texts = all.into();
        self
    }
}

/// State in words and how bad it is.
fn state(node: &Node, sick: f64) -> (String, Severity) {
    let mut words: Vec<Cow<'_, str>> = Vec::new();
    let mut worst = Severity::Ready;
    let mut say = |text: Cow<'static, str>, severity: Severity| {
        words.push(text);
        worst = worst.max(severity);
    };
    match node.readiness() {
        Readiness::Ready => {}
        Readiness::NotReady => say("NotReady".into(), Severity::Down),
        Readiness::Unknown => say("no answer".into(), Severity::Down),
    }
    if node.meta.deleting.is_some() {
        say("leaving".into(), Severity::Degraded);
    }
    for fault in node.faults() {
        say(fault.kind.to_string().into(), Severity::Degraded);
    }
    match node.gpus.mig_state {
        Some(state @ (MigConfigState::Pending | MigConfigState::Rebooting)) => {
            say(format!("mig {}", state.name()).into(), Severity::Degraded);
        }
        Some(MigConfigState::Failed) => say("mig failed".into(), Severity::Degraded),
        Some(MigConfigState::Success) | None => {}
    }
    for notice in node.notices() {
        say(notice.kind.to_string().into(), Severity::Degraded);
    }
    if sick > 0.0 {
        let text = format!("{} sick", crate::tui::format::amount(sick));
        say(text.into(), Severity::Degraded);
    }
    if node.unschedulable {
        say("cordoned".into(), Severity::Cordoned);
    }
    if words.is_empty() {
        return ("ready".to_owned(), Severity::Ready);
    }
    (words.join(", "), worst)
}

/// A number of the model as filters compare it.
fn float<N: TryInto<i64>>(n: Option<N>) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)]
    n.and_then(|n| n.try_into().ok()).map(|n: i64| n as f64)
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Unknown, Value::text)
}

/// Columns that filters over nodes can name.
pub static FILTER: &[FilterColumn<NodeRow>] = &[
    FilterColumn {
        name: "name",
        aliases: &["node"],
        unit: Unit::Text,
        about: "name of the node",
        value: |r, _| Value::text(&r.name),
    },
    FilterColumn {
        name: "model",
        aliases: &["gpu"],
        unit: Unit::Text,
        about: "GPU model, such as h100",
        value: |r, _| text(r.model()),
    },
    FilterColumn {
        name: "tier",
        aliases: &[],
        unit: Unit::Text,
        about: "owned, reserved, on-demand, spot or calendar",
        value: |r, _| text(r.tier()),
    },
    FilterColumn {
        name: "state",
        aliases: &["status"],
        unit: Unit::Text,
        about: "ready, cordoned, NotReady, the name of a fault, …",
        value: |r, _| Value::List(r.state.split(", ").map(Cow::Borrowed).collect()),
    },
    FilterColumn {
        name: "gpus",
        aliases: &[],
        unit: Unit::Count,
        about: "physical GPUs",
        value: |r, _| Value::number(float(r.gpus())),
    },
    FilterColumn {
        name: "used",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs held, slices counted by their share",
        value: |r, _| Value::number(r.used_gpus),
    },
    FilterColumn {
        name: "free",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs to be had, slices counted by their share",
        value: |r, _| Value::number(r.free_gpus),
    },
    FilterColumn {
        name: "sick",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs that are not given out",
        value: |r, _| Value::number(r.node.is_some().then_some(r.sick_gpus)),
    },
    FilterColumn {
        name: "mig",
        aliases: &["profile"],
        unit: Unit::Text,
        about: "MIG profiles, such as 1g.10gb",
        value: |r, _| {
            Value::List(
                r.mig
                    .iter()
                    .map(|m| Cow::Owned(m.profile.to_string()))
                    .collect(),
            )
        },
    },
    FilterColumn {
        name: "pods",
        aliases: &[],
        unit: Unit::Count,
        about: "live pods",
        value: |r, _| Value::number(float(r.pods)),
    },
    FilterColumn {
        name: "cpu",
        aliases: &[],
        unit: Unit::Count,
        about: "CPU requested, in percent",
        value: |r, _| Value::number(float(r.cpu_percent)),
    },
    FilterColumn {
        name: "sm",
        aliases: &["util"],
        unit: Unit::Count,
        about: "how busy its GPUs are, in percent",
        value: |r, _| Value::number(r.activity().map(|share| share * 100.0)),
    },
    FilterColumn {
        name: "vram",
        aliases: &[],
        unit: Unit::Count,
        about: "GPU memory in use, in percent",
        value: |r, _| Value::number(r.memory_share().map(|share| share * 100.0)),
    },
    FilterColumn {
        name: "temp",
        aliases: &[],
        unit: Unit::Count,
        about: "its hottest GPU, in °C",
        value: |r, _| {
            let temperature = r.telemetry.as_ref().and_then(|t| t.temperature_c());
            Value::number(temperature.map(f64::from))
        },
    },
    FilterColumn {
        name: "power",
        aliases: &["watts"],
        unit: Unit::Count,
        about: "watts of its GPUs",
        value: |r, _| Value::number(r.telemetry.as_ref().and_then(|t| t.power_watts())),
    },
    FilterColumn {
        name: "ram",
        aliases: &["mem"],
        unit: Unit::Count,
        about: "memory of the host requested, in percent",
        value: |r, _| Value::number(float(r.mem_percent)),
    },
    FilterColumn {
        name: "gpumem",
        aliases: &[],
        unit: Unit::Bytes,
        about: "memory of one GPU, such as 80Gi",
        value: |r, _| {
            let mib = r.node.as_ref().and_then(|n| n.gpus.memory_mib);
            Value::number(mib.map(|mib| f64::from(mib) * 1_048_576.0))
        },
    },
    FilterColumn {
        name: "leaf",
        aliases: &[],
        unit: Unit::Text,
        about: "the closest switch",
        value: |r, _| text(r.leaf()),
    },
    FilterColumn {
        name: "zone",
        aliases: &[],
        unit: Unit::Text,
        about: "zone",
        value: |r, _| text(r.zone()),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "since its creation, such as 3h",
        value: |r, now| {
            let secs = r.created().map(|c| crate::tui::format::secs_since(c, now));
            Value::number(float(secs))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["n10", "n2", "n02", "a", "n2b", "n", "é9", "é10"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["a", "n", "n02", "n2", "n2b", "n10", "é9", "é10"]);
    }

    proptest! {
        #[test]
        fn the_order_of_names_is_an_order(
            a in "[a-cé0-2]{0,6}", b in "[a-cé0-2]{0,6}", c in "[a-cé0-2]{0,6}"
        ) {
            prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
            prop_assert_eq!(natural_order(&a, &b) == Ordering::Equal, a == b);
            let by_key = natural_key(&a).cmp(&natural_key(&b)).then_with(|| a.cmp(&b));
            prop_assert_eq!(natural_order(&a, &b), by_key);
            let below = |x: &str, y: &str| natural_order(x, y) == Ordering::Less;
            prop_assert!(!(below(&a, &b) && below(&b, &c)) || below(&a, &c));
        }
    }
}
