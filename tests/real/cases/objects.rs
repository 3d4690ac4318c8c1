//! Create, read, update, delete and list.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::refusal;
use crate::servers::{Server, object};

async fn config_maps(server: &Server, case: &str) -> Api<ConfigMap> {
    let namespace = server.namespace(case).await;
    Api::namespaced(server.admin().await, &namespace)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"key": value}}))
}

fn value(config_map: &ConfigMap) -> &str {
    &config_map.data.as_ref().unwrap()["key"]
}

pub(crate) async fn create_read_update_delete(server: &Server) {
    let api = config_maps(server, "crud").await;
    let post = PostParams::default();
    let created = api.create(&post, &config_map("one", "1")).await.unwrap();
    assert!(
        created
            .metadata
            .uid
            .as_ref()
            .is_some_and(|uid| uid.len() == 36),
        "{created:?}"
    );
    assert!(created.metadata.creation_timestamp.is_some(), "{created:?}");

    let again = refusal(api.create(&post, &config_map("one", "2")).await);
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(again.message, r#"configmaps "one" already exists"#);

    assert_eq!(value(&api.get("one").await.unwrap()), "1");
    let merge = Patch::Merge(json!({"data": {"key": "2", "more": "x"}}));
    let merged = api
        .patch("one", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(value(&merged), "2");
    let json_patch: json_patch::Patch =
        object(json!([{"op": "test", "path": "/data/key", "value": "2"},
                      {"op": "remove", "path": "/data/more"}]));
    let patch: Patch<Value> = Patch::Json(json_patch);
    let patched = api
        .patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.as_ref().unwrap().len(), 1);
    let mut changed = patched.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("key".into(), "3".into());
    let replaced = api.replace("one", &post, &changed).await.unwrap();
    assert_eq!(value(&replaced), "3");
    assert_eq!(replaced.metadata.uid, created.metadata.uid);

    api.delete("one", &DeleteParams::default()).await.unwrap();
    let gone = refusal(api.get("one").await);
    assert_eq!((gone.code, gone.reason.as_str()), (404, "NotFound"));
    assert_eq!(gone.message, r#"configmaps "one" not found"#);
}

pub(crate) async fn generated_names_are_unique(server: &Server) {
    let api = config_maps(server, "generated").await;
    let unnamed: ConfigMap = object(json!({"metadata": {"generateName": "many-"}}));
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let created = api.create(&PostParams::default(), &unnamed).await.unwrap();
        names.insert(created.metadata.name.unwrap());
    }
    assert_eq!(names.len(), 20, "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("many-") && name.len() == 10),
        "{names:?}"
    );
}

pub(crate) async fn stale_update_conflicts(server: &Server) {
    let api = config_maps(server, "conflict").await;
    let post = PostParams::default();
    let first = api.create(&post, &config_map("one", "1")).await.unwrap();
    let second = api
        .replace("one", &post, &config_map("one", "2"))
        .await
        .unwrap();
    assert_ne!(
        first.metadata.resource_version,
        second.metadata.resource_version
    );

    let conflict = refusal(api.replace("one", &post, &first).await);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        conflict.message,
        r#"Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your changes to the latest version and try again"#
    );
    assert_eq!(value(&api.get("one").await.unwrap()), "2");

    // A patch that names the version it is based on is held to it too.
    let stale = json!({"metadata": {"resourceVersion": first.metadata.resource_version},
                       "data": {"key": "3"}});
    let conflict = refusal(
        api.patch("one", &PatchParams::default(), &Patch::Merge(stale))
            .await,
    );
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));

    // Writing what is there already changes nothing, not even the version.
    let same = api
        .replace("one", &post, &config_map("one", "2"))
        .await
        .unwrap();
    assert_eq!(
        same.metadata.resource_version,
        second.metadata.resource_version
    );
}

pub(crate) async fn delete_with_wrong_uid_conflicts(server: &Server) {
    let api = config_maps(server, "precondition").await;
    let created = api
        .create(&PostParams::default(), &config_map("one", "1"))
        .await
        .unwrap();
    let of = |uid: &str| DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.into()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let wrong = refusal(
        api.delete("one", &of("00000000-0000-0000-0000-000000000000"))
            .await,
    );
    assert_eq!((wrong.code, wrong.reason.as_str()), (409, "Conflict"));
    assert!(api.get_opt("one").await.unwrap().is_some());
    api.delete("one", &of(created.metadata.uid.as_ref().unwrap()))
        .await
        .unwrap();
    assert!(api.get_opt("one").await.unwrap().is_none());
}

pub(crate) async fn list_in_pages(server: &Server) {
    let api = config_maps(server, "pages").await;
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        api.create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    let first = api.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(4));
    // All pages show the state of the first: what comes between is in none of them.
    api.create(&PostParams::default(), &config_map("between", "1"))
        .await
        .unwrap();
    let mut names: Vec<_> = first
        .items
        .iter()
        .map(|i| i.metadata.name.clone().unwrap())
        .collect();
    let mut next = first.metadata.continue_.clone().unwrap();
    for (size, remaining) in [(3, Some(1)), (1, None)] {
        let page = api
            .list(&ListParams::default().limit(3).continue_token(&next))
            .await
            .unwrap();
        assert_eq!(page.items.len(), size);
        assert_eq!(page.metadata.remaining_item_count, remaining);
        assert_eq!(
            page.metadata.resource_version,
            first.metadata.resource_version
        );
        names.extend(page.items.iter().map(|i| i.metadata.name.clone().unwrap()));
        next = page.metadata.continue_.unwrap_or_default();
    }
    assert_eq!(next, "");
    assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g"]);

    let bad = refusal(
        api.list(&ListParams::default().limit(3).continue_token("###"))
            .await,
    );
    assert_eq!((bad.code, bad.reason.as_str()), (400, "BadRequest"));
}

pub(crate) async fn delete_collection_takes_what_is_selected(server: &Server) {
    let api = three_pods(server, "collection").await;
    let now = DeleteParams::default().grace_period(0);
    api.delete_collection(&now, &ListParams::default().labels("team"))
        .await
        .unwrap();
    assert_eq!(names(&api, ListParams::default()).await, "c");
}

pub(crate) async fn missing_namespace_is_named(server: &Server) {
    let api: Api<ConfigMap> = Api::namespaced(server.admin().await, "nowhere");
    let refused = refusal(
        api.create(&PostParams::default(), &config_map("one", "1"))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (404, "NotFound"));
    assert_eq!(refused.message, r#"namespaces "nowhere" not found"#);
    // To list there is no error, and nothing.
    assert_eq!(
        api.list(&ListParams::default()).await.unwrap().items.len(),
        0
    );
}

/// Makes the pods a(team=red, tier=web), b(team=blue), c(no labels).
async fn three_pods(server: &Server, case: &str) -> Api<Pod> {
    let namespace = server.namespace(case).await;
    let api: Api<Pod> = Api::namespaced(server.admin().await, &namespace);
    for (name, labels) in [
        ("a", json!({"team": "red", "tier": "web"})),
        ("b", json!({"team": "blue"})),
        ("c", json!({})),
    ] {
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "x"}], "schedulerName": "nobody"},
        });
        api.create(&PostParams::default(), &object(pod))
            .await
            .unwrap();
    }
    api
}

async fn names(api: &Api<Pod>, params: ListParams) -> String {
    let list = api.list(&params).await.unwrap();
    list.items
        .iter()
        .map(|pod| pod.metadata.name.as_deref().unwrap())
        .collect()
}

pub(crate) async fn label_selectors(server: &Server) {
    let api = three_pods(server, "labels").await;
    for (selector, expected) in [
        ("", "abc"),
        ("team=red", "a"),
        ("team==blue", "b"),
        ("team!=red", "bc"),
        ("team", "ab"),
        ("!team", "c"),
        ("team in (red,blue)", "ab"),
        ("team notin (red)", "bc"),
        ("team,!tier", "b"),
        ("team=green", ""),
    ] {
        let found = names(&api, ListParams::default().labels(selector)).await;
        assert_eq!(found, expected, "{selector}");
    }
    let bad = refusal(api.list(&ListParams::default().labels("team in red")).await);
    assert_eq!((bad.code, bad.reason.as_str()), (400, "BadRequest"));
}

pub(crate) async fn field_selectors(server: &Server) {
    let api = three_pods(server, "fields").await;
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    api.patch_status("b", &PatchParams::default(), &running)
        .await
        .unwrap();
    for (selector, expected) in [
        ("metadata.name=a", "a"),
        ("status.phase=Running", "b"),
        ("status.phase!=Running", "ac"),
        ("spec.nodeName=", "abc"),
        ("spec.nodeName!=", ""),
        ("spec.schedulerName=nobody,status.phase=Pending", "ac"),
    ] {
        let found = names(&api, ListParams::default().fields(selector)).await;
        assert_eq!(found, expected, "{selector}");
    }
    let bad = refusal(
        api.list(&ListParams::default().fields("spec.colour=red"))
            .await,
    );
    assert_eq!((bad.code, bad.reason.as_str()), (400, "BadRequest"));
    assert!(
        bad.message
            .contains("field label not supported: spec.colour"),
        "{}",
        bad.message
    );
}
