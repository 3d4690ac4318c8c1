//! The colours of pictures: a terminal's own, and what each colour of a style is in red, green, blue.

use ratatui::style::Color;

/// Red, green and blue.
pub(super) type Rgb = [u8; 3];

/// Colours that a terminal has by itself.
#[derive(Clone, Copy)]
pub(super) struct Paper {
    /// Of text without a colour.
    pub(super) ink: Rgb,
    /// Of the ground.
    pub(super) back: Rgb,
}

const DARK: Paper = Paper {
    ink: [0xd4, 0xd8, 0xde],
    back: [0x15, 0x18, 0x1d],
};
const LIGHT: Paper = Paper {
    ink: [0x24, 0x29, 0x2f],
    back: [0xff, 0xff, 0xff],
};

impl Paper {
    /// On light ground, or on dark.
    pub(super) fn of(light: bool) -> Self {
        if light { LIGHT } else { DARK }
    }
}

/// The sixteen colours of ANSI, as widely used terminals draw them.
const ANSI: [Rgb; 16] = [
    [0x00, 0x00, 0x00],
    [0xcd, 0x31, 0x31],
    [0x0d, 0xbc, 0x79],
    [0xe5, 0xe5, 0x10],
    [0x24, 0x72, 0xc8],
    [0xbc, 0x3f, 0xbc],
    [0x11, 0xa8, 0xcd],
    [0xe5, 0xe5, 0xe5],
    [0x66, 0x66, 0x66],
    [0xf1, 0x4c, 0x4c],
    [0x23, 0xd1, 0x8b],
    [0xf5, 0xf5, 0x43],
    [0x3b, 0x8e, 0xea],
    [0xd6, 0x70, 0xd6],
    [0x29, 0xb8, 0xdb],
    [0xff, 0xff, 0xff],
];

/// What a colour is; `None`: the terminal's own.
pub(super) fn rgb(colour: Color) -> Option<Rgb> {
    let ansi = |n: usize| ANSI.get(n).copied();
    match colour {
        Color::Reset => None,
        Color::Rgb(r, g, b) => Some([r, g, b]),
        Color::Indexed(n @ 0..=15) => ansi(n.into()),
        Color::Indexed(n @ 16..=231) => {
            let step = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let n = n - 16;
            Some([step(n / 36), step(n / 6 % 6), step(n % 6)])
        }
        Color::Indexed(n) => Some([8 + 10 * (n - 232); 3]),
        Color::Black => ansi(0),
        Color::Red => ansi(1),
        Color::Green => ansi(2),
        Color::Yellow => ansi(3),
        Color::Blue => ansi(4),
        Color::Magenta => ansi(5),
        Color::Cyan => ansi(6),
        Color::Gray => ansi(7),
        Color::DarkGray => ansi(8),
        Color::LightRed => ansi(9),
        Color::LightGreen => ansi(10),
        Color::LightYellow => ansi(11),
        Color::LightBlue => ansi(12),
        Color::LightMagenta => ansi(13),
        Color::LightCyan => ansi(14),
        Color::White => ansi(15),
    }
}
