use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams, PostParams};
use serde_json::{Value, json};

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn bind(client: &Client, pod: &str, node: &str) -> (u16, Value) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod, "annotations": {"gpudeck.dev/gpus": "0,1"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    send(client, "POST", &format!("{PODS}/{pod}/binding"), binding).await
}

#[tokio::test]
async fn a_new_pod_gets_the_servers_defaults() {
    let client = server().client();
    let mut body = pod("p");
    body["status"] = json!({"phase": "Running"});
    let (code, made) = send(&client, "POST", PODS, body).await;
    assert_eq!(code, 201);
    let spec = &made["spec"];
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(
        (spec["priority"].as_i64(), spec["preemptionPolicy"].as_str()),
        (Some(0), Some("PreemptLowerPriority"))
    );
    assert_eq!(
        spec["containers"][0]["resources"]["requests"]["nvidia.com/gpu"],
        "8"
    );
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(
        made["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
}

#[tokio::test]
async fn bad_pods_are_refused_with_the_servers_codes() {
    let client = server().client();
    let cases = [
        (json!({"containers": []}), 422, "spec.containers"),
        (
            json!({"containers": [{"name": "a"}]}),
            422,
            "spec.containers[0].image",
        ),
        (json!({"containers": "x"}), 400, ""),
        (
            json!({"containers": [{"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "lots"}}}]}),
            400,
            "",
        ),
        (
            json!({"containers": [{"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "500m"}}}]}),
            422,
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        (
            json!({"containers": [{"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 2}}}]}),
            422,
            "spec.containers[0].resources.requests",
        ),
        (
            json!({"containers": [{"name": "a", "image": "i"}], "priorityClassName": "none"}),
            403,
            "",
        ),
        (
            json!({"containers": [{"name": "a", "image": "i"}], "priority": 5}),
            403,
            "",
        ),
        (json!("x"), 400, ""),
    ];
    for (spec, wanted, field) in cases {
        let body = json!({"metadata": {"name": "p"}, "spec": spec});
        let (code, status) = send(&client, "POST", PODS, body.clone()).await;
        assert_eq!(code, wanted, "{body}: {status}");
        if !field.is_empty() {
            assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
        }
    }
}

#[tokio::test]
async fn priority_comes_from_the_class_or_the_default_one() {
    let client = server().client();
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"metadata": {"name": "usual"}, "value": 7, "globalDefault": true});
    assert_eq!(send(&client, "POST", classes, class).await.0, 201);
    let made: Pod = create(&client, pod("a")).await;
    assert_eq!(made.spec.as_ref().unwrap().priority, Some(7));
    assert_eq!(
        made.spec.unwrap().priority_class_name.as_deref(),
        Some("usual")
    );
    let mut critical = pod("b");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    let made: Pod = create(&client, critical).await;
    assert_eq!(made.spec.unwrap().priority, Some(2_000_001_000));
}

#[tokio::test]
async fn a_binding_sets_node_condition_and_annotations_once() {
    let client = server().client();
    create::<Pod>(&client, pod("p")).await;
    let (code, status) = bind(&client, "p", "node-1").await;
    assert_eq!((code, status["status"].as_str()), (201, Some("Success")));
    let (_, bound) = send(&client, "GET", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    assert_eq!(bound["metadata"]["annotations"]["gpudeck.dev/gpus"], "0,1");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str()),
        (Some("PodScheduled"), Some("True"))
    );
    let (code, status) = bind(&client, "p", "node-2").await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"node-1\""
    );
    assert_eq!(bind(&client, "gone", "node-1").await.0, 404);
}

#[tokio::test]
async fn one_of_two_racing_bindings_wins() {
    let client = server().client();
    for round in 0..20 {
        let name = format!("p{round}");
        create::<Pod>(&client, pod(&name)).await;
        let (a, b) = tokio::join!(
            bind(&client, &name, "node-1"),
            bind(&client, &name, "node-2")
        );
        let mut codes = [a.0, b.0];
        codes.sort_unstable();
        assert_eq!(codes, [201, 409]);
    }
}

#[tokio::test]
async fn gates_hold_a_pod_and_can_only_be_lifted() {
    let client = server().client();
    let mut gated = pod("p");
    gated["spec"]["schedulingGates"] = json!([{"name": "gpudeck.dev/queue"}]);
    let (_, mut made) = send(&client, "POST", PODS, gated).await;
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert_eq!(bind(&client, "p", "node-1").await.0, 409);
    let term = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
    made["spec"]["affinity"] = term;
    made["spec"]["schedulingGates"] = json!([]);
    let one = format!("{PODS}/p");
    let (code, mut lifted) = send(&client, "PUT", &one, made).await;
    assert_eq!(code, 200, "{lifted}");
    lifted["spec"]["schedulingGates"] = json!([{"name": "again"}]);
    assert_eq!(send(&client, "PUT", &one, lifted.clone()).await.0, 422);
    lifted["spec"]["schedulingGates"] = json!([]);
    lifted["spec"]["nodeSelector"] = json!({"a": "b"});
    assert_eq!(
        send(&client, "PUT", &one, lifted).await.0,
        422,
        "not gated any more"
    );
}

#[tokio::test]
async fn a_bound_pod_waits_for_its_kubelet_and_an_unbound_one_goes_at_once() {
    let client = server().client();
    create::<Pod>(&client, pod("free")).await;
    create::<Pod>(&client, pod("bound")).await;
    bind(&client, "bound", "node-1").await;
    let (code, gone) = send(&client, "DELETE", &format!("{PODS}/free"), Value::Null).await;
    assert_eq!((code, gone["kind"].as_str()), (200, Some("Pod")));
    assert_eq!(
        send(&client, "GET", &format!("{PODS}/free"), Value::Null)
            .await
            .0,
        404
    );
    let one = format!("{PODS}/bound");
    let (_, waiting) = send(&client, "DELETE", &one, Value::Null).await;
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 30);
    let first = waiting["metadata"]["resourceVersion"].clone();
    let (_, again) = send(&client, "DELETE", &one, Value::Null).await;
    assert_eq!(
        again["metadata"]["resourceVersion"], first,
        "a second deletion changes nothing"
    );
    let (_, shorter) = send(&client, "DELETE", &one, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    send(&client, "DELETE", &one, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(send(&client, "GET", &one, Value::Null).await.0, 404);
}

async fn running(client: &Client, name: &str) {
    create::<Pod>(client, pod(name)).await;
    bind(client, name, "node-1").await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let (code, _) = send_as(
        client,
        "PATCH",
        &format!("{PODS}/{name}/status"),
        "application/strategic-merge-patch+json",
        ready.to_string().into_bytes(),
    )
    .await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_disruption_budget_refuses_the_eviction_that_breaks_it() {
    let client = server().client();
    for name in ["a", "b", "c"] {
        running(&client, name).await;
    }
    let budget = json!({"metadata": {"name": "keep-two"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "train"}}}});
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    assert_eq!(send(&client, "POST", path, budget).await.0, 201);
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    api.evict(
        "a",
        &EvictParams {
            post_options: PostParams {
                dry_run: true,
                ..Default::default()
            },
            ..Default::default()
        },
    )
    .await
    .unwrap();
    api.evict("a", &EvictParams::default()).await.unwrap();
    assert!(
        api.get("a")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let refused = api.evict("b", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (status.code, status.reason.as_str()),
        (429, "TooManyRequests")
    );
    assert_eq!(
        status.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let causes = status.details.unwrap().causes;
    assert_eq!(causes[0].reason, "DisruptionBudget");
    assert_eq!(
        causes[0].message,
        "The disruption budget keep-two needs 2 healthy pods and has 2 currently"
    );
    // A pod that never ran disrupts nothing.
    create::<Pod>(&client, pod("pending")).await;
    api.evict("pending", &EvictParams::default()).await.unwrap();
    // A third pod back in health makes room for one.
    running(&client, "d").await;
    api.evict("b", &EvictParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_budget_status_that_a_controller_wrote_is_believed() {
    let client = server().client();
    running(&client, "a").await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "train"}}}});
    send(&client, "POST", path, budget).await;
    let (_, mut made) = send(&client, "GET", &format!("{path}/b"), Value::Null).await;
    made["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1});
    assert_eq!(
        send(&client, "PUT", &format!("{path}/b/status"), made)
            .await
            .0,
        200
    );
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    assert_eq!(
        send(&client, "POST", &format!("{PODS}/a/eviction"), eviction)
            .await
            .0,
        429
    );
}
