//! Which machines the autoscaler asks for, and what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::{Node, Pod};
use crate::sandbox::inventory::{
    A100_40, A100_80, Fault, H100, H200, L40S, Layout, Model, NodePlan,
};

/// Label with the group of a machine, as EKS has it.
pub const GROUP_LABEL: &str = "eks.amazonaws.com/nodegroup";

/// A group of like machines.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGroup {
    /// Name; its machines are called `name-xxxxx`.
    pub name: String,
    /// GPU model by its short name (`h100`, `h200`, `a100-80`, `a100-40`, `l40s`); anything else is
    /// a machine without GPUs.
    pub model: String,
    /// `reserved`, `on-demand` or `spot`.
    pub tier: String,
    /// The fewest machines.
    pub min: usize,
    /// The most machines.
    pub max: usize,
    /// Shortest and longest time from the decision to the machine's registration, in seconds of
    /// the actors' time.
    pub boot_secs: (f64, f64),
    /// More labels of its machines.
    pub labels: BTreeMap<String, String>,
}

impl Default for NodeGroup {
    /// On-demand machines of 8 H100, up to 8 of them, after 3 to 6 minutes.
    fn default() -> Self {
        Self {
            name: "h100-scale".to_owned(),
            model: "h100".to_owned(),
            tier: "on-demand".to_owned(),
            min: 0,
            max: 8,
            boot_secs: (180.0, 360.0),
            labels: BTreeMap::new(),
        }
    }
}

/// The model of this short name.
fn model(slug: &str) -> Option<&'static Model> {
    let all = [&H100, &H200, &A100_80, &A100_40, &L40S];
    all.into_iter().find(|model| model.slug == slug)
}

/// A group with what one of its machines offers.
pub(super) struct Group {
    pub settings: NodeGroup,
    sample: Node,
}

/// A machine on its way.
#[derive(Debug)]
pub(super) struct Upcoming {
    /// Its group's number.
    pub group: usize,
    pub name: String,
    /// Which of all machines it is.
    pub number: u64,
    /// When it registers.
    pub at: Instant,
    /// UIDs of the pods it comes for.
    pub pods: Vec<String>,
    left: BTreeMap<String, i128>,
}

/// What is to be done for the pods that wait.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub machines: Vec<Upcoming>,
    /// Groups that grow, as the autoscaler writes them: `{group 2->3 (max: 8)}`.
    pub summary: String,
    /// Why nothing can be done for a pod, by its UID.
    pub hopeless: BTreeMap<String, String>,
}

impl Group {
    pub(super) fn new(settings: &NodeGroup, clock: Clock) -> Self {
        let mut group = Self {
            settings: settings.clone(),
            sample: Node::default(),
        };
        let object = group.node("sample", 0, clock);
        // Made by this crate: it can be read.
        group.sample = serde_json::from_value(object).unwrap_or_default();
        group
    }

    /// A machine as it registers, without conditions: its kubelet reports them.
    pub(super) fn node(&self, name: &str, number: u64, clock: Clock) -> Value {
        let number = usize::try_from(number).unwrap_or(0);
        let tier = match self.settings.tier.as_str() {
            "spot" => "spot",
            "reserved" => "reserved",
            _ => "on-demand",
        };
        let plan = NodePlan {
            name: name.to_owned(),
            model: model(&self.settings.model),
            layout: Layout::Whole,
            tier,
            zone: ['a', 'b', 'c'].get(number % 3).copied().unwrap_or('a'),
            switches: None,
            // Addresses beyond those of any fleet.
            index: 30_000 + number,
            fault: Fault::None,
        };
        let mut node = plan.object(clock.seed(), clock.now());
        if let Some(labels) = node
            .pointer_mut("/metadata/labels")
            .and_then(Value::as_object_mut)
        {
            labels.insert(GROUP_LABEL.to_owned(), json!(self.settings.name));
            let more = self.settings.labels.iter();
            labels.extend(more.map(|(key, value)| (key.clone(), json!(value))));
        }
        if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("conditions");
        }
        node
    }

    /// Why the pod does not fit on an empty machine; `None` when it does.
    fn refuses(&self, pod: &Pod, free: &BTreeMap<String, i128>) -> Option<String> {
        let labels = &self.sample.metadata.labels;
        let mut wanted = pod.spec.node_selector.iter();
        if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
            return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
        }
        if !pod.spec.bears_all(&self.sample.spec.taints) {
            return Some("node(s) had untolerated taint(s)".to_owned());
        }
        let asks = pod.requests_milli();
        let short = asks.iter().find(|(name, amount)| {
            **amount > 0 && free.get(*name).copied().unwrap_or(0) < **amount
        });
        short.map(|(name, _)| format!("Insufficient {name}"))
    }
}

/// Machines for `pods`, in their order: onto what is planned already, else the first group with
/// room. `made` counts names.
pub(super) fn plan(
    groups: &[Group],
    sizes: &[usize],
    pods: &[Arc<Pod>],
    taken: &BTreeSet<&str>,
    clock: Clock,
    made: &mut u64,
) -> Planned {
    let mut planned = Planned::default();
    let mut grown: BTreeMap<usize, usize> = BTreeMap::new();
    for pod in pods {
        let uid = &pod.metadata.uid;
        let room = planned.machines.iter_mut().find(|machine| {
            let group = groups.get(machine.group);
            group.is_some_and(|group| group.refuses(pod, &machine.left).is_none())
        });
        if let Some(machine) = room {
            machine.assign(pod);
            continue;
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut found = None;
        for (number, group) in groups.iter().enumerate() {
            let free = group.sample.allocatable_milli();
            let size = sizes.get(number).copied().unwrap_or(0);
            let size = size + grown.get(&number).copied().unwrap_or(0);
            let reason = match group.refuses(pod, &free) {
                Some(reason) => reason,
                None if size >= group.settings.max => "max node group size reached".to_owned(),
                None => {
                    found = Some((number, group, free));
                    break;
                }
            };
            *reasons.entry(reason).or_default() += 1;
        }
        let Some((number, group, free)) = found else {
            let parts: Vec<String> = reasons
                .into_iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            planned.hopeless.insert(uid.clone(), parts.join(", "));
            continue;
        };
        let name = loop {
            *made += 1;
            let key = format!("machine/{}/{made}", group.settings.name);
            let name = format!("{}-{}", group.settings.name, clock.suffix(&key));
            if !taken.contains(name.as_str()) {
                break name;
            }
        };
        let (low, high) = group.settings.boot_secs;
        let boot = clock.real(clock.between(low, high, &format!("boot/{name}")));
        let mut machine = Upcoming {
            group: number,
            name,
            number: *made,
            at: Instant::now() + boot,
            pods: Vec::new(),
            left: free,
        };
        machine.assign(pod);
        planned.machines.push(machine);
        *grown.entry(number).or_default() += 1;
    }
    let parts: Vec<String> = grown
        .iter()
        .filter_map(|(number, more)| {
            let group = groups.get(*number)?;
            let before = sizes.get(*number).copied().unwrap_or(0);
            let (name, max) = (&group.settings.name, group.settings.max);
            Some(format!(
                "{{{name} {before}->{} (max: {max})}}",
                before + more
            ))
        })
        .collect();
    planned.summary = parts.join(" ");
    planned
}

impl Upcoming {
    fn assign(&mut self, pod: &Pod) {
        self.pods.push(pod.metadata.uid.clone());
        for (name, amount) in pod.requests_milli() {
            if let Some(left) = self.left.get_mut(&name) {
                *left -= amount;
            }
        }
    }
}
