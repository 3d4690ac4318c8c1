//! Who may do what, and what the others are told.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::config::AuthInfo;
use serde_json::json;

use super::refusal;
use crate::servers::{Server, object};

pub(crate) async fn forbidden_says_who_what_and_where(server: &Server) {
    let client = server.client("nobody").await;
    let everywhere = refusal(
        Api::<Pod>::all(client.clone())
            .list(&ListParams::default())
            .await,
    );
    assert_eq!(
        (everywhere.code, everywhere.reason.as_str()),
        (403, "Forbidden")
    );
    assert_eq!(
        everywhere.message,
        r#"pods is forbidden: User "nobody" cannot list resource "pods" in API group "" at the cluster scope"#
    );
    let namespace = server.namespace("forbidden").await;
    let api: Api<Job> = Api::namespaced(client, &namespace);
    let here = refusal(api.list(&ListParams::default()).await);
    assert_eq!(
        here.message,
        format!(
            r#"jobs.batch is forbidden: User "nobody" cannot list resource "jobs" in API group "batch" in the namespace "{namespace}""#
        )
    );
    let one = refusal(api.get("one").await);
    assert_eq!(
        one.message,
        format!(
            r#"jobs.batch "one" is forbidden: User "nobody" cannot get resource "jobs" in API group "batch" in the namespace "{namespace}""#
        )
    );
}

pub(crate) async fn role_opens_one_namespace(server: &Server) {
    let open = server.namespace("role").await;
    let closed = server.namespace("role-not").await;
    let admin = server.admin().await;
    let role = object(json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }));
    let binding = object(json!({
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "User", "name": "team-lead", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
    }));
    let post = PostParams::default();
    Api::<Role>::namespaced(admin.clone(), &open)
        .create(&post, &role)
        .await
        .unwrap();
    Api::<RoleBinding>::namespaced(admin, &open)
        .create(&post, &binding)
        .await
        .unwrap();

    let lead = server.client("team-lead").await;
    let pods: Api<Pod> = Api::namespaced(lead.clone(), &open);
    // The authorizer learns of the binding by a watch of its own.
    let listed = super::eventually("the role is in force", async || {
        pods.list(&ListParams::default()).await.ok()
    })
    .await;
    assert_eq!(listed.items.len(), 0);
    let elsewhere: Api<Pod> = Api::namespaced(lead.clone(), &closed);
    assert_eq!(
        refusal(elsewhere.list(&ListParams::default()).await).code,
        403
    );
    let other: Api<ConfigMap> = Api::namespaced(lead, &open);
    assert_eq!(refusal(other.list(&ListParams::default()).await).code, 403);
}

pub(crate) async fn access_review_tells_before_the_act(server: &Server) {
    let ask = async |user: &str| {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(server.client(user).await);
        let review = object(json!({"spec": {"resourceAttributes":
            {"group": "", "resource": "pods", "subresource": "eviction", "verb": "create"}}}));
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap();
        answer.status.unwrap().allowed
    };
    assert!(ask("admin").await);
    assert!(!ask("nobody").await);
}

pub(crate) async fn unknown_token_is_unauthorized(server: &Server) {
    let mut config = server.config("viewer").await;
    config.auth_info = AuthInfo {
        token: Some("expired".to_owned().into()),
        ..AuthInfo::default()
    };
    let client = gpudeck::cluster::client::from_config(config).unwrap();
    let refused = refusal(Api::<Pod>::all(client).list(&ListParams::default()).await);
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (401, "Unauthorized")
    );
    assert_eq!(refused.message, "Unauthorized");
}

pub(crate) async fn audit_names_user_verb_and_resource(server: &Server) {
    let namespace = server.namespace("audit").await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin().await, &namespace);
    let new = object(json!({"metadata": {"name": "one"}}));
    api.create(&PostParams::default(), &new).await.unwrap();
    api.get("one").await.unwrap();
    api.list(&ListParams::default()).await.unwrap();
    let viewer: Api<ConfigMap> = Api::namespaced(server.client("viewer").await, &namespace);
    refusal(viewer.get("one").await);

    let told = super::eventually("four records", async || {
        let records = server.audit().into_iter();
        let of_case: Vec<_> = records
            .filter(|r| r.namespace == namespace && r.resource == "configmaps")
            // The controllers of a real server look around on their own.
            .filter(|r| r.user == "admin" || r.user == "viewer")
            .map(|r| format!("{} {} {} {}", r.user, r.verb, r.name, r.status))
            .collect();
        (of_case.len() >= 4).then_some(of_case)
    })
    .await;
    // The name of a create is known only when the body is read.
    let told: Vec<_> = told
        .iter()
        .map(|line| line.replace("create one", "create "))
        .collect();
    assert_eq!(
        told,
        [
            "admin create  201",
            "admin get one 200",
            "admin list  200",
            "viewer get one 403"
        ]
    );
}
