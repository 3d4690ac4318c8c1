//! Lengths of time as people write them: `90s`, `1m30s`, `250ms`, `2h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a length of time looks like, for messages.
const FORM: &str = "a length of time such as 250ms, 90s, 1m30s or 2h is needed";
/// A hundred days: nothing here lasts longer, and no sum of two overflows.
const MOST_SECS: f64 = 8_640_000.0;

/// A length of time in seconds, from 0 to a hundred days.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Span(f64);

impl Span {
    /// So many seconds; values that are no length of time count as 0.
    pub fn from_secs(secs: f64) -> Self {
        Span(if secs.is_finite() {
            secs.clamp(0.0, MOST_SECS)
        } else {
            0.0
        })
    }

    /// A second.
    pub const fn second() -> Self {
        Span(1.0)
    }

    /// Seconds.
    pub fn secs(self) -> f64 {
        self.0
    }

    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or_default()
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no length of time; {FORM}",
                super::status::clip(text)
            )
        };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(wrong());
        }
        let mut secs = 0.0;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(wrong)?;
            let (number, behind) = rest.split_at(digits);
            let number: f64 = number.parse().map_err(|_| wrong())?;
            let end = behind
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(end);
            secs += number
                * match unit.trim() {
                    "ms" => 0.001,
                    "s" => 1.0,
                    "m" => 60.0,
                    "h" => 3_600.0,
                    _ => return Err(wrong()),
                };
            rest = behind;
        }
        if secs > MOST_SECS {
            return Err(format!("`{text}` is longer than a hundred days"));
        }
        Ok(Span(secs))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = (self.0 * 1_000.0).round() as u64;
        match millis {
            0 => f.write_str("0s"),
            ms if !ms.is_multiple_of(1_000) => write!(f, "{ms}ms"),
            ms if ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            ms => write!(f, "{}s", ms / 1_000),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, secs) in [
            ("250ms", 0.25),
            ("90s", 90.0),
            ("1m30s", 90.0),
            ("2h", 7_200.0),
            ("1.5h", 5_400.0),
            ("0s", 0.0),
        ] {
            let span: Span = text.parse().unwrap();
            assert!((span.secs() - secs).abs() < 1e-9, "{text}");
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        for text in [
            "", "5", "s", "-3s", "3 days", "1e9s", "..s", "9999999h", "NaNs",
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.contains("length of time") || error.contains("hundred days"));
        }
    }
}
