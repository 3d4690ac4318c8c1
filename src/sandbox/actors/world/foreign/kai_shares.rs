//! Parts of GPUs under KAI: a reservation pod holds the whole GPU, and the pods of its group share
//! it without asking the kubelet for any.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::placer::Placer;
use crate::sandbox::actors::clock::hash;
use crate::sandbox::actors::objects::{Container, Pod};

/// Where reservation pods live; they are nobody's load.
pub(super) const NAMESPACE: &str = "kai-resource-reservation";
/// Label of the pods on one shared GPU.
pub(super) const GROUP_LABEL: &str = "runai-gpu-group";
/// Annotation with the part of a GPU that a pod wants, such as `0.25`.
const FRACTION: &str = "gpu-fraction";
/// A whole GPU, in thousandths.
const WHOLE: i128 = 1_000;

/// The part of a GPU that the pod wants, in thousandths; `None` for a pod that shares none.
pub(super) fn fraction(pod: &Pod) -> Option<i128> {
    let part: f64 = pod.metadata.annotations.get(FRACTION)?.parse().ok()?;
    let milli = (part * 1_000.0).round();
    (1.0..=1_000.0).contains(&milli).then_some(milli as i128)
}

/// A shared GPU.
#[derive(Debug, Default)]
struct Share {
    node: String,
    /// Name and UID of its reservation pod.
    reservation: Option<(String, String)>,
    /// Parts by the UID of their pod.
    parts: BTreeMap<String, i128>,
}

/// All shared GPUs, by their group.
#[derive(Debug, Default)]
pub(super) struct Shares(BTreeMap<String, Share>);

/// Where a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Room {
    /// On a GPU that is shared already: group and node.
    Shared(String, String),
    /// On a GPU of this node, which is to be reserved first.
    Fresh(String),
}

impl Shares {
    pub(super) fn pod_set(&mut self, pod: &Pod) {
        let meta = &pod.metadata;
        if pod.is_terminal() {
            self.pod_gone(&meta.uid);
            return;
        }
        let (Some(group), false) = (meta.labels.get(GROUP_LABEL), pod.spec.node_name.is_empty())
        else {
            return;
        };
        if meta.namespace == NAMESPACE {
            self.reserve(group, &pod.spec.node_name, &meta.name, &meta.uid);
        } else if let Some(part) = fraction(pod) {
            self.take(group, &meta.uid, part);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        for share in self.0.values_mut() {
            share.parts.remove(uid);
            share.reservation.take_if(|(_, reserved)| reserved == uid);
        }
        self.0
            .retain(|_, share| share.reservation.is_some() || !share.parts.is_empty());
    }

    /// A reservation pod stands.
    pub(super) fn reserve(&mut self, group: &str, node: &str, name: &str, uid: &str) {
        let share = self.0.entry(group.to_owned()).or_default();
        node.clone_into(&mut share.node);
        share.reservation = Some((name.to_owned(), uid.to_owned()));
    }

    /// A pod has its part.
    pub(super) fn take(&mut self, group: &str, uid: &str, part: i128) {
        let share = self.0.entry(group.to_owned()).or_default();
        share.parts.insert(uid.to_owned(), part);
    }

    /// The fullest shared GPU with room for the pod, else a fresh one; else why not.
    pub(super) fn find(
        &self,
        pod: &Arc<Pod>,
        part: i128,
        placer: &Placer,
    ) -> Result<Room, Vec<String>> {
        let free = |share: &Share| WHOLE - share.parts.values().sum::<i128>();
        let fits = |share: &&(&String, &Share)| {
            share.1.reservation.is_some()
                && free(share.1) >= part
                && placer.fits(pod, &share.1.node)
        };
        let all: Vec<(&String, &Share)> = self.0.iter().collect();
        let best = all.iter().filter(fits).min_by_key(|(_, share)| free(share));
        if let Some((group, share)) = best {
            return Ok(Room::Shared((*group).clone(), share.node.clone()));
        }
        // As if it asked for the GPU itself.
        let mut whole = Pod::clone(pod);
        let mut container = Container::default();
        let gpu = ("nvidia.com/gpu".to_owned(), json!("1"));
        container.resources.requests.extend([gpu]);
        whole.spec.containers.push(container);
        let nodes = placer.place(&[Arc::new(whole)])?;
        nodes
            .into_iter()
            .next()
            .map(Room::Fresh)
            .ok_or_else(Vec::new)
    }

    /// Reservation pods that hold a GPU for nobody: name and UID.
    pub(super) fn idle(&self) -> Vec<(String, String)> {
        let idle = self.0.values().filter(|share| share.parts.is_empty());
        idle.filter_map(|share| share.reservation.clone()).collect()
    }
}

/// The group of a fresh GPU for `pod`: a UUID that follows from it.
pub(super) fn new_group(pod: &Pod) -> String {
    uuid(&format!("group/{}", pod.metadata.uid))
}

fn uuid(key: &str) -> String {
    let (a, b) = (hash(0, key), hash(1, key));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

/// The pod that reserves a GPU of `node` for `group`.
pub(super) fn reservation(group: &str, node: &str) -> Value {
    let gpu = json!({"nvidia.com/gpu": "1"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("gpu-reservation-{:016x}", hash(0, group)),
            "namespace": NAMESPACE,
            "labels": {"app": NAMESPACE, GROUP_LABEL: group},
            "annotations": {
                "karpenter.sh/do-not-disrupt": "true",
                "run.ai/reserve_for_gpu_index": format!("GPU-{}", uuid(group)),
            },
        },
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "resource-reservation",
                "image": "ghcr.example/kai/resource-reservation:v0.16.0",
                "resources": {"requests": gpu, "limits": gpu},
            }],
        },
    })
}

/// The BindRequest of a pod, which KAI's binder has carried out; its status is written apart.
pub(super) fn bind_request(pod: &Pod, node: &str, group: Option<&str>) -> Value {
    let meta = &pod.metadata;
    let gpus = pod
        .requests_milli()
        .get("nvidia.com/gpu")
        .copied()
        .unwrap_or(0)
        / WHOLE;
    let (kind, count, portion) = match fraction(pod) {
        Some(part) => ("Fraction", 1, format!("{:.2}", part as f64 / 1_000.0)),
        None => ("Regular", gpus, "1.00".to_owned()),
    };
    let groups: Vec<&str> = group.into_iter().collect();
    json!({
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {"pod-name": meta.name, "selected-node": node},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
            ],
        },
        "spec": {
            "podName": meta.name,
            "selectedNode": node,
            "backoffLimit": 3,
            "receivedResourceType": kind,
            "receivedGPU": {"count": count, "portion": portion},
            "selectedGPUGroups": groups,
        },
    })
}
