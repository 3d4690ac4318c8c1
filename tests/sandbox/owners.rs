//! Garbage collection by ownerReferences.

use serde_json::{Value, json};

use crate::{send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn owned(name: &str, kind: (&str, &str), owner: &Value, blocks: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": kind.0, "kind": kind.1, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]}})
}

const MAP: (&str, &str) = ("v1", "ConfigMap");

#[tokio::test]
async fn in_the_background_dependents_go_after_their_owner_to_the_last_generation() {
    let client = server().client();
    let (_, a) = send(&client, "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    let (_, b) = send(&client, "POST", MAPS, owned("b", MAP, &a, false)).await;
    send(&client, "POST", MAPS, owned("c", MAP, &b, false)).await;
    let (code, _) = send(&client, "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, 200);
    let (_, list) = send(&client, "GET", MAPS, Value::Null).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn a_second_owner_keeps_a_dependent() {
    let client = server().client();
    let (_, a) = send(&client, "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    let (_, b) = send(&client, "POST", MAPS, json!({"metadata": {"name": "b"}})).await;
    let mut both = owned("c", MAP, &a, false);
    let more = owned("c", MAP, &b, false)["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(more);
    send(&client, "POST", MAPS, both).await;
    send(&client, "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    let (code, kept) = send(&client, "GET", &format!("{MAPS}/c"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(
        kept["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    send(&client, "DELETE", &format!("{MAPS}/b"), Value::Null).await;
    assert_eq!(
        send(&client, "GET", &format!("{MAPS}/c"), Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn in_the_foreground_a_blocking_dependent_goes_first() {
    let client = server().client();
    let (_, a) = send(&client, "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    let mut held = owned("b", MAP, &a, true);
    held["metadata"]["finalizers"] = json!(["gpudeck.dev/hold"]);
    send(&client, "POST", MAPS, held).await;
    let options = json!({"propagationPolicy": "Foreground"});
    send(&client, "DELETE", &format!("{MAPS}/a"), options).await;
    let (code, owner) = send(&client, "GET", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, 200, "the owner waits");
    assert_eq!(
        owner["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let (_, mut held) = send(&client, "GET", &format!("{MAPS}/b"), Value::Null).await;
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    held["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("finalizers");
    send(&client, "PUT", &format!("{MAPS}/b"), held).await;
    assert_eq!(
        send(&client, "GET", &format!("{MAPS}/a"), Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn a_job_deleted_without_a_word_leaves_its_pods_behind_as_orphans() {
    let client = server().client();
    let job = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}}}})
    };
    for (name, options, kept) in [
        ("plain", Value::Null, true),
        ("asked", json!({"propagationPolicy": "Background"}), false),
    ] {
        let (_, owner) = send(&client, "POST", JOBS, job(name)).await;
        let child = owned(name, ("batch/v1", "Job"), &owner, true);
        send(&client, "POST", MAPS, child).await;
        send(&client, "DELETE", &format!("{JOBS}/{name}"), options).await;
        assert_eq!(
            send(&client, "GET", &format!("{JOBS}/{name}"), Value::Null)
                .await
                .0,
            404
        );
        let (code, child) = send(&client, "GET", &format!("{MAPS}/{name}"), Value::Null).await;
        assert_eq!(code == 200, kept, "{name}: {child}");
        if kept {
            assert!(
                child["metadata"].get("ownerReferences").is_none(),
                "{child}"
            );
        }
    }
}
