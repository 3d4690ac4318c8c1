use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::json;

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn fill(client: &Client, count: usize) {
    for index in 0..count {
        create::<ConfigMap>(client, config_map(&format!("m{index:03}"))).await;
    }
}

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| name_of(i).to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one() {
    let client = server().client();
    fill(&client, 7).await;
    let (_, first) = send(&client, "GET", &format!("{MAPS}?limit=3"), Value::Null).await;
    assert_eq!(names(&first), ["m000", "m001", "m002"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    assert!(
        first["items"][0].get("kind").is_none(),
        "items of a built-in list carry no kind"
    );
    // Behind the reader's back: one goes, one comes, one changes.
    send(&client, "DELETE", &format!("{MAPS}/m004"), Value::Null).await;
    create::<ConfigMap>(&client, config_map("m0035")).await;
    let mut changed = config_map("m005");
    changed["data"]["a"] = json!("2");
    send(&client, "PUT", &format!("{MAPS}/m005"), changed).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = send(
        &client,
        "GET",
        &format!("{MAPS}?limit=3&continue={token}"),
        Value::Null,
    )
    .await;
    assert_eq!(names(&second), ["m003", "m004", "m005"]);
    assert_eq!(second["items"][2]["data"]["a"], "1");
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = send(
        &client,
        "GET",
        &format!("{MAPS}?limit=3&continue={token}"),
        Value::Null,
    )
    .await;
    assert_eq!(names(&third), ["m006"]);
    assert!(third["metadata"].get("continue").is_none());
    let rv = first["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = format!("{MAPS}?resourceVersion={rv}&resourceVersionMatch=Exact");
    let (_, exact) = send(&client, "GET", &exact, Value::Null).await;
    assert_eq!(names(&exact).len(), 7);
}

#[tokio::test]
async fn a_continue_token_from_before_a_compaction_is_gone() {
    let server = server();
    let client = server.client();
    fill(&client, 3).await;
    let (_, first) = send(&client, "GET", &format!("{MAPS}?limit=1"), Value::Null).await;
    create::<ConfigMap>(&client, config_map("more")).await;
    server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, status) = send(
        &client,
        "GET",
        &format!("{MAPS}?limit=1&continue={token}"),
        Value::Null,
    )
    .await;
    assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
    for bad in ["x", "1.2.", "1.2.zz", "1.2.ff", "%00"] {
        let (code, _) = send(
            &client,
            "GET",
            &format!("{MAPS}?continue={bad}"),
            Value::Null,
        )
        .await;
        assert_eq!(code, 400, "{bad}");
    }
}

#[tokio::test]
async fn selectors_select() {
    let client = server().client();
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "")] {
        let mut body = pod(name);
        body["metadata"]["labels"] = json!({"rank": name});
        if !node.is_empty() {
            body["spec"]["nodeName"] = json!(node);
        }
        create::<k8s_openapi::api::core::v1::Pod>(&client, body).await;
    }
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client.clone());
    let list = async |params: ListParams| -> Vec<String> {
        api.list(&params)
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|p| p.metadata.name.unwrap())
            .collect()
    };
    assert_eq!(
        list(ListParams::default().fields("spec.nodeName=n1")).await,
        ["a"]
    );
    assert_eq!(
        list(ListParams::default().fields("spec.nodeName!=n1")).await,
        ["b", "c"]
    );
    assert_eq!(
        list(ListParams::default().labels("rank in (b,c)")).await,
        ["b", "c"]
    );
    assert_eq!(
        list(
            ListParams::default()
                .labels("rank=b")
                .fields("status.phase=Pending")
        )
        .await,
        ["b"]
    );
    let error = api
        .list(&ListParams::default().fields("spec.nope=1"))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (400, "field label not supported: spec.nope")
    );
}

#[tokio::test]
async fn a_list_of_thousands_streams_whole() {
    let client = server().client();
    fill(&client, 2_500).await;
    let (_, list) = send(&client, "GET", MAPS, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2_500);
    assert_eq!(list["kind"], "ConfigMapList");
}

#[tokio::test]
async fn resource_versions_of_a_list_are_checked() {
    let client = server().client();
    fill(&client, 1).await;
    let (code, status) = send(
        &client,
        "GET",
        &format!("{MAPS}?resourceVersion=999999"),
        Value::Null,
    )
    .await;
    assert_eq!((code, status["reason"].as_str()), (504, Some("Timeout")));
    for (query, wanted) in [
        ("resourceVersion=0", 200),
        ("resourceVersion=1", 200),
        ("resourceVersion=x", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Sometimes", 422),
        ("sendInitialEvents=true", 422),
        ("limit=99999999999999999999", 400),
        ("limit=x", 400),
        ("limit=-1", 200),
        ("limit=9223372036854775807", 200),
        ("labelSelector=%28", 400),
        ("labelSelector=%zz", 200),
    ] {
        let (code, status) = send(&client, "GET", &format!("{MAPS}?{query}"), Value::Null).await;
        assert_eq!(code, wanted, "{query}: {status}");
    }
}
