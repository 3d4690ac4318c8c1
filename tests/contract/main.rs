//! The contract: calls and what a real kube-apiserver 1.37 answers them.
//!
//! `calls/AREA.txt` holds the calls, `golden/AREA.jsonl` the real server's normalised answers, one
//! line a call. Plain `cargo test` sends the calls to the embedded cluster, in process and over
//! loopback, and compares with the golden answers. With the feature `real-cluster` they also go to
//! a real control plane, whose answers must still be the golden ones. After a change of the calls,
//! `GPUDECK_RECORD=1 cargo test --features real-cluster --test contract real::` writes them anew.
//!
//! What the embedded cluster answers otherwise stands in DIFFERENCES.md; a call names the entry
//! and the places (`differs: 2 /message`), and fails when they no longer differ.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod answers;
mod calls;
#[cfg(feature = "real-cluster")]
mod kubectl;
#[allow(dead_code)]
#[path = "../real/servers/mod.rs"]
mod servers;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use gpudeck::sandbox::{ApiServer, Options, User};
use kube::Client;
use serde_json::{Value, json};

use answers::Answer;
use calls::Call;
use servers::{Kind, Server};

/// How long the calls of one area may take.
const AREA_DEADLINE: Duration = Duration::from_secs(120);

macro_rules! areas {
    ($($area:ident),* $(,)?) => {
        const AREAS: &[&str] = &[$(stringify!($area)),*];

        mod in_process {
            $(#[test] fn $area() { crate::in_process(stringify!($area)); })*
        }
        mod loopback {
            $(#[test] fn $area() { crate::loopback(stringify!($area)); })*
        }
        #[cfg(feature = "real-cluster")]
        mod real {
            $(#[test] fn $area() { crate::real(stringify!($area)); })*
        }
    };
}

areas![
    apply,
    creates,
    custom,
    deletion,
    events,
    hostile,
    jobs,
    leases,
    lists,
    nodes,
    objects,
    patches,
    paths,
    pods,
    priorities,
    reviews,
    scale,
    schemas,
    strict,
    subresources,
    tables,
    yaml,
];

/// Clients by user name.
type Clients = HashMap<&'static str, Client>;

const USERS: [&str; 2] = ["admin", "nobody"];

fn in_process(area: &str) {
    let golden = golden(area);
    runtime().block_on(async {
        let server = ApiServer::new(Options::default()).unwrap();
        let nobody = server.client_for(User::new("nobody", &[]));
        let clients = Clients::from([("admin", server.client()), ("nobody", nobody)]);
        compare(area, &golden, &answers_of(&clients, area).await, true);
    });
}

fn loopback(area: &str) {
    let server = Server::start(Kind::Embedded);
    let golden = golden(area);
    let found = runtime().block_on(async { answers_of(&clients(&server).await, area).await });
    compare(area, &golden, &found, true);
}

#[cfg(feature = "real-cluster")]
fn real(area: &str) {
    let server = Server::shared(Kind::Real);
    let found = runtime().block_on(async { answers_of(&clients(server).await, area).await });
    if std::env::var_os("GPUDECK_RECORD").is_some() {
        let lines: Vec<String> = found.iter().map(Answer::to_line).collect();
        std::fs::write(golden_path(area), lines.join("\n") + "\n").unwrap();
        return;
    }
    compare(area, &golden(area), &found, false);
}

async fn clients(server: &Server) -> Clients {
    let mut clients = Clients::new();
    for user in USERS {
        clients.insert(user, server.client(user).await);
    }
    clients
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/contract")
}

fn golden_path(area: &str) -> PathBuf {
    folder().join(format!("golden/{area}.jsonl"))
}

fn golden(area: &str) -> Vec<Answer> {
    let path = golden_path(area);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(Answer::from_line).collect()
}

fn calls(area: &str) -> Vec<Call> {
    let path = folder().join(format!("calls/{area}.txt"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    calls::parse(&text)
}

/// Sends the calls of an area in order, in a namespace of its own.
async fn answers_of(clients: &Clients, area: &str) -> Vec<Answer> {
    let work = async {
        let namespace = area.replace('_', "-");
        let mut names = HashMap::from([("ns".to_owned(), namespace.clone())]);
        let made = Call::create(
            "/api/v1/namespaces",
            &json!({"metadata": {"name": namespace}}),
        );
        let answer = made.send(&clients["admin"], &names).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let mut answers = Vec::new();
        for call in calls(area) {
            let answer = call.settle(&clients[call.user.as_str()], &names).await;
            for (name, pointer) in &call.saves {
                let text = answer.body.pointer(pointer).and_then(Value::as_str);
                let text =
                    text.unwrap_or_else(|| panic!("{}: no {pointer}: {answer:?}", call.line));
                names.insert(name.clone(), text.to_owned());
            }
            answers.push(answer.normalised());
        }
        answers
    };
    let within = tokio::time::timeout(AREA_DEADLINE, work).await;
    within.unwrap_or_else(|_| panic!("{area} took longer than {AREA_DEADLINE:?}"))
}

/// Fails with every call whose answer is not the golden one.
fn compare(area: &str, golden: &[Answer], found: &[Answer], embedded: bool) {
    let calls = calls(area);
    assert_eq!(golden.len(), calls.len(), "{area}: record the answers anew");
    let mut faults = Vec::new();
    for (index, ((call, golden), found)) in calls.iter().zip(golden).zip(found).enumerate() {
        assert_eq!(golden.call, call.line, "{area}: record the answers anew");
        let told = golden.faults(found, &call.differing, embedded).into_iter();
        faults.extend(told.map(|fault| format!("call {index}: {}\n    {fault}", call.line)));
    }
    assert!(
        faults.is_empty(),
        "{area}: {} parts of answers are not the real server's:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn the_suite_is_whole() {
    let mut count = 0;
    let mut entries = Vec::new();
    for area in AREAS {
        for call in calls(area) {
            count += 1;
            entries.extend(call.entry);
        }
    }
    assert!(count >= 150, "{count} calls");
    let text = std::fs::read_to_string(folder().join("DIFFERENCES.md")).unwrap();
    let listed: Vec<u32> = text
        .lines()
        .filter_map(|line| line.split_once(". ")?.0.parse().ok())
        .collect();
    assert!(
        text.lines().count() < 12,
        "too many lines in DIFFERENCES.md"
    );
    entries.sort_unstable();
    entries.dedup();
    let unlisted: Vec<&u32> = entries.iter().filter(|e| !listed.contains(e)).collect();
    assert!(unlisted.is_empty(), "not in DIFFERENCES.md: {unlisted:?}");
}
