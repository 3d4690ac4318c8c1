//! Watches: order, selectors, bookmarks, and versions that are too old.

use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use serde_json::json;

use crate::servers::{Server, object};

async fn config_maps(server: &Server, case: &str) -> Api<ConfigMap> {
    let namespace = server.namespace(case).await;
    Api::namespaced(server.admin().await, &namespace)
}

async fn create(api: &Api<ConfigMap>, name: &str, colour: &str) {
    let new = object(json!({"metadata": {"name": name, "labels": {"colour": colour}}}));
    api.create(&PostParams::default(), &new).await.unwrap();
}

async fn paint(api: &Api<ConfigMap>, name: &str, colour: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"colour": colour}}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn current_version(api: &Api<ConfigMap>) -> String {
    api.list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap()
}

/// The next event in short form: `ADDED one red`.
async fn next(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> String {
    let text = |kind: &str, object: &ConfigMap| {
        let labels = object.metadata.labels.as_ref();
        let colour = labels
            .and_then(|l| l.get("colour"))
            .map_or("", String::as_str);
        format!(
            "{kind} {} {colour}",
            object.metadata.name.as_deref().unwrap()
        )
    };
    match events.next().await {
        None => "end".into(),
        Some(Ok(WatchEvent::Added(object))) => text("ADDED", &object),
        Some(Ok(WatchEvent::Modified(object))) => text("MODIFIED", &object),
        Some(Ok(WatchEvent::Deleted(object))) => text("DELETED", &object),
        Some(Ok(WatchEvent::Bookmark(_))) => "BOOKMARK".into(),
        Some(Ok(WatchEvent::Error(status))) => format!("ERROR {}", status.code),
        Some(Err(kube::Error::Api(status))) => format!("HTTP {}", status.code),
        Some(Err(error)) => panic!("the watch broke: {error}"),
    }
}

pub(crate) async fn watch_tells_each_change_in_order(server: &Server) {
    let api = config_maps(server, "watch").await;
    create(&api, "before", "red").await;
    let from = current_version(&api).await;
    // The first change comes before the watch begins: the version says where to go on.
    create(&api, "one", "red").await;
    let params = WatchParams::default().disable_bookmarks();
    let events = api.watch(&params, &from).await.unwrap();
    pin_mut!(events);
    assert_eq!(next(&mut events).await, "ADDED one red");
    paint(&api, "one", "blue").await;
    create(&api, "two", "red").await;
    paint(&api, "before", "green").await;
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "MODIFIED one blue");
    assert_eq!(next(&mut events).await, "ADDED two red");
    assert_eq!(next(&mut events).await, "MODIFIED before green");
    assert_eq!(next(&mut events).await, "DELETED one blue");
}

pub(crate) async fn watch_with_selector_tells_who_leaves(server: &Server) {
    let api = config_maps(server, "watch-selector").await;
    create(&api, "one", "red").await;
    create(&api, "two", "blue").await;
    let from = current_version(&api).await;
    let params = WatchParams::default()
        .labels("colour=red")
        .disable_bookmarks();
    let events = api.watch(&params, &from).await.unwrap();
    pin_mut!(events);
    // To this watcher a change out of the selection is an end, one into it a beginning.
    paint(&api, "one", "blue").await;
    paint(&api, "one", "green").await;
    paint(&api, "two", "red").await;
    assert_eq!(next(&mut events).await, "DELETED one red");
    assert_eq!(next(&mut events).await, "ADDED two red");
}

pub(crate) async fn streamed_list_ends_with_a_marked_bookmark(server: &Server) {
    let api = config_maps(server, "streamed").await;
    create(&api, "one", "red").await;
    create(&api, "two", "red").await;
    let params = WatchParams::default().initial_events();
    let events = api.watch(&params, "").await.unwrap();
    pin_mut!(events);
    let mut first = [next(&mut events).await, next(&mut events).await];
    first.sort();
    assert_eq!(first, ["ADDED one red", "ADDED two red"]);
    match events.next().await.unwrap().unwrap() {
        WatchEvent::Bookmark(bookmark) => assert_eq!(
            bookmark
                .metadata
                .annotations
                .get("k8s.io/initial-events-end")
                .map(String::as_str),
            Some("true")
        ),
        other => panic!("expected the bookmark that ends the list, got {other:?}"),
    }
    paint(&api, "one", "blue").await;
    assert_eq!(next(&mut events).await, "MODIFIED one blue");
}

pub(crate) async fn watch_ends_with_a_bookmark(server: &Server) {
    let api = config_maps(server, "bookmark").await;
    let other = server.namespace("bookmark-other").await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(server.admin().await, &other);
    let from = current_version(&api).await;
    let events = api
        .watch(&WatchParams::default().timeout(4), &from)
        .await
        .unwrap();
    pin_mut!(events);
    // What happens in another namespace moves the version on; only a bookmark can tell this
    // watcher. (kube-apiserver sends none that is no newer than the watch's beginning.)
    create(&elsewhere, "one", "red").await;
    let latest = current_version(&elsewhere).await;
    let mut versions = Vec::new();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            WatchEvent::Bookmark(bookmark) => versions.push(bookmark.metadata.resource_version),
            other => panic!("nothing happened here, yet the watch says {other:?}"),
        }
    }
    let last: u64 = versions
        .last()
        .expect("a bookmark before the end")
        .parse()
        .unwrap();
    assert!(
        last >= latest.parse().unwrap(),
        "bookmark {last}, the object elsewhere {latest}"
    );
}

pub(crate) async fn compacted_version_is_gone(server: &Server) {
    let api = config_maps(server, "ancient").await;
    let ancient = current_version(&api).await;
    create(&api, "one", "red").await;
    // kube-apiserver remembers recent changes itself, so it has to forget them too.
    server.compact();
    server.kill();
    server.resume();
    // A server may say so by the HTTP status or by an ERROR event; the client must take both.
    let said = match api.watch(&WatchParams::default(), &ancient).await {
        Ok(events) => {
            pin_mut!(events);
            next(&mut events).await
        }
        Err(kube::Error::Api(status)) => format!("HTTP {}", status.code),
        Err(error) => panic!("{error}"),
    };
    assert!(said == "ERROR 410" || said == "HTTP 410", "{said}");
    // The way on: list, and watch from there.
    let events = api
        .watch(&WatchParams::default(), &current_version(&api).await)
        .await
        .unwrap();
    pin_mut!(events);
    paint(&api, "one", "blue").await;
    assert_eq!(next(&mut events).await, "MODIFIED one blue");
}
