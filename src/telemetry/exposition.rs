//! Prometheus' text format, as far as dcgm-exporter uses and breaks it.
//!
//! Source: the exposition format 0.0.4 of prometheus.io. A line that is not sound is left out and
//! counted; the rest of the page is read.

use std::borrow::Cow;

/// One sample.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample<'a> {
    /// Metric.
    pub name: &'a str,
    /// Labels in their order.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Value; may be NaN or infinite.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label that is there and not empty.
    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(k, _)| *k == key);
        found.map(|(_, v)| &**v).filter(|v| !v.is_empty())
    }
}

/// Reads a page; the second value counts lines that are neither samples nor comments.
pub fn samples<'a>(text: &'a str, mut each: impl FnMut(Sample<'a>)) -> u32 {
    let mut faults = 0;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match sample(line) {
            Some(sample) => each(sample),
            None => faults += 1,
        }
    }
    faults
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(|c| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    // A timestamp may follow; whatever else does makes the value no number.
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let stamp = words.next();
    if stamp.is_some_and(|s| s.parse::<i64>().is_err()) || words.next().is_some() {
        return None;
    }
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// Labels up to the closing brace, and what is behind it.
type Labels<'a> = (Vec<(&'a str, Cow<'a, str>)>, &'a str);

fn labels(mut rest: &str) -> Option<Labels<'_>> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let end = rest.find(|c| !is_name(c))?;
        let (key, after) = rest.split_at(end);
        let after = after.trim_start().strip_prefix('=')?.trim_start();
        let (value, after) = quoted(after.strip_prefix('"')?)?;
        if key.is_empty() {
            return None;
        }
        labels.push((key, value));
        rest = after;
    }
}

/// A text up to its closing quote, and what is behind that.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let plain = text.find(['"', '\\'])?;
    if text.get(plain..)?.starts_with('"') {
        return Some((Cow::Borrowed(text.get(..plain)?), text.get(plain + 1..)?));
    }
    let mut out = String::with_capacity(text.len().min(256));
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(out), text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (Vec<Sample<'_>>, u32) {
        let mut all = Vec::new();
        let faults = samples(text, |s| all.push(s));
        (all, faults)
    }

    #[test]
    fn odd_but_sound_lines_are_read() {
        let (all, faults) = read(
            "# HELP a b\n\n  a{x=\"1\", y=\"q \\\" b \\\\ n \\n\",} 1e3 1796040000000\nb 2\nc {} NaN\n",
        );
        assert_eq!(faults, 0);
        assert_eq!(all[0].label("y"), Some("q \" b \\ n \n"));
        assert_eq!((all[0].value, all[1].value), (1000.0, 2.0));
        assert!(all[2].value.is_nan());
    }

    #[test]
    fn broken_lines_are_counted_and_left_out() {
        for line in [
            "a{x=\"1\" 2",
            "a{x=1} 2",
            "a{x=\"1\"} ERROR - FAILED TO CONVERT",
            "a{x=\"1\"}",
            "{x=\"1\"} 2",
            "a 1 2 3",
            "a{=\"1\"} 2",
            "a{x=\"1\\",
        ] {
            let (all, faults) = read(line);
            assert_eq!((all.len(), faults), (0, 1), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a{}=\"\\\\ ,0-9.#\n_é]{0,60}") {
            read(&text);
        }
    }
}
