//! What the important samples say, and rules that hold for objects like them.

use std::sync::Arc;

use gpudeck::cluster::decode::{Decoder, Object};
use gpudeck::model::{Event, Job, Kind, Node, Operator, Phase, Pod, Readiness, Severity};
use serde_json::{Value, json};

use crate::samples::{file, kind_of};

fn decode(object: &Value) -> Object {
    let kind = kind_of(object).expect("a watched kind");
    Decoder::new().decode(kind, &object.to_string()).unwrap()
}

fn named(file_name: &str, start: &str) -> Object {
    let object = file(file_name)
        .into_iter()
        .find(|o| {
            kind_of(o).is_some()
                && o["metadata"]["name"]
                    .as_str()
                    .is_some_and(|n| n.starts_with(start))
        })
        .unwrap_or_else(|| panic!("{start} in {file_name}"));
    decode(&object)
}

fn pod(file_name: &str, start: &str) -> Arc<Pod> {
    match named(file_name, start) {
        Object::Pod(pod) => pod,
        other => panic!("{other:?}"),
    }
}

fn node(file_name: &str) -> Arc<Node> {
    match named(file_name, "") {
        Object::Node(node) => node,
        other => panic!("{other:?}"),
    }
}

fn event(start: &str) -> Arc<Event> {
    match named("events/events.json", start) {
        Object::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

/// A pod with a spec and a status of its own.
fn pod_of(spec: Value, status: Value) -> Arc<Pod> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status,
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"}});
    match decode(&object) {
        Object::Pod(pod) => pod,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pods_of_jobs() {
    let p = pod(
        "jobs/batch-job-kueue-suspend-and-gates.json",
        "llm-7b-pre-0",
    );
    assert_eq!(p.phase, Phase::Running);
    assert_eq!(p.node.as_deref(), Some("hgx-t01.lab.example"));
    assert_eq!(p.requests.extended("nvidia.com/gpu"), 8);
    assert_eq!(
        (p.requests.cpu_milli, p.requests.mem_bytes >> 30),
        (12_000, 180)
    );
    assert!(p.ready && p.reason.is_none());
    assert_eq!(p.meta.controller().unwrap().name.as_ref(), "llm-7b-pre");
    assert_eq!(
        p.meta
            .annotation("batch.kubernetes.io/job-completion-index"),
        Some("0")
    );

    let p = pod(
        "jobs/batch-job-kueue-suspend-and-gates.json",
        "llm-7b-pre-2",
    );
    assert_eq!(&*p.gates[0], "kueue.x-k8s.io/topology");
    assert!(p.is_waiting());

    let p = pod(
        "jobs/batch-job-kueue-suspend-and-gates.json",
        "llm-7b-pre-3",
    );
    assert_eq!(
        (p.phase, p.reason.as_deref()),
        (Phase::Failed, Some("Terminated"))
    );

    let Object::Job(job) = named("jobs/batch-job-kueue-suspend-and-gates.json", "ablate-3") else {
        panic!("a Job");
    };
    let Job {
        parallelism,
        completions,
        suspended,
        ..
    } = *job;
    assert_eq!((parallelism, completions, suspended), (4, Some(4), true));
}

#[test]
fn pods_that_fail_say_why() {
    let p = pod(
        "jobs/kserve-deployment-mig-pdb.json",
        "embed-predictor-57946f6c67-b2b2b",
    );
    assert_eq!(
        (p.reason.as_deref(), p.restarts),
        (Some("CrashLoopBackOff"), 31)
    );
    assert_eq!(p.requests.extended("nvidia.com/mig-1g.10gb"), 1);
    let p = pod(
        "jobs/kserve-deployment-mig-pdb.json",
        "embed-predictor-57946f6c67-zz9zz",
    );
    assert_eq!(p.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let p = pod("jobs/pytorchjob-with-pods.json", "bert-ft-worker-1");
    assert!(
        p.reason
            .as_deref()
            .unwrap()
            .starts_with("0/49 nodes are available: 34 Insufficient")
    );
}

#[test]
fn groups_by_each_convention() {
    for (file_name, start, group) in [
        (
            "queues/native-1.37-v1beta1.json",
            "llm-7b-w1-0",
            "llm-7b-workers-1",
        ),
        (
            "queues/native-1.35-v1alpha1.json",
            "llm-older-0",
            "llm-older-workers-0",
        ),
        (
            "queues/volcano-job-command.json",
            "llama-sft-worker-1",
            "llama-sft-224ebf03-4229-4c1c-b101-b0175d4bf9a3",
        ),
        (
            "queues/kai-fractions-bindrequests.json",
            "nb-ada-0",
            "pg-nb-ada-2d68d847-f7a5-4f0b-afbb-6689ef4e19c2",
        ),
    ] {
        let p = pod(file_name, start);
        let found = p.group.as_ref().unwrap();
        assert_eq!((&*found.kind, &*found.name), ("PodGroup", group), "{start}");
    }
    for (labels, annotations, expected) in [
        (
            json!({"gpudeck.dev/gang": "g", "pod-group.scheduling.sigs.k8s.io": "x"}),
            json!({"gpudeck.dev/gang-min": "4"}),
            Some(("Gang", "g", Some(4))),
        ),
        (
            json!({"scheduling.x-k8s.io/pod-group": "sp"}),
            json!({}),
            Some(("PodGroup", "sp", None)),
        ),
        (
            json!({"pod-group.scheduling.sigs.k8s.io/name": "kd", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}),
            json!({}),
            Some(("PodGroup", "kd", Some(3))),
        ),
        (
            json!({"kueue.x-k8s.io/pod-group-name": "kq"}),
            json!({"kueue.x-k8s.io/pod-group-total-count": "2"}),
            Some(("PodGroup", "kq", Some(2))),
        ),
        (json!({"gpudeck.dev/gang": "a b"}), json!({}), None),
        (
            json!({"gpudeck.dev/gang": "g"}),
            json!({"gpudeck.dev/gang-min": "-1"}),
            Some(("Gang", "g", None)),
        ),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {}, "status": {},
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels, "annotations": annotations}});
        let Object::Pod(p) = decode(&object) else {
            panic!("a pod");
        };
        let found = p
            .group
            .as_ref()
            .map(|g| (&*g.kind, &*g.name, g.min_members));
        assert_eq!(found, expected);
    }
}

#[test]
fn nodes_of_many_providers() {
    let n = node("nodes/eks-p5-capacity-block-efa-xid.json");
    assert_eq!(n.readiness(), Readiness::Ready);
    assert_eq!(n.unhealthy_gpus(), 1);
    let faults: Vec<&str> = n.faults().map(|c| &*c.kind).collect();
    assert_eq!(faults, ["AcceleratedHardwareReady"]);

    let n = node("nodes/gke-maintenance-ongoing-xid-condition.json");
    let xid = n.faults().next().unwrap();
    assert_eq!(
        (&*xid.kind, &*xid.reason),
        ("XidCriticalError", "{\"48\":true,\"79\":true}")
    );

    let n = node("nodes/notready-unreachable.json");
    assert_eq!((n.readiness(), n.taints.len()), (Readiness::Unknown, 2));

    let n = node("nodes/a100-40-mig-single.json");
    assert_eq!(n.gpus.count, Some(8), "56 MIG devices on eight GPUs");

    let n = node("nodes/no-gfd-only-allocatable.json");
    assert_eq!(n.allocatable.extended("nvidia.com/gpu"), 4);

    let n = node("nodes/onprem-owned-draino-npd-gpud.json");
    assert!(n.unschedulable);

    let n = node("nodes/gke-b200-dws-flex-start.json");
    assert!(
        n.meta
            .annotation("node.gke.io/machine-termination-datetime")
            .is_some()
    );
    assert_eq!(n.gpus.count, None, "unknown is not zero");
}

#[test]
fn events_of_both_apis() {
    let e = event("a-big.");
    assert_eq!(
        (e.severity, &*e.reason),
        (Severity::Warning, "FailedScheduling")
    );
    assert_eq!((&*e.subject_kind, &*e.subject_name), ("Pod", "a-big"));
    assert_eq!(&*e.reporter, "default-scheduler");
    assert_eq!(
        e.last_seen.unwrap().to_string(),
        "2026-11-30T11:57:00.336878Z"
    );
    let e = event("old-form.");
    assert_eq!(e.count, 37);
    let e = event("a-mig.");
    assert!(
        e.message.starts_with("0/49 nodes are available"),
        "note of the new API"
    );
    assert_eq!(e.count, 14, "from its series");
}

#[test]
fn what_a_scheduler_of_ours_cannot_place_is_named() {
    let p = pod("dra/pods-with-claims.json", "nb-0");
    assert_eq!(
        &*p.constraints.unsupported[0],
        "devices by resource claim (DRA): gpu"
    );
    let term = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]);
    let key = "requiredDuringSchedulingIgnoredDuringExecution";
    let p = pod_of(
        json!({"affinity": {"podAffinity": {key: term}, "podAntiAffinity": {key: term},
                "nodeAffinity": {key: {"nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}]}]}}},
            "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}, {"whenUnsatisfiable": "DoNotSchedule"}]}),
        json!({}),
    );
    assert_eq!(
        p.constraints
            .unsupported
            .iter()
            .map(|u| &**u)
            .collect::<Vec<_>>(),
        [
            "required pod affinity",
            "required pod anti-affinity",
            "hard topology spread (DoNotSchedule)"
        ]
    );
    let terms = &p.constraints.affinity.as_ref().unwrap().terms;
    assert_eq!(terms.len(), 1, "an empty term matches nothing");
    assert_eq!(terms[0].labels[0].operator, Operator::Gt);
    // What is not understood must not widen where a pod may go.
    for spec in [
        json!({"affinity": {"nodeAffinity": {key: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}}}),
        json!({"nodeSelector": {"gpu": 8}}),
        json!({"containers": [{"resources": {"requests": {"nvidia.com/gpu": "-1"}}}]}),
        json!({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}),
        json!({"containers": 7}),
    ] {
        let p = pod_of(spec.clone(), json!({}));
        assert!(
            p.constraints.unsupported[0].starts_with("a spec that cannot be read in full (spec."),
            "{spec}"
        );
        assert_eq!(p.requests.extended("nvidia.com/gpu"), 0);
    }
}

#[test]
fn requests_are_counted_as_the_scheduler_does() {
    let limits_only =
        json!({"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}});
    let p = pod_of(
        json!({"overhead": {"memory": "64Mi"},
            "initContainers": [
                {"name": "pull", "resources": {"requests": {"cpu": "8"}}},
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "hugepages-2Mi": "4Mi"}}}],
            "containers": [{"name": "a", "resources": limits_only, "ports": [{"containerPort": 1, "hostPort": 29500}, {"containerPort": 2}]}]}),
        json!({"phase": "Pending"}),
    );
    assert_eq!(
        p.requests.cpu_milli, 8_000,
        "the first init container alone"
    );
    assert_eq!(p.requests.extended("nvidia.com/gpu"), 2, "limits stand in");
    assert_eq!(p.requests.extended("hugepages-2Mi"), 4 << 20);
    assert_eq!(p.requests.mem_bytes, 64 << 20);
    let port = &p.constraints.host_ports[0];
    assert_eq!((port.port, &*port.protocol), (29500, "TCP"));
    assert_eq!(p.constraints.host_ports.len(), 1);

    let resized = |conditions: Value| {
        pod_of(
            json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}),
            json!({"phase": "Running", "conditions": conditions, "containerStatuses": [
                {"name": "a", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}}]}),
        )
        .requests
        .cpu_milli
    };
    assert_eq!(resized(json!([])), 3_000);
    let infeasible =
        json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    assert_eq!(resized(infeasible), 3_000);

    let p = pod_of(
        json!({"resources": {"requests": {"cpu": "10", "memory": "1Gi"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}),
        json!({}),
    );
    assert_eq!(
        (p.requests.cpu_milli, p.requests.mem_bytes),
        (10_000, 1 << 30)
    );
    assert_eq!(p.requests.extended("nvidia.com/gpu"), 1);
}

#[test]
fn volumes_and_classes() {
    let p = pod_of(
        json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "ckpt"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, {"name": "tmp", "emptyDir": {}}]}),
        json!({}),
    );
    let claims: Vec<&str> = p.constraints.claims.iter().map(|c| &**c).collect();
    assert_eq!(claims, ["ckpt", "p-scratch"]);
    let pv = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "uid": "u"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}]}]}}}});
    let Object::Volume(volume) = decode(&pv) else {
        panic!("a volume");
    };
    assert_eq!(
        volume.affinity.as_ref().unwrap().terms[0].labels[0]
            .values
            .len(),
        2
    );
    let Object::PriorityClass(class) = named("queues/native-1.37-v1beta1.json", "train-prod")
    else {
        panic!("a class");
    };
    assert_eq!((class.value, class.global_default), (1000, false));
}

#[test]
fn hostile_pods_say_what_cannot_be_read() {
    for (start, note) in [
        (
            "null-spec",
            "spec: missing, so what the pod asks for is not known",
        ),
        ("no-status", "status: missing"),
        (
            "gpu-as-number",
            "spec.containers[0].resources.requests nvidia.com/gpu: \"1.5\" is not a whole number and is not counted",
        ),
        ("fractions", "pod-group-name: \"../../etc\" names no group"),
        (
            "time",
            "metadata.creationTimestamp: expected a date (like 2026-11-30T12:00:00Z), found \"2999-12-31T23:59:60Z\"",
        ),
    ] {
        let p = pod("hostile/pods.json", start);
        assert_eq!(
            p.meta.unreadable.first().map(|n| &**n),
            Some(note),
            "{start}"
        );
    }
    let p = pod("hostile/pods.json", "loop-owner");
    assert!(p.meta.controller().is_none(), "nothing owns itself");
    let p = pod("hostile/pods.json", "many");
    assert_eq!(p.requests.extended("nvidia.com/gpu"), 40);
}

#[test]
fn each_field_of_each_type_may_be_anything() {
    let whole = file("jobs/kserve-deployment-mig-pdb.json")
        .into_iter()
        .chain(file("nodes/eks-p5-capacity-block-efa-xid.json"))
        .chain(file("events/events.json").into_iter().take(3))
        .chain(
            file("jobs/batch-job-kueue-suspend-and-gates.json")
                .into_iter()
                .take(1),
        );
    let odd = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!("\u{1b}[2J\u{202e}"),
        json!([]),
        json!([null, 7]),
        json!({}),
        json!({"": {"a": [1]}}),
    ];
    let mut decoder = Decoder::new();
    let mut tried = 0;
    for object in whole {
        let Some(kind) = kind_of(&object) else {
            continue;
        };
        let mut paths = Vec::new();
        pointers(&object, String::new(), &mut paths);
        for path in paths {
            for value in &odd {
                let mut broken = object.clone();
                *broken.pointer_mut(&path).unwrap() = value.clone();
                let identity = ["/metadata", "/metadata/name", "/metadata/uid", ""];
                match decoder.decode(kind, &broken.to_string()) {
                    Ok(read) => crate::samples::assert_plain(&format!("{read:?}"), &path),
                    Err(why) => assert!(identity.contains(&&*path), "{kind} {path}: {why}"),
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 3_000, "{tried}");
}

/// JSON pointers of every value in `value`.
fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                pointers(inner, format!("{at}/{}", escape(key)), out);
            }
        }
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                pointers(inner, format!("{at}/{i}"), out);
            }
        }
        _ => {}
    }
    out.push(at);
}

#[test]
fn equal_constraints_are_shared() {
    let mut decoder = Decoder::new();
    let mut decode = |name: &str| {
        let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"operator": "Exists"}]}, "status": {}});
        match decoder.decode(Kind::Pod, &object.to_string()).unwrap() {
            Object::Pod(pod) => pod,
            other => panic!("{other:?}"),
        }
    };
    let (a, b) = (decode("a"), decode("b"));
    assert!(Arc::ptr_eq(&a.constraints, &b.constraints));
    assert!(Arc::ptr_eq(&a.meta.namespace, &b.meta.namespace));
}
