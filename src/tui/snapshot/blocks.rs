//! Block elements and lines of boxes as rectangles of a cell: cells that touch must leave no gap, which
//! the glyphs of a font would.

/// A part of a cell, in eighths of its width and height: left, top, right, bottom.
pub(super) type Part = [u8; 4];

/// How densely a shaded cell is dotted, in quarters.
pub(super) fn shade(c: char) -> Option<u8> {
    Some(match c {
        '░' => 1,
        '▒' => 2,
        '▓' => 3,
        _ => return None,
    })
}

/// The parts that are filled; `None`: the font draws it.
pub(super) fn parts(c: char) -> Option<Vec<Part>> {
    let code = u32::from(c);
    let eighths = |from: u32| u8::try_from(code - from).unwrap_or(0);
    Some(match c {
        '█' => vec![[0, 0, 8, 8]],
        '▀' => vec![[0, 0, 8, 4]],
        '▔' => vec![[0, 0, 8, 1]],
        '▐' => vec![[4, 0, 8, 8]],
        '▕' => vec![[7, 0, 8, 8]],
        '▁'..='▇' => vec![[0, 8 - eighths(0x2580), 8, 8]],
        '▉'..='▏' => vec![[0, 0, 8 - eighths(0x2588), 8]],
        '▖'..='▟' => quadrants(c),
        _ => return None,
    })
}

/// Upper left, upper right, lower left, lower right.
fn quadrants(c: char) -> Vec<Part> {
    const ALL: [Part; 4] = [[0, 0, 4, 4], [4, 0, 8, 4], [0, 4, 4, 8], [4, 4, 8, 8]];
    let filled = match c {
        '▖' => [false, false, true, false],
        '▗' => [false, false, false, true],
        '▘' => [true, false, false, false],
        '▙' => [true, false, true, true],
        '▚' => [true, false, false, true],
        '▛' => [true, true, true, false],
        '▜' => [true, true, false, true],
        '▝' => [false, true, false, false],
        '▞' => [false, true, true, false],
        _ => [false, true, true, true],
    };
    let parts = ALL.into_iter().zip(filled);
    parts.filter(|(_, is)| *is).map(|(part, _)| part).collect()
}

/// The arms of a line of a box from the middle of the cell (up, right, down, left) and how wide they
/// are; `None`: it is none.
pub(super) fn arms(c: char) -> Option<([bool; 4], u8)> {
    Some(match c {
        '─' => ([false, true, false, true], 1),
        '│' => ([true, false, true, false], 1),
        '┃' => ([true, false, true, false], 3),
        '┌' => ([false, true, true, false], 1),
        '┐' => ([false, false, true, true], 1),
        '└' => ([true, true, false, false], 1),
        '┘' => ([true, false, false, true], 1),
        '├' => ([true, true, true, false], 1),
        '┤' => ([true, false, true, true], 1),
        '┬' => ([false, true, true, true], 1),
        '┴' => ([true, true, false, true], 1),
        '┼' => ([true, true, true, true], 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tui::glyphs::Glyph;

    #[test]
    fn each_block_and_line_of_the_console_is_drawn_whole() {
        for glyph in Glyph::ALL {
            let c = glyph.pair().0.chars().next().unwrap();
            let is_block = ('\u{2500}'..='\u{259f}').contains(&c);
            let is_drawn = shade(c).is_some() || parts(c).is_some() || arms(c).is_some();
            assert_eq!(is_drawn, is_block, "{c}");
        }
        assert_eq!(parts('▃'), Some(vec![[0, 5, 8, 8]]));
        assert_eq!(parts('▎'), Some(vec![[0, 0, 2, 8]]));
        assert_eq!(parts('▞').unwrap(), [[4, 0, 8, 4], [0, 4, 4, 8]]);
    }
}
