//! The API server dies and comes back.

use std::collections::BTreeSet;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use super::refusal;
use crate::servers::{Server, object};

async fn create(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let new = object(json!({"metadata": {"name": name}}));
    api.create(&PostParams::default(), &new).await.unwrap()
}

pub(crate) async fn data_survives_a_restart(server: &Server) {
    let namespace = server.namespace("restart").await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin().await, &namespace);
    let before = create(&api, "one").await;

    server.kill();
    let refused = api.get("one").await.expect_err("the server is dead");
    assert!(!matches!(refused, kube::Error::Api(_)), "{refused}");

    server.resume();
    let after = api.get("one").await.unwrap();
    assert_eq!(after, before);
    // Versions go on from where they were; a client may compare them across the restart.
    let next = create(&api, "two").await;
    let number = |object: &ConfigMap| -> u64 {
        object
            .metadata
            .resource_version
            .as_ref()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(number(&next) > number(&before));
    // Tokens are known again, and so is who may do nothing.
    let nobody: Api<ConfigMap> = Api::namespaced(server.client("nobody").await, &namespace);
    assert_eq!(refusal(nobody.list(&ListParams::default()).await).code, 403);
}

pub(crate) async fn watcher_recovers_after_a_restart(server: &Server) {
    let namespace = server.namespace("watcher").await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin().await, &namespace);
    create(&api, "stays").await;
    create(&api, "goes").await;

    let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
    pin_mut!(events);
    let mut seen = Seen::default();
    seen.until(&mut events, &["goes", "stays"]).await;

    server.kill();
    // The watcher notices that the server is gone.
    while events.next().await.expect("a watcher does not end").is_ok() {}
    server.resume();
    api.delete("goes", &DeleteParams::default()).await.unwrap();
    create(&api, "comes").await;
    seen.until(&mut events, &["comes", "stays"]).await;
}

/// The names a watcher has shown so far.
#[derive(Default)]
struct Seen {
    names: BTreeSet<String>,
    listing: BTreeSet<String>,
}

impl Seen {
    /// Follows the events until exactly `expected` is there.
    async fn until(&mut self, events: &mut (impl Events + Unpin), expected: &[&str]) {
        while !self
            .names
            .iter()
            .map(String::as_str)
            .eq(expected.iter().copied())
        {
            // A broken connection is what the watcher is to get over.
            let Ok(event) = events.next().await.expect("a watcher does not end") else {
                continue;
            };
            let name = |object: ConfigMap| object.metadata.name.unwrap();
            match event {
                watcher::Event::Init => self.listing.clear(),
                watcher::Event::InitApply(object) => drop(self.listing.insert(name(object))),
                watcher::Event::InitDone => self.names = std::mem::take(&mut self.listing),
                watcher::Event::Apply(object) => drop(self.names.insert(name(object))),
                watcher::Event::Delete(object) => drop(self.names.remove(&name(object))),
            }
        }
    }
}

trait Events: futures::Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> {}
impl<S: futures::Stream<Item = watcher::Result<watcher::Event<ConfigMap>>>> Events for S {}
