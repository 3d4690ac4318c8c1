//! How each provider announces that it takes a spot machine back, and what it then does.
//!
//! Sources: Karpenter and aws-node-termination-handler, GKE's handling of spot VMs, AKS node
//! auto-drain with its node problem detector, CoreWeave's documentation.

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::drain::{AtDeadline, drain, update_node, with_taints};
use super::shutdown::{Grace, shut_down, stop_kubelet};
use crate::sandbox::actors::clock::{Clock, hash, rfc3339};
use crate::sandbox::actors::events::Note;
use crate::sandbox::actors::objects::Node;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// Whose shape a notice has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// EC2 spot under Karpenter.
    Karpenter,
    /// EC2 spot under aws-node-termination-handler.
    Nth,
    /// GKE spot and preemptible VMs: no word but the kubelet's shutdown.
    Gke,
    /// AKS spot node pools.
    Aks,
    /// CoreWeave spot.
    CoreWeave,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Karpenter,
        Self::Nth,
        Self::Gke,
        Self::Aks,
        Self::CoreWeave,
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Karpenter => "karpenter",
            Self::Nth => "nth",
            Self::Gke => "gke",
            Self::Aks => "aks",
            Self::CoreWeave => "coreweave",
        }
    }

    /// Whose spot node this is, by its labels; `None` when it is none.
    pub fn of(node: &Node) -> Option<Self> {
        let has = |key: &str, wanted: &str| {
            let value = node.metadata.labels.get(key);
            value.is_some_and(|value| value.eq_ignore_ascii_case(wanted))
        };
        let rules = [
            ("karpenter.sh/capacity-type", "spot", Self::Karpenter),
            ("eks.amazonaws.com/capacityType", "SPOT", Self::Nth),
            ("cloud.google.com/gke-spot", "true", Self::Gke),
            ("cloud.google.com/gke-preemptible", "true", Self::Gke),
            ("kubernetes.azure.com/scalesetpriority", "spot", Self::Aks),
            ("kubernetes.azure.com/priority", "spot", Self::Aks),
            (
                "compute.coreweave.com/compute-class",
                "spot",
                Self::CoreWeave,
            ),
        ];
        let found = rules.iter().find(|(key, value, _)| has(key, value));
        found.map(|(_, _, provider)| *provider)
    }

    /// Seconds from the notice to the end of the machine.
    pub fn lead_secs(self) -> f64 {
        match self {
            Self::Karpenter | Self::Nth => 120.0,
            Self::Gke | Self::Aks => 30.0,
            Self::CoreWeave => 420.0,
        }
    }
}

/// A machine that is taken back.
#[derive(Debug, Clone)]
pub(super) struct Reclaim {
    pub provider: Provider,
    pub name: String,
    pub uid: String,
    /// The NodeClaim's name under Karpenter.
    pub claim: String,
    pub lead_secs: f64,
}

impl Reclaim {
    /// Announces the end, clears the node as the provider does, and deletes the Node object when
    /// the time is over.
    ///
    /// # Errors
    /// A refusal of the notice or of the deletion.
    pub(super) async fn run(&self, calls: &Calls, clock: Clock) -> Result<(), CallError> {
        let deadline = Instant::now() + clock.real(self.lead_secs);
        match self.provider {
            Provider::Karpenter => self.karpenter(calls, clock, deadline).await?,
            Provider::Nth => self.nth(calls, clock, deadline).await?,
            Provider::Gke => self.gke(calls, clock, deadline).await?,
            Provider::Aks => self.aks(calls, clock, deadline).await?,
            Provider::CoreWeave => self.coreweave(calls, clock, deadline).await?,
        }
        sleep_until(deadline).await;
        stop_kubelet(calls, &self.name).await?;
        let at = format!("{}/{}", path::NODES, self.name);
        calls.delete(&at, &self.uid, None).await
    }

    async fn say(
        &self,
        calls: &Calls,
        component: &'static str,
        kind: (bool, &str),
        message: impl Into<String>,
    ) {
        let mut note = Note::node(&self.name, &self.uid, component, kind, message.into());
        if component == "aws-node-termination-handler" {
            note.host.clone_from(&self.name);
        }
        note.write(calls).await;
    }

    async fn say_of_claim(&self, calls: &Calls, reason: &str, message: &str) {
        let note = Note {
            api_version: "karpenter.sh/v1",
            kind: "NodeClaim",
            namespace: String::new(),
            name: self.claim.clone(),
            uid: String::new(),
            component: "karpenter",
            host: String::new(),
            warning: true,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        note.write(calls).await;
    }

    async fn karpenter(
        &self,
        calls: &Calls,
        clock: Clock,
        deadline: Instant,
    ) -> Result<(), CallError> {
        const WARNING: &str = "Spot interruption warning was triggered";
        let ends = rfc3339(clock.at(deadline));
        self.say(calls, "karpenter", (true, "SpotInterrupted"), WARNING)
            .await;
        self.say_of_claim(calls, "SpotInterrupted", WARNING).await;
        let why = "Interruption triggered termination for the NodeClaim";
        self.say_of_claim(calls, "TerminatingOnInterruption", why)
            .await;
        update_node(calls, &self.name, |node| {
            let taint = json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"});
            json!({
                "metadata": {
                    "labels": {
                        "node.kubernetes.io/exclude-from-external-load-balancers": "karpenter",
                    },
                    "annotations": {"karpenter.sh/nodeclaim-termination-timestamp": ends},
                },
                "spec": {"taints": with_taints(node, &[taint])},
            })
        })
        .await?;
        let message = format!("All pods will be deleted by {ends}");
        let kind = (true, "TerminationGracePeriodExpiring");
        self.say(calls, "karpenter", kind, message).await;
        drain(calls, clock, &self.name, deadline, AtDeadline::DeleteInTime).await;
        Ok(())
    }

    async fn nth(&self, calls: &Calls, clock: Clock, deadline: Instant) -> Result<(), CallError> {
        const COMPONENT: &str = "aws-node-termination-handler";
        let ends = rfc3339(clock.at(deadline));
        let id = format!(
            "spot-itn-{:016x}{:016x}{:08x}",
            hash(1, &self.uid),
            hash(2, &self.uid),
            hash(3, &self.uid) >> 32
        );
        // The handler's own message ends so.
        let message = format!("Spot ITN received. Instance will be interrupted at {ends} \n");
        self.say(calls, COMPONENT, (true, "SpotInterruption"), message)
            .await;
        update_node(calls, &self.name, |node| {
            let now = clock.now();
            let taint = json!({
                "key": "aws-node-termination-handler/spot-itn",
                "value": id,
                "effect": "NoSchedule",
                "timeAdded": rfc3339(now),
            });
            json!({
                "metadata": {"labels": {
                    "aws-node-termination-handler/action": "cordon-and-drain",
                    "aws-node-termination-handler/action-time": now.as_second().to_string(),
                    "aws-node-termination-handler/event-id": id,
                }},
                "spec": {"unschedulable": true, "taints": with_taints(node, &[taint])},
            })
        })
        .await?;
        if drain(calls, clock, &self.name, deadline, AtDeadline::Leave).await {
            let message = "Node successfully cordoned and drained";
            self.say(calls, COMPONENT, (false, "CordonAndDrain"), message)
                .await;
        }
        Ok(())
    }

    async fn gke(&self, calls: &Calls, clock: Clock, deadline: Instant) -> Result<(), CallError> {
        update_node(calls, &self.name, |node| {
            let taint = json!({
                "key": "cloud.google.com/impending-node-termination",
                "effect": "NoSchedule",
                "timeAdded": rfc3339(clock.now()),
            });
            json!({"spec": {"taints": with_taints(node, &[taint])}})
        })
        .await?;
        let scale = self.lead_secs / Grace::GKE.total_secs;
        let grace = Grace {
            total_secs: self.lead_secs,
            critical_secs: Grace::GKE.critical_secs * scale.min(1.0),
        };
        let ended = shut_down(calls, clock, (&self.name, &self.uid), grace);
        tokio::select! {
            biased;
            result = ended => result,
            () = sleep_until(deadline) => Ok(()),
        }
    }

    async fn aks(&self, calls: &Calls, clock: Clock, deadline: Instant) -> Result<(), CallError> {
        const MONITOR: &str = "custom-scheduledevents-consolidated-preempt-plugin-monitor";
        let ends = clock.at(deadline).strftime("%a, %d %b %Y %H:%M:%S GMT");
        let message = format!(
            "Preempt Scheduled: {ends}. DurationInSeconds: -1. Reference: \
             https://aka.ms/aks/scheduledevents"
        );
        self.azure_condition(calls, clock, true, &message).await?;
        self.say(calls, MONITOR, (true, "PreemptScheduled"), message)
            .await;
        update_node(calls, &self.name, |node| {
            let taint = json!({
                "key": "remediator.kubernetes.azure.com/unschedulable",
                "effect": "NoSchedule",
                "timeAdded": rfc3339(clock.now()),
            });
            json!({"spec": {"unschedulable": true, "taints": with_taints(node, &[taint])}})
        })
        .await?;
        drain(calls, clock, &self.name, deadline, AtDeadline::Leave).await;
        Ok(())
    }

    /// The condition that AKS keeps of scheduled events; True is bad.
    async fn azure_condition(
        &self,
        calls: &Calls,
        clock: Clock,
        scheduled: bool,
        message: &str,
    ) -> Result<(), CallError> {
        let at = rfc3339(clock.now());
        let (status, reason, message) = if scheduled {
            ("True", "VMEventScheduled", message)
        } else {
            ("False", "NoVMEventScheduled", "VM has no scheduled event")
        };
        let condition = json!({
            "type": "VMEventScheduled",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        });
        let status_path = format!("{}/{}/status", path::NODES, self.name);
        let body = json!({
            "metadata": {"uid": self.uid},
            "status": {"conditions": [condition]},
        });
        let kind = PatchKind::Strategic;
        let written = calls.patch::<IgnoredAny>(&status_path, kind, &body).await;
        written.map(|_| ())
    }

    async fn coreweave(
        &self,
        calls: &Calls,
        clock: Clock,
        deadline: Instant,
    ) -> Result<(), CallError> {
        update_node(calls, &self.name, |_| {
            json!({
                "metadata": {"labels": {"qos.coreweave.cloud/pending-preemption": "true"}},
                "spec": {"unschedulable": true},
            })
        })
        .await?;
        // The window is the users'; at its end what is left is evicted.
        let last = deadline.checked_sub(clock.real(self.lead_secs.min(30.0)));
        sleep_until(last.unwrap_or(deadline)).await;
        drain(calls, clock, &self.name, deadline, AtDeadline::Leave).await;
        Ok(())
    }

    /// A warning that nothing follows: EC2's rebalance recommendation, or an Azure event that is
    /// withdrawn after a minute. The others warn only of what they do.
    ///
    /// # Errors
    /// The server's refusal.
    pub(super) async fn false_alarm(&self, calls: &Calls, clock: Clock) -> Result<(), CallError> {
        match self.provider {
            Provider::Karpenter => {
                let message = "Spot rebalance recommendation was triggered";
                let kind = (false, "SpotRebalanceRecommendation");
                self.say(calls, "karpenter", kind, message).await;
                Ok(())
            }
            Provider::Nth => {
                let message = format!(
                    "Rebalance recommendation received. Instance will be cordoned at {} \n",
                    rfc3339(clock.now())
                );
                let kind = (true, "RebalanceRecommendation");
                self.say(calls, "aws-node-termination-handler", kind, message)
                    .await;
                update_node(
                    calls,
                    &self.name,
                    |_| json!({"spec": {"unschedulable": true}}),
                )
                .await
            }
            Provider::Aks => {
                let message = "Preempt Scheduled. Reference: https://aka.ms/aks/scheduledevents";
                self.azure_condition(calls, clock, true, message).await?;
                tokio::time::sleep(clock.real(60.0)).await;
                self.azure_condition(calls, clock, false, "").await
            }
            Provider::Gke | Provider::CoreWeave => Ok(()),
        }
    }
}

/// Marks of a notice, which a new machine in the place of an old one must not have.
pub(super) fn wipe(node: &mut Value) {
    let remove = |node: &mut Value, field: &str, keys: &[&str]| {
        let map = node
            .get_mut("metadata")
            .and_then(|meta| meta.get_mut(field));
        if let Some(map) = map.and_then(Value::as_object_mut) {
            map.retain(|key, _| !keys.iter().any(|prefix| key.starts_with(prefix)));
        }
    };
    remove(
        node,
        "labels",
        &[
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "aws-node-termination-handler/",
            "qos.coreweave.cloud/pending-preemption",
        ],
    );
    remove(
        node,
        "annotations",
        &["karpenter.sh/nodeclaim-termination-timestamp"],
    );
    let taints = node.get_mut("spec").and_then(|spec| spec.get_mut("taints"));
    if let Some(taints) = taints.and_then(Value::as_array_mut) {
        taints.retain(|taint| {
            let key = taint.get("key").and_then(Value::as_str).unwrap_or_default();
            !(key.starts_with("node.kubernetes.io/")
                || key.starts_with("aws-node-termination-handler/")
                || key.starts_with("remediator.kubernetes.azure.com/")
                || key == "karpenter.sh/disrupted"
                || key == "cloud.google.com/impending-node-termination"
                || key.ends_with("ClusterAutoscaler"))
        });
    }
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("unschedulable");
    }
}
