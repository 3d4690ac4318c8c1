//! From a key to the frame that answers it, through the console's own loop, at the large size.

use std::collections::BTreeMap;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gpudeck::model::{Change, Delta, Pod};
use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::key::Key;
use gpudeck::tui::run::{Console, Ports};
use gpudeck::tui::terminal::{Restorer, Screen};
use gpudeck::tui::theme::Depth;
use gpudeck::tui::{App, Msg, Session, Settings, views};
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::report::{line, spread, time};
use crate::world::World;

const KEYS: usize = 1_000;
const SIZE: (u16, u16) = (200, 60);
const BAR: &str = "bar: p99 16 ms";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Changes a second, in batches this far apart.
const CHANGES: usize = 1_000;
const BATCH_EVERY: Duration = Duration::from_millis(20);

/// What the console answered a key with, and when that was out.
#[derive(Clone, Copy)]
struct Answer {
    at: Instant,
    /// A frame; else it knew that nothing on the screen changes.
    drawn: bool,
}

/// The walk over all views: moves, pages, filters, sorting, descriptions, the palette.
fn walk() -> Vec<(&'static str, &'static str)> {
    let mut keys = Vec::new();
    let mut add = |what: &'static str, names: &'static [&'static str]| {
        keys.extend(names.iter().map(|n| (what, *n)));
    };
    for view in ["1", "2", "3", "5", "6"] {
        add(
            "view",
            match view {
                "1" => &["2", "1"],
                "2" => &["1", "2"],
                "3" => &["2", "3"],
                "5" => &["1", "5"],
                _ => &["5", "6"],
            },
        );
        add(
            "move",
            &[
                "j", "j", "j", "k", "j", "j", "pgdn", "pgdn", "pgup", "ctrl-d", "G", "g",
            ],
        );
        add(
            "filter",
            &["/", "p", "t", "-", "0", "0", "1", "backspace", "enter"],
        );
        add("move", &["j", "j", "G", "g"]);
        add("clear", &["esc"]);
        add("filter", &["/", "n", "s", ":", "p", "r", "o", "d", "enter"]);
        add("clear", &["esc"]);
        add("describe", &["j", "d", "pgdn", "esc"]);
        add("mark", &["space", "space"]);
        add("palette", &[":", "j", "o", "b", "esc"]);
        if view == "1" {
            add("lens", &["i", "i", "i", "i", "i", "i", "i", "i", "i"]);
        }
        if view == "3" {
            add("open", &["l", "l", "l", "h", "h", "z", "z", "Z", "Z"]);
        }
        if view == "2" || view == "5" {
            add(
                "sort",
                &["s", "down", "down", "enter", "s", "down", "enter"],
            );
        }
    }
    keys
}

/// Quiet, and with 1,000 changes a second coming in.
pub fn run(runtime: &Runtime, world: &mut World) {
    let deltas = world.deltas(runtime).to_vec();
    measure(runtime, "key to frame, quiet cluster", &deltas, false);
    measure(runtime, "key to frame, 1,000 changes/s", &deltas, true);
}

fn measure(runtime: &Runtime, what: &str, deltas: &[Delta], changing: bool) {
    let settings = Settings::built_in(Depth::True, Glyphs { ascii: false });
    let session = Session {
        context: "bench".into(),
        ..Session::default()
    };
    let now = Timestamp::now();
    let mut app = App::new(settings, session, views::all(), now);
    let filling = Msg::Deltas {
        generation: 0,
        deltas: deltas.to_vec(),
    };
    app.update(filling, now);

    let (answered, answers) = channel();
    let screen = Screen::over(
        io::sink(),
        Arc::new(Restorer::detached()),
        Box::new(|| SIZE),
    );
    let (keys, key_in) = mpsc::unbounded_channel();
    let (messages_tx, messages) = mpsc::channel(64);
    let (commands, _commands_in) = mpsc::channel(64);
    let (_asked, asked_in) = mpsc::unbounded_channel();
    let ports = Ports { messages, commands };
    let mut console = Console::new(app, screen, ports, key_in, asked_in, None);
    console.watch(move |frame| {
        if frame.answers {
            let (at, drawn) = (Instant::now(), frame.drawn);
            // Nobody waits any more when the last key has been answered.
            let _ = answered.send(Answer { at, drawn });
        }
    });

    let stop = Arc::new(AtomicBool::new(false));
    let changer = changing.then(|| {
        let pods: Vec<Arc<Pod>> = deltas.iter().filter_map(pod).cloned().collect();
        let (messages, stop) = (messages_tx.clone(), Arc::clone(&stop));
        std::thread::spawn(move || change(&pods, &messages, &stop))
    });
    let typist = std::thread::spawn(move || {
        let times = press(&keys, &answers);
        // The console ends when its keyboard does.
        drop(keys);
        times
    });
    runtime.block_on(console.run()).expect("the console runs");
    stop.store(true, Ordering::Relaxed);
    drop(console);
    let told = typist.join().expect("the typist ends");
    if let Some(changer) = changer {
        changer.join().expect("the changer ends");
    }
    drop(messages_tx);

    let (mut told, same): (Told, Told) = told.into_iter().partition(|t| t.drawn);
    let mut times: Vec<Duration> = told.iter().map(|t| t.time).collect();
    times.sort_unstable();
    let p99 = times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default();
    let note = format!("{} of {} frames; {BAR}", spread(&mut times), times.len());
    line(what, &time(p99), &note);
    told.sort_by_key(|t| std::cmp::Reverse(t.time));
    let slowest: Vec<String> = told
        .iter()
        .take(8)
        .map(|t| format!("{} {} {}", t.what, t.key, time(t.time)))
        .collect();
    println!("    slowest: {}", slowest.join(", "));
    let mut unchanged: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for t in &same {
        *unchanged.entry((t.view, t.what, t.key)).or_default() += 1;
    }
    let unchanged: Vec<String> = unchanged
        .into_iter()
        .map(|((view, what, key), n)| format!("{what} {key} in view {view} ×{n}"))
        .collect();
    println!(
        "    {} keys changed nothing on the screen: {}",
        same.len(),
        unchanged.join(", ")
    );
    let mut used: Vec<Duration> = told.iter().filter_map(|t| t.cpu).collect();
    if !used.is_empty() {
        println!(
            "    CPU time from the key until the console sleeps again: {}",
            spread(&mut used)
        );
    }
    told.sort_by_key(|t| std::cmp::Reverse(t.cpu));
    let dearest: Vec<String> = told
        .iter()
        .take(8)
        .map(|t| {
            format!(
                "{} {} in view {} {}",
                t.what,
                t.key,
                t.view,
                time(t.cpu.unwrap_or_default())
            )
        })
        .collect();
    println!("    most of it: {}", dearest.join(", "));
}

fn pod(delta: &Delta) -> Option<&Arc<Pod>> {
    match delta {
        Delta::Pod(Change::Set(pod)) => Some(pod),
        _ => None,
    }
}

/// A key and its answer.
struct Pressed {
    view: &'static str,
    what: &'static str,
    key: &'static str,
    time: Duration,
    /// CPU time of the console's thread.
    cpu: Option<Duration>,
    drawn: bool,
}

type Told = Vec<Pressed>;

/// CPU time that the console's thread, the main one, has used while it slept last; Linux only.
fn cpu() -> Option<Duration> {
    let id = std::process::id();
    let path = format!("/proc/self/task/{id}/schedstat");
    let text = std::fs::read_to_string(path).ok()?;
    Some(Duration::from_nanos(
        text.split_whitespace().next()?.parse().ok()?,
    ))
}

/// Presses the keys at a typist's pace; each with the time to its answer.
fn press(keys: &mpsc::UnboundedSender<Msg>, answers: &Receiver<Answer>) -> Told {
    let walk = walk();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut told = Vec::new();
    let mut view = "1";
    // The first frames make all rows for the first time.
    std::thread::sleep(Duration::from_millis(300));
    for (what, name) in walk.iter().cycle().take(KEYS) {
        std::thread::sleep(Duration::from_millis(rng.u64(4..24)));
        if *what == "view" {
            view = name;
        }
        let key = Key::from_str(name).expect("the walk names keys");
        let (begun, used) = (Instant::now(), cpu());
        if keys.send(Msg::Key(key)).is_err() {
            break;
        }
        let Ok(answer) = answers.recv_timeout(PATIENCE) else {
            break;
        };
        // Until it sleeps again: only then the system tells its time in full.
        std::thread::sleep(Duration::from_millis(3));
        told.push(Pressed {
            view,
            what,
            key: name,
            time: answer.at - begun,
            cpu: cpu().zip(used).map(|(after, before)| after - before),
            drawn: answer.drawn,
        });
    }
    assert_eq!(told.len(), KEYS, "keys that were answered");
    told
}

/// Restarts of random pods, told in small batches.
fn change(pods: &[Arc<Pod>], messages: &mpsc::Sender<Msg>, stop: &AtomicBool) {
    let mut rng = fastrand::Rng::with_seed(2);
    let batch = CHANGES / (1_000 / usize::try_from(BATCH_EVERY.as_millis()).unwrap_or(1));
    let begun = Instant::now();
    for round in 1_u32.. {
        let deltas = (0..batch)
            .filter_map(|_| rng.choice(pods))
            .map(|pod| {
                let mut pod = (**pod).clone();
                pod.restarts = round;
                pod.ready = round % 2 == 0;
                Delta::Pod(Change::Set(Arc::new(pod)))
            })
            .collect();
        let full = messages.blocking_send(Msg::Deltas {
            generation: 0,
            deltas,
        });
        if full.is_err() || stop.load(Ordering::Relaxed) {
            return;
        }
        let due = begun + BATCH_EVERY * round;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
