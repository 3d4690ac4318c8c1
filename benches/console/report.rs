//! How figures are printed.

use std::time::Duration;

/// One figure: what, how much, and what it should stay under.
pub fn line(what: &str, figure: &str, note: &str) {
    println!("{what:<44} {figure:>14}   {note}");
}

/// A duration with three significant digits.
pub fn time(t: Duration) -> String {
    let us = t.as_secs_f64() * 1e6;
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Median, 99th percentile and largest of some times, in words.
pub fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1));
    match (at(50), at(99), times.last()) {
        (Some(p50), Some(p99), Some(max)) => {
            format!("p50 {}, p99 {}, max {}", time(*p50), time(*p99), time(*max))
        }
        _ => "nothing measured".to_owned(),
    }
}
