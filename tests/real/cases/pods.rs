//! The pod subresources that place and remove pods: binding and eviction.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::refusal;
use crate::servers::{Server, object};

async fn pods(server: &Server, case: &str) -> Api<Pod> {
    let namespace = server.namespace(case).await;
    Api::namespaced(server.admin().await, &namespace)
}

async fn create_pod(api: &Api<Pod>, name: &str) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "served"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "x",
                            "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    });
    api.create(&PostParams::default(), &object(pod))
        .await
        .unwrap();
}

async fn bind(api: &Api<Pod>, pod: &str, node: &str) -> kube::Result<()> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    // The answer is a Status, not a Pod.
    let status: Value = api
        .create_subresource("binding", pod, &PostParams::default(), &binding)
        .await?;
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    Ok(())
}

pub(crate) async fn binding_sets_the_node_once(server: &Server) {
    let nodes: Api<Node> = Api::all(server.admin().await);
    for name in ["bind-a", "bind-b"] {
        let node = object(json!({"metadata": {"name": name}}));
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let api = pods(server, "bind").await;
    create_pod(&api, "one").await;
    bind(&api, "one", "bind-a").await.unwrap();
    let bound = api.get("one").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("bind-a"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    let scheduled = conditions
        .iter()
        .find(|c| c.type_ == "PodScheduled")
        .unwrap();
    assert_eq!(scheduled.status, "True");

    for node in ["bind-b", "bind-a"] {
        let again = refusal(bind(&api, "one", node).await);
        assert_eq!((again.code, again.reason.as_str()), (409, "Conflict"));
        assert_eq!(
            again.message,
            r#"Operation cannot be fulfilled on pods/binding "one": pod one is already assigned to node "bind-a""#
        );
    }
    let missing = refusal(bind(&api, "two", "bind-a").await);
    assert_eq!((missing.code, missing.reason.as_str()), (404, "NotFound"));
}

pub(crate) async fn deletion_of_a_bound_pod_waits_for_its_node(server: &Server) {
    let api = pods(server, "grace").await;
    for name in ["bound", "unbound"] {
        create_pod(&api, name).await;
    }
    bind(&api, "bound", "grace-node").await.unwrap();
    api.delete("unbound", &DeleteParams::default())
        .await
        .unwrap();
    assert!(api.get_opt("unbound").await.unwrap().is_none());

    api.delete("bound", &DeleteParams::default()).await.unwrap();
    let leaving = api.get("bound").await.unwrap();
    assert!(leaving.metadata.deletion_timestamp.is_some());
    assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(30));
    // The kubelet's last word.
    api.delete("bound", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(api.get_opt("bound").await.unwrap().is_none());
}

pub(crate) async fn priority_comes_from_the_class(server: &Server) {
    let classes: Api<PriorityClass> = Api::all(server.admin().await);
    let class = object(json!({"metadata": {"name": "research"}, "value": 1000}));
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
    let api = pods(server, "priority").await;
    let pod = |class: &str| {
        object::<Pod>(json!({
            "metadata": {"name": "one"},
            "spec": {"priorityClassName": class, "containers": [{"name": "main", "image": "x"}]},
        }))
    };
    let refused = refusal(api.create(&PostParams::default(), &pod("unheard-of")).await);
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        r#"pods "one" is forbidden: no PriorityClass with name unheard-of was found"#
    );
    // Admission learns of a class by a watch of its own.
    let created = super::eventually("the class is known", async || {
        api.create(&PostParams::default(), &pod("research"))
            .await
            .ok()
    })
    .await;
    assert_eq!(created.spec.unwrap().priority, Some(1000));
}

pub(crate) async fn eviction_obeys_the_disruption_budget(server: &Server) {
    let api = pods(server, "evict").await;
    create_pod(&api, "served").await;
    let running = json!({"status": {"phase": "Running",
                                    "conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status("served", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();

    let namespace = api.get("served").await.unwrap().metadata.namespace.unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(server.admin().await, &namespace);
    let budget = object(json!({
        "metadata": {"name": "budget"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "served"}}},
    }));
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    // Nobody runs the disruption controller here: its account of the pods is written for it.
    allow_disruptions(&budgets, 0).await;
    let refused = refusal(api.evict("served", &EvictParams::default()).await);
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (429, "TooManyRequests")
    );
    assert_eq!(
        refused.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(causes[0].reason, "DisruptionBudget");
    assert_eq!(
        causes[0].message,
        "The disruption budget budget needs 1 healthy pods and has 1 currently"
    );
    assert!(
        api.get("served")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
    );

    allow_disruptions(&budgets, 1).await;
    api.evict("served", &EvictParams::default()).await.unwrap();
    // Bound to no node, the pod has no kubelet to wait for.
    assert!(api.get_opt("served").await.unwrap().is_none());
    let status = budgets.get("budget").await.unwrap().status.unwrap();
    assert_eq!(status.disruptions_allowed, Some(0));
}

/// Writes the budget's status as the disruption controller would for one healthy pod.
async fn allow_disruptions(budgets: &Api<PodDisruptionBudget>, allowed: i32) {
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }});
    budgets
        .patch_status("budget", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}
