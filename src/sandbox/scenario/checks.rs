//! What cannot be told by looking at one key alone.

use std::collections::BTreeSet;

use serde_json::Value;
use toml::Spanned;

use super::schema::{Event, MigLayout, ModelName, Pool, Scenario, TeamSpec};
use crate::sandbox::inventory::{self, Layout};
use crate::sandbox::meta::path_segment_problem;

/// A mistake: where it stands in the text, and what is allowed.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Offset in bytes.
    pub(super) at: usize,
    /// What is wrong and what is allowed.
    pub(super) message: String,
}

fn wrong<T>(place: &Spanned<T>, message: impl Into<String>) -> Wrong {
    Wrong {
        at: place.span().start,
        message: message.into(),
    }
}

impl Scenario {
    /// Finds the first mistake.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        for pool in &self.pool {
            pool.layout()?;
        }
        let mut names = BTreeSet::new();
        for team in &self.team {
            team.check(&mut names)?;
        }
        let mut queues = BTreeSet::new();
        for queue in &self.queue {
            for name in &queue.namespaces {
                check_name(name, "is a namespace")?;
            }
            check_name(&queue.name, "is the name of a queue")?;
            if !queues.insert(queue.name.get_ref()) {
                let why = format!("the queue `{}` is there twice", queue.name.get_ref());
                return Err(wrong(&queue.name, why));
            }
        }
        for event in &self.event {
            event.check()?;
        }
        for fault in &self.fault {
            fault
                .inject
                .get_ref()
                .check()
                .map_err(|error| wrong(&fault.inject, error.to_string()))?;
        }
        Ok(())
    }
}

impl Pool {
    /// How its GPUs are cut.
    pub(super) fn layout(&self) -> Result<Layout, Wrong> {
        if let Some(shared) = &self.shared {
            if self.mig.is_some() || self.model.model().is_none() {
                return Err(wrong(
                    shared,
                    "only whole GPUs are shared: not with mig, not cpu",
                ));
            }
            let pods = shared.get_ref().get();
            return Ok(Layout::Shared(pods));
        }
        let Some(place) = &self.mig else {
            return match &self.cut {
                Some(cut) => Err(wrong(cut, "only means something with mig = \"balanced\"")),
                None => Ok(Layout::Whole),
            };
        };
        if let (Some(cut), false) = (&self.cut, *place.get_ref() == MigLayout::Balanced) {
            return Err(wrong(cut, "only means something with mig = \"balanced\""));
        }
        let model = self.model.model();
        let profiles = model.map_or(&[][..], |model| model.profiles);
        if *place.get_ref() == MigLayout::Whole {
            return Ok(Layout::Whole);
        }
        let Some(model) = model.filter(|_| !profiles.is_empty()) else {
            let why = format!("{} cannot be cut; allowed: whole", shown(self.model));
            return Err(wrong(place, why));
        };
        match place.get_ref() {
            MigLayout::Whole => Ok(Layout::Whole),
            MigLayout::Balanced => {
                let profiles = inventory::balanced(model)
                    .ok_or_else(|| wrong(place, "this model has no balanced configuration"))?;
                let cut = self
                    .cut
                    .as_ref()
                    .map_or(model.gpus, |cut| cut.get_ref().get());
                if cut > model.gpus {
                    let why = format!("a node has {} GPUs", model.gpus);
                    return Err(self
                        .cut
                        .as_ref()
                        .map_or_else(|| wrong(place, why.clone()), |cut| wrong(cut, why.clone())));
                }
                let config = if cut == model.gpus {
                    "all-balanced"
                } else {
                    "half-balanced"
                };
                Ok(Layout::Mixed {
                    config,
                    cut,
                    profiles,
                })
            }
            MigLayout::Profile(name) => match model.profile(name) {
                Some(profile) => Ok(Layout::Single(profile.name)),
                None => {
                    let known: Vec<&str> = profiles.iter().map(|p| p.name).collect();
                    Err(wrong(
                        place,
                        format!(
                            "`{}` is no profile of {}; allowed: whole, balanced, {}",
                            crate::sandbox::status::clip(name),
                            shown(self.model),
                            known.join(", ")
                        ),
                    ))
                }
            },
        }
    }
}

fn shown(model: ModelName) -> &'static str {
    model.model().map_or("a CPU node", |model| model.slug)
}

/// A name as Kubernetes has them; `what` begins the sentence about one that is not.
fn check_name(place: &Spanned<String>, what: &str) -> Result<(), Wrong> {
    let name = place.get_ref();
    let dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c != '-' && dns(c));
    let sound = name.len() <= 63
        && name.chars().all(dns)
        && edge(name.chars().next())
        && edge(name.chars().next_back());
    if sound {
        return Ok(());
    }
    let why = format!("{what}: at most 63 of a-z, 0-9 and -, with a letter or digit at each end");
    Err(wrong(place, why))
}

impl TeamSpec {
    fn check(&self, names: &mut BTreeSet<String>) -> Result<(), Wrong> {
        let name = self.name.get_ref();
        check_name(&self.name, "is a namespace")?;
        if !names.insert(name.clone()) {
            return Err(wrong(
                &self.name,
                format!("the team `{name}` is there twice"),
            ));
        }
        Ok(())
    }
}

impl Event {
    fn check(&self) -> Result<(), Wrong> {
        let on_nodes =
            self.cordon.is_some() || !self.labels.is_empty() || !self.annotations.is_empty();
        if on_nodes && self.nodes.is_none() {
            let why =
                "cordon, labels and annotations need nodes, as nodes = { names = [\"h100-*\"] }";
            return Err(wrong(&self.at, why));
        }
        if self.nodes.is_some() && !on_nodes {
            let why = "nothing is done to the nodes; allowed: cordon, labels, annotations";
            return Err(wrong(&self.at, why));
        }
        if !on_nodes && self.create.is_none() && self.delete.is_empty() {
            let why = "nothing happens; allowed: nodes with cordon, labels or annotations, create, delete";
            return Err(wrong(&self.at, why));
        }
        self.objects()?;
        for path in &self.delete {
            let text = path.get_ref();
            let sound = (text.starts_with("/api/") || text.starts_with("/apis/"))
                && text
                    .split('/')
                    .all(|part| path_segment_problem(part).is_none());
            if !sound {
                let why = "the path of an object is needed, as /api/v1/namespaces/team-a/pods/p";
                return Err(wrong(path, why));
            }
        }
        Ok(())
    }

    /// The objects of `create`.
    pub(super) fn objects(&self) -> Result<Vec<Value>, Wrong> {
        let Some(text) = &self.create else {
            return Ok(Vec::new());
        };
        let objects: Vec<Value> = serde_saphyr::from_multiple(text.get_ref()).map_err(|error| {
            let why = crate::sandbox::status::clip(&error.to_string());
            wrong(text, format!("is no YAML: {}", why.replace('\n', " ")))
        })?;
        for object in &objects {
            let has = |pointer: &str| object.pointer(pointer).is_some_and(Value::is_string);
            let missing = ["/apiVersion", "/kind"].iter().find(|p| !has(p));
            if let Some(pointer) = missing {
                let why = format!(
                    "an object without {} in it",
                    pointer.trim_start_matches('/')
                );
                return Err(wrong(text, why));
            }
            if !has("/metadata/name") && !has("/metadata/generateName") {
                return Err(wrong(text, "an object without metadata.name in it"));
            }
        }
        Ok(objects)
    }
}
