//! Breaking styled lines to a width, once for a text and not once a frame.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Breaks `line` into rows of at most `width` columns: after the last blank of the row where there
/// is one in its second half, else within a word. A grapheme wider than `width` is left out.
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
    let mut rows = Vec::new();
    let mut rest = pieces.as_slice();
    while !rest.is_empty() {
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
        let cut = match head.iter().rposition(|(g, _)| *g == " ") {
            Some(blank) if !tail.is_empty() && blank >= head.len() / 2 => blank + 1,
            _ => head.len(),
        };
        let (head, tail) = rest.split_at(cut);
        rows.push(join(head, line.style));
        rest = tail;
    }
    rows
}

/// Merges neighbours of one style.
fn join(pieces: &[(&str, Style)], style: Style) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
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
