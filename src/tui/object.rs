//! Which object the server is asked for, and what it answered.

use ratatui::text::Line;

use super::browse::ResourceRef;
use super::view::Target;
use crate::model::{Admitter, Cluster, Kind, QueueKey, Str, clean};

/// Longest line of an object's text that is shown, in characters.
const LINE_LIMIT: usize = 4_000;
/// Lines of an object's text that are shown.
const LINES_LIMIT: usize = 50_000;

/// An object by kind and name; the API version is found by discovery.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    /// Kind, e.g. `Pod` or `PyTorchJob`.
    pub kind: Str,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// The collection that it was listed from; `None`: the kind tells.
    pub resource: Option<ResourceRef>,
}

impl ObjectRef {
    /// The object behind a thing on the screen, where there is one.
    pub fn of(target: &Target, cluster: &Cluster) -> Option<Self> {
        let object = |kind: &str, namespace: &str, name: &str| ObjectRef {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            resource: None,
        };
        Some(match target {
            Target::Node(name) | Target::Gpu(name, _) | Target::Fault(name, _) => {
                object("Node", "", name)
            }
            Target::Namespace(name) => object("Namespace", "", name),
            Target::Workload(key) => object(&key.kind, &key.namespace, &key.name),
            Target::Pod(uid) | Target::Decision(_, uid) => {
                let meta = &cluster.pod(uid)?.meta;
                object("Pod", &meta.namespace, &meta.name)
            }
            Target::Event(uid) => {
                let meta = &cluster.event(uid)?.meta;
                object("Event", &meta.namespace, &meta.name)
            }
            Target::Object(object) => object.clone(),
            Target::Domain(_) => return None,
            Target::Queue(key) => return queue_object(key, cluster),
            Target::Tier(_) => return None,
        })
    }

    /// As titles show it.
    pub fn title(&self) -> String {
        if self.namespace.is_empty() {
            format!("{} {}", self.kind, self.name)
        } else {
            format!("{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// The object of a queue, in the version that it was read in; none for queues that only others
/// name.
fn queue_object(key: &QueueKey, cluster: &Cluster) -> Option<ObjectRef> {
    let found = cluster.queue(key)?;
    let (group, plural, namespaced) = match key.admitter {
        Admitter::Gpudeck => ("gpudeck.dev", Kind::GpuQueue.resource(), false),
        other => {
            let mut kinds = other.kinds().iter();
            let api = kinds.find(|k| *k.api().kind == *key.kind)?.api();
            (api.group, api.plural, api.namespaced)
        }
    };
    Some(ObjectRef {
        kind: key.kind.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        resource: Some(ResourceRef {
            group: group.into(),
            version: found.version.clone(),
            plural: plural.into(),
            kind: key.kind.clone(),
            namespaced,
            listable: true,
        }),
    })
}

/// Makes the server's text safe to draw, line by line.
pub fn safe_lines(text: &str) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = text
        .lines()
        .take(LINES_LIMIT)
        .map(|l| Line::from(clean(l, LINE_LIMIT).into_owned()))
        .collect();
    let rest = text.lines().count().saturating_sub(LINES_LIMIT);
    if rest > 0 {
        lines.push(Line::from(format!("… {rest} lines more are not shown")));
    }
    lines
}

/// What a thing is called when its name is copied.
pub fn copied_name(target: &Target, cluster: &Cluster) -> Option<String> {
    Some(match target {
        Target::Node(name)
        | Target::Gpu(name, _)
        | Target::Fault(name, _)
        | Target::Namespace(name)
        | Target::Domain(name) => name.to_string(),
        Target::Workload(key) => key.to_string(),
        Target::Pod(uid) | Target::Decision(_, uid) => {
            let meta = &cluster.pod(uid)?.meta;
            format!("{}/{}", meta.namespace, meta.name)
        }
        Target::Event(uid) => {
            let event = cluster.event(uid)?;
            format!(
                "{} {} {}/{}: {}",
                event.reason,
                event.subject_kind,
                event.subject_namespace,
                event.subject_name,
                event.message
            )
        }
        Target::Queue(key) => key.to_string(),
        Target::Tier(name) => name.to_string(),
        Target::Object(object) if object.namespace.is_empty() => object.name.to_string(),
        Target::Object(object) => format!("{}/{}", object.namespace, object.name),
    })
}
