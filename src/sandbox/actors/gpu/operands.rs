//! Which operands of the GPU operator run on which node: told by their pods where there are any,
//! else by the deploy labels.

use std::collections::BTreeMap;

use super::super::objects::{Node, Pod};

/// An operand that these actors play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operand {
    DevicePlugin,
    Discovery,
    Exporter,
    MigManager,
}

impl Operand {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [
        Self::DevicePlugin,
        Self::Discovery,
        Self::Exporter,
        Self::MigManager,
    ];

    /// The value of the `app` label of its pods; also the name of its DaemonSet.
    pub(super) fn app(self) -> &'static str {
        match self {
            Self::DevicePlugin => "nvidia-device-plugin-daemonset",
            Self::Discovery => "gpu-feature-discovery",
            Self::Exporter => "nvidia-dcgm-exporter",
            Self::MigManager => "nvidia-mig-manager",
        }
    }

    /// The node label that lets it run.
    pub(super) fn deploy_label(self) -> &'static str {
        match self {
            Self::DevicePlugin => "nvidia.com/gpu.deploy.device-plugin",
            Self::Discovery => "nvidia.com/gpu.deploy.gpu-feature-discovery",
            Self::Exporter => "nvidia.com/gpu.deploy.dcgm-exporter",
            Self::MigManager => "nvidia.com/gpu.deploy.mig-manager",
        }
    }

    fn of(pod: &Pod) -> Option<Self> {
        let app = pod.metadata.labels.get("app")?;
        Self::ALL.into_iter().find(|operand| operand.app() == app)
    }
}

/// An operand that began or ceased to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    /// The node.
    pub node: String,
    /// The operand.
    pub operand: Operand,
    /// It runs now.
    pub up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Running,
    Leaving,
}

#[derive(Debug, Default)]
struct State {
    /// Value of the deploy label; `None` when the node has none.
    deploy: Option<String>,
    /// Its pods on the node by UID, with their names; more than one while one leaves.
    pods: BTreeMap<String, (String, Stage)>,
    /// A pod of it has run on the node: pods decide from then on.
    ran: bool,
    up: bool,
}

impl State {
    fn is_up(&self) -> bool {
        if self.ran {
            return self
                .pods
                .values()
                .any(|(_, stage)| *stage == Stage::Running);
        }
        self.deploy.as_deref().is_none_or(|value| value == "true")
    }
}

/// What a pod told: its node, its operand, and whether that turned.
pub(super) type Told = (String, Operand, Option<Turn>);

/// The operands of all nodes.
#[derive(Debug, Default)]
pub(super) struct Operands {
    nodes: BTreeMap<String, BTreeMap<Operand, State>>,
    pods: BTreeMap<String, (String, Operand)>,
}

impl Operands {
    /// Takes note of a node's labels. A node that is new tells nothing: its operands ran before.
    pub(super) fn node(&mut self, node: &Node) -> Vec<Turn> {
        let name = &node.metadata.name;
        let known = self.nodes.contains_key(name);
        let states = self.nodes.entry(name.clone()).or_default();
        let mut turns = Vec::new();
        for operand in Operand::ALL {
            let state = states.entry(operand).or_default();
            state.deploy = node.metadata.labels.get(operand.deploy_label()).cloned();
            let up = state.is_up();
            if known && up != state.up {
                turns.push(Turn {
                    node: name.clone(),
                    operand,
                    up,
                });
            }
            state.up = up;
        }
        turns
    }

    /// Forgets a node.
    pub(super) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Takes note of a pod in the operands' namespace; `None` when it is no operand's.
    pub(super) fn pod(&mut self, pod: &Pod) -> Option<Told> {
        let operand = Operand::of(pod)?;
        let node = &pod.spec.node_name;
        if node.is_empty() {
            return None;
        }
        let stage = if pod.metadata.deletion_timestamp.is_some() || pod.is_terminal() {
            Stage::Leaving
        } else if pod.status.phase == "Running" {
            Stage::Running
        } else {
            Stage::Starting
        };
        let uid = pod.metadata.uid.clone();
        self.pods.insert(uid.clone(), (node.clone(), operand));
        let states = self.nodes.entry(node.clone()).or_default();
        let state = states.entry(operand).or_default();
        state.pods.insert(uid, (pod.metadata.name.clone(), stage));
        state.ran |= stage == Stage::Running;
        let turn = self.turn(node, operand);
        Some((node.clone(), operand, turn))
    }

    /// A pod is gone; `None` when it was no operand's.
    pub(super) fn pod_gone(&mut self, uid: &str) -> Option<Told> {
        let (node, operand) = self.pods.remove(uid)?;
        let state = self.nodes.get_mut(&node)?.get_mut(&operand)?;
        state.pods.remove(uid);
        let turn = self.turn(&node, operand);
        Some((node, operand, turn))
    }

    fn turn(&mut self, node: &str, operand: Operand) -> Option<Turn> {
        let state = self.nodes.get_mut(node)?.get_mut(&operand)?;
        let up = state.is_up();
        if up == std::mem::replace(&mut state.up, up) {
            return None;
        }
        let node = node.to_owned();
        Some(Turn { node, operand, up })
    }

    /// Whether the operand runs on the node.
    pub(super) fn is_up(&self, node: &str, operand: Operand) -> bool {
        let state = self.nodes.get(node).and_then(|states| states.get(&operand));
        state.is_some_and(|state| state.up)
    }

    /// Whether any pod of the operand is left on the node, also one that is leaving.
    pub(super) fn has_pod(&self, node: &str, operand: Operand) -> bool {
        let state = self.nodes.get(node).and_then(|states| states.get(&operand));
        state.is_some_and(|state| !state.pods.is_empty())
    }

    /// Whether pods tell if the operand runs on the node.
    pub(super) fn has_pods_ever(&self, node: &str, operand: Operand) -> bool {
        let state = self.nodes.get(node).and_then(|states| states.get(&operand));
        state.is_some_and(|state| state.ran || !state.pods.is_empty())
    }

    /// The UID and name of the operand's running pod on the node.
    pub(super) fn running_pod(&self, node: &str, operand: Operand) -> Option<(String, String)> {
        let state = self.nodes.get(node)?.get(&operand)?;
        let mut pods = state.pods.iter();
        let (uid, (name, _)) = pods.find(|(_, (_, stage))| *stage == Stage::Running)?;
        Some((uid.clone(), name.clone()))
    }
}
