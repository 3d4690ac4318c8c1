//! From a place in a TOML text to its line and key.

/// The line, from 1, and the key that `at` lies in, such as `pool[2].model`: elements of arrays of
/// tables are counted from 1. The key is empty at the top of a file.
pub(super) fn locate(text: &str, at: usize) -> (usize, String) {
    let mut tables: Vec<(String, usize)> = Vec::new();
    let mut header = String::new();
    // The key whose value is a text over several lines, and the quotes that end it.
    let mut open: Option<(String, &str)> = None;
    let mut begin = 0;
    let mut number = 0;
    for line in text.split_inclusive('\n') {
        number += 1;
        let end = begin + line.len();
        let is_last = at < end || end == text.len();
        if let Some((key, quotes)) = &open {
            if is_last {
                return (number, join(&header, key));
            }
            if line.contains(quotes) {
                open = None;
            }
            begin = end;
            continue;
        }
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            header = named(trimmed, &mut tables);
            if is_last {
                return (number, header);
            }
        } else {
            let key = key_at(line, at.saturating_sub(begin));
            if is_last {
                return (number, join(&header, &key));
            }
            for quotes in ["'''", "\"\"\""] {
                if line.matches(quotes).count() == 1 {
                    open = Some((first_key(line), quotes));
                }
            }
        }
        begin = end;
    }
    (number.max(1), header)
}

fn join(header: &str, key: &str) -> String {
    match (header.is_empty(), key.is_empty()) {
        (_, true) => header.to_owned(),
        (true, false) => key.to_owned(),
        (false, false) => format!("{header}.{key}"),
    }
}

/// `[a.b]` as `a.b`, the second `[[a]]` as `a[2]`.
fn named(header: &str, tables: &mut Vec<(String, usize)>) -> String {
    let is_array = header.starts_with("[[");
    let inner = header.trim_start_matches('[');
    let name = inner.split(']').next().unwrap_or_default().trim();
    if !is_array {
        return name.to_owned();
    }
    let number = match tables.iter_mut().find(|(table, _)| table == name) {
        Some((_, count)) => {
            *count += 1;
            *count
        }
        None => {
            tables.push((name.to_owned(), 1));
            1
        }
    };
    format!("{name}[{number}]")
}

fn first_key(line: &str) -> String {
    let key = line.split('=').next().unwrap_or_default().trim();
    if line.contains('=') && !key.starts_with('#') {
        key.trim_matches(['"', '\'']).to_owned()
    } else {
        String::new()
    }
}

/// The key of a line, with those of the inline table that `at` lies in.
fn key_at(line: &str, at: usize) -> String {
    let mut key = first_key(line);
    let value_at = line.find('=').map_or(line.len(), |equals| equals + 1);
    let Some(value) = line.get(value_at..) else {
        return key;
    };
    // The last `{` or `,` before the place begins the inner key.
    let upto = at.saturating_sub(value_at).min(value.len());
    let Some(before) = value.get(..upto) else {
        return key;
    };
    if !before.contains('{') {
        return key;
    }
    let start = before.rfind(['{', ',']).map_or(0, |found| found + 1);
    let inner = value.get(start..).unwrap_or_default();
    let inner = inner.split(['=', ',', '}']).next().unwrap_or_default();
    let inner = inner.trim().trim_matches(['"', '\'']);
    if !inner.is_empty() {
        key = join(&key, inner);
    }
    key
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "about = \"x\"\n\n[load]\ndemand = 2\n[[pool]]\nnodes = 1\n\
                        [[pool]]\nmodel = \"h1\"\n[[event]]\ncreate = '''\nkind: Pod\n[[x]]\n'''\n\
                        at = \"3m\"\n[[fault]]\ninject = { kind = \"a\", delay = 3 }\n";

    #[test]
    fn places_are_named() {
        let place = |needle: &str| locate(TEXT, TEXT.find(needle).unwrap());
        assert_eq!(place("\"x\""), (1, "about".into()));
        assert_eq!(place("2\n"), (4, "load.demand".into()));
        assert_eq!(place("\"h1\""), (8, "pool[2].model".into()));
        assert_eq!(place("kind: Pod"), (11, "event[1].create".into()));
        assert_eq!(place("\"3m\""), (14, "event[1].at".into()));
        assert_eq!(place("\"a\""), (16, "fault[1].inject.kind".into()));
        assert_eq!(place("3 }"), (16, "fault[1].inject.delay".into()));
        assert_eq!(locate(TEXT, 99_999).0, 16);
        assert_eq!(locate("", 0), (1, String::new()));
    }
}
