use gpudeck::sandbox::User;
use serde_json::json;

use super::*;

#[tokio::test]
async fn denied_reads_say_what_who_and_where() {
    let server = server();
    let client = server.client_for(User::new("ann", &["team-a"]));
    let (code, status) = send(&client, "GET", "/api/v1/nodes", Value::Null).await;
    assert_eq!((code, status["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        status["message"],
        "nodes is forbidden: User \"ann\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let (_, status) = send(
        &client,
        "GET",
        "/apis/batch/v1/namespaces/x/jobs/j",
        Value::Null,
    )
    .await;
    assert_eq!(
        status["message"],
        "jobs.batch \"j\" is forbidden: User \"ann\" cannot get resource \"jobs\" in API group \"batch\" in the namespace \"x\""
    );
    assert_eq!(send(&client, "GET", "/apis", Value::Null).await.0, 200);
}

#[tokio::test]
async fn roles_grant_by_user_and_group_where_they_are_bound() {
    let server = server();
    let admin = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    send(
        &admin,
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "team-a"}}),
    )
    .await;
    let binding = json!({"metadata": {"name": "leads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "Group", "name": "team-a"}]});
    let path = format!("{rbac}/namespaces/team-a/rolebindings");
    assert_eq!(send(&admin, "POST", &path, binding).await.0, 201);
    let role = json!({"metadata": {"name": "binder"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"], "verbs": ["get"]}]});
    send(&admin, "POST", &format!("{rbac}/clusterroles"), role).await;
    let binding = json!({"metadata": {"name": "binder"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "binder"},
        "subjects": [{"kind": "User", "name": "ann"}]});
    send(
        &admin,
        "POST",
        &format!("{rbac}/clusterrolebindings"),
        binding,
    )
    .await;

    let ann = server.client_for(User::new("ann", &["team-a"]));
    for (method, path, body, wanted) in [
        ("GET", "/api/v1/namespaces/team-a/pods", Value::Null, 200),
        (
            "POST",
            "/api/v1/namespaces/team-a/configmaps",
            config_map("a"),
            201,
        ),
        ("GET", "/api/v1/namespaces/team-a", Value::Null, 200),
        ("GET", "/api/v1/namespaces/default/pods", Value::Null, 403),
        ("GET", "/api/v1/pods", Value::Null, 403),
        ("GET", "/api/v1/nodes/n1", Value::Null, 404),
        ("GET", "/api/v1/nodes/n2", Value::Null, 403),
        ("GET", "/api/v1/nodes", Value::Null, 403),
        (
            "POST",
            "/api/v1/namespaces/default/pods/p/binding",
            json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
            404,
        ),
        (
            "PUT",
            "/api/v1/namespaces/default/pods/p/status",
            pod("p"),
            403,
        ),
    ] {
        let (code, status) = send(&ann, method, path, body).await;
        assert_eq!(code, wanted, "{method} {path}: {status}");
    }
    // Taking the binding away takes effect at once.
    send(
        &admin,
        "DELETE",
        &format!("{rbac}/namespaces/team-a/rolebindings/leads"),
        Value::Null,
    )
    .await;
    assert_eq!(
        send(&ann, "GET", "/api/v1/namespaces/team-a/pods", Value::Null)
            .await
            .0,
        403
    );
}

#[tokio::test]
async fn access_reviews_answer_as_the_authorizer_does() {
    let server = server();
    let review = |verb: &str, resource: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default"}}})
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = send(&server.client(), "POST", path, review("delete", "pods")).await;
    assert_eq!(
        (code, answer["status"]["allowed"].as_bool()),
        (201, Some(true))
    );
    let ann = server.client_for(User::new("ann", &[]));
    let (code, answer) = send(&ann, "POST", path, review("delete", "pods")).await;
    assert_eq!(
        (code, answer["status"]["allowed"].as_bool()),
        (201, Some(false))
    );
    let rules = json!({"spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (_, answer) = send(&server.client(), "POST", path, rules.clone()).await;
    assert_eq!(answer["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    let (_, answer) = send(&ann, "POST", path, rules).await;
    let listed = answer["status"]["resourceRules"].to_string();
    assert!(
        listed.contains("selfsubjectaccessreviews") && !listed.contains("pods"),
        "{listed}"
    );
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let other = json!({"spec": {"user": "kubernetes-admin", "groups": ["system:masters"],
        "resourceAttributes": {"verb": "get", "resource": "nodes"}}});
    let (_, answer) = send(&server.client(), "POST", path, other.clone()).await;
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(send(&ann, "POST", path, other).await.0, 403);
}

#[tokio::test]
async fn every_request_is_in_the_audit_trail() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let options = Options {
        audit_log: Some(file.clone()),
        ..Options::default()
    };
    let server = ApiServer::new(options).unwrap();
    let client = server.client();
    send(
        &client,
        "GET",
        "/api/v1/namespaces/default/pods?limit=1",
        Value::Null,
    )
    .await;
    send(
        &client,
        "POST",
        "/api/v1/namespaces/default/pods/x/eviction",
        json!({"metadata": {"name": "x"}}),
    )
    .await;
    let ann = server.client_for(User::new("ann", &[]));
    send(
        &ann,
        "DELETE",
        "/apis/batch/v1/namespaces/default/jobs",
        Value::Null,
    )
    .await;
    let entries = server.audit();
    let shown: Vec<_> = entries
        .iter()
        .map(|e| (&*e.verb, &*e.user, &*e.resource, &*e.subresource, e.code))
        .collect();
    assert_eq!(
        shown,
        [
            ("list", "kubernetes-admin", "pods", "", 200),
            ("create", "kubernetes-admin", "pods", "eviction", 404),
            ("deletecollection", "ann", "jobs", "", 403),
        ]
    );
    let lines = std::fs::read_to_string(&file).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["user"]["username"], "ann");
    assert_eq!(last["verb"], "deletecollection");
    assert_eq!(last["objectRef"]["resource"], "jobs");
    assert_eq!(last["objectRef"]["apiGroup"], "batch");
    assert_eq!(last["responseStatus"]["code"], 403);
    assert_eq!(last["requestURI"], "/apis/batch/v1/namespaces/default/jobs");
}
