//! A screen as a picture: plain SVG text, a run of cells of one style an element.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::paper::{Paper, Rgb, rgb};

/// Size of a cell in the picture's units, and where its text stands.
const WIDTH: usize = 8;
const HEIGHT: usize = 17;
const BASE: usize = 13;
/// Free space around the screen.
const MARGIN: usize = 8;

/// The screen as SVG. `light`: on light ground.
pub fn svg(buf: &Buffer, light: bool) -> String {
    let paper = Paper::of(light);
    let area = buf.area;
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let (width, height) = (columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, \
         Consolas, monospace\" font-size=\"13\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"{}\"/>",
        hex(paper.back)
    );
    for y in 0..area.height {
        let cells = (0..area.width).filter_map(|x| buf.cell((area.x + x, area.y + y)));
        let top = MARGIN + usize::from(y) * HEIGHT;
        for (at, run) in runs(cells) {
            draw(&mut out, paper, at, top, &run);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Cells next to each other of one style.
struct Run {
    ink: Color,
    back: Color,
    modifier: Modifier,
    text: String,
    cells: usize,
}

fn runs<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<(usize, Run)> {
    let mut all: Vec<(usize, Run)> = Vec::new();
    for (x, cell) in cells.enumerate() {
        let style = (cell.fg, cell.bg, cell.modifier);
        match all.last_mut() {
            Some((_, run)) if (run.ink, run.back, run.modifier) == style => {
                run.text.push_str(cell.symbol());
                run.cells += 1;
            }
            _ => all.push((
                x,
                Run {
                    ink: cell.fg,
                    back: cell.bg,
                    modifier: cell.modifier,
                    text: cell.symbol().to_owned(),
                    cells: 1,
                },
            )),
        }
    }
    all
}

fn draw(out: &mut String, paper: Paper, at: usize, top: usize, run: &Run) {
    let mut ink = rgb(run.ink).unwrap_or(paper.ink);
    let mut back = rgb(run.back);
    if run.modifier.contains(Modifier::REVERSED) {
        let ground = back.unwrap_or(paper.back);
        back = Some(std::mem::replace(&mut ink, ground));
    }
    let (x, width) = (MARGIN + at * WIDTH, run.cells * WIDTH);
    if let Some(back) = back.map(hex) {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{back}\"/>"
        );
    }
    if run.text.trim().is_empty() {
        return;
    }
    let mut style = String::new();
    if run.modifier.contains(Modifier::BOLD) {
        style.push_str(" font-weight=\"bold\"");
    }
    if run.modifier.contains(Modifier::ITALIC) {
        style.push_str(" font-style=\"italic\"");
    }
    if run.modifier.contains(Modifier::UNDERLINED) {
        style.push_str(" text-decoration=\"underline\"");
    }
    if run.modifier.contains(Modifier::DIM) {
        style.push_str(" opacity=\"0.6\"");
    }
    let ink = hex(ink);
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{}\" fill=\"{ink}\" textLength=\"{width}\" \
         lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\"{style}>{}</text>",
        top + BASE,
        escaped(&run.text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A colour as SVG writes it.
fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn a_screen_is_sound_svg_with_its_texts_and_colours() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 12, 2));
        buf.set_string(0, 0, "a<b & c", Style::new().fg(Color::Rgb(1, 2, 3)));
        let turned = Style::new()
            .fg(Color::Indexed(196))
            .add_modifier(Modifier::REVERSED);
        buf.set_string(0, 1, "hot", turned);
        let picture = svg(&buf, false);
        assert!(picture.contains("fill=\"#010203\""), "{picture}");
        assert!(picture.contains(">a&lt;b &amp; c</text>"), "{picture}");
        assert!(
            picture.contains("height=\"17\" fill=\"#ff0000\"/>"),
            "{picture}"
        );
        assert_eq!(
            picture.matches("<text ").count(),
            picture.matches("</text>").count()
        );
        assert!(svg(&buf, true).contains("fill=\"#ffffff\""));
    }
}
