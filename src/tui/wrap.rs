//! Breaking styled lines to a width, once for a text and not once a frame.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Breaks `line` into rows of at most `width` columns: after the last blank of the row where there
/// is one in its second half, else within a word. Further rows begin below the last column of the
/// line (where blanks of two or more end), if that is in its first half. A grapheme wider than
/// `width` is left out.
pub(super) fn wrap(line: &Line<'static>, width: usize) -> Vec<Line<'static>> {
    if width == 0 {
        return Vec::new();
    }
    if line.width() <= width {
        return vec![line.clone()];
    }
    let pieces: Vec<(&str, Style)> = line
        .spans
        .iter()
        .flat_map(|s| s.content.graphemes(true).map(|g| (g, s.style)))
        .filter(|(g, _)| g.width() <= width)
        .collect();
    let hang = hang(&line.to_string(), width);
    let mut rows = Vec::new();
    let mut rest = pieces.as_slice();
    while !rest.is_empty() {
        let indent = if rows.is_empty() { 0 } else { hang };
        let width = width - indent;
        let mut columns = 0;
        let fits = rest
            .iter()
            .take_while(|(g, _)| {
                columns += g.width();
                columns <= width
            })
            .count()
            .max(1);
        let (head, tail) = rest.split_at(fits.min(rest.len()));
        if tail.first().is_some_and(|(g, _)| *g == " ") {
            rows.push(join(indent, head, line.style));
            rest = tail.get(1..).unwrap_or_default();
            continue;
        }
        let cut = match head.iter().rposition(|(g, _)| *g == " ") {
            Some(blank) if !tail.is_empty() && blank >= head.len() / 2 => blank + 1,
            _ => head.len(),
        };
        let (head, tail) = rest.split_at(cut);
        rows.push(join(indent, head, line.style));
        rest = tail;
    }
    rows
}

/// Where further rows begin.
fn hang(text: &str, width: usize) -> usize {
    let mut hang = 0;
    let (mut at, mut blanks) = (0, 0);
    for g in text.graphemes(true) {
        if at > width / 2 {
            break;
        }
        if g == " " {
            blanks += 1;
        } else {
            if blanks >= 2 {
                hang = at;
            }
            blanks = 0;
        }
        at += g.width();
    }
    hang.min(width / 2)
}

/// Merges neighbours of one style.
fn join(indent: usize, pieces: &[(&str, Style)], style: Style) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    if indent > 0 {
        spans.push(Span::raw(" ".repeat(indent)));
    }
    for (text, style) in pieces {
        match spans.last_mut().filter(|s| s.style == *style) {
            Some(last) => last.content.to_mut().push_str(text),
            None => spans.push(Span::styled((*text).to_owned(), *style)),
        }
    }
    Line::from(spans).style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &'static str, width: usize) -> Vec<String> {
        wrap(&Line::from(text), width)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn breaks_at_blanks_and_within_long_words() {
        assert_eq!(rows("one two three", 8), ["one two ", "three"]);
        assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("", 4), [""]);
        assert!(rows("abc", 0).is_empty());
        assert_eq!(rows("key  one two six", 12), ["key  one two", "     six"]);
        assert_eq!(rows("    abcdefghijkl", 10), ["    abcdef", "    ghijkl"]);
    }

    #[test]
    fn wide_text_never_passes_the_width() {
        for width in 1..9 {
            for row in rows("日本語 abc テスト e\u{301}e\u{301}", width) {
                assert!(row.width() <= width, "{row:?} at {width}");
            }
        }
    }
}
