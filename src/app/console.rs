//! The console on a place: the engine's deltas go in, its commands come out.

use std::time::Duration;

use color_eyre::eyre::Result;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::cli::ClusterArgs;
use super::engine::{Engine, Feed, Options};
use super::place::Place;
use super::schedule::Scheduling;
use crate::cluster::fetch::{self, Resource};
use crate::cluster::source::ClientSource;
use crate::cluster::write::WriteMode;
use crate::model::Str;
use crate::tui::browse::{Ask, BrowseRow, Listing, NoListing, ResourceRef};
use crate::tui::run::{self, Ports};
use crate::tui::{App, Cmd, Level, Msg, ObjectRef, Session, Settings, views};

/// Messages between the engine and the console.
const DEPTH: usize = 64;
/// How long the lease may take to be given back when the console is left.
const FAREWELL: Duration = Duration::from_secs(3);

/// What the console may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// No writer is built.
    pub read_only: bool,
    /// The scheduler of this process takes part.
    pub schedule: bool,
}

/// Runs the console until it is left. `args` are what a switch of context starts from.
///
/// # Errors
/// The terminal fails, or a part of gpudeck panicked.
pub async fn open(
    place: Place,
    args: ClusterArgs,
    rights: Rights,
    settings: Settings,
) -> Result<()> {
    let session = session_at(&place, 0, rights);
    let (messages_tx, messages) = mpsc::channel(DEPTH);
    let (commands, commands_rx) = mpsc::channel(DEPTH);
    let driver = Driver {
        args,
        rights,
        source: place.source.clone(),
        generation: 0,
        messages: messages_tx,
        contexts: place.contexts.clone(),
    };
    let driven = tokio::spawn(driver.run(place, commands_rx));
    let app = App::new(settings, session, views::all(), Timestamp::now());
    let ended = run::run(app, Ports { messages, commands }).await;
    // The command channel is closed now, so the driver ends; a hung API must not hold us.
    let _ = tokio::time::timeout(FAREWELL, driven).await;
    Ok(ended?)
}

fn session_at(place: &Place, generation: u64, rights: Rights) -> Session {
    Session {
        generation,
        context: place.context.clone(),
        namespace: place.namespace.clone(),
        contexts: place.contexts.clone(),
        read_only: rights.read_only,
    }
}

/// The engine of one place.
pub fn engine_at(place: &Place, rights: Rights) -> (Engine, Feed) {
    let host = std::env::var("HOSTNAME").ok();
    let scheduling = WriteMode::unless_read_only(rights.read_only)
        .filter(|_| rights.schedule)
        .map(|mode| Scheduling::new(mode, host.as_deref()));
    Engine::start(Options {
        source: place.source.clone(),
        scope: place.scope(),
        scheduling,
    })
}

struct Driver {
    args: ClusterArgs,
    rights: Rights,
    source: ClientSource,
    generation: u64,
    messages: mpsc::Sender<Msg>,
    contexts: Vec<Str>,
}

impl Driver {
    /// Carries messages both ways until the console has closed its end.
    async fn run(mut self, place: Place, mut commands: mpsc::Receiver<Cmd>) {
        let mut place = place;
        let (mut engine, mut feed) = engine_at(&place, self.rights);
        loop {
            let msg = tokio::select! {
                command = commands.recv() => {
                    let Some(command) = command else { break };
                    if let Some(next) = self.obey(command, &place).await {
                        engine.stop().await;
                        place = next;
                        self.source = place.source.clone();
                        self.generation += 1;
                        let session = session_at(&place, self.generation, self.rights);
                        if self.messages.send(Msg::Session(session)).await.is_err() {
                            return;
                        }
                        (engine, feed) = engine_at(&place, self.rights);
                    }
                    continue;
                }
                Some(batch) = feed.deltas.recv() => {
                    Msg::Deltas { generation: self.generation, deltas: batch.to_vec() }
                }
                Some(leader) = feed.leader.recv() => Msg::Leader(leader),
                else => break,
            };
            if self.messages.send(msg).await.is_err() {
                break;
            }
        }
        engine.stop().await;
    }

    /// Does what the console asks; a new place when it wants one.
    async fn obey(&self, command: Cmd, here: &Place) -> Option<Place> {
        match command {
            Cmd::FetchObject(object) => {
                tokio::spawn(fetch_object(
                    self.source.clone(),
                    object,
                    self.messages.clone(),
                ));
                None
            }
            Cmd::ListResources { generation } => {
                // A question about the place before this one has no answer any more.
                if generation == self.generation {
                    let (source, messages) = (self.source.clone(), self.messages.clone());
                    tokio::spawn(async move {
                        let result = resources(&source).await;
                        // A console that is gone needs no answer.
                        let _ = messages.send(Msg::Resources { generation, result }).await;
                    });
                }
                None
            }
            Cmd::Browse(ask) => {
                if ask.generation == self.generation {
                    let (source, messages) = (self.source.clone(), self.messages.clone());
                    tokio::spawn(async move {
                        let result = listing(&source, &ask).await;
                        let _ = messages.send(Msg::Browsed { ask, result }).await;
                    });
                }
                None
            }
            Cmd::SwitchContext(name) => {
                let args = ClusterArgs {
                    context: Some(name.to_string()),
                    namespace: None,
                    kubeconfig: self.args.kubeconfig.clone(),
                };
                match Place::connect(&args, true).await {
                    Ok(place) => Some(place),
                    Err(e) => {
                        self.notice(&format!("{name} cannot be opened: {e}")).await;
                        None
                    }
                }
            }
            Cmd::SwitchNamespace(namespace) => {
                // With everything listed a narrower view needs no new reading.
                here.namespace.is_some().then(|| Place {
                    source: here.source.clone(),
                    context: here.context.clone(),
                    namespace,
                    fallback: here.fallback.clone(),
                    contexts: self.contexts.clone(),
                })
            }
            // The console does these itself.
            Cmd::Copy(_) | Cmd::Suspend | Cmd::Redraw | Cmd::Quit => None,
        }
    }

    async fn notice(&self, text: &str) {
        // A console that is gone needs no notice.
        let _ = self
            .messages
            .send(Msg::Notice(Level::Error, text.to_owned()))
            .await;
    }
}

/// Gets one object and sends the answer.
async fn fetch_object(source: ClientSource, object: ObjectRef, messages: mpsc::Sender<Msg>) {
    let result = object_yaml(&source, &object).await;
    // A console that is gone needs no answer.
    let _ = messages.send(Msg::Fetched { object, result }).await;
}

async fn object_yaml(source: &ClientSource, object: &ObjectRef) -> Result<String, String> {
    let resource = match &object.resource {
        Some(resource) => fetched(resource),
        None => resource_of(source, &object.kind).await?,
    };
    let namespace = Some(&*object.namespace).filter(|n| !n.is_empty());
    fetch::object_yaml(source, &resource, namespace, &object.name)
        .await
        .map_err(|e| e.to_string())
}

/// What the cluster offers.
async fn resources(source: &ClientSource) -> Result<(Vec<ResourceRef>, Vec<Str>), String> {
    let (resources, notes) = fetch::discover(source).await.map_err(|e| e.to_string())?;
    let resources = resources
        .into_iter()
        .map(|r| ResourceRef {
            group: r.group,
            version: r.version,
            plural: r.plural,
            kind: r.kind,
            namespaced: r.namespaced,
            listable: r.listable,
        })
        .collect();
    Ok((resources, notes))
}

fn fetched(resource: &ResourceRef) -> Resource {
    Resource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        plural: resource.plural.clone(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
        listable: resource.listable,
    }
}

async fn listing(source: &ClientSource, ask: &Ask) -> Result<Listing, NoListing> {
    let rows = fetch::list(source, &fetched(&ask.resource), ask.namespace.as_deref())
        .await
        .map_err(|e| match e.code() {
            Some(403) => NoListing::Denied(e.to_string()),
            _ => NoListing::Failed(e.to_string()),
        })?;
    let row = |row: fetch::Row| BrowseRow {
        namespace: row.namespace,
        name: row.name,
        created: row.created,
        unreadable: row.unreadable.join("; ").into(),
    };
    Ok(Listing {
        rows: rows.rows.into_iter().map(row).collect(),
        notes: rows.notes,
    })
}

/// The collection of a kind: known ones at once, others by discovery.
async fn resource_of(source: &ClientSource, kind: &str) -> Result<Resource, String> {
    use crate::model::Kind;
    let known = Kind::ALL
        .map(Resource::of)
        .into_iter()
        .find(|r| *r.kind == *kind);
    if let Some(resource) = known {
        return Ok(resource);
    }
    let (resources, notes) = fetch::discover(source).await.map_err(|e| e.to_string())?;
    resources
        .into_iter()
        .find(|r| *r.kind == *kind)
        .ok_or_else(|| match notes.first() {
            Some(note) => format!(
                "the server offers no kind {kind}; not all of its groups could be read: {note}"
            ),
            None => format!("the server offers no kind {kind}"),
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::sandbox::{ApiServer, Options};

    async fn answer(messages: &mut mpsc::Receiver<Msg>, wanted: fn(&Msg) -> bool) -> Msg {
        let search = async {
            loop {
                let msg = messages.recv().await.unwrap();
                if wanted(&msg) {
                    return msg;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), search)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn resources_are_found_and_listed_and_a_question_about_another_place_is_dropped() {
        let server = ApiServer::new(Options::default()).unwrap();
        let place = Place::embedded(server.client());
        let (messages_tx, mut messages) = mpsc::channel(DEPTH);
        let (commands, commands_rx) = mpsc::channel(DEPTH);
        let driver = Driver {
            args: ClusterArgs::default(),
            rights: Rights {
                read_only: true,
                schedule: false,
            },
            source: place.source.clone(),
            generation: 0,
            messages: messages_tx,
            contexts: Vec::new(),
        };
        let driven = tokio::spawn(driver.run(place, commands_rx));
        commands
            .send(Cmd::ListResources { generation: 0 })
            .await
            .unwrap();
        let Msg::Resources {
            result: Ok((resources, _)),
            ..
        } = answer(&mut messages, |m| matches!(m, Msg::Resources { .. })).await
        else {
            panic!("resources");
        };
        let resource = |plural: &str| {
            let found = resources.iter().find(|r| &*r.plural == plural);
            found.cloned().unwrap()
        };
        assert_eq!(&*resource("resourceslices").group, "resource.k8s.io");
        let ask = |turn, generation, plural: &str| Ask {
            generation,
            turn,
            resource: resource(plural),
            namespace: None,
        };
        for ask in [ask(1, 9, "leases"), ask(2, 0, "namespaces")] {
            commands.send(Cmd::Browse(ask)).await.unwrap();
        }
        let msg = answer(&mut messages, |m| matches!(m, Msg::Browsed { .. })).await;
        let Msg::Browsed {
            ask,
            result: Ok(listing),
        } = msg
        else {
            panic!("{msg:?}");
        };
        assert_eq!(ask.turn, 2, "the other place's question has no answer");
        assert!(listing.rows.iter().any(|r| &*r.name == "default"));
        drop(commands);
        driven.await.unwrap();
    }
}
