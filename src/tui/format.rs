//! How numbers, times and sizes are written. One formatter for the screen and for
//! `gpudeck snapshot`, so that both show the same figures.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::model::{GpuResource, Quantity};

/// What stands for a value that is not known.
pub const UNKNOWN: &str = "—";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A whole number with thousands separators: `6,212`.
pub fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if n < 0 {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number in at most `columns` columns: in full, else with at most three significant digits
/// and `k`, `M`, `G`, … (a number is never cut).
pub fn count_within(n: i64, columns: usize) -> String {
    let full = count(n);
    if full.len() <= columns {
        return full;
    }
    #[allow(clippy::cast_precision_loss)]
    let mut size = n as f64;
    let mut unit = "";
    for next in ["", "k", "M", "G", "T", "P", "E"] {
        unit = next;
        if size.abs() < 999.5 {
            break;
        }
        size /= 1000.0;
    }
    format!("{}{unit}", amount(size))
}

/// Text in at most `columns` columns, its end cut off and marked: for sentences, whose beginning
/// tells most.
pub fn sentence_within(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for g in text.graphemes(true) {
        if used + g.width() + 1 > columns {
            break;
        }
        used += g.width();
        out.push_str(g);
    }
    if columns > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

/// A number of things that are in memory.
pub fn count_of(n: usize) -> String {
    count(i64::try_from(n).unwrap_or(i64::MAX))
}

/// A whole number that may not be known.
pub fn count_or_unknown<N: Into<i64>>(n: Option<N>) -> String {
    n.map_or_else(|| UNKNOWN.to_owned(), |n| count(n.into()))
}

/// An amount that may have a fraction: whole amounts in full (`5,903`), others with at most three
/// significant digits and no trailing zeros (`6.63`, `0.5`, `94.6`).
pub fn amount(x: f64) -> String {
    if !x.is_finite() {
        return UNKNOWN.to_owned();
    }
    let size = x.abs();
    let decimals = if size < 9.995 {
        2
    } else if size < 99.95 {
        1
    } else {
        0
    };
    let text = format!("{x:.decimals$}");
    let trimmed = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    match trimmed.parse::<i64>() {
        Ok(0) => "0".to_owned(),
        Ok(n) => count(n),
        Err(_) => trimmed.to_owned(),
    }
}

/// Money: from 100 on in whole units with thousands separators, below with cents: `$14,210`,
/// `$6.88`.
pub fn money(x: f64, currency: &str) -> String {
    if !x.is_finite() {
        return "?".to_owned();
    }
    if x.abs() >= 99.995 {
        #[allow(clippy::cast_possible_truncation)]
        return format!("{currency}{}", count(x.round() as i64));
    }
    format!("{currency}{x:.2}")
}

/// An amount that may not be known.
pub fn amount_or_unknown(x: Option<f64>) -> String {
    x.map_or_else(|| UNKNOWN.to_owned(), amount)
}

/// A part of a whole as a percentage without sign, `None` when the whole is nothing or not known.
/// Only all of it is `100` and only nothing is `0`: 99.7 % reads `99`, 0.2 % reads `1`.
pub fn percent_of(part: i64, whole: i64) -> Option<i64> {
    if whole <= 0 {
        return None;
    }
    let (part, whole) = (i128::from(part), i128::from(whole));
    let rounded = (part * 100 + whole / 2) / whole;
    let honest = if part < whole {
        rounded.min(99)
    } else {
        rounded
    };
    let honest = if part > 0 { honest.max(1) } else { honest };
    i64::try_from(honest).ok()
}

/// A share from 0 to 1 as `95.0%` (`99.9%` below all of it, `100%` for all of it).
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return UNKNOWN.to_owned();
    }
    let p = share * 100.0;
    if share < 1.0 && p > 99.9 {
        "99.9%".to_owned()
    } else if p >= 99.95 {
        format!("{p:.0}%")
    } else {
        format!("{p:.1}%")
    }
}

/// A length of time in its largest unit: `45s`, `12m`, `3h`, `5d`. Times in the future read `0s`.
pub fn duration(secs: i64) -> String {
    match secs.max(0) {
        s if s < MINUTE => format!("{s}s"),
        s if s < HOUR => format!("{}m", s / MINUTE),
        s if s < DAY => format!("{}h", s / HOUR),
        s => format!("{}d", count(s / DAY)),
    }
}

/// Seconds from `then` to `now`.
pub fn secs_since(then: Timestamp, now: Timestamp) -> i64 {
    now.as_second().saturating_sub(then.as_second())
}

/// The age of something, `—` when its beginning is not known.
pub fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || UNKNOWN.to_owned(),
        |then| duration(secs_since(then, now)),
    )
}

/// A moment: its age under a day, the clock in UTC after (`Nov 28 14:20`).
pub fn moment(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else {
        return UNKNOWN.to_owned();
    };
    let secs = secs_since(at, now);
    if secs < DAY {
        return duration(secs);
    }
    let clock = at.to_zoned(TimeZone::UTC);
    clock.strftime("%b %d %H:%M").to_string()
}

/// A moment to come: the clock in UTC (`14:20Z`), with its day where that is another one.
pub fn clock(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_zoned(TimeZone::UTC), now.to_zoned(TimeZone::UTC));
    let form = if at.date() == now.date() {
        "%H:%MZ"
    } else {
        "%b %d %H:%MZ"
    };
    at.strftime(form).to_string()
}

/// A moment in full, in UTC: `2026-11-28 14:20:07Z`.
pub fn timestamp(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%d %H:%M:%SZ")
        .to_string()
}

/// An amount of bytes in binary units, at most three significant digits: `80Gi`, `1.5Gi`, `512Mi`.
pub fn bytes(n: i64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    #[allow(clippy::cast_precision_loss)]
    let mut size = n as f64;
    let mut unit = "";
    for next in UNITS {
        unit = next;
        if size.abs() < 999.5 || next == "Ei" {
            break;
        }
        size /= 1024.0;
    }
    format!("{}{unit}", amount(size))
}

/// Thousandths of a core: `500m` below one core, `64` or `1.5` from one on.
pub fn cpu(milli: i64) -> String {
    if milli.abs() < 1000 && milli != 0 {
        return format!("{milli}m");
    }
    #[allow(clippy::cast_precision_loss)]
    amount(milli as f64 / 1000.0)
}

/// Devices as a workload or pod asks for them: `8 gpu`, `2×1g.10gb`, `4 shared`, joined by ` + `;
/// empty when it asks for none.
pub fn ask(devices: &[(GpuResource, i64)]) -> String {
    let parts: Vec<String> = devices.iter().map(|d| device(d, usize::MAX)).collect();
    parts.join(" + ")
}

/// The same in at most `columns` columns: numbers are shortened, then further kinds counted.
pub fn ask_within(devices: &[(GpuResource, i64)], columns: usize) -> String {
    let full = ask(devices);
    if full.width() <= columns {
        return full;
    }
    let Some((first, rest)) = devices.split_first() else {
        return full;
    };
    let more = match rest.len() {
        0 => String::new(),
        n => format!(" +{n}"),
    };
    let shown = |digits| format!("{}{more}", device(first, digits));
    (3..7)
        .rev()
        .map(shown)
        .find(|text| text.width() <= columns)
        .unwrap_or_else(|| shown(3))
}

fn device((resource, n): &(GpuResource, i64), digits: usize) -> String {
    let n = count_within(*n, digits);
    match resource {
        GpuResource::Whole => format!("{n} gpu"),
        GpuResource::Shared => format!("{n} shared"),
        GpuResource::Mig(profile) => format!("{n}×{profile}"),
    }
}

/// Reads a length of time as a person writes it: `90` (seconds), `45s`, `12m`, `3h`, `5d`, `2w`.
pub fn parse_duration(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    #[allow(clippy::cast_precision_loss)]
    let unit = match text.get(number.len()..)? {
        "" | "s" => 1.0,
        "m" => MINUTE as f64,
        "h" => HOUR as f64,
        "d" => DAY as f64,
        "w" => 7.0 * DAY as f64,
        _ => return None,
    };
    plain_number(number).map(|n| n * unit)
}

/// Reads an amount of bytes as Kubernetes writes it: `80Gi`, `512Mi`, `1G`.
pub fn parse_bytes(text: &str) -> Option<f64> {
    let quantity: Quantity = text.parse().ok()?;
    #[allow(clippy::cast_precision_loss)]
    Some(quantity.units() as f64)
}

/// Reads a plain number, thousands separators allowed; no `inf`, `nan` or exponents.
pub fn plain_number(text: &str) -> Option<f64> {
    let digits: String = text.chars().filter(|c| *c != ',').collect();
    let plain = digits
        .strip_prefix('-')
        .unwrap_or(&digits)
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b'.');
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_and_amounts() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (6212, "6,212"),
            (-1_234_567, "-1,234,567"),
            (i64::MIN, "-9,223,372,036,854,775,808"),
        ] {
            assert_eq!(count(n), text);
        }
        for (x, text) in [
            (0.0, "0"),
            (-0.001, "0"),
            (6.625, "6.62"),
            (0.5, "0.5"),
            (9.999, "10"),
            (94.58, "94.6"),
            (99.97, "100"),
            (5903.0, "5,903"),
            (5903.4, "5,903"),
            (f64::NAN, "—"),
        ] {
            assert_eq!(amount(x), text, "{x}");
        }
        assert_eq!(count_or_unknown(None::<i64>), "—");
    }

    #[test]
    fn percentages_never_round_to_a_lie() {
        assert_eq!(percent_of(0, 8), Some(0));
        assert_eq!(percent_of(1, 1000), Some(1));
        assert_eq!(percent_of(999, 1000), Some(99));
        assert_eq!(percent_of(8, 8), Some(100));
        assert_eq!(percent_of(9, 8), Some(113));
        assert_eq!(percent_of(1, 0), None);
        assert_eq!(percent_of(i64::MAX, 1), None);
        assert_eq!(percent(0.95), "95.0%");
        assert_eq!(percent(0.9999), "99.9%");
        assert_eq!(percent(1.0), "100%");
    }

    #[test]
    fn times() {
        for (secs, text) in [
            (-5, "0s"),
            (45, "45s"),
            (720, "12m"),
            (3 * HOUR + 59, "3h"),
            (5 * DAY, "5d"),
        ] {
            assert_eq!(duration(secs), text);
        }
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let before = |secs| Some(Timestamp::from_second(1_800_000_000 - secs).unwrap());
        assert_eq!(moment(before(60), now), "1m");
        assert_eq!(moment(before(2 * DAY), now), "Jan 13 08:00");
        assert_eq!(moment(None, now), "—");
    }

    #[test]
    fn sizes_and_asks() {
        assert_eq!(bytes(80 << 30), "80Gi");
        assert_eq!(bytes(1_610_612_736), "1.5Gi");
        assert_eq!(bytes(1000), "0.98Ki");
        assert_eq!(bytes(i64::MAX), "8Ei");
        assert_eq!(cpu(500), "500m");
        assert_eq!(cpu(1500), "1.5");
        assert_eq!(
            ask(&[
                (GpuResource::Whole, 8),
                (GpuResource::Mig("1g.10gb".parse().unwrap()), 2)
            ]),
            "8 gpu + 2×1g.10gb"
        );
    }

    #[test]
    fn what_does_not_fit_is_shortened_and_numbers_are_never_cut() {
        assert_eq!(count_within(12_000, 6), "12,000");
        assert_eq!(count_within(12_000, 5), "12k");
        assert_eq!(count_within(2_000_000_000, 6), "2G");
        assert_eq!(count_within(-1_234_567, 6), "-1.23M");
        let asks = [
            (GpuResource::Whole, 12_000_000),
            (GpuResource::Mig("1g.10gb".parse().unwrap()), 2),
        ];
        assert_eq!(ask_within(&asks, 9), "12M gpu +1");
        assert_eq!(ask_within(&asks[..1], 9), "12M gpu");
        assert_eq!(ask_within(&[(GpuResource::Whole, 12_000)], 9), "12k gpu");
        assert_eq!(sentence_within("日本語", 5), "日本…");
        assert_eq!(sentence_within("abc", 3), "abc");
        assert_eq!(sentence_within("abc", 0), "");
    }

    #[test]
    fn what_people_type() {
        assert_eq!(parse_duration("2h"), Some(7200.0));
        assert_eq!(parse_duration("1.5d"), Some(129_600.0));
        assert_eq!(parse_duration("2y"), None);
        assert_eq!(parse_bytes("80Gi"), Some(85_899_345_920.0));
        assert_eq!(plain_number("6,212"), Some(6212.0));
        assert_eq!(plain_number("inf"), None);
        assert_eq!(plain_number(""), None);
    }

    proptest! {
        #[test]
        fn any_number_is_written(n in any::<i64>(), x in any::<f64>(), w in any::<i64>()) {
            prop_assert_eq!(count(n).replace(',', ""), n.to_string());
            prop_assert!(!amount(x).is_empty());
            prop_assert!(bytes(n).chars().count() <= 7, "{}", bytes(n));
            let _ = (percent(x), percent_of(n, w), duration(n), cpu(n));
        }

        #[test]
        fn amounts_have_three_significant_digits_or_are_whole(x in 0.0..1e6_f64) {
            let text = amount(x);
            let digits = text.trim_start_matches(['0', '.']).replace(['.', ','], "");
            prop_assert!(!text.contains('.') || digits.len() <= 3, "{x} {text}");
        }
    }
}
