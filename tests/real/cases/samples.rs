//! The sample objects of real clusters (tests/data/samples): every one is posted, with its
//! status, and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gpudeck::cluster::fetch;
use gpudeck::model::{Kind, Meta};
use gpudeck::tui::snapshot::{self, Request};
use gpudeck::tui::view::ViewId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::{Client, core::Status};
use serde_json::{Value, json};

use super::session::{LOOKING, Seen, Session};
use crate::servers::{Server, object};

/// Folders whose objects are for posting; those of `hostile` are not.
const FOLDERS: [&str; 5] = ["nodes", "dra", "jobs", "events", "queues"];

/// Written for servers of other versions: a 1.37 refuses or forgets what they say.
const OTHER_VERSIONS: [&str; 3] = [
    "dra/resourceslice-dynamic-mig-combined-1.34.json",
    "queues/native-1.35-v1alpha1.json",
    "queues/native-1.37-composite-v1alpha3.json",
];

/// API groups of Kubernetes itself; the kinds of all others are installed first.
const BUILT_IN_GROUPS: [&str; 7] = [
    "",
    "apps",
    "batch",
    "events.k8s.io",
    "policy",
    "resource.k8s.io",
    "scheduling.k8s.io",
];

pub(crate) async fn samples_are_kept_as_posted_and_shown(server: &Server) {
    let client = server.admin().await;
    let samples = read_all();
    install_kinds(&client, &samples).await;
    create_namespaces(&client, &samples).await;
    let mut complaints = Vec::new();
    for sample in &samples {
        let place = format!(
            "{} {} {}",
            sample.file,
            sample.kind(),
            sample.text("/metadata/name")
        );
        match sample.post(&client).await {
            Ok(otherwise) => complaints.extend(otherwise.iter().map(|o| format!("{place}: {o}"))),
            Err(status) => complaints.push(format!("{place}: {} {}", status.code, status.message)),
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(
        samples.len() > 200,
        "only {} samples were found",
        samples.len()
    );
    all_are_shown(server, &samples).await;
}

/// The console's model has each object of the kinds that it watches, or a note about it; the
/// generic reader lists the others.
async fn all_are_shown(server: &Server, samples: &[Sample]) {
    let mut session = Session::open(server, "admin", None, LOOKING).await;
    session
        .until("everything is read", super::session::Seen::is_synced)
        .await;
    let source = session.place.source.clone();
    let (resources, notes) = fetch::discover(&source).await.unwrap();
    assert_eq!(notes, Vec::<gpudeck::model::Str>::new());
    let mut lists: BTreeMap<(String, String), BTreeSet<(String, String)>> = BTreeMap::new();
    let mut missing = Vec::new();
    for sample in samples {
        let (kind, name) = (sample.kind(), sample.text("/metadata/name"));
        let place = sample.text("/metadata/namespace");
        let shown = match watched(sample) {
            Some(kind) => session.see(|seen| {
                has(seen, kind, place, name)
                    || seen
                        .cluster
                        .unreadable()
                        .any(|(of, what)| *of == kind && what.contains(name))
            }),
            None => {
                let key = (sample.group().to_owned(), kind.to_owned());
                if !lists.contains_key(&key) {
                    let resource = resources
                        .iter()
                        .find(|r| *r.group == *key.0 && *r.kind == *key.1)
                        .unwrap_or_else(|| panic!("{key:?} is not discovered"));
                    let rows = fetch::list(&source, resource, None).await.unwrap();
                    assert_eq!(rows.notes, Vec::<gpudeck::model::Str>::new());
                    let names = rows
                        .rows
                        .iter()
                        .map(|r| (r.namespace.to_string(), r.name.to_string()))
                        .collect();
                    lists.insert(key.clone(), names);
                }
                lists[&key].contains(&(place.to_owned(), name.to_owned()))
            }
        };
        if !shown {
            missing.push(format!("{} {kind} {place}/{name}", sample.file));
        }
    }
    assert!(missing.is_empty(), "not shown: {}", missing.join("\n"));

    session.see(|seen| {
        for view in [ViewId::Fleet, ViewId::Nodes, ViewId::Jobs, ViewId::Timeline] {
            let request = Request {
                view,
                cluster: &seen.cluster,
                namespace: None,
                filter: "",
                ascii: false,
                now: Timestamp::now(),
            };
            let text = snapshot::text(&request).unwrap();
            let bad = text.chars().find(|c| is_dangerous(*c));
            assert_eq!(bad, None, "{view:?}: {text}");
            let json = snapshot::json(&request).unwrap().to_string();
            assert_eq!(json.chars().find(|c| is_dangerous(*c)), None, "{view:?}");
        }
    });
    session.stop().await;
}

/// Control characters other than line ends, and those that turn the direction of text.
fn is_dangerous(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The watched kind of a sample.
fn watched(sample: &Sample) -> Option<Kind> {
    match (sample.group(), sample.kind()) {
        ("", "Node") => Some(Kind::Node),
        ("", "Pod") => Some(Kind::Pod),
        ("", "Namespace") => Some(Kind::Namespace),
        ("batch", "Job") => Some(Kind::Job),
        ("" | "events.k8s.io", "Event") => Some(Kind::Event),
        ("scheduling.k8s.io", "PriorityClass") => Some(Kind::PriorityClass),
        _ => None,
    }
}

fn has(seen: &Seen, kind: Kind, namespace: &str, name: &str) -> bool {
    let cluster = &seen.cluster;
    let is_it = |meta: &Meta| *meta.namespace == *namespace && *meta.name == *name;
    match kind {
        Kind::Node => cluster.node(name).is_some(),
        Kind::Pod => seen.pod(namespace, name).is_some(),
        Kind::Namespace => cluster.namespaces().any(|n| is_it(&n.meta)),
        Kind::Job => cluster.workload_keys().any(|key| {
            *key.namespace == *namespace && (*key.name == *name || name.starts_with(&*key.name))
        }),
        Kind::Event => cluster.events().any(|e| is_it(&e.meta)),
        Kind::PriorityClass => cluster.priority_classes().any(|c| is_it(&c.meta)),
        Kind::VolumeClaim
        | Kind::Volume
        | Kind::ResourceClaim
        | Kind::GpuQueue
        | Kind::Budget
        | Kind::GpuNode
        | Kind::Foreign(_) => false,
    }
}

/// One object and where it came from.
struct Sample {
    file: String,
    body: Value,
}

impl Sample {
    fn text(&self, pointer: &str) -> &str {
        self.body
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn group(&self) -> &str {
        self.text("/apiVersion")
            .rsplit_once('/')
            .map_or("", |(group, _)| group)
    }

    fn version(&self) -> &str {
        let version = self.text("/apiVersion");
        version
            .rsplit_once('/')
            .map_or(version, |(_, version)| version)
    }

    fn kind(&self) -> &str {
        self.text("/kind")
    }

    fn plural(&self) -> String {
        let kind = self.kind().to_lowercase();
        match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        }
    }

    /// The path of its collection.
    fn url(&self) -> String {
        let version = self.text("/apiVersion");
        let root = if self.group().is_empty() {
            "api"
        } else {
            "apis"
        };
        match self.text("/metadata/namespace") {
            "" => format!("/{root}/{version}/{}", self.plural()),
            namespace => format!("/{root}/{version}/namespaces/{namespace}/{}", self.plural()),
        }
    }

    /// Creates it, writes its status where that goes apart, and tells what reading it back shows
    /// to be otherwise than posted.
    async fn post(&self, client: &Client) -> Result<Vec<String>, Status> {
        let url = self.url();
        let one = format!("{url}/{}", self.text("/metadata/name"));
        send(client, "POST", &url, &self.body).await?;
        if let Some(status) = self.body.get("status").filter(|_| self.kind() != "Node") {
            let patch = json!({"status": status});
            send(client, "PATCH", &format!("{one}/status"), &patch).await?;
        }
        let stored = send(client, "GET", &one, &Value::Null).await?;
        let mut missing = Vec::new();
        compare("", &self.body, &stored, &mut missing);
        Ok(missing)
    }
}

/// Every object of the folders; what others need to exist comes first, and what limits last.
fn read_all() -> Vec<Sample> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/samples");
    let mut samples = Vec::new();
    for folder in FOLDERS {
        let mut files: Vec<_> = std::fs::read_dir(root.join(folder))
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        for path in files {
            let file = format!("{folder}/{}", path.file_name().unwrap().display());
            if OTHER_VERSIONS.contains(&file.as_str()) {
                continue;
            }
            let text: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let items = match text.get("items").and_then(Value::as_array) {
                Some(items) => items.clone(),
                None => vec![text],
            };
            for mut body in items.into_iter().filter(|item| item.get("kind").is_some()) {
                let metadata = body["metadata"].as_object_mut().unwrap();
                // What only a server may write.
                for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                    metadata.remove(field);
                }
                metadata.retain(|field, _| !field.starts_with("deletion"));
                samples.push(Sample {
                    file: file.clone(),
                    body,
                });
            }
        }
    }
    samples.sort_by_key(|sample| match sample.kind() {
        "Namespace" => 0,
        // It would change the priority of what comes after it.
        "PriorityClass" if sample.body["globalDefault"] == true => 3,
        "PriorityClass" => 1,
        "ResourceQuota" => 3,
        _ => 2,
    });
    samples
}

/// Installs a definition for each kind that is not built in. Its versions differ in nothing.
async fn install_kinds(client: &Client, samples: &[Sample]) {
    let mut versions: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut by_kind = BTreeMap::new();
    for sample in samples
        .iter()
        .filter(|s| !BUILT_IN_GROUPS.contains(&s.group()))
    {
        let kind = (sample.group(), sample.kind());
        versions.entry(kind).or_default().insert(sample.version());
        by_kind.insert(kind, sample);
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (kind, sample) in &by_kind {
        let stored = versions[kind].last().unwrap();
        let version = |name: &&str| {
            json!({
                "name": name, "served": true, "storage": name == stored,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        };
        let plural = sample.plural();
        let scope = match sample.text("/metadata/namespace") {
            "" => "Cluster",
            _ => "Namespaced",
        };
        let definition = object(json!({
            "metadata": {"name": format!("{plural}.{}", kind.0)},
            "spec": {
                "group": kind.0, "scope": scope,
                "names": {"plural": plural, "kind": kind.1},
                "versions": versions[kind].iter().map(version).collect::<Vec<_>>(),
            },
        }));
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
    }
    for sample in by_kind.values() {
        super::eventually("an installed kind is served", async || {
            send(client, "GET", &sample.url(), &Value::Null).await.ok()
        })
        .await;
    }
}

/// Makes the namespaces that no sample makes itself.
async fn create_namespaces(client: &Client, samples: &[Sample]) {
    let made = |sample: &&Sample| sample.kind() == "Namespace";
    let made: BTreeSet<_> = samples
        .iter()
        .filter(made)
        .map(|s| s.text("/metadata/name"))
        .collect();
    let used: BTreeSet<_> = samples
        .iter()
        .map(|s| s.text("/metadata/namespace"))
        .collect();
    let api: Api<Namespace> = Api::all(client.clone());
    for name in used.difference(&made).filter(|name| !name.is_empty()) {
        if api.get_opt(name).await.unwrap().is_none() {
            let namespace = object(json!({"metadata": {"name": name}}));
            api.create(&PostParams::default(), &namespace)
                .await
                .unwrap();
        }
    }
}

async fn send(client: &Client, method: &str, url: &str, body: &Value) -> Result<Value, Status> {
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(body).unwrap()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", content_type)
        .body(body)
        .unwrap();
    match client.request(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{method} {url}: {error}"),
    }
}

/// Names each place where `stored` lacks what was `posted`. More may be stored: defaults, and at
/// the end of a list what admission adds.
fn compare(place: &str, posted: &Value, stored: &Value, missing: &mut Vec<String>) {
    match (posted, stored) {
        (Value::Object(posted), Value::Object(stored)) => {
            for (key, value) in posted {
                let place = format!("{place}/{key}");
                compare(
                    &place,
                    value,
                    stored.get(key).unwrap_or(&Value::Null),
                    missing,
                );
            }
        }
        (Value::Array(posted), Value::Array(stored)) if posted.len() <= stored.len() => {
            for (index, (posted, stored)) in posted.iter().zip(stored).enumerate() {
                compare(&format!("{place}/{index}"), posted, stored, missing);
            }
        }
        // An empty value and none are the same to Kubernetes.
        (posted, Value::Null) if is_empty(posted) => {}
        (posted, stored) if posted == stored => {}
        // kube-apiserver writes 1024Ki as 1Mi.
        (Value::String(posted), Value::String(stored))
            if kibibytes(posted).is_some() && kibibytes(posted) == kibibytes(stored) => {}
        (posted, stored) => missing.push(format!("{place}: {posted} became {stored}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The amount of a quantity that is written with a binary suffix.
fn kibibytes(quantity: &str) -> Option<u64> {
    let (suffix, factor) = [("Ki", 1), ("Mi", 1 << 10), ("Gi", 1 << 20)]
        .into_iter()
        .find(|(suffix, _)| quantity.ends_with(suffix))?;
    let number: u64 = quantity.strip_suffix(suffix)?.parse().ok()?;
    number.checked_mul(factor)
}
