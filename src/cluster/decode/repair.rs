//! Makes JSON that a strict parser refuses readable: an object is worth more than its worst field.

/// Rewrites what stops `serde_json` although the structure is sound: numbers beyond the range of
/// a double become texts, lone surrogate escapes and raw control bytes in texts become `\ufffd`.
pub(super) fn repair(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() + 16);
    let mut rest = raw;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '"' => string(rest, &mut out),
            '-' | '0'..='9' => number(rest, &mut out),
            _ => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or("");
    }
    out
}

/// Copies a number, quoted if it does not fit a double; returns the bytes read.
fn number(rest: &str, out: &mut String) -> usize {
    let len = rest
        .bytes()
        .take_while(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
        .count();
    let text = rest.get(..len).unwrap_or("");
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        out.push_str(text);
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
    len
}

/// The UTF-16 unit of a `\uXXXX` escape at the start of `text`.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// Copies a text with its quotes; returns the bytes read.
fn string(rest: &str, out: &mut String) -> usize {
    out.push('"');
    let mut at = 1;
    while let Some(tail) = rest.get(at..) {
        let Some(c) = tail.chars().next() else { break };
        match c {
            '"' => {
                out.push('"');
                return at + 1;
            }
            '\\' => {
                let take = match unit(tail) {
                    Some(0xD800..=0xDBFF) => {
                        let low = tail.get(6..).and_then(unit);
                        if low.is_some_and(|u| (0xDC00..=0xDFFF).contains(&u)) {
                            out.push_str(tail.get(..12).unwrap_or(""));
                            12
                        } else {
                            out.push_str("\\ufffd");
                            6
                        }
                    }
                    Some(0xDC00..=0xDFFF) => {
                        out.push_str("\\ufffd");
                        6
                    }
                    _ => {
                        let pair: String = tail.chars().take(2).collect();
                        out.push_str(&pair);
                        pair.len()
                    }
                };
                at += take;
            }
            c => {
                if c.is_control() && u32::from(c) < 0x20 {
                    out.push_str("\\ufffd");
                } else {
                    out.push(c);
                }
                at += c.len_utf8();
            }
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_serde_json_refuses_becomes_readable() {
        let raw = "{\"a\":1e309,\"b\":-2.5e1,\"c\":\"x\\ud800y\\ud83d\\ude00\\\"\u{1}\",\"d\":[1,-9e999]}";
        assert!(serde_json::from_str::<serde_json::Value>(raw).is_err());
        let value: serde_json::Value = serde_json::from_str(&repair(raw)).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"a": "1e309", "b": -25.0, "c": "x\u{fffd}y😀\"\u{fffd}", "d": [1, "-9e999"]})
        );
    }

    #[test]
    fn sound_json_is_left_alone_and_broken_json_ends() {
        let raw = r#"{"a":"\u00e9\\","b":[null,true,1.5]}"#;
        assert_eq!(repair(raw), raw);
        for broken in ["\"", "\"\\", "\"\\u12", "-", "{\"a\":"] {
            repair(broken);
        }
    }
}
