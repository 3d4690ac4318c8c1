//! Queues and work of Kueue, Volcano, KAI and quotas, from the samples.

use std::path::Path;
use std::sync::Arc;

use gpudeck::cluster::decode::Decoder;
use gpudeck::model::{
    Delta, ForeignKind, Kind, Pricing, Rate, SourceReport, SourceState, Tier, TierRule,
};
use serde_json::{Value, json};

use crate::fixture;

const FILES: [&str; 6] = [
    "kueue-clusterqueues-v1beta2.json",
    "kueue-localqueues.json",
    "kueue-workloads-v1beta2.json",
    "volcano-queues-podgroups.json",
    "kai-queues-podgroups.json",
    "resourcequota-namespaces-priorityclasses.json",
];

fn kind_of(object: &Value) -> Option<ForeignKind> {
    let group = object["apiVersion"].as_str()?;
    let group = group.rsplit_once('/').map_or("", |(group, _)| group);
    let mut kinds = ForeignKind::ALL.iter().copied();
    kinds.find(|k| k.api().group == group && object["kind"] == k.api().kind)
}

/// Queues of our own: a lab with two below it, one that cannot be used, and one that nobody has told
/// anything.
fn ours() -> Vec<Value> {
    let queue = |name: &str, spec: Value, status: Value| json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status});
    let status = |used: &str, waits: &str, share: &str, fault: Option<&str>| {
        let gpus = json!([{"model": "H200", "tier": "reserved", "allocated": used,
            "pending": waits, "share": share}]);
        let ready = if fault.is_some() { "False" } else { "True" };
        json!({"gpus": gpus, "jobs": {"running": 2, "waiting": 1}, "conditions": [{
            "type": "Ready", "status": ready, "message": fault.unwrap_or_default(),
            "lastTransitionTime": "2026-11-30T10:00:00Z"}]})
    };
    let due = |gpus: i64, limit: Option<i64>| json!([{"model": "H200", "tier": "reserved", "guaranteed": gpus, "limit": limit}]);
    vec![
        queue(
            "labs",
            json!({"gpus": due(24, Some(24)), "preemption": {"minRuntimeSeconds": 900}}),
            status("24", "16", "24", None),
        ),
        queue(
            "vision",
            json!({"parent": "labs", "namespaces": ["research"], "gpus": due(8, None)}),
            status("16", "8", "8", None),
        ),
        queue(
            "speech",
            json!({"parent": "labs", "namespaces": ["speech"], "gpus": due(16, None), "weight": 3}),
            status("8", "8", "16", None),
        ),
        queue(
            "twice",
            json!({"namespaces": ["speech"]}),
            status(
                "0",
                "0",
                "0",
                Some("namespace speech is in queues speech and twice: it can be in one only"),
            ),
        ),
        queue(
            "fresh",
            json!({"namespaces": ["fresh"], "gpus": [{"limit": 4}]}),
            Value::Null,
        ),
    ]
}

pub(crate) fn report(kind: ForeignKind, state: SourceState) -> Delta {
    Delta::Source(SourceReport {
        kind: Kind::Foreign(kind),
        namespace: None,
        state,
        at: fixture::now(),
    })
}

/// The objects, with every kind of the systems live and those of job operators not installed.
pub(crate) fn deltas() -> Vec<Delta> {
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/samples/queues");
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        for object in list["items"].as_array().unwrap() {
            if let Some(kind) = kind_of(object) {
                let read = decoder.decode(Kind::Foreign(kind), &object.to_string());
                all.push(read.unwrap().into_set());
            }
        }
    }
    for object in ours() {
        let read = decoder.decode(Kind::GpuQueue, &object.to_string());
        all.push(read.unwrap().into_set());
    }
    all.push(Delta::Source(SourceReport {
        kind: Kind::GpuQueue,
        namespace: None,
        state: SourceState::Live,
        at: fixture::now(),
    }));
    all.extend(ForeignKind::ALL.iter().map(|kind| {
        let state = match kind.admitter() {
            Some(_) => SourceState::Live,
            None => SourceState::Absent {
                why: format!("not installed: the server has no {}", kind.api().group).into(),
            },
        };
        report(*kind, state)
    }));
    all
}

/// A rate card that knows some of the fleet.
pub(crate) fn pricing() -> Arc<Pricing> {
    let rate = |model: &str, tier, per_gpu_hour| Rate {
        model: Some(model.into()),
        tier: Some(tier),
        per_gpu_hour,
        source: "example card, as of 2026-10-01".into(),
        ..Rate::default()
    };
    Arc::new(Pricing {
        rules: vec![TierRule {
            label: "accelerator".into(),
            value: Some("nvidia-v100".into()),
            tier: Tier::Owned,
        }],
        rates: vec![
            rate("H100", Tier::Reserved, 4.92),
            rate("A100-80", Tier::OnDemand, 4.29),
            rate("L40S", Tier::Spot, 0.7),
        ],
        ..Pricing::default()
    })
}
