//! Makes happen what a scenario says, at its time: an ordinary client, but for the API server's
//! own faults.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::schema::{Event, Nodes, Scenario, TimedFault};
use crate::sandbox::ApiServer;
use crate::sandbox::actors::clock::{Clock, hash};
use crate::sandbox::calls::{CallError, Calls, PatchKind, path, patiently};

/// What happens at one moment.
enum Step {
    Event(Box<Event>),
    Fault(Box<TimedFault>),
}

/// Plays the timed part of a scenario.
pub(super) struct Director {
    server: ApiServer,
    clock: Clock,
    /// Seconds from the start, in order.
    steps: Vec<(f64, Step)>,
}

#[derive(Deserialize)]
struct NodeList {
    items: Vec<NodeItem>,
}

#[derive(Deserialize)]
struct NodeItem {
    metadata: NodeMeta,
}

#[derive(Deserialize)]
struct NodeMeta {
    name: String,
    #[serde(default)]
    labels: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Director {
    /// A director whose clock starts with [`Director::run`].
    pub(super) fn new(scenario: &Scenario, server: ApiServer, clock: Clock) -> Self {
        let events = scenario.event.iter().map(|event| {
            let at = event.at.get_ref().secs();
            (at, Step::Event(Box::new(event.clone())))
        });
        let faults = scenario.fault.iter().map(|fault| {
            let at = fault.at.secs();
            (at, Step::Fault(Box::new(fault.clone())))
        });
        let mut steps: Vec<(f64, Step)> = events.chain(faults).collect();
        // Stable: of two at one moment the one that stands first comes first.
        steps.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Director {
            server,
            clock,
            steps,
        }
    }

    /// Plays to the end or to `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.play() => {}
        }
    }

    async fn play(self) {
        let start = Instant::now();
        let calls = Calls::new(self.server.client());
        for (number, (secs, step)) in self.steps.iter().enumerate() {
            tokio::time::sleep_until(start + self.clock.real(*secs)).await;
            let done = match step {
                Step::Event(event) => self.happen(&calls, event, number).await,
                Step::Fault(fault) => {
                    let fault = fault.inject.get_ref().clone();
                    if let Err(error) = self.server.inject(fault) {
                        tracing::warn!(%error, "a fault of the scenario makes no sense");
                    }
                    Ok(())
                }
            };
            if let Err(error) = done {
                tracing::warn!(%error, "an event of the scenario did not happen");
            }
        }
    }

    async fn happen(&self, calls: &Calls, event: &Event, number: usize) -> Result<(), CallError> {
        if let Some(nodes) = &event.nodes {
            let patch = node_patch(event);
            for name in self.chosen(calls, nodes, number).await? {
                let at = format!("{}/{name}", path::NODES);
                patiently(|| calls.patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)).await?;
            }
        }
        // What cannot be read was refused when the file was read.
        for object in event.objects().unwrap_or_default() {
            let collection = collection(calls, &object).await?;
            calls.ensure(&collection, &object).await?;
        }
        for path in &event.delete {
            let path = path.get_ref();
            let found: Value = match calls.get(path).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
            let uid = uid.unwrap_or_default();
            patiently(|| calls.delete(path, uid, None)).await?;
        }
        Ok(())
    }

    /// Names of the chosen nodes, in order.
    async fn chosen(
        &self,
        calls: &Calls,
        nodes: &Nodes,
        number: usize,
    ) -> Result<Vec<String>, CallError> {
        let list: NodeList = patiently(|| calls.get(path::NODES)).await?;
        let mut names: Vec<String> = list
            .items
            .into_iter()
            .filter(|node| nodes.matches(&node.metadata))
            .map(|node| node.metadata.name)
            .collect();
        if let Some(count) = nodes.count {
            let seed = self.clock.seed();
            names.sort_by_key(|name| (hash(seed, &format!("event {number} {name}")), name.clone()));
            names.truncate(count.count());
        }
        names.sort();
        Ok(names)
    }
}

impl Nodes {
    fn matches(&self, node: &NodeMeta) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|form| fits(form, &node.name));
        named
            && self.labels.iter().all(|(label, form)| {
                let value = node.labels.get(label);
                value.is_some_and(|value| fits(form, value))
            })
    }
}

/// Whether `text` has the form, in which `*` stands for any text.
fn fits(form: &str, text: &str) -> bool {
    let mut parts = form.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

fn node_patch(event: &Event) -> Value {
    let mut metadata = Map::new();
    if !event.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(event.labels));
    }
    if !event.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(event.annotations));
    }
    let mut patch = Map::new();
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if let Some(cordon) = event.cordon {
        patch.insert("spec".to_owned(), json!({"unschedulable": cordon}));
    }
    Value::Object(patch)
}

/// Where an object is created: its kind is looked up in what the server serves.
async fn collection(calls: &Calls, object: &Value) -> Result<String, CallError> {
    let text = |pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let root = if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    };
    let served: Resources = patiently(|| calls.get(&root)).await?;
    let found = served
        .resources
        .into_iter()
        .find(|r| r.kind == kind && !r.name.contains('/'));
    // A kind that is not served answers 404 on its own.
    let (plural, namespaced) = found.map_or_else(
        || (kind.to_lowercase(), false),
        |served| (served.name, served.namespaced),
    );
    let namespace = text("/metadata/namespace");
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        &namespace
    };
    Ok(if namespaced {
        format!("{root}/namespaces/{namespace}/{plural}")
    } else {
        format!("{root}/{plural}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_fit() {
        for (form, text, is) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("*", "", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(form, text), is, "{form} {text}");
        }
    }
}
