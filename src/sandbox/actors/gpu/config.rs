//! How the GPU actors behave: plain settings with the defaults of the GPU operator's charts.

use std::net::SocketAddr;

/// The GPU operator's world: device plugin, feature discovery, mig-manager, exporter.
///
/// Times are seconds of the actors' time, which the speed divides.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Namespace of the operands.
    pub namespace: String,
    /// The operator itself: `None` leaves ClusterPolicy, DaemonSets and labels to others, as in a
    /// cluster that has a real operator or none.
    pub operator: Option<OperatorConfig>,
    /// The device plugin and the kubelet's device manager.
    pub plugin: PluginConfig,
    /// GPU feature discovery; `None` runs none.
    pub discovery: Option<DiscoveryConfig>,
    /// mig-manager; `None` runs none.
    pub mig_manager: Option<MigManagerConfig>,
    /// dcgm-exporter; `None` runs none.
    pub exporter: Option<ExporterConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: "gpu-operator".to_owned(),
            operator: Some(OperatorConfig::default()),
            plugin: PluginConfig::default(),
            discovery: Some(DiscoveryConfig::default()),
            mig_manager: Some(MigManagerConfig::default()),
            exporter: Some(ExporterConfig::default()),
        }
    }
}

/// Up to so many nodes each has the pods of the operands.
const MAX_OPERAND_NODES: usize = 300;
/// What the demo's fleet has beside the usual configurations: half of the GPUs whole.
const HALF_BALANCED: &str = "\
half-balanced:
- devices: [0, 1, 2, 3]
  mig-enabled: true
  mig-devices:
    1g.5gb: 2
    2g.10gb: 1
    3g.20gb: 1
- devices: [4, 5, 6, 7]
  mig-enabled: false
";

impl Config {
    /// For a fleet of [`crate::sandbox::inventory`] with so many nodes: its configurations are in
    /// a ConfigMap, a large one has no pods of operands, and a node that is away is excused.
    pub fn for_fleet(nodes: usize) -> Self {
        Self {
            operator: Some(OperatorConfig {
                operand_pods: nodes <= MAX_OPERAND_NODES,
                mig_config_map: "custom-mig-config".to_owned(),
                more_mig_configs: HALF_BALANCED.to_owned(),
                count_unready_nodes: false,
                ..OperatorConfig::default()
            }),
            ..Self::default()
        }
    }
}

/// The GPU operator.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorConfig {
    /// Make a DaemonSet for each operand, so that every GPU node has four pods more. Without them
    /// the deploy labels alone say what runs: the choice for thousands of nodes.
    pub operand_pods: bool,
    /// `spec.migManager.config.default`: written where a node that can be cut has no
    /// `nvidia.com/mig.config`; empty writes nothing.
    pub mig_config_default: String,
    /// `spec.migManager.config.name`: the ConfigMap with the configurations; empty has them
    /// generated for each node. One that is not there is made, with configurations for all models.
    pub mig_config_map: String,
    /// Configurations added to that ConfigMap, as lines of a mig-parted file below `mig-configs:`.
    pub more_mig_configs: String,
    /// Whether operands on nodes that are not Ready make ClusterPolicy `notReady`, as the real
    /// operator has it: one dead node is enough then.
    pub count_unready_nodes: bool,
    /// The version of the operator and its chart.
    pub version: String,
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self {
            operand_pods: true,
            mig_config_default: "all-disabled".to_owned(),
            mig_config_map: String::new(),
            more_mig_configs: String::new(),
            count_unready_nodes: true,
            version: "v26.3.2".to_owned(),
        }
    }
}

/// What `migStrategy` of the device plugin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// GPUs in MIG mode are offered as if they were whole.
    None,
    /// All GPUs cut alike; MIG devices are offered as `nvidia.com/gpu`.
    Single,
    /// Each profile is a resource of its own.
    Mixed,
}

impl Strategy {
    /// The value of `nvidia.com/mig.strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Single => "single",
            Self::Mixed => "mixed",
        }
    }
}

/// Time-slicing of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Devices offered for each GPU; 1 shares nothing.
    pub replicas: u32,
    /// `renameByDefault`: offered as `nvidia.com/gpu.shared`.
    pub renamed: bool,
    /// `failRequestsGreaterThanOne`.
    pub fail_above_one: bool,
}

impl Sharing {
    /// One pod for each GPU.
    pub const NONE: Self = Self {
        replicas: 1,
        renamed: false,
        fail_above_one: false,
    };
}

/// The device plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// The strategy of nodes whose labels do not tell theirs.
    pub strategy: Strategy,
    /// Sharing of nodes whose labels do not tell theirs.
    pub sharing: Sharing,
    /// From the start of its pod until the devices are registered.
    pub start_secs: f64,
    /// The kubelet's interval of status reports.
    pub report_secs: f64,
    /// How long the kubelet keeps the devices of a plugin that is gone (5 minutes).
    pub grace_secs: f64,
    /// Xids that do not make a device unhealthy.
    pub ignored_xids: Vec<u32>,
}

impl Default for PluginConfig {
    fn default() -> Self {
        Self {
            strategy: Strategy::Mixed,
            sharing: Sharing::NONE,
            start_secs: 5.0,
            report_secs: 10.0,
            grace_secs: 300.0,
            ignored_xids: vec![13, 31, 43, 45, 68, 109],
        }
    }
}

/// GPU feature discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryConfig {
    /// From the start of its pod until it has read the GPUs.
    pub start_secs: f64,
    /// Until node feature discovery has made labels of what was read: at least and at most.
    pub lag_secs: (f64, f64),
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            start_secs: 5.0,
            lag_secs: (5.0, 60.0),
        }
    }
}

/// mig-manager.
#[derive(Debug, Clone, PartialEq)]
pub struct MigManagerConfig {
    /// How long it waits for each operand's pod to go, before it leaves the node as it is.
    pub wait_secs: f64,
    /// How long operands without pods take to go.
    pub stop_secs: f64,
    /// Time to change the mode of the GPUs, with their reset.
    pub mode_secs: f64,
    /// Time to rebuild one GPU.
    pub gpu_secs: f64,
    /// `WITH_REBOOT`: reboot the node when the mode cannot be changed.
    pub with_reboot: bool,
    /// How long a reboot takes.
    pub reboot_secs: f64,
    /// Until a changed ConfigMap is seen in the pod: at least and at most.
    pub volume_sync_secs: (f64, f64),
    /// Instance types whose GPUs cannot be reset, by prefix: passed through to virtual machines.
    pub no_reset_instances: Vec<String>,
    /// Publish the generated configurations of each node as a ConfigMap `<node>-mig-config`.
    pub publish_generated: bool,
}

impl Default for MigManagerConfig {
    fn default() -> Self {
        Self {
            wait_secs: 300.0,
            stop_secs: 8.0,
            mode_secs: 20.0,
            gpu_secs: 2.0,
            with_reboot: false,
            reboot_secs: 240.0,
            volume_sync_secs: (60.0, 90.0),
            no_reset_instances: vec!["a2-".to_owned()],
            publish_generated: true,
        }
    }
}

/// Which labels the exporter writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelGeneration {
    /// Before 4.8.2: `Hostname`, no `pod_uid`.
    Hostname,
    /// Since then: `hostname` and `pod_uid`.
    LowerHostname,
}

/// dcgm-exporter.
#[derive(Debug, Clone, PartialEq)]
pub struct ExporterConfig {
    /// The labels of its rows; `None` lets the seed choose for each node, as in a cluster that is
    /// being upgraded.
    pub labels: Option<LabelGeneration>,
    /// The port of its pods.
    pub port: u16,
    /// How often values are collected.
    pub collect_secs: f64,
    /// Counters beyond those that the operator enables: `DCGM_FI_PROF_SM_ACTIVE`,
    /// `DCGM_FI_PROF_SM_OCCUPANCY` and `DCGM_EXP_XID_ERRORS_COUNT`.
    pub more_counters: bool,
    /// A loopback address that serves `/metrics?node=NAME` of every node; `None` opens no port.
    pub listen: Option<SocketAddr>,
}

impl Default for ExporterConfig {
    fn default() -> Self {
        Self {
            labels: None,
            port: 9400,
            collect_secs: 30.0,
            more_counters: true,
            listen: None,
        }
    }
}
