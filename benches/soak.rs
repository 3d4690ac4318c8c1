//! A long night before the console: hours of the demo's scenario, an API server with bad moments,
//! and somebody who looks at everything.
//!
//! `cargo bench --bench soak -- 24` plays that many hours of `tour` (24 without a number) under a
//! clock that jumps, with watches cut, silent, compacted and answered with errors at random, views
//! switched and keys pressed at random. Each hour prints what the process holds; at the end the
//! console's figures are compared with those of one that has just started.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::str::FromStr;
use std::time::Duration;

use gpudeck::app::embedded::World;
use gpudeck::app::engine::{Engine, Feed, Options as EngineOptions};
use gpudeck::app::place::Place;
use gpudeck::app::schedule::Scheduling;
use gpudeck::cluster::write::WriteMode;
use gpudeck::model::{Cluster, FabricRules, Kind, SourceState};
use gpudeck::sandbox::faults::{Fault, FaultKind};
use gpudeck::sandbox::scenario::{Play, Scenario};
use gpudeck::sandbox::{ApiServer, Options, Time};
use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::key::Key;
use gpudeck::tui::snapshot::{self, Request};
use gpudeck::tui::theme::Depth;
use gpudeck::tui::view::ViewId;
use gpudeck::tui::{App, Msg, Session, Settings, views};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hours of the scenario, unless the command line names others.
const HOURS: u64 = 24;
/// Of the scenario; the demo's own.
const SPEED: f64 = 20.0;
const SCREEN: Rect = Rect {
    x: 0,
    y: 0,
    width: 120,
    height: 40,
};
/// A frame of data at most this often, by the server's clock.
const FRAME: Duration = Duration::from_millis(250);
/// Mean distance of keys, and of faults, by the server's clock.
const KEY_EVERY: Duration = Duration::from_secs(2);
const FAULT_EVERY: Duration = Duration::from_secs(15);
/// After the last fault and the last change the console is right again within this.
const SETTLE: Duration = Duration::from_secs(60);
const KEYS: [&str; 24] = [
    "1", "2", "3", "4", "5", "6", "7", "j", "k", "pgdn", "g", "G", "d", "y", "esc", "esc", "enter",
    "z", "Z", "o", "space", "?", "w", "i",
];
const FAULTS: [FaultKind; 6] = [
    FaultKind::DropWatches,
    FaultKind::SilentWatches,
    FaultKind::Gone,
    FaultKind::InternalError,
    FaultKind::TooManyRequests,
    FaultKind::Restart,
];

fn main() {
    // `cargo test --benches` runs this without `--bench`: there is nothing to check then.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|a| a == "--bench") {
        return;
    }
    let hours = args.iter().find_map(|a| a.parse().ok()).unwrap_or(HOURS);
    gpudeck::cluster::client::install_crypto();
    fastrand::seed(1);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be started")
        .block_on(soak(hours));
}

async fn soak(hours: u64) {
    let begun = std::time::Instant::now();
    let time = Time::starting(Timestamp::from_second(1_796_040_000).expect("a time"));
    // What the server remembers for its watchers is small and full within the first hour, and its
    // Events live for an hour of the scenario: what still grows after that is the console's.
    let server = ApiServer::new(Options {
        clock: time.into(),
        history_changes: 4_096,
        history_bytes: 2 << 20,
        audit_entries: 4_096,
        event_ttl: Duration::from_secs(3_600).div_f64(SPEED),
        ..Options::default()
    })
    .expect("the server starts");
    let stop = CancellationToken::new();
    let world = World {
        scenario: Scenario::load("tour").expect("the scenario is built in"),
        play: Play {
            seed: 42,
            speed: Some(SPEED),
            nodes: None,
            time,
        },
    };
    let (engine, feed) = start(&server, time, true);
    let actors = world.start(&server, &stop).await.expect("the world starts");
    let mut person = Person::new(feed, time);
    for hour in 1..=hours {
        let end = Instant::now() + Duration::from_secs(3_600).div_f64(SPEED);
        person.look(end, Some(&server)).await;
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        println!(
            "hour {hour:>2}: {:>4} MiB, {tasks} tasks, {} pods, {} events, {} frames, {} deltas, {} \
             faults, {:.0} s here",
            resident_mib().map_or("?".to_owned(), |mib| mib.to_string()),
            person.cluster.pods().count(),
            person.cluster.events().count(),
            person.frames,
            person.deltas,
            person.faults,
            begun.elapsed().as_secs_f64(),
        );
    }
    // The world stands still, the server is well: now both must tell the same.
    stop.cancel();
    drop(actors);
    server.clear_faults();
    person.look(Instant::now() + SETTLE, None).await;
    let (fresh_engine, mut fresh) = start(&server, time, false);
    let mut cluster = Cluster::new();
    while !live(&cluster) {
        let batch = fresh.deltas.recv().await.expect("the engine lives");
        batch.iter().for_each(|delta| cluster.apply(delta));
    }
    let mut differ = 0;
    for view in [ViewId::Fleet, ViewId::Nodes, ViewId::Jobs] {
        let (old, new) = (
            told(&person.cluster, view, time),
            told(&cluster, view, time),
        );
        let same = old == new;
        differ += usize::from(!same);
        println!("{view:?}: {}", if same { "equal" } else { "DIFFERS" });
        if !same {
            first_difference(&old, &new);
        }
    }
    println!(
        "{} of 3 views differ from a fresh start's after {hours} h",
        differ
    );
    fresh_engine.stop().await;
    engine.stop().await;
}

fn start(server: &ApiServer, time: Time, schedule: bool) -> (Engine, Feed) {
    let place = Place::embedded(server.client());
    let source = place.source.clone().with_clock(move || time.now());
    let mode = WriteMode::unless_read_only(!schedule);
    Engine::start(EngineOptions {
        source,
        scope: place.scope(),
        scheduling: mode.map(|mode| Scheduling::new(mode, Some("soak"))),
        telemetry: None,
        fabric: FabricRules::default(),
    })
}

/// Somebody before the console.
struct Person {
    app: App,
    /// The same deltas folded without a screen.
    cluster: Cluster,
    feed: Feed,
    time: Time,
    frames: usize,
    deltas: usize,
    faults: usize,
}

impl Person {
    fn new(feed: Feed, time: Time) -> Self {
        let settings = Settings::built_in(Depth::True, Glyphs { ascii: false });
        let session = Session {
            context: "soak".into(),
            ..Session::default()
        };
        Person {
            app: App::new(settings, session, views::all(), time.now()),
            cluster: Cluster::new(),
            feed,
            time,
            frames: 0,
            deltas: 0,
            faults: 0,
        }
    }

    /// Takes what comes, draws, and presses keys; with a server, things go wrong in it.
    async fn look(&mut self, end: Instant, server: Option<&ApiServer>) {
        let (mut frame, mut key, mut fault) = (Instant::now(), soon(KEY_EVERY), soon(FAULT_EVERY));
        while Instant::now() < end {
            tokio::select! {
                biased;
                batch = self.feed.deltas.recv() => {
                    let batch = batch.expect("the engine lives");
                    batch.iter().for_each(|delta| self.cluster.apply(delta));
                    self.deltas += batch.len();
                    let deltas = batch.to_vec();
                    self.app.update(Msg::Deltas { generation: 0, deltas }, self.time.now());
                }
                Some(leader) = self.feed.leader.recv() => {
                    self.app.update(Msg::Leader(leader), self.time.now());
                }
                () = tokio::time::sleep_until(frame) => {
                    frame = Instant::now() + FRAME;
                    if self.app.is_dirty() {
                        let mut buffer = Buffer::empty(SCREEN);
                        self.app.render(SCREEN, &mut buffer);
                        self.frames += 1;
                    }
                }
                () = tokio::time::sleep_until(key) => {
                    key = soon(KEY_EVERY);
                    let name = KEYS[fastrand::usize(..KEYS.len())];
                    let press = Key::from_str(name).expect("the keys have names");
                    self.app.update(Msg::Key(press), self.time.now());
                }
                () = tokio::time::sleep_until(fault), if server.is_some() => {
                    fault = soon(FAULT_EVERY);
                    let kind = FAULTS[fastrand::usize(..FAULTS.len())];
                    let wrong = Fault::new(kind).lasting(fastrand::f64() * 10.0 + 1.0);
                    if let Some(server) = server {
                        server.inject(wrong).expect("the fault makes sense");
                        self.faults += 1;
                    }
                }
            }
        }
    }
}

fn soon(mean: Duration) -> Instant {
    Instant::now() + mean.mul_f64(fastrand::f64() * 2.0)
}

fn live(cluster: &Cluster) -> bool {
    Kind::ALL.into_iter().all(|kind| {
        cluster
            .source(kind)
            .is_some_and(|report| report.state == SourceState::Live)
    })
}

fn told(cluster: &Cluster, view: ViewId, time: Time) -> serde_json::Value {
    let request = Request {
        view,
        cluster,
        namespace: None,
        filter: "",
        ascii: false,
        now: time.now(),
    };
    let mut told = snapshot::json(&request).expect("an empty filter is sound");
    without_reasons(&mut told);
    told
}

/// Only the console of the deciding scheduler knows its reasons; the fresh one decides nothing.
fn without_reasons(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.remove("reason");
            map.values_mut().for_each(without_reasons);
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(without_reasons),
        _ => {}
    }
}

/// The first lines of both texts that are not the same.
fn first_difference(old: &serde_json::Value, new: &serde_json::Value) {
    let (old, new) = (format!("{old:#}"), format!("{new:#}"));
    let pairs = old.lines().zip(new.lines());
    for (old, new) in pairs.filter(|(old, new)| old != new).take(5) {
        println!("    after the night {old}\n    fresh           {new}");
    }
}

fn resident_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1_024)
}
