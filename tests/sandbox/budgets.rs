//! The status of disruption budgets where no controller keeps it.

use serde_json::{Value, json};

use crate::{pod, send, send_as, server};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn counts(client: &kube::Client) -> [Value; 4] {
    let (_, budget) = send(client, "GET", &format!("{BUDGETS}/b"), Value::Null).await;
    [
        "expectedPods",
        "currentHealthy",
        "desiredHealthy",
        "disruptionsAllowed",
    ]
    .map(|field| budget["status"][field].clone())
}

async fn set_ready(client: &kube::Client, name: &str, ready: &str) {
    let status =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    let path = format!("{PODS}/{name}/status");
    let media = "application/merge-patch+json";
    let body = status.to_string().into_bytes();
    assert_eq!(send_as(client, "PATCH", &path, media, body).await.0, 200);
}

#[tokio::test]
async fn a_budget_follows_its_pods() {
    let client = server().client();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "train"}}}});
    assert_eq!(send(&client, "POST", BUDGETS, budget).await.0, 201);
    for name in ["one", "two"] {
        assert_eq!(send(&client, "POST", PODS, pod(name)).await.0, 201);
    }
    assert_eq!(
        counts(&client).await,
        [json!(2), json!(0), json!(1), json!(0)]
    );
    set_ready(&client, "one", "True").await;
    set_ready(&client, "two", "True").await;
    assert_eq!(
        counts(&client).await,
        [json!(2), json!(2), json!(1), json!(1)]
    );
    set_ready(&client, "one", "False").await;
    assert_eq!(
        counts(&client).await,
        [json!(2), json!(1), json!(1), json!(0)]
    );
    send(&client, "DELETE", &format!("{PODS}/one"), Value::Null).await;
    assert_eq!(
        counts(&client).await,
        [json!(1), json!(1), json!(1), json!(0)]
    );

    // Of a status that a client wrote the server keeps its hands.
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 7}});
    let media = "application/merge-patch+json";
    let body = status.to_string().into_bytes();
    let path = format!("{BUDGETS}/b/status");
    assert_eq!(send_as(&client, "PATCH", &path, media, body).await.0, 200);
    set_ready(&client, "two", "False").await;
    assert_eq!(counts(&client).await[3], json!(7));
}
