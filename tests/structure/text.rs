//! Just enough reading of Rust text: no comments, no literals, paths and words.

/// The text with comments and the insides of literals blanked out; lines keep their number.
pub(crate) fn without_comments_and_literals(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut i = 0;
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    while i < chars.len() {
        let end = match at(i) {
            '/' if at(i + 1) == '/' => (i..chars.len()).find(|k| at(*k) == '\n'),
            '/' if at(i + 1) == '*' => Some(end_of_block_comment(&chars, i)),
            '"' => Some(end_of_string(&chars, i)),
            'r' if !is_word(at(i.wrapping_sub(1))) || at(i.wrapping_sub(1)) == 'b' => {
                end_of_raw_string(&chars, i).or(Some(i))
            }
            // A character literal; a lifetime has no closing quote there.
            '\'' if at(i + 1) == '\\' => {
                (i + 3..chars.len()).find(|k| at(*k) == '\'').map(|k| k + 1)
            }
            '\'' if at(i + 2) == '\'' => Some(i + 3),
            _ => Some(i),
        };
        let end = end.unwrap_or(chars.len());
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            out.push(' ');
            out.extend((i..end).map(at).filter(|c| *c == '\n'));
            i = end;
        }
    }
    out
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let quote = start + 1 + hashes;
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    (quote + 1..chars.len())
        .find(|k| {
            chars[*k] == '"' && chars[*k + 1..].iter().take_while(|c| **c == '#').count() >= hashes
        })
        .map(|k| k + 1 + hashes)
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A path that starts at `root` (`crate` or a chain of `super`): its first two segments after
/// that and its line.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct UsedPath {
    pub(crate) first: String,
    /// Empty when the path ends with the first.
    pub(crate) second: String,
    pub(crate) line: usize,
}

/// All paths in blanked text that start with `root::`, groups in braces spread out.
pub(crate) fn paths(text: &str, root: &str) -> Vec<UsedPath> {
    let mut found = Vec::new();
    let wanted = format!("{root}::");
    for (at, _) in text.match_indices(&wanted) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':' || c == '$') {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        for (first, rest) in heads(&text[at + wanted.len()..]) {
            let seconds = match rest.strip_prefix("::") {
                Some(rest) => heads(rest).into_iter().map(|(s, _)| s).collect(),
                None => vec![String::new()],
            };
            found.extend(seconds.into_iter().map(|second| UsedPath {
                first: first.clone(),
                second,
                line,
            }));
        }
    }
    found
}

/// The first segments of a use tree, each with the text that follows it.
fn heads(text: &str) -> Vec<(String, &str)> {
    let text = text.trim_start();
    if let Some(inside) = text.strip_prefix('{') {
        let mut found = Vec::new();
        let mut depth = 0;
        let mut start = 0;
        for (i, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                '}' => {
                    found.extend(heads(&inside[start..i]));
                    return found;
                }
                ',' if depth == 0 => {
                    found.extend(heads(&inside[start..i]));
                    start = i + 1;
                }
                _ => {}
            }
        }
        return found;
    }
    if text.is_empty() {
        return Vec::new();
    }
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    if end == 0 {
        // A glob.
        return vec![("*".to_owned(), "")];
    }
    vec![(text[..end].to_owned(), &text[end..])]
}

/// Lines of blanked text that hold `word` as a whole word (or path).
pub(crate) fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let mut lines: Vec<usize> = text
        .match_indices(word)
        .filter(|(at, _)| {
            let before = text[..*at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
        .map(|(at, _)| text[..at].matches('\n').count() + 1)
        .collect();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let source = "a // crate::tui\n/* b /* c */\n */ d \"crate::\\\"x\" r#\"e\"f\"# 'g' '\\'' h<'i> br\"j\"";
        let text = without_comments_and_literals(source);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words, ["a", "d", "h<'i>", "b"]);
        assert_eq!(text.matches('\n').count(), 2, "lines stay");
    }

    #[test]
    fn use_trees_are_spread_out() {
        let text = "use crate::{model::{Pod, Node}, plan::*, tui};\nlet x = crate::app::run(); $crate::no; my_crate::no";
        let found: Vec<(String, String, usize)> = paths(text, "crate")
            .into_iter()
            .map(|p| (p.first, p.second, p.line))
            .collect();
        let expected = [
            ("model", "Pod", 1),
            ("model", "Node", 1),
            ("plan", "*", 1),
            ("tui", "", 1),
            ("app", "run", 2),
        ];
        assert_eq!(
            found,
            expected.map(|(a, b, l)| (a.to_owned(), b.to_owned(), l))
        );
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            lines_with("unsafe_code\nunsafe {\nnot_unsafe", "unsafe"),
            [2]
        );
        assert_eq!(
            lines_with("Instant::nower\nx Instant::now()", "Instant::now"),
            [2]
        );
    }
}
