//! A screen as a picture in PNG: texts in a font that comes along, so that it looks the same wherever
//! it is made.

use ab_glyph::{Font, FontRef, InvalidFont, PxScale, ScaleFont, point};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

use super::blocks;
use super::paper::{Paper, Rgb, rgb};

/// Size of a cell and of the margin around the screen, in pixels.
const WIDTH: u32 = 9;
const HEIGHT: u32 = 18;
const MARGIN: u32 = 8;
/// Height of the font in pixels, at which its letters are as wide as a cell.
const FONT_HEIGHT: f32 = 17.4;
/// Share of a letter's ink that is left of what is dim.
const DIM: f32 = 0.6;

static REGULAR: &[u8] = include_bytes!("../../../assets/DejaVuSansMono.ttf");
static BOLD: &[u8] = include_bytes!("../../../assets/DejaVuSansMono-Bold.ttf");

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PngFault {
    /// The font that comes along cannot be read.
    #[error("the font of pictures is broken: {0}")]
    Font(#[from] InvalidFont),
    /// The picture cannot be written.
    #[error("the picture cannot be written as PNG: {0}")]
    Encoding(#[from] png::EncodingError),
}

/// The screen as PNG. `light`: on light ground.
///
/// # Errors
/// See [`PngFault`].
pub fn png(buf: &Buffer, light: bool) -> Result<Vec<u8>, PngFault> {
    let fonts = Fonts {
        regular: FontRef::try_from_slice(REGULAR)?,
        bold: FontRef::try_from_slice(BOLD)?,
    };
    let paper = Paper::of(light);
    let area = buf.area;
    let mut canvas = Canvas::new(
        u32::from(area.width) * WIDTH + 2 * MARGIN,
        u32::from(area.height) * HEIGHT + 2 * MARGIN,
        paper.back,
    );
    for y in 0..area.height {
        let mut covered = 0;
        for x in 0..area.width {
            let Some(cell) = buf.cell((area.x + x, area.y + y)) else {
                continue;
            };
            let corner = (
                MARGIN + u32::from(x) * WIDTH,
                MARGIN + u32::from(y) * HEIGHT,
            );
            // The cell behind a wide sign is that sign's.
            let width = cell.symbol().width();
            if covered > 0 {
                covered -= 1;
                continue;
            }
            covered = width.saturating_sub(1);
            let cells = u32::try_from(width.max(1)).unwrap_or(1);
            draw(&mut canvas, &fonts, paper, corner, cells, cell);
        }
    }
    canvas.encode()
}

struct Fonts {
    regular: FontRef<'static>,
    bold: FontRef<'static>,
}

/// Pixels, three bytes each, row by row.
struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32, ground: Rgb) -> Self {
        let count = usize::try_from(u64::from(width) * u64::from(height)).unwrap_or(0);
        Canvas {
            width,
            height,
            pixels: ground.repeat(count),
        }
    }

    /// Covers a share of a pixel with ink.
    fn blend(&mut self, x: u32, y: u32, ink: Rgb, share: f32) {
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (u64::from(y) * u64::from(self.width) + u64::from(x)) * 3;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(pixel) = at
            .checked_add(3)
            .and_then(|end| self.pixels.get_mut(at..end))
        else {
            return;
        };
        for (old, new) in pixel.iter_mut().zip(ink) {
            let mixed = f32::from(*old) + (f32::from(new) - f32::from(*old)) * share;
            // In range: between two bytes.
            *old = mixed.round().clamp(0.0, 255.0) as u8;
        }
    }

    fn fill(&mut self, (left, top): (u32, u32), (width, height): (u32, u32), ink: Rgb, share: f32) {
        for y in top..top + height {
            for x in left..left + width {
                self.blend(x, y, ink, share);
            }
        }
    }

    fn encode(self) -> Result<Vec<u8>, PngFault> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(out)
    }
}

fn draw(
    canvas: &mut Canvas,
    fonts: &Fonts,
    paper: Paper,
    corner: (u32, u32),
    cells: u32,
    cell: &Cell,
) {
    let mut ink = rgb(cell.fg).unwrap_or(paper.ink);
    let mut back = rgb(cell.bg);
    if cell.modifier.contains(Modifier::REVERSED) {
        back = Some(std::mem::replace(&mut ink, back.unwrap_or(paper.back)));
    }
    let size = (WIDTH * cells, HEIGHT);
    if let Some(back) = back {
        canvas.fill(corner, size, back, 1.0);
    }
    let share = if cell.modifier.contains(Modifier::DIM) {
        DIM
    } else {
        1.0
    };
    let bold = cell.modifier.contains(Modifier::BOLD);
    for c in cell.symbol().chars() {
        sign(canvas, fonts, bold, corner, (cells, ink, share), c);
    }
    if cell.modifier.contains(Modifier::UNDERLINED) {
        let (x, y) = corner;
        canvas.fill((x, y + HEIGHT - 2), (size.0, 1), ink, share);
    }
}

/// Draws one character.
fn sign(
    canvas: &mut Canvas,
    fonts: &Fonts,
    bold: bool,
    (x, y): (u32, u32),
    (cells, ink, share): (u32, Rgb, f32),
    c: char,
) {
    if let Some(quarters) = blocks::shade(c) {
        for dy in 0..HEIGHT {
            for dx in 0..WIDTH {
                // A pattern of dots that goes on from cell to cell.
                let dot = match quarters {
                    1 => (x + dx + 2 * ((y + dy) % 2)).is_multiple_of(4),
                    2 => (x + dx + y + dy).is_multiple_of(2),
                    _ => !(x + dx + 2 * ((y + dy) % 2)).is_multiple_of(4),
                };
                if dot {
                    canvas.blend(x + dx, y + dy, ink, share);
                }
            }
        }
        return;
    }
    if let Some(parts) = blocks::parts(c) {
        for [left, top, right, bottom] in parts {
            let across = |eighths: u8| (WIDTH * u32::from(eighths) + 4) / 8;
            let down = |eighths: u8| (HEIGHT * u32::from(eighths) + 4) / 8;
            let size = (across(right) - across(left), down(bottom) - down(top));
            canvas.fill((x + across(left), y + down(top)), size, ink, share);
        }
        return;
    }
    if let Some(([up, right, down, left], thick)) = blocks::arms(c) {
        let thick = u32::from(thick);
        let (mx, my) = ((WIDTH - thick) / 2, (HEIGHT - thick) / 2);
        let mut arm = |is: bool, at: (u32, u32), size: (u32, u32)| {
            if is {
                canvas.fill((x + at.0, y + at.1), size, ink, share);
            }
        };
        arm(up, (mx, 0), (thick, my));
        arm(down, (mx, my), (thick, HEIGHT - my));
        arm(left, (0, my), (mx, thick));
        arm(right, (mx, my), (WIDTH - mx, thick));
        if !(down || right) {
            arm(true, (mx, my), (thick, thick));
        }
        return;
    }
    if c == ' ' || c.is_control() {
        return;
    }
    let font = if bold { &fonts.bold } else { &fonts.regular };
    let id = font.glyph_id(c);
    if id.0 == 0 {
        // A sign that the font lacks: an empty box.
        let (width, height) = (WIDTH * cells - 2, HEIGHT - 6);
        canvas.fill((x + 1, y + 3), (width, 1), ink, share / 2.0);
        canvas.fill((x + 1, y + 3 + height), (width, 1), ink, share / 2.0);
        canvas.fill((x + 1, y + 4), (1, height - 1), ink, share / 2.0);
        canvas.fill((x + width, y + 4), (1, height - 1), ink, share / 2.0);
        return;
    }
    let scaled = font.as_scaled(PxScale::from(FONT_HEIGHT));
    let base = y as f32 + scaled.ascent().round();
    let glyph = id.with_scale_and_position(PxScale::from(FONT_HEIGHT), point(x as f32, base));
    if let Some(outline) = font.outline_glyph(glyph) {
        let bounds = outline.px_bounds();
        let (left, top) = (bounds.min.x.max(0.0) as u32, bounds.min.y.max(0.0) as u32);
        outline.draw(|dx, dy, cover| {
            canvas.blend(left + dx, top + dy, ink, cover.min(1.0) * share);
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;

    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};

    use super::*;
    use crate::tui::glyphs::Glyph;

    /// Width, height and pixels of a picture.
    fn read(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    fn has(pixels: &[u8], colour: Rgb) -> bool {
        pixels.chunks_exact(3).any(|p| p == colour)
    }

    #[test]
    fn a_screen_is_a_picture_of_its_size_in_the_colours_of_its_styles() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 12, 2));
        buf.set_string(0, 0, "█ab", Style::new().fg(Color::Rgb(1, 2, 3)));
        let turned = Style::new()
            .fg(Color::Indexed(196))
            .add_modifier(Modifier::REVERSED);
        buf.set_string(0, 1, "hot", turned);
        let (width, height, pixels) = read(&png(&buf, false).unwrap());
        assert_eq!((width, height), (12 * 9 + 16, 2 * 18 + 16));
        assert!(has(&pixels, [1, 2, 3]), "the block has its colour");
        assert!(has(&pixels, [255, 0, 0]), "reverse fills the cell");
        assert!(!has(&pixels, [255, 255, 255]));
        let (_, _, pixels) = read(&png(&buf, true).unwrap());
        assert!(has(&pixels, [255, 255, 255]), "light ground");
    }

    /// The sign at the top left, as the pixels of its cell.
    fn cell(symbol: &str, modifier: Modifier) -> Vec<u8> {
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, 1));
        buf.set_string(0, 0, symbol, Style::new().add_modifier(modifier));
        read(&png(&buf, false).unwrap()).2
    }

    #[test]
    fn each_sign_of_the_console_is_drawn_and_bold_and_dim_differ() {
        let nothing = cell(" ", Modifier::empty());
        let missing = cell("\u{e000}", Modifier::empty());
        assert_ne!(missing, nothing, "a sign without a glyph is a box");
        for glyph in Glyph::ALL {
            let drawn = cell(glyph.pair().0, Modifier::empty());
            assert_ne!(drawn, nothing, "{glyph:?}");
            assert_ne!(drawn, missing, "{glyph:?} is not in the font");
        }
        let plain = cell("a", Modifier::empty());
        for modifier in [Modifier::BOLD, Modifier::DIM, Modifier::UNDERLINED] {
            assert_ne!(cell("a", modifier), plain, "{modifier:?}");
        }
        assert_ne!(
            cell("日x", Modifier::empty()),
            cell("日", Modifier::empty())
        );
    }
}
