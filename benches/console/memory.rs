//! What a process holds, as Linux tells it.

/// Resident memory now and at its highest, in MiB; `None` where there is no /proc.
pub fn of(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib / 1_024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// In words.
pub fn told(pid: u32) -> String {
    of(pid).map_or("not known here".to_owned(), |(now, peak)| {
        format!("peak {peak} MiB, after {now} MiB")
    })
}
