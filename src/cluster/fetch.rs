//! Reads any object or collection, for the YAML and browse views.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;

use super::decode::{Decoder, RowMeta};
use super::http::{Api, ApiError};
use super::source::ClientSource;
use super::watch::{Page, query_value};
use crate::model::{Kind, Str, clean};

mod fabric;
mod yaml;

pub use self::fabric::{gpu_ports, hyper_nodes, topologies};
pub use self::yaml::to_yaml;

/// Longest until an answer begins.
const LIMIT: Duration = Duration::from_secs(10);
/// Rows of a browse view.
const MAX_ROWS: usize = 5_000;
/// Objects in a page.
const PAGE: usize = 500;
/// Discovery requests under way at once.
const CONCURRENCY: usize = 8;

/// A collection of the API.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Str,
    /// Version.
    pub version: Str,
    /// Plural name, as in URLs.
    pub plural: Str,
    /// Kind.
    pub kind: Str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be listed.
    pub listable: bool,
}

impl Resource {
    /// The resource of a watched kind.
    pub fn of(kind: Kind) -> Self {
        let (group, name, namespaced) = match kind {
            Kind::Node => ("", "Node", false),
            Kind::Pod => ("", "Pod", true),
            Kind::Namespace => ("", "Namespace", false),
            Kind::Job => ("batch", "Job", true),
            Kind::Event => ("", "Event", true),
            Kind::PriorityClass => ("scheduling.k8s.io", "PriorityClass", false),
            Kind::VolumeClaim => ("", "PersistentVolumeClaim", true),
            Kind::Volume => ("", "PersistentVolume", false),
            Kind::Foreign(kind) => {
                let api = kind.api();
                return Resource {
                    group: api.group.into(),
                    version: api.versions.first().copied().unwrap_or("v1").into(),
                    plural: api.plural.into(),
                    kind: api.kind.into(),
                    namespaced: api.namespaced,
                    listable: true,
                };
            }
            Kind::ResourceClaim => ("resource.k8s.io", "ResourceClaim", true),
            Kind::GpuQueue => ("gpudeck.dev", "GpuQueue", false),
            Kind::GpuNode => ("gpudeck.dev", "GpuNode", false),
            Kind::Budget => ("policy", "PodDisruptionBudget", true),
        };
        let version = match kind {
            Kind::GpuQueue | Kind::GpuNode => "v1alpha1",
            _ => "v1",
        };
        Resource {
            group: group.into(),
            version: version.into(),
            plural: kind.resource().into(),
            kind: name.into(),
            namespaced,
            listable: true,
        }
    }

    fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", query_value(&self.version))
        } else {
            format!(
                "/apis/{}/{}",
                query_value(&self.group),
                query_value(&self.version)
            )
        };
        if let Some(ns) = namespace.filter(|ns| self.namespaced && !ns.is_empty()) {
            path.push_str("/namespaces/");
            path.push_str(&query_value(ns));
        }
        path.push('/');
        path.push_str(&query_value(&self.plural));
        if let Some(name) = name {
            path.push('/');
            path.push_str(&query_value(name));
        }
        path
    }
}

/// One object as YAML for reading: without managedFields, every text cleaned, the values of a
/// Secret left out.
///
/// # Errors
/// The server did not give it.
pub async fn object_yaml(
    source: &ClientSource,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<String, ApiError> {
    let (api, _) = source.current();
    let mut value = api
        .get(&resource.path(namespace, Some(name)), LIMIT)
        .await?;
    tidy(&mut value);
    Ok(to_yaml(&value))
}

/// Takes out what nobody reads, and what nobody should see by accident.
pub fn tidy(value: &mut Value) {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
        if let Some(notes) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if value.get("kind").and_then(Value::as_str) == Some("Secret") {
        for key in ["data", "stringData"] {
            if let Some(data) = value.get_mut(key).and_then(Value::as_object_mut) {
                for (_, secret) in data.iter_mut() {
                    *secret = "(not shown)".into();
                }
            }
        }
    }
}

/// What a pod's port answers to `GET /metrics`, through the API server's proxy.
///
/// # Errors
/// The server did not give it, or the pod did not answer.
pub async fn pod_metrics(
    source: &ClientSource,
    namespace: &str,
    pod: &str,
    port: u16,
) -> Result<String, ApiError> {
    let (api, _) = source.current();
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}:{port}/proxy/metrics",
        query_value(namespace),
        query_value(pod)
    );
    api.get_text(&path, LIMIT).await
}

/// What the server offers, sorted; with a note for each group that could not be read.
///
/// # Errors
/// Not even the list of groups could be read.
pub async fn discover(source: &ClientSource) -> Result<(Vec<Resource>, Vec<Str>), ApiError> {
    let (api, _) = source.current();
    let groups = api.get("/apis", LIMIT).await?;
    let mut places: Vec<(String, String)> = vec![(String::new(), "v1".to_owned())];
    for group in groups
        .get("groups")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let Some(name) = group.get("name").and_then(Value::as_str) else {
            continue;
        };
        for version in versions_of(group) {
            places.push((name.to_owned(), version.to_owned()));
        }
    }
    let api = &api;
    let answers: Vec<_> = futures::stream::iter(places)
        .map(|(group, version)| async move {
            let path = if group.is_empty() {
                format!("/api/{}", query_value(&version))
            } else {
                format!("/apis/{}/{}", query_value(&group), query_value(&version))
            };
            let answer = api.get(&path, LIMIT).await;
            (group, version, answer)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let (mut resources, mut notes) = (Vec::<Resource>::new(), Vec::new());
    let mut known = BTreeSet::new();
    for (group, version, answer) in answers {
        match answer {
            Ok(list) => resources.extend(
                resources_of(&group, &version, &list)
                    .filter(|r| known.insert((r.group.clone(), r.plural.clone()))),
            ),
            Err(e) => notes.push(clean(&format!("{group}/{version}: {e}"), 300).into()),
        }
    }
    resources.sort();
    Ok((resources, notes))
}

/// A group's versions, the preferred one first. A resource need not be in that one: Kubeflow's
/// MPIJob is only in v2beta1 where a v1 is preferred.
fn versions_of(group: &Value) -> Vec<&str> {
    let preferred = group.pointer("/preferredVersion/version");
    let all = group.get("versions").and_then(Value::as_array);
    let others = all.into_iter().flatten().map(|v| v.get("version"));
    let mut versions: Vec<&str> = Vec::new();
    for version in std::iter::once(preferred).chain(others) {
        if let Some(version) = version.and_then(Value::as_str)
            && !versions.contains(&version)
        {
            versions.push(version);
        }
    }
    versions
}

fn resources_of(group: &str, version: &str, list: &Value) -> impl Iterator<Item = Resource> {
    let text = |raw: &str| -> Str { clean(raw, 253).into() };
    let entries = list.get("resources").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(move |r| {
        let plural = r.get("name")?.as_str()?;
        if plural.contains('/') {
            return None;
        }
        let verbs = r.get("verbs").and_then(Value::as_array);
        Some(Resource {
            group: text(group),
            version: text(version),
            plural: text(plural),
            kind: text(r.get("kind")?.as_str()?),
            namespaced: r.get("namespaced") == Some(&Value::Bool(true)),
            listable: verbs.is_some_and(|v| v.iter().any(|v| v == "list")),
        })
    })
}

/// A row of the browse view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// Creation.
    pub created: Option<Timestamp>,
    /// What of the row could not be read.
    pub unreadable: Box<[Str]>,
}

/// The rows of a collection, with notes about what is not shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// At most 5,000.
    pub rows: Vec<Row>,
    /// What could not be read or is left out.
    pub notes: Vec<Str>,
}

/// Lists any resource.
///
/// # Errors
/// The server did not give the list.
pub async fn list(
    source: &ClientSource,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<Rows, ApiError> {
    let (api, _) = source.current();
    let mut decoder = Decoder::new();
    let mut rows = Rows::default();
    let mut next: Option<String> = None;
    loop {
        let mut url = format!("{}?limit={PAGE}", resource.path(namespace, None));
        if let Some(token) = &next {
            url.push_str("&continue=");
            url.push_str(&query_value(token));
        }
        let text = api.get_text(&url, LIMIT).await?;
        next = read_page(&api, &mut decoder, &text, &mut rows)?;
        if next.is_none() {
            return Ok(rows);
        }
        if rows.rows.len() >= MAX_ROWS {
            rows.notes
                .push(format!("only the first {} are shown", rows.rows.len()).into());
            return Ok(rows);
        }
    }
}

fn read_page(
    api: &Api,
    decoder: &mut Decoder,
    text: &str,
    rows: &mut Rows,
) -> Result<Option<String>, ApiError> {
    let page = Page::read(text).map_err(|why| api.garbage(why))?;
    for item in page.items() {
        match row(decoder, item.get()) {
            Ok(row) => rows.rows.push(row),
            Err(why) if rows.notes.len() < 100 => rows.notes.push(why),
            Err(_) => {}
        }
    }
    Ok(page.next().map(str::to_owned))
}

/// Reads identity and age of any object.
///
/// # Errors
/// In words: it is no object or has no name.
pub fn row(decoder: &mut Decoder, json: &str) -> Result<Row, Str> {
    let RowMeta {
        namespace,
        name,
        created,
        unreadable,
    } = decoder.row(json)?;
    Ok(Row {
        namespace,
        name: Arc::clone(&name),
        created,
        unreadable,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::super::fake;
    use super::*;
    use serde_json::json;

    fn source() -> ClientSource {
        let client = fake::client(|request| async move {
            let body = match request.uri().path() {
                "/apis" => json!({"groups": [
                    {"name": "batch", "preferredVersion": {"version": "v1"},
                     "versions": [{"version": "v1"}, {"version": "v2"}, {}]},
                    {"name": "broken.example", "preferredVersion": {"version": "v1"}}, 7]}),
                "/api/v1" => json!({"resources": [
                    {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["get", "list"]},
                    {"name": "pods/log", "kind": "Pod", "namespaced": true, "verbs": ["get"]},
                    {"name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"]}, {}]}),
                "/apis/batch/v1" => {
                    json!({"resources": [{"name": "jobs", "kind": "Job", "namespaced": true, "verbs": ["list"]}]})
                }
                "/apis/batch/v2" => json!({"resources": [
                    {"name": "jobs", "kind": "Job", "namespaced": true, "verbs": ["list"]},
                    {"name": "newjobs", "kind": "NewJob", "namespaced": true, "verbs": ["list"]}]}),
                "/apis/batch/v1/namespaces/ns/jobs" => json!({"kind": "JobList", "items": [
                    {"metadata": {"name": "a\u{1b}[31m", "namespace": "ns", "creationTimestamp": "2026-11-30T12:00:00Z"}}, null, {}]}),
                "/api/v1/namespaces/ns/pods/p" => {
                    json!({"kind": "Pod", "metadata": {"name": "p", "managedFields": [{"x": 1}]}})
                }
                path => {
                    return Ok(fake::reply(
                        404,
                        fake::status(404, "NotFound", &format!("nothing at {path}")),
                    ));
                }
            };
            Ok(fake::reply(200, body.to_string()))
        });
        ClientSource::fixed(client, "https://fake")
    }

    #[tokio::test]
    async fn discovery_survives_a_broken_group() {
        let (resources, notes) = discover(&source()).await.unwrap();
        let names: Vec<String> = resources
            .iter()
            .map(|r| format!("{} {} {}", r.version, r.plural, r.listable))
            .collect();
        assert_eq!(
            names,
            [
                "v1 bindings false",
                "v1 pods true",
                "v1 jobs true",
                "v2 newjobs true"
            ]
        );
        assert_eq!(
            &*notes[0],
            "broken.example/v1: not found (404): nothing at /apis/broken.example/v1"
        );
    }

    #[tokio::test]
    async fn rows_of_anything_and_notes_for_the_rest() {
        let jobs = Resource::of(Kind::Job);
        let rows = list(&source(), &jobs, Some("ns")).await.unwrap();
        assert_eq!(rows.rows.len(), 1);
        assert_eq!(&*rows.rows[0].name, "a\u{fffd}[31m");
        assert_eq!(rows.notes.len(), 2, "{:?}", rows.notes);
    }

    #[tokio::test]
    async fn yaml_has_no_managed_fields() {
        let pods = Resource::of(Kind::Pod);
        let text = object_yaml(&source(), &pods, Some("ns"), "p")
            .await
            .unwrap();
        assert_eq!(text, "kind: Pod\nmetadata:\n  name: p\n");
        let e = object_yaml(&source(), &pods, Some("ns"), "../x?y")
            .await
            .unwrap_err();
        assert!(e.to_string().contains("pods/..%2Fx%3Fy"), "{e}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut secret = json!({"kind": "Secret", "data": {"password": "aHVudGVyMg=="}});
        tidy(&mut secret);
        assert!(!to_yaml(&secret).contains("aHVud"));
    }
}
