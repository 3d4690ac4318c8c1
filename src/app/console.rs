//! The console on a place: the engine's deltas go in, its commands come out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::Result;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use super::cli::ClusterArgs;
use super::engine::{Engine, Feed, Options};
use super::explain;
use super::place::Place;
use super::run_action;
use super::schedule::Scheduling;
use super::telemetry::Asked;
use crate::cluster::context::ContextError;
use crate::cluster::fetch::{self, Resource};
use crate::cluster::logs;
use crate::cluster::source::ClientSource;
use crate::cluster::write::WriteMode;
use crate::model::{ForeignKind, Pricing, Str};
use crate::tui::browse::{Ask, BrowseRow, Listing, NoListing, ResourceRef};
use crate::tui::keep::Kept;
use crate::tui::logs::{LogAsk, LogLine, LogPod};
use crate::tui::run::{self, Ports};
use crate::tui::{App, Cmd, Msg, ObjectRef, Session, Settings, views};

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

/// What is the person's own.
pub struct Personal {
    /// Keys and looks.
    pub settings: Settings,
    /// Rules for tiers, and prices.
    pub pricing: Pricing,
    /// The file with what is kept from session to session.
    pub keep: Option<PathBuf>,
    /// Whether views and filters are kept there.
    pub remembers: bool,
}

/// Runs the console until it is left. `args` are what a switch of context starts from.
///
/// # Errors
/// The terminal fails, or a part of gpudeck panicked.
pub async fn open(
    place: Place,
    args: ClusterArgs,
    rights: Rights,
    personal: Personal,
) -> Result<()> {
    let Personal {
        mut settings,
        pricing,
        keep,
        remembers,
    } = personal;
    let kept = keep.as_deref().map(Kept::load);
    if let Some((_, Some(why))) = &kept {
        settings.notes.push(why.clone());
    }
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
        shown: watch::Sender::default(),
        logs: None,
        program: None,
        keep,
    };
    let driven = tokio::spawn(driver.run(place, commands_rx));
    let mut app = App::new(settings, session, views::all(), Timestamp::now());
    app.set_pricing(Arc::new(pricing));
    if let Some((kept, _)) = kept {
        app.remember(kept, remembers);
    }
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
        schedules: rights.schedule && !rights.read_only,
    }
}

/// The engine of one place.
pub fn engine_at(
    place: &Place,
    rights: Rights,
    shown: Option<watch::Receiver<Vec<Str>>>,
) -> (Engine, Feed) {
    let host = std::env::var("HOSTNAME").ok();
    let scheduling = WriteMode::unless_read_only(rights.read_only)
        .filter(|_| rights.schedule)
        .map(|mode| Scheduling {
            config: place.scheduler.clone(),
            ..Scheduling::new(mode, host.as_deref())
        });
    Engine::start(Options {
        source: place.source.clone(),
        scope: place.scope(),
        scheduling,
        telemetry: shown.map(|shown| Asked {
            settings: place.telemetry.clone(),
            shown,
        }),
        fabric: place.fabric.clone(),
    })
}

struct Driver {
    args: ClusterArgs,
    rights: Rights,
    source: ClientSource,
    generation: u64,
    messages: mpsc::Sender<Msg>,
    contexts: Vec<Str>,
    /// Nodes on the screen.
    shown: watch::Sender<Vec<Str>>,
    /// The logs that are followed; dropping it ends that.
    logs: Option<AbortOnDropHandle<()>>,
    /// The program of a person's own action; dropping it ends it.
    program: Option<AbortOnDropHandle<()>>,
    /// The file with what is kept from session to session.
    keep: Option<PathBuf>,
}

/// A switch of context under way: login helpers may take their time. Dropping it gives it up.
struct Switch {
    to: Str,
    connecting: JoinHandle<Result<Place, ContextError>>,
}

impl Switch {
    fn begin(to: Str, args: ClusterArgs) -> Self {
        let connecting = tokio::spawn(async move { Place::connect(&args, true).await });
        Switch { to, connecting }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.connecting.abort();
    }
}

/// The end of the switch under way; waits forever when there is none.
async fn switched(switch: &mut Option<Switch>) -> (Str, Result<Place, String>) {
    let Some(under_way) = switch else {
        return std::future::pending().await;
    };
    let result = match (&mut under_way.connecting).await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    let to = under_way.to.clone();
    *switch = None;
    (to, result)
}

impl Driver {
    /// Carries messages both ways until the console has closed its end.
    async fn run(mut self, place: Place, mut commands: mpsc::Receiver<Cmd>) {
        let mut place = place;
        let shown = |driver: &Driver| Some(driver.shown.subscribe());
        let (mut engine, mut feed) = engine_at(&place, self.rights, shown(&self));
        let mut switch = None;
        // Engines of places that were left: a hung API must not hold up the next place.
        let mut leaving = JoinSet::new();
        loop {
            let next = tokio::select! {
                command = commands.recv() => match command {
                    None => break,
                    Some(command) => self.obey(command, &place, &feed, &mut switch),
                },
                (context, result) = switched(&mut switch) => match result {
                    Ok(place) => Some(place),
                    Err(why) => {
                        let msg = Msg::NotSwitched { context, why };
                        if self.messages.send(msg).await.is_err() {
                            break;
                        }
                        None
                    }
                },
                msg = told(&mut feed, self.generation) => {
                    let Some(msg) = msg else { break };
                    if self.messages.send(msg).await.is_err() {
                        break;
                    }
                    None
                }
            };
            let Some(mut next) = next else { continue };
            next.settle_as(&place);
            place = next;
            self.source = place.source.clone();
            self.generation += 1;
            self.logs = None;
            self.program = None;
            let session = session_at(&place, self.generation, self.rights);
            if self.messages.send(Msg::Session(session)).await.is_err() {
                break;
            }
            // What nobody reads would hold up the engine's end.
            drop(feed);
            leaving.spawn(engine.stop());
            (engine, feed) = engine_at(&place, self.rights, shown(&self));
        }
        // A console that left has said what it wants kept, and may have closed its end since.
        while let Ok(command) = commands.try_recv() {
            if matches!(command, Cmd::Keep(_)) {
                self.obey(command, &place, &feed, &mut switch);
            }
        }
        drop(feed);
        engine.stop().await;
        while leaving.join_next().await.is_some() {}
    }

    /// Does what the console asks; a new place when it wants one that is there at once.
    fn obey(
        &mut self,
        command: Cmd,
        here: &Place,
        feed: &Feed,
        switch: &mut Option<Switch>,
    ) -> Option<Place> {
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
            Cmd::FetchLinks { generation, node } => {
                if generation == self.generation {
                    let (source, messages) = (self.source.clone(), self.messages.clone());
                    tokio::spawn(async move {
                        let ports = fetch::gpu_ports(&source, &node).await;
                        let msg = Msg::Links {
                            generation,
                            node,
                            result: ports.map_err(|e| e.to_string()),
                        };
                        let _ = messages.send(msg).await;
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
                *switch = Some(Switch::begin(name, args));
                None
            }
            Cmd::StayHere => {
                *switch = None;
                None
            }
            Cmd::LookAt(nodes) => {
                self.shown.send_replace(nodes);
                None
            }
            Cmd::SwitchNamespace(namespace) => {
                // With everything listed a narrower view needs no new reading.
                here.namespace.as_ref()?;
                *switch = None;
                Some(Place {
                    source: here.source.clone(),
                    context: here.context.clone(),
                    namespace,
                    fallback: here.fallback.clone(),
                    contexts: self.contexts.clone(),
                    scheduler: here.scheduler.clone(),
                    telemetry: here.telemetry.clone(),
                    fabric: here.fabric.clone(),
                })
            }
            Cmd::Logs(ask) => {
                self.logs = None;
                if ask.generation == self.generation {
                    let (source, messages) = (self.source.clone(), self.messages.clone());
                    let followed = tokio::spawn(follow(source, ask, messages));
                    self.logs = Some(AbortOnDropHandle::new(followed));
                }
                None
            }
            Cmd::Keep(kept) => {
                if let Some(path) = &self.keep {
                    let (before, _) = Kept::load(path);
                    if let Err(e) = kept.over(before).store(path) {
                        tracing::warn!(path = %path.display(), error = %e, "not kept");
                    }
                }
                None
            }
            Cmd::StopLogs => {
                self.logs = None;
                None
            }
            Cmd::Explain(ask) => {
                let (turn, messages) = (ask.turn, self.messages.clone());
                let scheduler = feed.questions.clone();
                let (config, now) = (here.scheduler.clone(), self.source.now());
                tokio::spawn(async move {
                    let answer = explain::answered(ask, config, now, scheduler).await;
                    let _ = messages.send(Msg::Explained { turn, answer }).await;
                });
                None
            }
            Cmd::Run(ask) => {
                let ran = tokio::spawn(run_action::run(ask, self.messages.clone()));
                self.program = Some(AbortOnDropHandle::new(ran));
                None
            }
            Cmd::StopRun => {
                self.program = None;
                None
            }
            // The console does these itself.
            Cmd::Copy(_) | Cmd::Suspend | Cmd::Redraw | Cmd::Quit => None,
        }
    }
}

/// Follows logs and sends their lines.
async fn follow(source: ClientSource, ask: LogAsk, messages: mpsc::Sender<Msg>) {
    let (tx, mut lines) = mpsc::channel::<Vec<logs::LogLine>>(8);
    let of = |pod: &LogPod| logs::LogOf {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    };
    let pods = ask.pods.iter().map(of).collect();
    let tell = async {
        while let Some(batch) = lines.recv().await {
            let line = |line: logs::LogLine| LogLine {
                pod: line.pod,
                text: line.text,
                notice: line.notice,
            };
            let lines = batch.into_iter().map(line).collect();
            let turn = ask.turn;
            if messages.send(Msg::LogLines { turn, lines }).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(logs::follow(source, pods, tx), tell);
}

/// The next message of an engine; `None` when it has ended.
async fn told(feed: &mut Feed, generation: u64) -> Option<Msg> {
    tokio::select! {
        Some(batch) = feed.deltas.recv() => {
            Some(Msg::Deltas { generation, deltas: batch.to_vec() })
        }
        Some(leader) = feed.leader.recv() => Some(Msg::Leader(leader)),
        else => None,
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
    // A name of ours for a kind whose own name another one has too.
    let foreign = ForeignKind::of_workload(kind).map(ForeignKind::api);
    resources
        .into_iter()
        .find(|r| match foreign {
            Some(api) => *r.kind == *api.kind && *r.group == *api.group,
            None => *r.kind == *kind,
        })
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

    fn driver(place: &Place, args: ClusterArgs) -> (Driver, mpsc::Receiver<Msg>) {
        let (messages, received) = mpsc::channel(DEPTH);
        let driver = Driver {
            args,
            rights: Rights {
                read_only: true,
                schedule: false,
            },
            source: place.source.clone(),
            generation: 0,
            messages,
            contexts: Vec::new(),
            shown: watch::Sender::default(),
            logs: None,
            program: None,
            keep: None,
        };
        (driver, received)
    }

    /// A kubeconfig whose context `slow` logs in by a helper that waits for the file `go` beside
    /// it, and whose context `there` needs no login.
    fn slow_login(folder: &std::path::Path) -> std::path::PathBuf {
        let at = folder.display();
        let wait = format!("until [ -e {at}/go ] || [ ! -d {at} ]; do sleep 0.05; done; exit 1");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "slow",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "contexts": [
                {"name": "slow", "context": {"cluster": "c", "user": "slow"}},
                {"name": "there", "context": {"cluster": "c", "user": "none"}},
            ],
            "users": [
                {"name": "slow", "user": {"exec": {
                    "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
                    "args": ["-c", wait], "interactiveMode": "Never"}}},
                {"name": "none", "user": {}},
            ],
        });
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    #[tokio::test]
    async fn a_slow_login_holds_nothing_up_and_can_be_given_up() {
        crate::cluster::client::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let args = ClusterArgs {
            kubeconfig: Some(slow_login(folder.path())),
            ..ClusterArgs::default()
        };
        let server = ApiServer::new(Options::default()).unwrap();
        let place = Place::embedded(server.client());
        let (driver, mut messages) = driver(&place, args);
        let (commands, commands_rx) = mpsc::channel(DEPTH);
        let driven = tokio::spawn(driver.run(place, commands_rx));
        let give = async |cmd| commands.send(cmd).await.unwrap();
        // While the helper waits the place before is there.
        give(Cmd::SwitchContext("slow".into())).await;
        give(Cmd::ListResources { generation: 0 }).await;
        answer(&mut messages, |m| matches!(m, Msg::Resources { .. })).await;
        // Given up, it is never entered, nor told to have failed.
        give(Cmd::StayHere).await;
        give(Cmd::SwitchContext("nowhere".into())).await;
        let ended = |m: &Msg| matches!(m, Msg::NotSwitched { .. } | Msg::Session(_));
        let Msg::NotSwitched { context, why } = answer(&mut messages, ended).await else {
            panic!("there is no such context");
        };
        assert_eq!(&*context, "nowhere");
        assert!(why.contains("has no context \"nowhere\""), "{why}");
        // Another one takes its place.
        give(Cmd::SwitchContext("slow".into())).await;
        give(Cmd::SwitchContext("there".into())).await;
        let Msg::Session(session) = answer(&mut messages, ended).await else {
            panic!("the other place is entered");
        };
        assert_eq!((&*session.context, session.generation), ("there", 1));
        // A login that fails is told.
        give(Cmd::SwitchContext("slow".into())).await;
        std::fs::write(folder.path().join("go"), "").unwrap();
        let Msg::NotSwitched { context, why } = answer(&mut messages, ended).await else {
            panic!("the login failed");
        };
        assert_eq!(&*context, "slow");
        assert!(why.contains("the login helper"), "{why}");
        drop(commands);
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn resources_are_found_and_listed_and_a_question_about_another_place_is_dropped() {
        let server = ApiServer::new(Options::default()).unwrap();
        let place = Place::embedded(server.client());
        let (driver, mut messages) = driver(&place, ClusterArgs::default());
        let (commands, commands_rx) = mpsc::channel(DEPTH);
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
