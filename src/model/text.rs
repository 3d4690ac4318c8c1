//! Text from the cluster is hostile: it is cleaned once, when it is decoded.

use std::borrow::Cow;
use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A shared, immutable, already cleaned text.
pub type Str = Arc<str>;

/// What a byte that must not reach a terminal is drawn as.
const REPLACEMENT: char = '\u{FFFD}';

/// Whether a character may reach a terminal as it is.
///
/// Refused are control characters (C0, DEL, C1), everything that reorders text (bidi controls),
/// zero-width characters, variation selectors and tags, and lines ends of Unicode.
fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{00AD}'
            | '\u{061C}'
            | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{3164}' | '\u{FFA0}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}'))
}

/// Makes `raw` safe to draw and bounds it to `max_chars` characters (a cut is marked by `…`).
///
/// Line breaks and tabs become blanks; each run of other refused characters becomes one `�`; more
/// than two combining marks in a row are dropped.
pub fn clean(raw: &str, max_chars: usize) -> Cow<'_, str> {
    let plain = raw.bytes().all(|b| (0x20..0x7f).contains(&b)) && raw.len() <= max_chars;
    if plain {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len().min(max_chars * 4));
    let mut chars = 0;
    let mut replaced = false;
    let mut marks = 0;
    for c in raw.chars() {
        let next = match c {
            '\n' | '\r' | '\t' => ' ',
            c if is_plain(c) => c,
            _ => {
                if replaced {
                    continue;
                }
                REPLACEMENT
            }
        };
        replaced = next == REPLACEMENT;
        if unicode_width::UnicodeWidthChar::width(next) == Some(0) {
            marks += 1;
            if marks > 2 {
                continue;
            }
        } else {
            marks = 0;
        }
        if chars == max_chars {
            out.push('…');
            return Cow::Owned(out);
        }
        out.push(next);
        chars += 1;
    }
    Cow::Owned(out)
}

/// Shortens `text` to `columns` terminal columns by taking out its middle (`train-llm…-7b-3`):
/// the ends of a name tell more than its middle.
pub fn truncate_middle(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let budget = columns - 1;
    let head_columns = budget.div_ceil(2);
    let tail_columns = budget - head_columns;
    let mut head = String::new();
    let mut used = 0;
    for g in text.graphemes(true) {
        if used + g.width() > head_columns {
            break;
        }
        used += g.width();
        head.push_str(g);
    }
    let mut tail: Vec<&str> = Vec::new();
    let mut used = 0;
    for g in text.graphemes(true).rev() {
        if used + g.width() > tail_columns {
            break;
        }
        used += g.width();
        tail.push(g);
    }
    head.push('…');
    head.extend(tail.into_iter().rev());
    Cow::Owned(head)
}

/// A text whose bytes order so that numbers in it count as numbers: each has its length before it, in
/// the place of its first digit.
pub fn natural_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + 4);
    let mut rest = name;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (text, from) = rest.split_at(at);
        let end = from
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        let number = number.trim_start_matches('0');
        key.push_str(text);
        key.push('0');
        // Names are at most 253 bytes long; that a longer number orders otherwise does no harm.
        let length = u32::try_from(number.len()).unwrap_or(u32::MAX);
        key.push(char::from_u32(length + 1).unwrap_or(char::MAX));
        key.push_str(number);
        rest = after;
    }
    key.push_str(rest);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bidi_and_zero_width_never_pass() {
        let raw = "ansi\u{1b}[31mRED\u{1b}[0m\u{202e}gpj.exe\u{200b}\u{7}\u{9b}x\u{fe0f}";
        let safe = clean(raw, 200);
        assert!(
            safe.chars().all(|c| c == REPLACEMENT || is_plain(c)),
            "{safe:?}"
        );
        assert_eq!(clean("a\nb\tc", 10), "a b c");
    }

    #[test]
    fn long_text_is_bounded_and_says_so() {
        assert_eq!(clean("abcdef", 4), "abcd…");
        assert_eq!(clean("é".repeat(9).as_str(), 4), "éééé…");
        assert_eq!(
            clean(&format!("e{}", "\u{301}".repeat(50)), 100),
            "e\u{301}\u{301}"
        );
    }

    #[test]
    fn middle_goes_first() {
        assert_eq!(truncate_middle("train-llm-7b-3", 9), "trai…7b-3");
        assert_eq!(truncate_middle("日本語テスト", 5), "日…ト");
        assert_eq!(truncate_middle("ab", 0), "");
        for columns in 0..20 {
            assert!(truncate_middle("日本語テストabc", columns).width() <= columns);
        }
    }
}
