use std::collections::BTreeMap;
use std::pin::pin;

use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

type Lines = std::pin::Pin<Box<dyn Stream<Item = Value> + Send>>;

/// Opens a watch and reads its lines as they are.
async fn open(client: &Client, path: &str) -> Lines {
    let request = ::http::Request::get(path).body(Vec::new()).unwrap();
    let lines = client.request_stream(request).await.unwrap().lines();
    Box::pin(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

async fn next(lines: &mut Lines) -> Value {
    tokio::time::timeout(DEADLINE, lines.next())
        .await
        .expect("an event in time")
        .expect("an event")
}

async fn end(lines: &mut Lines) {
    let rest = tokio::time::timeout(DEADLINE, lines.next())
        .await
        .expect("an end in time");
    assert_eq!(rest, None);
}

fn shown(event: &Value) -> (String, String) {
    (
        event["type"].as_str().unwrap().into(),
        name_of(&event["object"]).into(),
    )
}

#[tokio::test]
async fn a_watch_from_a_list_misses_nothing() {
    let client = server().client();
    create::<ConfigMap>(&client, config_map("a")).await;
    let (_, list) = send(&client, "GET", MAPS, Value::Null).await;
    let rv = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    // Between list and watch.
    create::<ConfigMap>(&client, config_map("b")).await;
    send(&client, "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    let mut lines = open(&client, &format!("{MAPS}?watch=true&resourceVersion={rv}")).await;
    assert_eq!(shown(&next(&mut lines).await), ("ADDED".into(), "b".into()));
    let gone = next(&mut lines).await;
    assert_eq!(shown(&gone), ("DELETED".into(), "a".into()));
    assert!(gone["object"]["metadata"]["resourceVersion"].as_str() > Some(rv.as_str()));
    assert_eq!(gone["object"]["kind"], "ConfigMap");
    // And after.
    create::<ConfigMap>(&client, config_map("c")).await;
    assert_eq!(shown(&next(&mut lines).await), ("ADDED".into(), "c".into()));
}

#[tokio::test]
async fn a_watch_without_version_starts_with_the_state() {
    let client = server().client();
    create::<ConfigMap>(&client, config_map("a")).await;
    for query in ["watch=1", "watch=true&resourceVersion=0"] {
        let mut lines = open(&client, &format!("{MAPS}?{query}")).await;
        assert_eq!(shown(&next(&mut lines).await), ("ADDED".into(), "a".into()));
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let client = server().client();
    let mut lines = open(
        &client,
        &format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3Dn1"),
    )
    .await;
    create::<Pod>(&client, pod("p")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    send(&client, "POST", &format!("{PODS}/p/binding"), binding).await;
    assert_eq!(shown(&next(&mut lines).await), ("ADDED".into(), "p".into()));
    let mut labels = open(
        &client,
        &format!("{PODS}?watch=true&labelSelector=app%3Dtrain"),
    )
    .await;
    assert_eq!(
        shown(&next(&mut labels).await),
        ("ADDED".into(), "p".into())
    );
    let patch = json!({"metadata": {"labels": {"app": "serve"}}})
        .to_string()
        .into_bytes();
    send_as(
        &client,
        "PATCH",
        &format!("{PODS}/p"),
        "application/merge-patch+json",
        patch,
    )
    .await;
    let left = next(&mut labels).await;
    assert_eq!(shown(&left), ("DELETED".into(), "p".into()));
    assert_eq!(
        left["object"]["metadata"]["labels"]["app"], "train",
        "the state that was selected"
    );
    let changed = next(&mut lines).await;
    assert_eq!(shown(&changed), ("MODIFIED".into(), "p".into()));
    assert_eq!(
        left["object"]["metadata"]["resourceVersion"],
        changed["object"]["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn other_namespaces_stay_out_of_a_watch() {
    let client = server().client();
    let mut lines = open(&client, &format!("{MAPS}?watch=true")).await;
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    send(&client, "POST", elsewhere, config_map("other")).await;
    create::<ConfigMap>(&client, config_map("mine")).await;
    assert_eq!(shown(&next(&mut lines).await).1, "mine");
}

#[tokio::test]
async fn bookmarks_come_when_asked_for_and_at_the_end() {
    let options = Options {
        bookmark_interval: Duration::from_millis(20),
        ..Options::default()
    };
    let server = ApiServer::new(options).unwrap();
    let client = server.client();
    let mut lines = open(
        &client,
        &format!("{MAPS}?watch=true&allowWatchBookmarks=true"),
    )
    .await;
    let first = next(&mut lines).await;
    assert_eq!(first["type"], "BOOKMARK");
    assert_eq!(
        first["object"]["metadata"]["resourceVersion"],
        server.resource_version().to_string()
    );
    // A change of another kind moves this watch along too.
    send(&client, "POST", "/api/v1/nodes", node("n")).await;
    let wanted = server.resource_version().to_string();
    while next(&mut lines).await["object"]["metadata"]["resourceVersion"] != wanted.as_str() {}
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout() {
    let client = server().client();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=5&allowWatchBookmarks=true");
    let mut lines = open(&client, &path).await;
    assert_eq!(next(&mut lines).await["type"], "BOOKMARK");
    end(&mut lines).await;
    let mut plain = open(&client, &format!("{MAPS}?watch=true&timeoutSeconds=5")).await;
    end(&mut plain).await;
}

#[tokio::test]
async fn a_compacted_version_is_gone_in_both_forms() {
    for as_status in [false, true] {
        let options = Options {
            expired_watch_as_status: as_status,
            ..Options::default()
        };
        let server = ApiServer::new(options).unwrap();
        let client = server.client();
        let made: ConfigMap = create(&client, config_map("a")).await;
        let old = made.metadata.resource_version.unwrap();
        create::<ConfigMap>(&client, config_map("b")).await;
        server.compact();
        let path = format!("{MAPS}?watch=true&resourceVersion={old}");
        if as_status {
            let (code, status) = send(&client, "GET", &path, Value::Null).await;
            assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
        } else {
            let mut lines = open(&client, &path).await;
            let error = next(&mut lines).await;
            assert_eq!(error["type"], "ERROR");
            assert_eq!(
                (
                    error["object"]["code"].as_i64(),
                    error["object"]["reason"].as_str()
                ),
                (Some(410), Some("Expired"))
            );
            end(&mut lines).await;
        }
    }
}

#[tokio::test]
async fn a_reader_that_falls_behind_the_history_is_told_so() {
    let options = Options {
        history_changes: 4,
        ..Options::default()
    };
    let client = ApiServer::new(options).unwrap().client();
    let mut lines = open(&client, &format!("{MAPS}?watch=true")).await;
    // The stream is read only now and then, as over a slow line.
    for index in 0..20 {
        create::<ConfigMap>(&client, config_map(&format!("m{index}"))).await;
    }
    let mut last = next(&mut lines).await;
    while last["type"] != "ERROR" {
        last = next(&mut lines).await;
    }
    assert_eq!(last["object"]["code"], 410);
    end(&mut lines).await;
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let client = server().client();
    for name in ["a", "b"] {
        create::<ConfigMap>(&client, config_map(name)).await;
    }
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut lines = open(&client, &path).await;
    assert_eq!(shown(&next(&mut lines).await).1, "a");
    assert_eq!(shown(&next(&mut lines).await).1, "b");
    let mark = next(&mut lines).await;
    assert_eq!(
        mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    create::<ConfigMap>(&client, config_map("c")).await;
    assert_eq!(shown(&next(&mut lines).await).1, "c");
    let (code, _) = send(
        &client,
        "GET",
        &format!("{MAPS}?watch=true&sendInitialEvents=true"),
        Value::Null,
    )
    .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn typed_events_decode() {
    let client = server().client();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    create::<ConfigMap>(&client, config_map("a")).await;
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    match events.try_next().await.unwrap().unwrap() {
        WatchEvent::Added(map) => assert_eq!(map.metadata.name.as_deref(), Some("a")),
        other => panic!("{other:?}"),
    }
}

/// kube's own watcher as a second opinion: what it folds equals what a list says.
#[tokio::test]
async fn kubes_watcher_agrees_in_both_modes() {
    for streaming in [false, true] {
        let client = server().client();
        for index in 0..30 {
            create::<ConfigMap>(&client, config_map(&format!("m{index}"))).await;
        }
        let config = watcher::Config::default().page_size(7);
        let config = if streaming {
            config.streaming_lists()
        } else {
            config
        };
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let mut stream = watcher(api.clone(), config).default_backoff().boxed();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let fold = |seen: &mut BTreeMap<String, String>, event| match event {
            watcher::Event::Init => seen.clear(),
            watcher::Event::InitDone => {}
            watcher::Event::Apply(map) | watcher::Event::InitApply(map) => {
                let map: ConfigMap = map;
                seen.insert(
                    map.metadata.name.unwrap(),
                    map.metadata.resource_version.unwrap(),
                );
            }
            watcher::Event::Delete(map) => {
                seen.remove(&map.metadata.name.unwrap());
            }
        };
        let event = stream.next().await.unwrap().unwrap();
        fold(&mut seen, event);
        for index in 0..30 {
            let one = format!("{MAPS}/m{index}");
            if index % 3 == 0 {
                send(&client, "DELETE", &one, Value::Null).await;
            } else {
                let mut changed = config_map(&format!("m{index}"));
                changed["data"]["a"] = json!(index.to_string());
                send(&client, "PUT", &one, changed).await;
            }
        }
        create::<ConfigMap>(&client, config_map("last")).await;
        let mut wanted = BTreeMap::new();
        for map in api.list(&Default::default()).await.unwrap() {
            wanted.insert(
                map.metadata.name.unwrap(),
                map.metadata.resource_version.unwrap(),
            );
        }
        while seen != wanted {
            let event = tokio::time::timeout(DEADLINE, stream.next())
                .await
                .expect("in time");
            fold(&mut seen, event.unwrap().unwrap());
        }
    }
}
