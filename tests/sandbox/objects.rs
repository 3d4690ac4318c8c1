use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn create_sets_identity_and_get_returns_the_same() {
    let client = server().client();
    let made: ConfigMap = create(&client, config_map("a")).await;
    assert!(made.metadata.uid.as_ref().unwrap().len() == 36);
    assert!(made.metadata.creation_timestamp.is_some());
    assert!(made.metadata.resource_version.is_some());
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    assert_eq!(api.get("a").await.unwrap(), made);
    let again = api.create(&PostParams::default(), &made).await.unwrap_err();
    // The server refuses a resourceVersion at create before it looks at the name.
    assert!(
        again
            .to_string()
            .contains("resourceVersion should not be set"),
        "{again}"
    );
    let (code, status) = send(&client, "POST", MAPS, config_map("a")).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (409, Some("AlreadyExists"))
    );
    assert_eq!(status["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn generated_names_come_from_the_seed() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let client = server().client();
        let mut names = Vec::new();
        for _ in 0..3 {
            let body = json!({"metadata": {"generateName": "train-"}});
            let (code, made) = send(&client, "POST", MAPS, body).await;
            assert_eq!(code, 201);
            names.push((name_of(&made).to_owned(), made["metadata"]["uid"].clone()));
        }
        assert_ne!(names[0], names[1]);
        assert_eq!(names[0].0.len(), "train-".len() + 5);
        runs.push(names);
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn names_namespaces_and_types_are_checked() {
    let client = server().client();
    let (code, status) = send(&client, "POST", MAPS, config_map("Not_A_Name")).await;
    assert_eq!((code, status["reason"].as_str()), (422, Some("Invalid")));
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    let elsewhere = "/api/v1/namespaces/nowhere/configmaps";
    let (code, status) = send(&client, "POST", elsewhere, config_map("a")).await;
    assert_eq!(
        (code, status["message"].as_str()),
        (404, Some("namespaces \"nowhere\" not found"))
    );
    let mut other = config_map("a");
    other["metadata"]["namespace"] = json!("kube-system");
    assert_eq!(send(&client, "POST", MAPS, other).await.0, 400);
    assert_eq!(send(&client, "POST", MAPS, node("a")).await.0, 400);
    let mut labelled = config_map("a");
    labelled["metadata"]["labels"] = json!({"a": 1});
    assert_eq!(send(&client, "POST", MAPS, labelled).await.0, 400);
}

#[tokio::test]
async fn a_stale_update_conflicts_and_an_equal_one_changes_nothing() {
    let client = server().client();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let first: ConfigMap = create(&client, config_map("a")).await;
    let mut second = first.clone();
    second.data.as_mut().unwrap().insert("b".into(), "2".into());
    let second = api
        .replace("a", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_ne!(
        first.metadata.resource_version,
        second.metadata.resource_version
    );
    let stale = api
        .replace("a", &PostParams::default(), &first)
        .await
        .unwrap_err();
    let kube::Error::Api(status) = stale else {
        panic!("{stale}")
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let same = api
        .replace("a", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_eq!(
        same.metadata.resource_version,
        second.metadata.resource_version
    );
    let mut other = second.clone();
    other.metadata.uid = Some("00000000-0000-4000-8000-000000000000".into());
    let other = api
        .replace("a", &PostParams::default(), &other)
        .await
        .unwrap_err();
    assert!(other.to_string().contains("UID in precondition"), "{other}");
}

#[tokio::test]
async fn the_three_patches_apply() {
    let client = server().client();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    create::<ConfigMap>(&client, config_map("a")).await;
    let params = PatchParams::default();
    let merged = api
        .patch(
            "a",
            &params,
            &Patch::Merge(json!({"data": {"a": null, "b": "2"}})),
        )
        .await
        .unwrap();
    assert_eq!(
        serde_json::to_value(merged.data).unwrap(),
        json!({"b": "2"})
    );
    let steps: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/data/b", "value": "2"},
        {"op": "replace", "path": "/data/b", "value": "3"}
    ]))
    .unwrap();
    api.patch("a", &params, &Patch::Json::<()>(steps.clone()))
        .await
        .unwrap();
    let refused = api
        .patch("a", &params, &Patch::Json::<()>(steps))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!(status.code, 422);

    let node_path = "/api/v1/nodes/n";
    send(&client, "POST", "/api/v1/nodes", node("n")).await;
    let patch = json!({"status": {"conditions": [{"type": "Disk", "status": "False"}]}});
    let (code, patched) = send_as(
        &client,
        "PATCH",
        "/api/v1/nodes/n/status",
        "application/strategic-merge-patch+json",
        patch.to_string().into_bytes(),
    )
    .await;
    assert_eq!(code, 200);
    assert_eq!(patched["status"]["conditions"].as_array().unwrap().len(), 2);
    let (code, _) = send_as(
        &client,
        "PATCH",
        node_path,
        "application/apply-patch+yaml",
        b"{}".to_vec(),
    )
    .await;
    assert_eq!(code, 422, "an apply names its manager");
}

#[tokio::test]
async fn status_and_spec_are_written_apart_and_the_generation_counts_specs() {
    let client = server().client();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let body =
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 9}});
    let (_, made) = send(&client, "POST", path, body).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert!(
        made["status"] == json!({}),
        "status is the controller's: {made}"
    );
    let one = format!("{path}/d");
    let mut change = made.clone();
    change["status"] = json!({"replicas": 1});
    change["spec"]["replicas"] = json!(5);
    let (_, after) = send(&client, "PUT", &format!("{one}/status"), change.clone()).await;
    assert_eq!(
        (
            after["spec"]["replicas"].as_i64(),
            after["status"]["replicas"].as_i64()
        ),
        (Some(1), Some(1))
    );
    assert_eq!(after["metadata"]["generation"], 1);
    change["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
    change["status"] = json!({"replicas": 77});
    let (_, after) = send(&client, "PUT", &one, change).await;
    assert_eq!(
        (
            after["spec"]["replicas"].as_i64(),
            after["status"]["replicas"].as_i64()
        ),
        (Some(5), Some(1))
    );
    assert_eq!(after["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_node_keeps_its_status_at_create_and_gets_the_not_ready_taint() {
    let client = server().client();
    let (_, made) = send(&client, "POST", "/api/v1/nodes", node("n")).await;
    assert_eq!(made["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(
        made["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
}

#[tokio::test]
async fn dry_runs_answer_and_change_nothing() {
    let server = server();
    let client = server.client();
    let before = server.resource_version();
    let (code, made) = send(
        &client,
        "POST",
        &format!("{MAPS}?dryRun=All"),
        config_map("a"),
    )
    .await;
    assert_eq!(code, 201);
    assert!(made["metadata"]["uid"].is_string());
    assert_eq!(
        send(&client, "GET", &format!("{MAPS}/a"), Value::Null)
            .await
            .0,
        404
    );
    assert_eq!(server.resource_version(), before);
    send(&client, "POST", MAPS, config_map("a")).await;
    let before = server.resource_version();
    let one = format!("{MAPS}/a?dryRun=All");
    let mut change = config_map("a");
    change["data"]["a"] = json!("2");
    let (code, changed) = send(&client, "PUT", &one, change).await;
    assert_eq!((code, changed["data"]["a"].as_str()), (200, Some("2")));
    assert_eq!(send(&client, "DELETE", &one, Value::Null).await.0, 200);
    assert_eq!(server.resource_version(), before);
    assert_eq!(
        send(
            &client,
            "DELETE",
            &format!("{MAPS}/a?dryRun=Some"),
            Value::Null
        )
        .await
        .0,
        422
    );
}

#[tokio::test]
async fn preconditions_and_finalizers_hold_a_deletion() {
    let client = server().client();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create::<ConfigMap>(&client, body).await;
    let wrong = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    assert_eq!(
        send(&client, "DELETE", &format!("{MAPS}/a"), wrong).await.0,
        409
    );
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(
        send(&client, "DELETE", &format!("{MAPS}/a"), wrong).await.0,
        409
    );
    let held = api
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert!(api.get("a").await.is_ok());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("a", &PatchParams::default(), &free)
        .await
        .unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_objects_along() {
    let client = server().client();
    let name = json!({"metadata": {"name": "team-a"}});
    send(&client, "POST", "/api/v1/namespaces", name).await;
    send(
        &client,
        "POST",
        "/api/v1/namespaces/team-a/configmaps",
        config_map("a"),
    )
    .await;
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n");
    assert_eq!(
        send(&client, "POST", "/api/v1/namespaces/team-a/pods", bound)
            .await
            .0,
        201
    );
    let (code, gone) = send(&client, "DELETE", "/api/v1/namespaces/team-a", Value::Null).await;
    assert_eq!(
        (code, gone["status"]["phase"].as_str()),
        (200, Some("Terminating"))
    );
    let (code, _) = send(
        &client,
        "POST",
        "/api/v1/namespaces/team-a/configmaps",
        config_map("b"),
    )
    .await;
    assert_eq!(code, 403);
    // The kubelet lets the last pod go, and the namespace with it.
    let force = json!({"gracePeriodSeconds": 0});
    send(&client, "DELETE", "/api/v1/namespaces/team-a/pods/p", force).await;
    assert_eq!(
        send(&client, "GET", "/api/v1/namespaces/team-a", Value::Null)
            .await
            .0,
        404
    );
    let kept = send(&client, "DELETE", "/api/v1/namespaces/default", Value::Null).await;
    assert_eq!(kept.0, 403);
}

#[tokio::test]
async fn an_installed_definition_is_served_at_once() {
    let client = server().client();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuqueues.gpudeck.dev"},
        "spec": {"group": "gpudeck.dev", "scope": "Cluster",
            "names": {"plural": "gpuqueues", "kind": "GpuQueue", "shortNames": ["gq"]},
            "versions": [
                {"name": "v1alpha1", "served": true, "storage": true,
                 "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}},
                {"name": "v1beta1", "served": true, "storage": false,
                 "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, made) = send(&client, "POST", crds, crd).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["status"]["conditions"][1]["type"], "Established");
    let queue = json!({"apiVersion": "gpudeck.dev/v1alpha1", "kind": "GpuQueue",
        "metadata": {"name": "research"}, "spec": {"weight": 1}, "status": {"x": 1}});
    let (code, made) = send(
        &client,
        "POST",
        "/apis/gpudeck.dev/v1alpha1/gpuqueues",
        queue,
    )
    .await;
    assert_eq!(code, 201);
    assert!(made.get("status").is_none());
    let (_, other) = send(
        &client,
        "GET",
        "/apis/gpudeck.dev/v1beta1/gpuqueues/research",
        Value::Null,
    )
    .await;
    assert_eq!(other["apiVersion"], "gpudeck.dev/v1beta1");
    let (_, list) = send(
        &client,
        "GET",
        "/apis/gpudeck.dev/v1alpha1/gpuqueues",
        Value::Null,
    )
    .await;
    assert_eq!(list["kind"], "GpuQueueList");
    assert_eq!(list["items"][0]["kind"], "GpuQueue");
    let (_, groups) = send(&client, "GET", "/apis/gpudeck.dev", Value::Null).await;
    assert_eq!(groups["preferredVersion"]["version"], "v1beta1");
    assert_eq!(
        send(
            &client,
            "DELETE",
            &format!("{crds}/gpuqueues.gpudeck.dev"),
            Value::Null
        )
        .await
        .0,
        200
    );
    assert_eq!(
        send(
            &client,
            "GET",
            "/apis/gpudeck.dev/v1alpha1/gpuqueues",
            Value::Null
        )
        .await
        .0,
        404
    );
}

#[tokio::test]
async fn both_event_apis_show_the_same_objects() {
    let client = server().client();
    let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Node", "name": "n"},
        "note": "hello", "reason": "Xid", "type": "Warning", "action": "x",
        "reportingController": "c", "reportingInstance": "i", "eventTime": "2026-11-30T00:00:00.000000Z"});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(send(&client, "POST", path, event).await.0, 201);
    let core = "/api/v1/namespaces/default/events";
    let (_, seen) = send(&client, "GET", &format!("{core}/e"), Value::Null).await;
    assert_eq!(
        (
            seen["message"].as_str(),
            seen["involvedObject"]["name"].as_str()
        ),
        (Some("hello"), Some("n"))
    );
    let (_, list) = send(
        &client,
        "GET",
        &format!("{core}?fieldSelector=involvedObject.name=n"),
        Value::Null,
    )
    .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (_, list) = send(
        &client,
        "GET",
        &format!("{path}?fieldSelector=regarding.name=n"),
        Value::Null,
    )
    .await;
    assert_eq!(list["items"][0]["note"], "hello");
}

#[tokio::test]
async fn a_job_is_defaulted_and_its_template_is_fixed() {
    let client = server().client();
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let spec = json!({"suspend": true, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "m", "image": "i"}]}}});
    let body = json!({"metadata": {"name": "j"}, "spec": spec});
    let (code, mut job) = send(&client, "POST", path, body).await;
    assert_eq!(code, 201, "{job}");
    let uid = job["metadata"]["uid"].clone();
    assert_eq!(job["spec"]["completions"], 1);
    assert_eq!(
        job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"],
        uid
    );
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"],
        "j"
    );
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
    let one = format!("{path}/j");
    let (code, mut job) = send(&client, "PUT", &one, job).await;
    assert_eq!(code, 200, "a suspended job may be sent elsewhere: {job}");
    job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    assert_eq!(send(&client, "PUT", &one, job).await.0, 422);
    let no_restart = json!({"metadata": {"name": "k"},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "i"}]}}}});
    assert_eq!(send(&client, "POST", path, no_restart).await.0, 422);
}

#[tokio::test]
async fn deletecollection_takes_what_the_selector_selects() {
    let client = server().client();
    for (name, app) in [("a", "train"), ("b", "serve"), ("c", "train")] {
        let mut body = pod(name);
        body["metadata"]["labels"]["app"] = json!(app);
        create::<Pod>(&client, body).await;
    }
    let path = "/api/v1/namespaces/default/pods";
    let (code, gone) = send(
        &client,
        "DELETE",
        &format!("{path}?labelSelector=app=train"),
        Value::Null,
    )
    .await;
    assert_eq!(code, 200);
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let (_, left) = send(&client, "GET", path, Value::Null).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn events_go_an_hour_after_their_last_write() {
    use std::sync::atomic::{AtomicI64, Ordering};
    let now = std::sync::Arc::new(AtomicI64::new(1_800_000_000));
    let reading = now.clone();
    let clock = gpudeck::sandbox::Clock::from_fn(move || {
        jiff::Timestamp::from_second(reading.load(Ordering::Relaxed)).unwrap()
    });
    let client = ApiServer::new(Options {
        clock,
        ..Options::default()
    })
    .unwrap()
    .client();
    let path = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({"metadata": {"name": name}, "reason": "Xid", "involvedObject": {"kind": "Node", "name": "n"}});
    let (_, made) = send(&client, "POST", path, event("a")).await;
    assert_eq!(
        made["metadata"]["creationTimestamp"],
        "2027-01-15T08:00:00Z"
    );
    send(&client, "POST", path, event("b")).await;
    now.fetch_add(1800, Ordering::Relaxed);
    let mut again = event("b");
    again["count"] = json!(2);
    assert_eq!(
        send(&client, "PUT", &format!("{path}/b"), again).await.0,
        200
    );
    now.fetch_add(1801, Ordering::Relaxed);
    send(&client, "POST", path, event("c")).await;
    let (_, list) = send(&client, "GET", path, Value::Null).await;
    let names: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(name_of)
        .collect();
    assert_eq!(names, ["b", "c"]);
}
