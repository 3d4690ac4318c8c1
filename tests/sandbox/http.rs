use serde_json::json;

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn discovery_names_what_is_served() {
    let client = server().client();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "37")
    );
    let discovery = kube::discovery::Discovery::new(client.clone())
        .run()
        .await
        .unwrap();
    for (group, kind) in [
        ("", "Pod"),
        ("batch", "Job"),
        ("policy", "PodDisruptionBudget"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
    ] {
        let group = discovery.get(group).unwrap();
        assert!(
            group
                .recommended_resources()
                .iter()
                .any(|(r, _)| r.kind == kind),
            "{kind}"
        );
    }
    let aggregated = kube::discovery::Discovery::new(client)
        .run_aggregated()
        .await
        .unwrap();
    let pods = aggregated.get("").unwrap().recommended_kind("Pod").unwrap();
    assert_eq!(pods.0.plural, "pods");
}

#[tokio::test]
async fn unserved_paths_and_methods_get_the_servers_codes() {
    let client = server().client();
    for (method, path, wanted) in [
        ("GET", "/", 200),
        ("GET", "/nonsense", 404),
        ("GET", "/apis/none.example.com", 404),
        ("GET", "/apis/none.example.com/v1/things", 404),
        ("GET", "/api/v1/things", 404),
        ("GET", "/api/v1/pods/without-namespace", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1//pods", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/..", 400),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/%2e%2e%2f%2e%2e",
            400,
        ),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/a/nonsense",
            404,
        ),
        ("GET", "/api/v1/nodes/%zz", 400),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", "/api/v1/namespaces/default/configmaps/a", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("PATCH", "/api/v1/namespaces/default/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", "/version", 405),
        ("GET", "/api/v1/namespaces/default/pods/p/binding", 405),
        ("GET", "/api/v1/namespaces/default/pods/p/log", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
    ] {
        let (code, body) = send(&client, method, path, Value::Null).await;
        assert_eq!(code, wanted, "{method} {path}: {body}");
    }
}

#[tokio::test]
async fn hostile_bodies_are_refused_and_the_server_lives_on() {
    let client = server().client();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let long_name = json!({"metadata": {"name": "a".repeat(1 << 20)}}).to_string();
    let many = json!({"metadata": {"name": "a"}, "data": {"x": "y".repeat(4 << 20)}}).to_string();
    for (what, content_type, body, wanted) in [
        ("nothing", "application/json", String::new(), 400),
        ("no JSON", "application/json", "{".into(), 400),
        ("no object", "application/json", "[]".into(), 400),
        ("a number", "application/json", "7".into(), 400),
        ("null", "application/json", "null".into(), 422),
        ("deep", "application/json", deep.clone(), 400),
        (
            "metadata of another type",
            "application/json",
            r#"{"metadata": []}"#.into(),
            400,
        ),
        (
            "name of another type",
            "application/json",
            r#"{"metadata": {"name": {}}}"#.into(),
            400,
        ),
        ("no name", "application/json", "{}".into(), 422),
        ("a name of 1 MB", "application/json", long_name, 422),
        ("over 3 MiB", "application/json", many, 413),
        (
            "protobuf",
            "application/vnd.kubernetes.protobuf",
            "k8s\0".into(),
            400,
        ),
        (
            "a control byte",
            "application/json",
            r#"{"metadata": {"name": "a\u0000b"}}"#.into(),
            422,
        ),
    ] {
        let (code, status) = send_as(&client, "POST", MAPS, content_type, body.into_bytes()).await;
        assert_eq!(
            code,
            wanted,
            "{what}: {}",
            status.to_string().chars().take(300).collect::<String>()
        );
        assert!(
            status.to_string().len() < 10_000,
            "{what}: the answer repeats what was sent"
        );
        assert_eq!(status["kind"], "Status", "{what}");
    }
    create::<k8s_openapi::api::core::v1::ConfigMap>(&client, config_map("a")).await;
    for (content_type, body, wanted) in [
        (
            "application/json-patch+json",
            r#"[{"op": "remove", "path": "/none"}]"#.to_owned(),
            422,
        ),
        ("application/json-patch+json", "{}".into(), 400),
        (
            "application/json-patch+json",
            r#"[{"op": "explode"}]"#.into(),
            422,
        ),
        (
            "application/json-patch+json",
            r#"[{"op": "replace", "path": "", "value": 7}]"#.into(),
            422,
        ),
        (
            "application/json-patch+json",
            r#"[{"op": "replace", "path": "/metadata/name", "value": "b"}]"#.into(),
            400,
        ),
        ("application/merge-patch+json", "[]".into(), 400),
        (
            "application/merge-patch+json",
            r#"{"metadata": null}"#.into(),
            400,
        ),
        (
            "application/merge-patch+json",
            r#"{"kind": "Secret"}"#.into(),
            422,
        ),
        ("application/merge-patch+json", deep, 400),
        (
            "application/strategic-merge-patch+json",
            r#"{"$patch": "delete"}"#.into(),
            400,
        ),
        ("text/plain", "{}".into(), 415),
    ] {
        let what: String = body.chars().take(80).collect();
        let (code, status) = send_as(
            &client,
            "PATCH",
            &format!("{MAPS}/a"),
            content_type,
            body.into_bytes(),
        )
        .await;
        assert_eq!(code, wanted, "{content_type} {what}: {status}");
    }
    assert_eq!(
        send(&client, "GET", &format!("{MAPS}/a"), Value::Null)
            .await
            .0,
        200
    );
    let long = format!("{MAPS}/{}", "a".repeat(60_000));
    let (code, status) = send(&client, "GET", &long, Value::Null).await;
    assert_eq!(code, 404);
    assert!(status.to_string().len() < 10_000);
}

#[tokio::test]
async fn a_client_that_takes_no_json_is_told_so() {
    let client = server().client();
    for (accept, wanted) in [
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            200,
        ),
        ("*/*", 200),
    ] {
        let request = ::http::Request::get(MAPS)
            .header("accept", accept)
            .body(kube::client::Body::empty())
            .unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status().as_u16(), wanted, "{accept}");
    }
}
