//! Objects from an earlier life of the cluster: they are there, with their status, when the first
//! client comes. For scenarios that start full; a hundred thousand requests would take a minute.

use bytes::Bytes;
use serde_json::Value;

use super::object::text;
use super::path::ResourcePath;
use super::query::Query;
use super::serve::Call;
use super::{ApiServer, Inner, User, meta};

/// An object that cannot be one of this server.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} cannot be loaded: {why}")]
pub struct PreloadError {
    /// Its kind as given.
    pub kind: String,
    /// Its name as given.
    pub name: String,
    /// Why.
    pub why: String,
}

impl ApiServer {
    /// Stores an object with its status, defaulted and checked as a created one. One of that name
    /// stays as it is.
    ///
    /// # Errors
    /// A kind that is not served, or an object that admission refuses.
    pub fn preload(&self, object: Value) -> Result<(), PreloadError> {
        let name = text(&object, "/metadata/name").to_owned();
        let kind = text(&object, "/kind").to_owned();
        self.inner
            .preload(object)
            .map_err(|why| PreloadError { kind, name, why })
    }
}

impl Inner {
    fn preload(&self, mut object: Value) -> Result<(), String> {
        let (group, version) = match text(&object, "/apiVersion").split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), text(&object, "/apiVersion").to_owned()),
        };
        let kind = text(&object, "/kind").to_owned();
        let registry = self.registry();
        let res = registry
            .all()
            .find(|r| r.group == group && r.version == version && r.kind == kind && !r.review)
            .cloned()
            .ok_or_else(|| format!("{group}/{version} {kind} is not served"))?;
        let name = text(&object, "/metadata/name").to_owned();
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let key = res.key(&namespace, &name);
        if self.store.contains(&res.table, &key) {
            return Ok(());
        }
        let call = Call {
            path: ResourcePath {
                group,
                version,
                namespace,
                plural: res.plural.clone(),
                ..ResourcePath::default()
            },
            res,
            query: Query::default(),
            user: User::admin(),
            content_type: String::new(),
            body: Bytes::new(),
        };
        let status = object.get("status").cloned();
        let taints = object.pointer("/spec/taints").cloned();
        let uid = self.ids.uid(&call.res.table, &key, true);
        if let Some(meta) = meta::of(&mut object) {
            meta.insert("uid".into(), uid.into());
            meta.entry("creationTimestamp")
                .or_insert_with(|| self.options.clock.time().into());
            if call.res.generation {
                meta.insert("generation".into(), 1.into());
            }
        }
        self.admit_create(&call, &mut object)
            .map_err(|error| error.message)?;
        if let (Some(status), Some(map)) = (status, object.as_object_mut()) {
            map.insert("status".into(), status);
        }
        // A new node's taint is long gone.
        if call.res.is("", "nodes")
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            match taints {
                Some(taints) => spec.insert("taints".into(), taints),
                None => spec.remove("taints"),
            };
        }
        self.store
            .create(&call.res.table, &key, &mut object)
            .map_err(|error| format!("{error:?}"))?;
        self.after_write(&call, &object);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;
    use crate::sandbox::Options;

    #[tokio::test]
    async fn what_is_loaded_has_its_status_and_the_defaults_of_a_created_one() {
        let server = ApiServer::new(Options::default()).unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        for object in [node, pod.clone(), pod] {
            server.preload(object).unwrap();
        }
        let get = |path: &'static str| {
            let client = server.client();
            async move {
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                client.request::<Value>(request).await.unwrap()
            }
        };
        let pod = get("/api/v1/namespaces/default/pods/p").await;
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        assert!(pod["metadata"]["uid"].is_string());
        assert!(get("/api/v1/nodes/n").await["spec"]["taints"].is_null());
        let error = server
            .preload(json!({"kind": "X", "apiVersion": "a/v1"}))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "X  cannot be loaded: a/v1 X is not served"
        );
    }
}
