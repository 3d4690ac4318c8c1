//! Nodes, pods and rights that several cases make.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::servers::object;

/// A node that is Ready and takes pods, with `gpus` whole GPUs of 8 CPUs each.
pub(crate) async fn ready_node(client: &Client, name: &str, gpus: u32) {
    let resources = json!({
        "cpu": (8 * gpus.max(1)).to_string(), "memory": "512Gi", "pods": "110",
        "nvidia.com/gpu": gpus.to_string(),
    });
    let node = json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": gpus.to_string(),
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    make_node(client, node).await;
}

/// Creates a node and takes away the taint that admission gives every new one.
pub(crate) async fn make_node(client: &Client, node: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = object(node);
    let made = nodes.create(&PostParams::default(), &node).await.unwrap();
    let untaint = json!({"spec": {"taints": null}});
    nodes
        .patch(
            &made.metadata.name.unwrap(),
            &PatchParams::default(),
            &Patch::Merge(untaint),
        )
        .await
        .unwrap();
}

/// A pod for `scheduler` that asks for `gpus` GPUs.
pub(crate) fn pod(name: &str, scheduler: &str, gpus: &str) -> Value {
    let mut asks = json!({"cpu": "1", "memory": "1Gi"});
    if gpus != "0" {
        asks["nvidia.com/gpu"] = gpus.into();
    }
    json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "x",
                            "resources": {"requests": asks, "limits": asks}}],
        },
    })
}

/// Creates a pod.
pub(crate) async fn make_pod(client: &Client, namespace: &str, pod: Value) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &object(pod))
        .await
        .unwrap()
}

/// Lets a user do what `rules` say, in the whole cluster.
pub(crate) async fn grant(client: &Client, user: &str, rules: Value) {
    let name = format!("{user}-may");
    let role = object(json!({"metadata": {"name": name}, "rules": rules}));
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = object(binding(&name, "ClusterRole", user));
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
}

/// Lets a user do what `rules` say, in one namespace.
pub(crate) async fn grant_in(client: &Client, namespace: &str, user: &str, rules: Value) {
    let name = format!("{user}-may");
    let role = object(json!({"metadata": {"name": name}, "rules": rules}));
    let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = object(binding(&name, "Role", user));
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
}

fn binding(role: &str, kind: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"},
    })
}

/// Looks at everything that the console watches.
pub(crate) fn reading() -> Value {
    json!([{"apiGroups": ["", "batch", "scheduling.k8s.io"], "resources": ["*"],
            "verbs": ["get", "list", "watch"]}])
}
