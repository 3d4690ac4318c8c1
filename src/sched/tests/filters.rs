//! One node, one pod: each filter says yes and no where kube-scheduler does.

use std::sync::Arc;

use super::build::*;
use crate::model::{
    Change, Delta, HostPort, MatchExpression, Meta, Node, Operator, Pod, Selector, SelectorTerm,
    Str, Taint, TaintEffect, Toleration, VolumeClaim, VolumeTopology,
};
use crate::sched::decide;

const UNSCHEDULABLE: &str = "node(s) were unschedulable";
const TAINTS: &str = "node(s) had untolerated taint(s)";
const AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
const PORTS: &str = "node(s) didn't have free ports for the requested pod ports";

/// Empty when placed, else the words after `0/1 nodes fit: 1 `.
fn verdict(deltas: impl IntoIterator<Item = Delta>) -> String {
    let plan = decide(&state(deltas), at(0));
    if binds(&plan).starts_with("p>n") {
        return String::new();
    }
    let told = told(&plan, "p");
    told.strip_prefix("0/1 nodes fit: 1 ")
        .unwrap_or(&told)
        .to_owned()
}

fn one(node: Node, pod: Pod) -> String {
    verdict([set_node(node), set_pod(pod)])
}

fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint {
        key: key.into(),
        value: "".into(),
        effect,
    }
}

fn tolerate(key: &str) -> impl FnOnce(&mut crate::model::Constraints) {
    let t = Toleration {
        key: Some(key.into()),
        value: None,
        effect: None,
    };
    move |c| c.tolerations = [t].into()
}

#[test]
fn cordon_and_taints() {
    let cordoned = || Node {
        unschedulable: true,
        ..node("n", 8)
    };
    let cordon_key = "node.kubernetes.io/unschedulable";
    assert_eq!(one(cordoned(), pod("p", 1)), UNSCHEDULABLE);
    assert_eq!(one(cordoned(), with(pod("p", 1), tolerate(cordon_key))), "");
    // As the control plane leaves it: field and taint. The field speaks first.
    let both = || Node {
        taints: [taint(cordon_key, TaintEffect::NoSchedule)].into(),
        ..cordoned()
    };
    assert_eq!(one(both(), pod("p", 1)), UNSCHEDULABLE);
    assert_eq!(one(both(), with(pod("p", 1), tolerate(cordon_key))), "");

    let tainted = |effect| Node {
        taints: [taint("node.kubernetes.io/not-ready", effect)].into(),
        ..node("n", 8)
    };
    assert_eq!(one(tainted(TaintEffect::NoExecute), pod("p", 1)), TAINTS);
    assert_eq!(one(tainted(TaintEffect::NoSchedule), pod("p", 1)), TAINTS);
    assert_eq!(one(tainted(TaintEffect::PreferNoSchedule), pod("p", 1)), "");
    let tolerant = with(pod("p", 1), tolerate("node.kubernetes.io/not-ready"));
    assert_eq!(one(tainted(TaintEffect::NoExecute), tolerant), "");
    let other = with(pod("p", 1), tolerate("nvidia.com/gpu"));
    assert_eq!(one(tainted(TaintEffect::NoExecute), other), TAINTS);
}

#[test]
fn an_unready_node_without_a_taint_still_takes_pods_as_in_kube_scheduler() {
    let unready = Node {
        conditions: [crate::model::Condition {
            kind: "Ready".into(),
            status: Some(false),
            reason: "".into(),
            message: "".into(),
            changed: None,
        }]
        .into(),
        ..node("n", 8)
    };
    assert_eq!(one(unready, pod("p", 1)), "");
}

#[test]
fn selector_and_affinity_both_count() {
    let labelled = || {
        let mut n = node("n", 8);
        n.meta.labels = pairs(&[("model", "h100"), ("zone", "")]);
        n
    };
    let select = |list: &[(&str, &str)]| {
        let list = pairs(list);
        with(pod("p", 1), |c| c.node_selector = list)
    };
    assert_eq!(one(labelled(), select(&[("model", "h100")])), "");
    assert_eq!(one(labelled(), select(&[("model", "a100")])), AFFINITY);
    assert_eq!(
        one(labelled(), select(&[("model", "h100"), ("absent", "")])),
        AFFINITY,
        "an absent label is not an empty one"
    );
    assert_eq!(one(labelled(), select(&[("zone", "")])), "");
    let affine = |key: &str, operator, values: &[&str]| {
        let term = SelectorTerm {
            labels: [MatchExpression {
                key: key.into(),
                operator,
                values: values.iter().map(|v| Str::from(*v)).collect(),
            }]
            .into(),
            ..SelectorTerm::default()
        };
        with(pod("p", 1), |c| {
            c.affinity = Some(Selector {
                terms: [term].into(),
            });
        })
    };
    assert_eq!(
        one(labelled(), affine("model", Operator::In, &["h100"])),
        ""
    );
    assert_eq!(
        one(labelled(), affine("model", Operator::Gt, &["1"])),
        AFFINITY
    );
    let none = with(pod("p", 1), |c| c.affinity = Some(Selector::default()));
    assert_eq!(one(labelled(), none), AFFINITY);
    let half = with(select(&[("model", "a100")]), |c| {
        c.affinity = affine("model", Operator::Exists, &[])
            .constraints
            .affinity
            .clone();
    });
    assert_eq!(one(labelled(), half), AFFINITY);
}

#[test]
fn host_ports_of_bound_and_of_just_placed_pods() {
    let port = |ip: &str, port| HostPort {
        ip: ip.into(),
        protocol: "TCP".into(),
        port,
    };
    let wants = |name: &str, p: HostPort| with(pod(name, 0), |c| c.host_ports = [p].into());
    let used = || set_pod(bound(wants("q", port("10.0.0.1", 9400)), "n"));
    let n = || set_node(node("n", 0));
    assert_eq!(
        verdict([n(), used(), set_pod(wants("p", port("", 9400)))]),
        PORTS
    );
    assert_eq!(
        verdict([n(), used(), set_pod(wants("p", port("10.0.0.2", 9400)))]),
        ""
    );
    let plan = decide(
        &state([
            n(),
            set_node(node("m", 0)),
            set_pod(wants("p", port("", 80))),
            set_pod(wants("q", port("", 80))),
            set_pod(wants("r", port("", 80))),
        ]),
        at(0),
    );
    assert_eq!(binds(&plan), "p>m | q>n");
    assert_eq!(told(&plan, "r"), format!("0/2 nodes fit: 2 {PORTS}"));
}

#[test]
fn all_resources_that_lack_in_the_order_of_kube_scheduler() {
    let small = |change: &dyn Fn(&mut Node)| {
        let mut n = node("n", 2);
        change(&mut n);
        n
    };
    let all = || {
        let mut p = pod("p", 3);
        p.requests.cpu_milli = 65_000;
        p.requests.mem_bytes = i64::MAX;
        p.requests.ephemeral_bytes = 1;
        p
    };
    let lacking = "Insufficient cpu, 1 Insufficient memory, 1 Insufficient ephemeral-storage, 1 \
                   Insufficient nvidia.com/gpu";
    assert_eq!(
        one(small(&|n| n.allocatable.pods = 0), all()),
        format!("Too many pods, 1 {lacking}")
    );
    assert_eq!(one(small(&|_| {}), all()), lacking);
    let mut p = all();
    p.requests.cpu_milli = 64_000;
    p.requests.mem_bytes = 1 << 40;
    p.requests.ephemeral_bytes = 0;
    assert_eq!(
        one(small(&|_| {}), p.clone()),
        "Insufficient nvidia.com/gpu"
    );
    p.requests.set_extended(&"nvidia.com/gpu".into(), 2);
    assert_eq!(one(small(&|_| {}), p.clone()), "", "exactly all of it");
    p.requests.set_extended(&"rdma/ib".into(), 1);
    assert_eq!(one(small(&|_| {}), p.clone()), "Insufficient rdma/ib");
    // More kinds than there is room for are still told apart from none.
    for n in 0..20 {
        p.requests
            .set_extended(&format!("example.com/{n:02}").into(), 1);
    }
    let many = one(small(&|_| {}), p);
    assert!(
        many.starts_with("Insufficient example.com/00, 1 Insufficient"),
        "{many}"
    );
    assert_eq!(many.matches("Insufficient").count(), 12, "{many}");
}

#[test]
fn nodes_that_lack_different_things_are_counted_at_each() {
    let mut tight = node("n1", 2);
    tight.allocatable.cpu_milli = 1_000;
    let mut p = pod("p", 3);
    p.requests.cpu_milli = 2_000;
    let deltas = [set_node(tight), set_node(node("n2", 2)), set_pod(p)];
    assert_eq!(
        reason(deltas).to_string(),
        "0/2 nodes fit: 2 Insufficient nvidia.com/gpu, 1 Insufficient cpu"
    );
}

#[test]
fn what_is_not_asked_for_does_not_matter_on_an_overcommitted_node() {
    let mut hog = pod("hog", 5);
    hog.requests.cpu_milli = i64::MAX;
    let mut frugal = pod("p", 0);
    frugal.requests = amounts(0, 1, 0);
    let n = || set_node(node("n", 2));
    assert_eq!(
        verdict([n(), set_pod(bound(hog.clone(), "n")), set_pod(frugal)]),
        ""
    );
    assert_eq!(
        verdict([n(), set_pod(bound(hog, "n")), set_pod(pod("p", 0))]),
        "Insufficient cpu"
    );
    let mut negative = pod("hog", -50);
    negative.requests.cpu_milli = -1;
    assert_eq!(
        verdict([n(), set_pod(bound(negative, "n")), set_pod(pod("p", 3))]),
        "Insufficient nvidia.com/gpu",
        "a negative request adds nothing to a node"
    );
}

fn claim(name: &str, volume: Option<&str>) -> Delta {
    Delta::VolumeClaim(Change::Set(Arc::new(VolumeClaim {
        meta: meta(name),
        volume: volume.map(Into::into),
        storage_class: None,
    })))
}

fn volume(name: &str, labels: &[(&str, &str)], on: Option<&str>) -> Delta {
    Delta::Volume(Change::Set(Arc::new(VolumeTopology {
        meta: Meta {
            labels: pairs(labels),
            ..meta(name)
        },
        affinity: on.map(|value| Selector {
            terms: [SelectorTerm {
                labels: [MatchExpression {
                    key: "host".into(),
                    operator: Operator::In,
                    values: [value.into()].into(),
                }]
                .into(),
                ..SelectorTerm::default()
            }]
            .into(),
        }),
    })))
}

#[test]
fn volumes_bind_their_pods_to_their_place() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
    let case = |node_labels: &[(&str, &str)], volumes: Vec<Delta>| {
        let mut n = node("n", 8);
        n.meta.labels = pairs(node_labels);
        let p = with(pod("p", 1), |c| c.claims = ["data".into()].into());
        verdict([set_node(n), set_pod(p)].into_iter().chain(volumes))
    };
    let zoned = |labels: &[(&str, &str)], volume_labels: &[(&str, &str)]| {
        case(
            labels,
            vec![claim("data", Some("pv")), volume("pv", volume_labels, None)],
        )
    };
    let no_zone = "node(s) had no available volume zone";
    assert_eq!(zoned(&[(ZONE, "a")], &[(ZONE, "a")]), "");
    assert_eq!(zoned(&[(ZONE, "a")], &[(ZONE, "b")]), no_zone);
    assert_eq!(zoned(&[(ZONE, "a")], &[(ZONE, "b__a")]), "");
    assert_eq!(zoned(&[(ZONE, "a")], &[(ZONE, "b__")]), "", "not parsable");
    assert_eq!(zoned(&[(ZONE, "a")], &[(OLD_ZONE, "a")]), "");
    assert_eq!(zoned(&[(ZONE, "a")], &[(OLD_ZONE, "b")]), no_zone);
    assert_eq!(zoned(&[], &[(ZONE, "b")]), "", "a node outside all zones");
    assert_eq!(
        zoned(&[(ZONE, "a")], &[("topology.kubernetes.io/region", "r")]),
        no_zone
    );

    let on_host = |host: &str| {
        case(
            &[("host", "h1")],
            vec![claim("data", Some("pv")), volume("pv", &[], Some(host))],
        )
    };
    assert_eq!(on_host("h1"), "");
    assert_eq!(on_host("h2"), "node(s) had volume node affinity conflict");
    assert_eq!(
        case(&[], vec![]),
        "persistentvolumeclaim \"data\" not found"
    );
    assert_eq!(
        case(&[], vec![claim("data", Some("pv"))]),
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    );
    assert_eq!(
        case(&[], vec![claim("data", None)]),
        "persistentvolumeclaim \"data\" is not bound yet: this version places a pod only once \
         its claims are bound"
    );
}

#[test]
fn a_claim_of_another_namespace_is_not_ours() {
    let mut p = with(pod("p", 1), |c| c.claims = ["data".into()].into());
    p.meta.namespace = "other".into();
    assert_eq!(
        verdict([
            set_node(node("n", 8)),
            set_pod(p),
            claim("data", Some("pv")),
            volume("pv", &[], None)
        ]),
        "persistentvolumeclaim \"data\" not found"
    );
}

#[test]
fn each_node_counts_once_with_its_first_reason() {
    let nodes = [
        Node {
            unschedulable: true,
            ..node("n1", 0)
        },
        node("n2", 0),
        node("n3", 1),
        Node {
            taints: [taint("k", TaintEffect::NoSchedule)].into(),
            ..node("n4", 8)
        },
    ];
    let deltas = nodes
        .into_iter()
        .map(set_node)
        .chain([set_pod(pod("p", 8))]);
    assert_eq!(
        reason(deltas).to_string(),
        "0/4 nodes fit: 2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable, 1 node(s) \
         had untolerated taint(s)"
    );
    assert_eq!(reason([set_pod(pod("p", 8))]).to_string(), "0/0 nodes fit:");
}
