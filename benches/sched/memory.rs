//! What a state holds, as Linux tells of a process that has nothing else.

use std::process::{Command, id};

use crate::report::{line, verdict};
use crate::site::{Pods, nearly_full};

/// Marks the process that is measured.
pub const FLAG: &str = "--memory-of";

/// Resident memory of this process in MiB.
fn resident_mib() -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", id())).ok()?;
    let rss = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    let kib: u64 = rss.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1_024)
}

/// Starts the process that is measured and prints what it tells.
pub fn run() {
    println!();
    let told = std::env::current_exe()
        .and_then(|exe| Command::new(exe).args([FLAG, "--bench"]).output())
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    let what = "State of 5,000 nodes and 100,000 pods, pods included";
    let mib: Option<u64> = told.ok().and_then(|t| t.parse().ok());
    match mib {
        // A MiB is 1.048576 MB.
        Some(mib) => {
            let met = mib * 1_048_576 < 200_000_000;
            line(what, &format!("{mib} MiB"), &verdict("200 MB", met));
        }
        None => line(what, "not known here", "200 MB"),
    }
}

/// In that process: fills a state up to 100,000 pods.
pub fn tell() {
    let before = resident_mib();
    let mut pods = Pods::new(3);
    let (mut state, running) = nearly_full(5_000, &mut pods);
    let placed = running.len();
    drop(running);
    for i in placed..100_000 {
        state.apply(&pods.bystander(i % 5_000));
    }
    if let (Some(before), Some(after)) = (before, resident_mib()) {
        println!("{}", after.saturating_sub(before));
    }
    drop(state);
}
