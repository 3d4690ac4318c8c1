//! The GPU operator: ClusterPolicy with its state, DaemonSets of the operands, the ConfigMap of
//! mig-manager, and the labels that it gives GPU nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::agenda::Agenda;
use super::super::clock::rfc3339;
use super::super::objects::{ClusterPolicy, DaemonSet, Node};
use super::super::watch::Change;
use super::agents::Shared;
use super::config::OperatorConfig;
use super::mig_file;
use super::mig_manager::CONFIG;
use super::operands::Operand;
use crate::sandbox::calls::{CallError, PatchKind, path, patiently};
use crate::sandbox::inventory::namespace;

/// Where custom kinds are defined.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The name of the one ClusterPolicy.
const POLICY: &str = "cluster-policy";
/// How long after a change the state is looked at, in seconds of the actors' time.
const SETTLE_SECS: f64 = 5.0;
/// The deploy labels that a GPU node gets; mig-manager's only where GPUs can be cut.
const DEPLOYED: [&str; 8] = [
    "container-toolkit",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "driver",
    "gpu-feature-discovery",
    "node-status-exporter",
    "operator-validator",
];

/// Plays the operator until the cancellation or the end of a feed.
pub(super) async fn run(
    shared: std::sync::Arc<Shared>,
    config: OperatorConfig,
    mut nodes: mpsc::Receiver<Change<Node>>,
    mut sets: mpsc::Receiver<Change<DaemonSet>>,
    mut policies: mpsc::Receiver<Change<ClusterPolicy>>,
) {
    let mut operator = Operator {
        mig_default: config.mig_config_default.clone(),
        config,
        agenda: Agenda::default(),
        labels: BTreeMap::new(),
        sets: BTreeMap::new(),
        unready: BTreeSet::new(),
        written: None,
        shared,
    };
    let cancel = operator.shared.cancel.clone();
    tokio::select! {
        biased;
        () = cancel.cancelled() => return,
        () = operator.install() => {}
    }
    operator.plan_state();
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => operator.node(&node),
                Some(Change::Gone(uid)) => operator.note_ready(&uid, true),
                Some(Change::Synced) => {}
                None => return,
            },
            Some(change) = sets.recv() => operator.set(change),
            Some(change) = policies.recv() => {
                if let Change::Set(policy) = change {
                    operator.mig_default = policy.mig_config_default().to_owned();
                }
            }
            () = operator.agenda.due() => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = operator.due() => {}
                }
            }
        }
    }
}

struct Operator {
    shared: std::sync::Arc<Shared>,
    config: OperatorConfig,
    agenda: Agenda,
    /// Labels to be written, by node.
    labels: BTreeMap<String, Map<String, Value>>,
    /// DaemonSets of ours by UID: name, and how many of their pods are not ready.
    sets: BTreeMap<String, (String, usize)>,
    /// UIDs of GPU nodes that are not Ready.
    unready: BTreeSet<String>,
    mig_default: String,
    /// The state that ClusterPolicy shows.
    written: Option<Vec<String>>,
}

/// The agenda's key for the state of ClusterPolicy: no node is named so.
const STATE: &str = "";

impl Operator {
    /// Writes the objects that the chart installs, unless they are there.
    async fn install(&mut self) {
        let shared = &self.shared;
        let home = &shared.config.namespace;
        self.ensure(path::NAMESPACES, &namespace(home)).await;
        self.ensure(DEFINITIONS, &definition()).await;
        let map = &self.config.mig_config_map;
        if !map.is_empty() {
            let maps = path::config_maps(home);
            let text = mig_file::for_all_models(&self.config.more_mig_configs);
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": map, "namespace": home},
                "data": {"config.yaml": text},
            });
            self.ensure(&maps, &object).await;
        }
        let strategy = shared.config.plugin.strategy.name();
        let policy = policy(&self.config, strategy);
        // The kind is served a moment after its definition was written.
        for _ in 0..50 {
            let made = shared.calls.ensure(path::CLUSTER_POLICIES, &policy).await;
            match made {
                Ok(_) => break,
                Err(error) if error.is_not_found() => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "ClusterPolicy not written");
                    break;
                }
            }
        }
        if self.config.operand_pods {
            let at = path::daemon_sets(home);
            for operand in Operand::ALL {
                self.ensure(&at, &daemon_set(operand, home, &self.config.version))
                    .await;
            }
        }
    }

    async fn ensure(&self, collection: &str, object: &Value) {
        if let Err(error) = self.shared.calls.ensure(collection, object).await {
            tracing::warn!(%error, "the operator could not install an object");
        }
    }

    /// The labels that the node lacks.
    fn node(&mut self, node: &Node) {
        let labels = &node.metadata.labels;
        let is = |name: &str, value: &str| labels.get(name).is_some_and(|found| found == value);
        if !is("nvidia.com/gpu.present", "true") {
            return;
        }
        let ready = node.ready() == Some("True");
        let mut missing = Map::new();
        let mut want = |name: String, value: &str| {
            if !labels.contains_key(&name) {
                missing.insert(name, value.into());
            }
        };
        for component in DEPLOYED {
            want(format!("nvidia.com/gpu.deploy.{component}"), "true");
        }
        if is("nvidia.com/mig.capable", "true") {
            want("nvidia.com/gpu.deploy.mig-manager".to_owned(), "true");
            if !self.mig_default.is_empty() {
                want(CONFIG.to_owned(), &self.mig_default);
            }
        }
        self.note_ready(&node.metadata.uid, ready);
        let name = &node.metadata.name;
        if missing.is_empty() {
            self.labels.remove(name);
            self.agenda.remove(name);
        } else {
            self.labels.insert(name.clone(), missing);
            let at = Instant::now() + self.shared.clock.real(1.0);
            self.agenda.at_latest(name, at);
        }
    }

    fn note_ready(&mut self, node_uid: &str, ready: bool) {
        let changed = if ready {
            self.unready.remove(node_uid)
        } else {
            self.unready.insert(node_uid.to_owned())
        };
        if changed && !self.config.count_unready_nodes {
            self.plan_state();
        }
    }

    fn set(&mut self, change: Change<DaemonSet>) {
        match change {
            Change::Set(set) if set.metadata.namespace == self.shared.config.namespace => {
                let count = |name: &str| {
                    let count = set.status.get(name).and_then(Value::as_u64);
                    usize::try_from(count.unwrap_or(0)).unwrap_or(0)
                };
                let wanted = count("desiredNumberScheduled");
                let lacking = wanted.saturating_sub(count("numberReady"));
                let meta = &set.metadata;
                self.sets
                    .insert(meta.uid.clone(), (meta.name.clone(), lacking));
            }
            Change::Gone(uid) => {
                self.sets.remove(&uid);
            }
            Change::Set(_) | Change::Synced => return,
        }
        self.plan_state();
    }

    fn plan_state(&mut self) {
        let at = Instant::now() + self.shared.clock.real(SETTLE_SECS);
        self.agenda.at_latest(STATE, at);
    }

    async fn due(&mut self) {
        let Some(key) = self.agenda.pop(Instant::now()) else {
            return;
        };
        if key == STATE {
            self.write_state().await;
            return;
        }
        let Some(labels) = self.labels.remove(&key) else {
            return;
        };
        if let Err(error) = self.shared.label(&key, Value::Object(labels)).await {
            tracing::debug!(%error, node = key, "the operator's labels were not written");
        }
    }

    async fn write_state(&mut self) {
        let excused = if self.config.count_unready_nodes {
            0
        } else {
            self.unready.len()
        };
        let not_ready: Vec<String> = self
            .sets
            .values()
            .filter(|(_, lacking)| *lacking > excused)
            .map(|(name, _)| state_of(name))
            .collect();
        if self.written.as_ref() == Some(&not_ready) {
            return;
        }
        let status = status(
            &self.shared.config.namespace,
            &not_ready,
            self.shared.clock.now(),
        );
        let at = format!("{}/{POLICY}/status", path::CLUSTER_POLICIES);
        match self.write_status(&at, &status).await {
            Ok(()) => self.written = Some(not_ready),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::debug!(%error, "the state of ClusterPolicy was not written");
                self.plan_state();
            }
        }
    }

    async fn write_status(&self, at: &str, status: &Value) -> Result<(), CallError> {
        let body = json!({"status": status});
        let calls = &self.shared.calls;
        patiently(|| calls.patch::<IgnoredAny>(at, PatchKind::Merge, &body)).await?;
        Ok(())
    }
}

/// The operator's name of the state that deploys a DaemonSet.
fn state_of(set: &str) -> String {
    let short = match set {
        "nvidia-device-plugin-daemonset" => "device-plugin",
        "nvidia-dcgm-exporter" => "dcgm-exporter",
        "nvidia-mig-manager" => "mig-manager",
        other => other,
    };
    format!("state-{short}").replace("state-gpu-feature-discovery", "gpu-feature-discovery")
}

fn status(namespace: &str, not_ready: &[String], now: Timestamp) -> Value {
    let at = rfc3339(now);
    let condition = |kind: &str, on: bool, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": if on { "True" } else { "False" },
            "lastTransitionTime": at,
            "reason": reason,
            "message": message,
        })
    };
    let done = "ClusterPolicy is ready as all resources have been successfully reconciled";
    let (state, conditions) = if not_ready.is_empty() {
        let conditions = [
            condition("Ready", true, "Reconciled", done),
            condition("Error", false, "Ready", ""),
        ];
        ("ready", conditions)
    } else {
        let message = format!(
            "ClusterPolicy is not ready, states not ready: [{}]",
            not_ready.join(" ")
        );
        let conditions = [
            condition("Ready", false, "Error", ""),
            condition("Error", true, "OperandNotReady", &message),
        ];
        ("notReady", conditions)
    };
    json!({"namespace": namespace, "state": state, "conditions": conditions})
}

/// The definition of ClusterPolicy, as far as clients look at it.
fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "names": {
                "kind": "ClusterPolicy",
                "listKind": "ClusterPolicyList",
                "plural": "clusterpolicies",
                "singular": "clusterpolicy",
            },
            "scope": "Cluster",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": open, "status": open},
                }},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Status", "type": "string", "jsonPath": ".status.state"},
                    {"name": "Age", "type": "string", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn policy(config: &OperatorConfig, strategy: &str) -> Value {
    let chart = format!("gpu-operator-{}", config.version);
    json!({
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": POLICY,
            "labels": {
                "app.kubernetes.io/component": "gpu-operator",
                "app.kubernetes.io/instance": "gpu-operator",
                "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/name": "gpu-operator",
                "app.kubernetes.io/version": config.version,
                "helm.sh/chart": chart,
            },
        },
        "spec": {
            "operator": {"defaultRuntime": "containerd", "runtimeClass": "nvidia"},
            "daemonsets": {
                "updateStrategy": "RollingUpdate",
                "priorityClassName": "system-node-critical",
                "tolerations": [tolerations()],
            },
            "driver": {"enabled": true, "version": "580.95.05", "upgradePolicy": {
                "autoUpgrade": true,
                "maxParallelUpgrades": 1,
                "drain": {"enable": false, "force": false, "timeoutSeconds": 300},
            }},
            "toolkit": {"enabled": true},
            "devicePlugin": {"enabled": true, "config": {"name": "", "default": ""}},
            "dcgm": {"enabled": false},
            "dcgmExporter": {"enabled": true, "serviceMonitor": {"enabled": false}},
            "gfd": {"enabled": true},
            "mig": {"strategy": strategy},
            "migManager": {
                "enabled": true,
                "config": {
                    "name": config.mig_config_map,
                    "default": config.mig_config_default,
                },
                "gpuClientsConfig": {"name": ""},
                "env": [{"name": "WITH_REBOOT", "value": "false"}],
            },
            "nodeStatusExporter": {"enabled": true},
            "sandboxWorkloads": {"enabled": false, "defaultWorkload": "container"},
            "cdi": {"enabled": true},
        },
    })
}

fn tolerations() -> Value {
    json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
}

fn daemon_set(operand: Operand, namespace: &str, version: &str) -> Value {
    let app = operand.app();
    let (container, image) = match operand {
        Operand::DevicePlugin => ("nvidia-device-plugin", "k8s-device-plugin:v0.20.0"),
        Operand::Discovery => ("gpu-feature-discovery", "k8s-device-plugin:v0.20.0"),
        Operand::Exporter => ("nvidia-dcgm-exporter", "k8s/dcgm-exporter:4.8.2"),
        Operand::MigManager => ("nvidia-mig-manager", "cloud-native/k8s-mig-manager:v0.15.0"),
    };
    let ports = match operand {
        Operand::Exporter => json!([{"name": "metrics", "containerPort": 9400}]),
        _ => json!([]),
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": app,
            "namespace": namespace,
            "labels": {
                "app": app,
                "app.kubernetes.io/managed-by": "gpu-operator",
                "helm.sh/chart": format!("gpu-operator-{version}"),
            },
        },
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {
                    "app": app,
                    "app.kubernetes.io/managed-by": "gpu-operator",
                }},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": {operand.deploy_label(): "true"},
                    "tolerations": [tolerations()],
                    "containers": [{
                        "name": container,
                        "image": format!("nvcr.io/nvidia/{image}"),
                        "ports": ports,
                    }],
                },
            },
        },
    })
}
