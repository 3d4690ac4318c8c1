//! mig-manager: what it does to one node when the value of `nvidia.com/mig.config` changes or
//! its pod starts.
//!
//! It never drains: where pods use the GPUs it fails. Where an operand's pod does not go in time
//! it gives up without a word, and the node stays `pending` with its operands paused.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::clock::rfc3339;
use super::super::objects::{ConfigMap, Node};
use super::agents::Shared;
use super::config::MigManagerConfig;
use super::mig::Targets;
use super::mig_file::{self, File, FileError};
use super::operands::Operand;
use crate::sandbox::calls::{CallError, Created, PatchKind, path, patiently};

/// The label with the name of the wanted configuration.
pub(super) const CONFIG: &str = "nvidia.com/mig.config";
/// The label with how far it is.
pub(super) const STATE: &str = "nvidia.com/mig.config.state";
/// The value of a deploy label while mig-manager works.
pub(super) const PAUSED: &str = "paused-for-mig-change";
/// Operands that use a GPU and are paused, by their deploy labels.
const PAUSED_OPERANDS: [&str; 6] = [
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm-exporter",
    "dcgm",
    "nvsm",
    "client",
];
/// Operands with pods that are waited for, in this order.
const WAITED_FOR: [Operand; 3] = [Operand::DevicePlugin, Operand::Discovery, Operand::Exporter];
/// The key of a ConfigMap that is read; any other is not seen.
const KEY: &str = "config.yaml";

/// Why mig-manager looks at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The value of the label has changed.
    Label,
    /// Its pod has started: it applies the label whatever was done before, with a file that was
    /// mounted just now.
    Start,
}

/// The contents of a ConfigMap since a moment.
#[derive(Debug)]
struct Version {
    since: Instant,
    text: Option<String>,
}

/// ConfigMaps with configurations, and which of them the pods mount.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// Versions by name, oldest first.
    by_name: BTreeMap<String, Vec<Version>>,
    names: BTreeMap<String, String>,
    /// The name that ClusterPolicy gives; empty has configurations generated.
    configured: Option<String>,
}

impl Maps {
    /// Takes note of a ConfigMap.
    pub(super) fn set(&mut self, map: &ConfigMap) {
        let meta = &map.metadata;
        self.names.insert(meta.uid.clone(), meta.name.clone());
        let text = map.data.get(KEY).cloned();
        let versions = self.by_name.entry(meta.name.clone()).or_default();
        if versions.last().is_none_or(|last| last.text != text) {
            let since = Instant::now();
            versions.push(Version { since, text });
        }
    }

    /// A ConfigMap is gone; what is mounted stays.
    pub(super) fn gone(&mut self, uid: &str) {
        if let Some(name) = self.names.remove(uid) {
            self.by_name.remove(&name);
        }
    }

    /// Takes note of the name in ClusterPolicy; true when it is another than before.
    pub(super) fn configured(&mut self, name: &str) -> bool {
        let before = self.configured.replace(name.to_owned());
        before.is_some_and(|before| before != name)
    }

    /// Whether mig-manager's pods can start: they mount the ConfigMap of ClusterPolicy, which must
    /// be there, and with an operator there is a ClusterPolicy sooner or later.
    pub(super) fn can_mount(&self, has_operator: bool) -> bool {
        match self.configured.as_deref() {
            None => !has_operator,
            Some("") => true,
            Some(name) => self.by_name.contains_key(name),
        }
    }

    /// Whether mig-managers generate their configurations.
    pub(super) fn are_generated(&self) -> bool {
        self.configured.as_deref() == Some("")
    }

    /// The file that the mig-manager of `node` sees, or `None` when it generates its own.
    ///
    /// A changed ConfigMap reaches a running pod late, by kubelet's volume sync.
    pub(super) fn mounted(
        &mut self,
        node: &str,
        trigger: Trigger,
        shared: &Shared,
    ) -> Option<Result<File, FileError>> {
        let name = self.configured.as_ref().filter(|name| !name.is_empty())?;
        let (low, high) = match &shared.config.mig_manager {
            Some(config) => config.volume_sync_secs,
            None => (0.0, 0.0),
        };
        let lag = shared.clock.between(low, high, &format!("{node}/volume"));
        let (lag, longest) = (shared.clock.real(lag), shared.clock.real(high));
        let now = Instant::now();
        let missing = || FileError::Unreadable(format!("ConfigMap {name} has no key {KEY}"));
        let Some(versions) = self.by_name.get_mut(name) else {
            return Some(Err(missing()));
        };
        // Versions that no pod can see any more.
        let settled = versions.iter().rposition(|v| v.since + longest <= now);
        versions.drain(..settled.unwrap_or(0));
        let seen = match trigger {
            Trigger::Start => versions.last(),
            Trigger::Label => {
                let mut late = versions.iter().skip(1).rev();
                let arrived = late.find(|version| version.since + lag <= now);
                arrived.or(versions.first())
            }
        };
        let text = seen.and_then(|version| version.text.as_deref());
        Some(text.ok_or_else(missing).and_then(File::read))
    }
}

/// Publishes the generated configurations of `node`, for people: editing them has no effect.
/// `owner` is the UID and name of mig-manager's pod, with which they go.
pub(super) async fn publish(
    shared: &Shared,
    node: &str,
    (uid, pod): (&str, &str),
) -> Result<(), CallError> {
    let Some(text) = shared
        .hardware
        .with(node, |machine| mig_file::generated(machine.model))
    else {
        return Ok(());
    };
    let name = format!("{node}-mig-config");
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}]);
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": shared.config.namespace,
            "labels": {
                "app.kubernetes.io/component": "nvidia-mig-manager",
                "nvidia.com/node-name": node,
            },
            "ownerReferences": owner,
        },
        "data": {KEY: text},
    });
    let collection = path::config_maps(&shared.config.namespace);
    match shared.calls.ensure(&collection, &map).await? {
        Created::New => Ok(()),
        // The one of the pod before: it is this pod's now.
        Created::Existing => {
            let at = format!("{collection}/{name}");
            let calls = &shared.calls;
            let call = || calls.patch::<IgnoredAny>(&at, PatchKind::Merge, &map);
            patiently(call).await.map(|_| ())
        }
    }
}

/// Brings `node` to the configuration `config`, as far as mig-manager would.
pub(super) async fn reconfigure(
    shared: &Shared,
    node: &str,
    config: &str,
    file: Option<Result<File, FileError>>,
) {
    let Some(settings) = &shared.config.mig_manager else {
        return;
    };
    let work = Work {
        shared,
        settings,
        node,
    };
    work.say(&format!("Updating to MIG config: {config}"));
    let ended = tokio::select! {
        biased;
        () = shared.cancel.cancelled() => return,
        ended = work.run(config, file) => ended,
    };
    if let Err(error) = ended {
        // Its log is the only place that tells.
        work.complain(&error.to_string());
    }
    work.say("Waiting for change to 'nvidia.com/mig.config' label");
}

/// Why the work ended without a last word on the node.
#[derive(Debug, thiserror::Error)]
enum GaveUp {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("timed out waiting for the pod of {0} to be deleted")]
    Waited(&'static str),
    #[error("unable to delete the validator pods")]
    Validator,
}

struct Work<'a> {
    shared: &'a Shared,
    settings: &'a MigManagerConfig,
    node: &'a str,
}

impl Work<'_> {
    async fn run(&self, config: &str, file: Option<Result<File, FileError>>) -> Result<(), GaveUp> {
        let targets = match self.targets(config, file) {
            Ok(targets) => targets,
            Err(error) => {
                self.complain(&error.to_string());
                return self.state("failed").await;
            }
        };
        self.say("Selected MIG configuration is valid");
        if self.is_applied(&targets) {
            return self.state("success").await;
        }
        self.state("pending").await?;
        self.say(
            "Shutting down all GPU clients in Kubernetes by disabling their component-specific \
             nodeSelector labels",
        );
        self.pause().await?;
        for operand in WAITED_FOR {
            self.say(&format!("Waiting for {} to shutdown", operand.app()));
            self.wait_for(operand).await?;
        }
        if self.shared.fault(self.node) == "wedge" {
            return Err(GaveUp::Validator);
        }
        let mut applied = self.apply(&targets).await;
        if applied == Applied::Reboot {
            self.reboot().await?;
            applied = self.apply(&targets).await;
        }
        self.say(
            "Restarting all GPU clients previously shutdown in Kubernetes by reenabling their \
             component-specific nodeSelector labels",
        );
        // What starts again reads what is there now, whatever became of the change.
        self.resume().await?;
        let state = match applied {
            Applied::Yes => "success",
            Applied::No | Applied::Reboot => "failed",
        };
        self.state(state).await
    }

    fn targets(
        &self,
        config: &str,
        file: Option<Result<File, FileError>>,
    ) -> Result<Targets, FileError> {
        let targets = self.shared.hardware.with(self.node, |machine| {
            let file = match file {
                Some(file) => file,
                None => File::read(&mig_file::generated(machine.model)),
            };
            file.and_then(|file| file.targets(config, machine))
        });
        targets.unwrap_or_else(|| Ok(Targets::new()))
    }

    fn is_applied(&self, targets: &Targets) -> bool {
        let hardware = &self.shared.hardware;
        let applied = hardware.with(self.node, |machine| machine.is(targets));
        applied.unwrap_or(true)
    }

    /// Writes into the log of mig-manager's pod.
    fn say(&self, line: &str) {
        let shared = self.shared;
        shared.log(self.node, Operand::MigManager, "info", line);
    }

    fn complain(&self, line: &str) {
        tracing::debug!(node = self.node, line, "mig-manager has an error");
        let shared = self.shared;
        shared.log(self.node, Operand::MigManager, "error", line);
    }

    async fn state(&self, state: &str) -> Result<(), GaveUp> {
        self.say(&format!("Changing the '{STATE}' node label to '{state}'"));
        Ok(self.shared.label(self.node, json!({STATE: state})).await?)
    }

    /// The deploy labels of the node that are to be paused, or are.
    async fn deploy_labels(&self, value: &str) -> Result<Map<String, Value>, GaveUp> {
        let at = format!("{}/{}", path::NODES, self.node);
        let node: Node = patiently(|| self.shared.calls.get(&at)).await?;
        let names = PAUSED_OPERANDS.map(|name| format!("nvidia.com/gpu.deploy.{name}"));
        let of_node = names.into_iter().filter(|name| {
            let present = node.metadata.labels.get(name);
            // One that is switched off stays so.
            present.is_some_and(|present| present != "false")
        });
        Ok(of_node.map(|name| (name, value.into())).collect())
    }

    async fn pause(&self) -> Result<(), GaveUp> {
        let labels = self.deploy_labels(PAUSED).await?;
        Ok(self.shared.label(self.node, labels.into()).await?)
    }

    async fn resume(&self) -> Result<(), GaveUp> {
        let labels = self.deploy_labels("true").await?;
        Ok(self.shared.label(self.node, labels.into()).await?)
    }

    /// Waits until no pod of the operand is left, at most as long as mig-manager does.
    async fn wait_for(&self, operand: Operand) -> Result<(), GaveUp> {
        let shared = self.shared;
        if !shared.operands(|all| all.has_pods_ever(self.node, operand)) {
            if operand == Operand::DevicePlugin {
                self.sleep(self.settings.stop_secs).await;
            }
            return Ok(());
        }
        let mut changed = shared.changed.listen();
        let gone = async {
            while shared.operands(|all| all.has_pod(self.node, operand)) {
                changed.changed().await;
            }
        };
        let limit = shared.clock.real(self.settings.wait_secs);
        let waited = tokio::time::timeout(limit, gone).await;
        waited.map_err(|_| GaveUp::Waited(operand.app()))
    }

    async fn apply(&self, targets: &Targets) -> Applied {
        let hardware = &self.shared.hardware;
        if self.shared.fault(self.node) == "client" {
            // A host process has the GPUs open: nothing can be destroyed.
            self.complain("Error clearing MigConfig: error destroying Compute instance for profile '(0, 0)': In use by another client");
            self.sleep(self.settings.gpu_secs).await;
            return Applied::No;
        }
        let changes = hardware.with(self.node, |machine| machine.needs_mode_change(targets));
        if changes == Some(true) {
            self.say(
                "Applying the MIG mode change from the selected config to the node (and double \
                 checking it took effect)",
            );
            self.sleep(self.settings.mode_secs).await;
            let changed = hardware.with(self.node, |machine| {
                let passed_through = self.settings.no_reset_instances.iter();
                let mut passed_through =
                    passed_through.filter(|prefix| machine.instance_type.starts_with(*prefix));
                let can_reset = passed_through.next().is_none();
                machine.change_modes(targets, can_reset)
            });
            if let Some(Err(error)) = changed {
                self.complain(&format!("Error applying MIG mode: {error}"));
                if self.settings.with_reboot {
                    return Applied::Reboot;
                }
            }
        }
        self.say("Applying the selected MIG config to the node");
        let differing = hardware.with(self.node, |machine| {
            let mut gpus = machine.gpus.iter();
            let differs = |gpu: &&super::hardware::Gpu| {
                let target = targets.get(&gpu.index);
                target.is_some_and(|target| gpu.layout() != target.profiles)
            };
            gpus.by_ref().filter(differs).count()
        });
        let each = self.settings.gpu_secs;
        for _ in 0..differing.unwrap_or(0) {
            self.sleep(each).await;
        }
        match hardware.with(self.node, |machine| machine.rebuild(targets)) {
            Some(Err(error)) => {
                self.complain(&format!("Error applying MIG configuration: {error}"));
                Applied::No
            }
            Some(Ok(())) | None => Applied::Yes,
        }
    }

    /// Restarts the host: the node is away meanwhile and comes back with another boot id.
    async fn reboot(&self) -> Result<(), GaveUp> {
        self.state("rebooting").await?;
        self.ready("False", "KubeletNotReady", "node is shutting down", None)
            .await?;
        self.sleep(self.settings.reboot_secs).await;
        let hardware = &self.shared.hardware;
        hardware.with(self.node, super::hardware::Machine::reboot);
        let clock = self.shared.clock;
        let boot = clock.uuid(&format!("{}/boot/{}", self.node, clock.now().as_second()));
        let message = "kubelet is posting ready status";
        self.ready("True", "KubeletReady", message, Some(boot))
            .await
    }

    async fn ready(
        &self,
        status: &str,
        reason: &str,
        message: &str,
        boot_id: Option<String>,
    ) -> Result<(), GaveUp> {
        let at = rfc3339(self.shared.clock.now());
        let mut body = json!({"status": {"conditions": [{
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }]}});
        if let (Some(id), Some(status)) = (boot_id, body.get_mut("status")) {
            *status = json!({"conditions": status.get("conditions"), "nodeInfo": {"bootID": id}});
        }
        let at = format!("{}/{}/status", path::NODES, self.node);
        let calls = &self.shared.calls;
        let call = || calls.patch::<IgnoredAny>(&at, PatchKind::Strategic, &body);
        patiently(call).await?;
        Ok(())
    }

    async fn sleep(&self, secs: f64) {
        tokio::time::sleep(self.shared.clock.real(secs)).await;
    }
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Applied {
    Yes,
    No,
    /// The mode needs a reboot.
    Reboot,
}
