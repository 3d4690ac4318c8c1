//! Instructions, which do not depend on what else the machine does: by the processor's counters
//! where the kernel lets us read them, else by valgrind where it is installed.
//!
//! A process of its own makes a cluster and then does a thing so many times; one that does it not
//! at all is taken off.

use std::process::{Command, Stdio};

use crate::report::line;
use crate::site::{Pods, churn, come, leave, nearly_full, round, settle};
use crate::turns;

/// Marks the process that is counted: case, nodes, sizes and repeats follow.
pub const FLAG: &str = "--count";

const CASES: [(&str, usize); 4] = [
    ("single", 2_000),
    ("gang", 20),
    ("cannot-place", 20),
    ("fork", 5),
];

/// The same with queues: a tenth of the cluster taken back, two jobs a node looked at anew, why one
/// waits.
const TURNS: [(&str, usize); 3] = [("reclaim", 2), ("pending", 5), ("explain", 5)];

/// Something that counts the instructions of a process.
#[derive(Clone, Copy)]
enum Counter {
    Perf,
    Valgrind,
}

impl Counter {
    /// The first that works here.
    fn find() -> Option<Self> {
        [Self::Perf, Self::Valgrind]
            .into_iter()
            .find(|counter| counter.count(&["true".to_owned()]).is_some())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf stat -e instructions:u",
            Self::Valgrind => "valgrind --tool=cachegrind --cache-sim=no",
        }
    }

    /// Instructions of a command.
    fn count(self, command: &[String]) -> Option<u64> {
        let mut run = match self {
            Self::Perf => {
                let mut run = Command::new("perf");
                run.args(["stat", "-x", ";", "-e", "instructions:u", "--"]);
                run
            }
            Self::Valgrind => {
                let mut run = Command::new("valgrind");
                run.args(["--tool=cachegrind", "--cache-sim=no"]);
                run.args(["--cachegrind-out-file=/dev/null", "--"]);
                run
            }
        };
        let out = run.args(command).stdout(Stdio::null()).output().ok()?;
        let told = String::from_utf8_lossy(&out.stderr);
        let number = match self {
            Self::Perf => told
                .lines()
                .find(|l| l.contains("instructions"))?
                .split(';')
                .next()?,
            Self::Valgrind => told.split("I   refs:").nth(1)?.split_whitespace().next()?,
        };
        number.replace(',', "").parse().ok()
    }
}

/// Counts every case, then how the first grows.
pub fn run() {
    println!();
    let Some(counter) = Counter::find() else {
        println!(
            "instructions: not counted: this kernel gives no counters (perf stat), and valgrind \
             is not installed"
        );
        return;
    };
    println!("instructions, by {}", counter.name());
    let exe = std::env::current_exe().ok();
    let count = |case: &str, nodes: usize, sizes: u32, repeats: usize| -> Option<u64> {
        let exe = exe.as_ref()?.to_string_lossy().into_owned();
        let numbers = [nodes.to_string(), sizes.to_string(), repeats.to_string()];
        let flags = [exe, FLAG.to_owned(), case.to_owned()];
        let command: Vec<String> = flags.into_iter().chain(numbers).collect();
        counter.count(&command)
    };
    let each = |all: Option<u64>, none: Option<u64>, repeats: usize| {
        Some(all?.saturating_sub(none?) / repeats as u64)
    };
    let told = |n: Option<u64>| {
        n.map_or("not counted".to_owned(), |n| match n {
            0..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
            _ => format!("{:.2} M", n as f64 / 1e6),
        })
    };
    for nodes in [250, 500, 1_000] {
        let none = count("nothing", nodes, 3, 0);
        let all = CASES.map(|(case, n)| {
            let one = each(count(case, nodes, 3, n), none, n);
            format!("{case} {}", told(one))
        });
        line(&format!("  {nodes} nodes"), &all.join(", "), "");
    }
    for nodes in [250, 500, 1_000] {
        let all = TURNS.map(|(case, n)| {
            // The picture is made by the first.
            let one = each(count(case, nodes, 3, n + 1), count(case, nodes, 3, 1), n);
            format!("{case} {}", told(one))
        });
        line(&format!("  {nodes} full nodes"), &all.join(", "), "");
    }
    for sizes in [1, 12, 60] {
        let (n, none) = (2_000, count("nothing", 250, sizes, 0));
        let single = told(each(count("single", 250, sizes, n), none, n));
        let what = format!("  250 nodes, {} classes", sizes * 8 + 1);
        line(&what, &format!("single {single}"), "");
    }
}

/// In the process that is counted.
pub fn work(args: &[String]) {
    let [case, numbers @ ..] = args else { return };
    let number = |i: usize| numbers.get(i).and_then(|n| n.parse::<usize>().ok());
    let (Some(nodes), Some(sizes), Some(repeats)) = (number(0), number(1), number(2)) else {
        return;
    };
    if TURNS.iter().any(|(turn, _)| turn == case) {
        return turns::work(case, nodes, repeats);
    }
    let mut pods = Pods::new(u32::try_from(sizes).unwrap_or(1));
    let (mut state, mut running) = nearly_full(nodes, &mut pods);
    match &**case {
        "single" => churn(&mut state, &mut running, &mut pods, repeats, round),
        "gang" => {
            for pod in running.iter().step_by(2) {
                state.apply(&leave(pod));
            }
            for _ in 0..repeats {
                let gang: Vec<_> = pods.gang().iter().map(come).collect();
                let plan = round(&mut state, &gang);
                settle(&mut state, &gang, &plan);
            }
        }
        "cannot-place" => {
            let hopeless = [come(&pods.hopeless())];
            for _ in 0..repeats {
                round(&mut state.fork(), &hopeless);
            }
        }
        "fork" => {
            for _ in 0..repeats {
                drop(std::hint::black_box(state.fork()));
            }
        }
        _ => {}
    }
}
