//! Plain Kubernetes: a namespace with a ResourceQuota on devices. The API server refuses pods
//! beyond it; nothing waits in it.

use super::read::Part;
use crate::model::{Admitter, AdmitterQueue, GpuResource, Meta, QueueKey, QueueTerm, Str};

/// How a quota names the devices of a DRA device class.
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// The device that a key of `hard` bounds, and the DRA class that it is asked for by.
fn device(key: &str) -> Option<(GpuResource, Option<Str>)> {
    if let Some(class) = key.strip_suffix(DEVICE_CLASS) {
        // Other classes than those of NVIDIA's driver are no GPUs.
        let of_gpus = class == "gpu.nvidia.com" || class == "mig.nvidia.com";
        return of_gpus.then(|| {
            let class = format!("DRA {}", crate::model::clean(class, 60));
            (GpuResource::Whole, Some(class.into()))
        });
    }
    let key = key.strip_prefix("requests.")?;
    GpuResource::from_key(key).map(|resource| (resource, None))
}

/// Which pods it counts; `None`: all.
fn scope(part: &Part<'_>) -> Option<Str> {
    let name = |p: Part<'_>| p.raw().map(|t| crate::model::clean(t, 60).into_owned());
    let plain = part.at("spec.scopes").list().filter_map(name);
    let picked = part
        .at("spec.scopeSelector.matchExpressions")
        .list()
        .filter_map(|e| {
            let values: Vec<String> = e.key("values").list().filter_map(name).collect();
            let scope = name(e.key("scopeName"))?;
            Some(match (e.key("operator").raw(), values.as_slice()) {
                (Some("In"), [_, ..]) => format!("{scope} {}", values.join(", ")),
                (Some("NotIn"), [_, ..]) => format!("{scope} not {}", values.join(", ")),
                (Some("DoesNotExist"), _) => format!("no {scope}"),
                _ => scope,
            })
        });
    let all: Vec<String> = plain.chain(picked).collect();
    (!all.is_empty()).then(|| all.join("; ").into())
}

pub(super) fn resource_quota(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let scope = scope(part);
    let (hard, used) = (part.at("spec.hard"), part.at("status.used"));
    let terms = hard.entries().filter_map(|(key, amount)| {
        let (resource, class) = device(key)?;
        Some(QueueTerm {
            flavor: class.or_else(|| scope.clone()),
            resource,
            guaranteed_milli: None,
            kept_milli: None,
            limit_milli: amount.milli(),
            used_milli: used.key(key).milli(),
        })
    });
    let notes = scope
        .iter()
        .map(|scope| format!("counts only pods of {scope}").into());
    AdmitterQueue {
        terms: terms.collect(),
        notes: notes.collect(),
        ..AdmitterQueue::new(QueueKey {
            admitter: Admitter::Quota,
            kind: "ResourceQuota".into(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        })
    }
}
