//! How figures are printed.

use std::time::{Duration, Instant};

/// One figure: what, how much, and its bar.
pub fn line(what: &str, figure: &str, bar: &str) {
    println!("{what:<52} {figure:>22}   {bar}");
}

/// A bar and whether it is met.
pub fn verdict(bar: &str, met: bool) -> String {
    format!("{bar} {}", if met { "PASS" } else { "missed" })
}

/// Times of which the median has to stay under a bar; least and median are shown.
pub fn under(what: &str, times: &mut [Duration], bar: Duration) {
    let met = quantile(times, 500) < bar;
    line(what, &spread(times), &verdict(&time(bar), met));
}

/// A rate that has to reach a bar.
pub fn reaches(what: &str, count: usize, took: Duration, bar: usize) {
    let met = count as f64 >= bar as f64 * took.as_secs_f64();
    let bar = rate(bar, Duration::from_secs(1));
    line(what, &rate(count, took), &verdict(&bar, met));
}

/// A duration with three significant digits.
pub fn time(t: Duration) -> String {
    let us = t.as_secs_f64() * 1e6;
    match us {
        us if us < 100.0 => format!("{us:.1} µs"),
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// The value below which so many thousandths of all lie; sorts.
pub fn quantile(times: &mut [Duration], thousandths: usize) -> Duration {
    times.sort_unstable();
    let at = (times.len() * thousandths / 1_000).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

/// Least and median of a few.
pub fn spread(times: &mut [Duration]) -> String {
    let least = time(quantile(times, 0));
    format!("{least} to {}", time(quantile(times, 500)))
}

/// How many a second.
pub fn rate(count: usize, time: Duration) -> String {
    let rate = (count as f64 / time.as_secs_f64().max(1e-9)) as u64;
    match rate {
        0..1_000 => format!("{rate}/s"),
        _ => format!("{},{:03}/s", rate / 1_000, rate % 1_000),
    }
}

/// Time that this thread has had a processor; `None` where Linux does not tell. Unlike the time of
/// day it does not count what others do meanwhile; it is exact to some 4 ms.
pub fn cpu_time() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = told.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Runs something and tells its time, by the processor where that is known.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (began, cpu) = (Instant::now(), cpu_time());
    let done = work();
    let wall = began.elapsed();
    let used = cpu.and_then(|before| cpu_time()?.checked_sub(before));
    (done, used.unwrap_or(wall))
}
