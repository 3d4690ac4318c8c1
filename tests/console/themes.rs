//! Whether the built-in themes can be read on the backgrounds that they are made for.

use gpudeck::tui::theme::{Depth, Meaning, Theme};
use gpudeck::tui::view::{Motion, ViewId};
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier, Style};

use crate::fixture;
use crate::screen::{Stage, TRUE, view};

struct Page {
    theme: &'static str,
    /// Backgrounds that terminals of this kind have.
    backgrounds: &'static [u32],
    /// The terminal's own text.
    ink: u32,
    /// Contrast (WCAG 2.2) of what is read, and of what is only seen: rules, dots, what is off.
    read: f64,
    seen: f64,
}

const PAGES: [Page; 3] = [
    Page {
        theme: "dark",
        backgrounds: &[0x00_0000, 0x1e_1e1e],
        ink: 0xe5_e5e5,
        read: 4.5,
        seen: 3.0,
    },
    Page {
        theme: "light",
        backgrounds: &[0xff_ffff, 0xfa_fafa],
        ink: 0x00_0000,
        read: 4.5,
        seen: 3.0,
    },
    Page {
        theme: "high-contrast",
        backgrounds: &[0x00_0000],
        ink: 0xe5_e5e5,
        read: 7.0,
        seen: 7.0,
    },
];

/// Relative luminance, WCAG 2.2.
fn luminance(rgb: u32) -> f64 {
    let channel = |shift: u32| {
        let value = f64::from((rgb >> shift) & 0xff) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
}

fn contrast(a: u32, b: u32) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn rgb(color: Option<Color>, default: u32) -> u32 {
    match color {
        Some(Color::Rgb(r, g, b)) => u32::from_be_bytes([0, r, g, b]),
        None | Some(Color::Reset) => default,
        other => panic!("{other:?} is of the terminal's choice"),
    }
}

fn theme(page: &Page) -> Theme {
    Theme::built_in(page.theme, Depth::True).unwrap()
}

#[test]
fn every_meaning_can_be_read_also_under_the_cursor() {
    for page in &PAGES {
        let theme = theme(page);
        let selection = theme.style(Meaning::Selection);
        for background in page.backgrounds {
            for meaning in Meaning::ALL {
                let quiet = matches!(
                    meaning,
                    Meaning::Rule | Meaning::Disabled | Meaning::Free | Meaning::Dim
                );
                let limit = if quiet { page.seen } else { page.read };
                let name = format!("{} {meaning:?} on {background:06x}", page.theme);
                let of =
                    |style: Style| contrast(rgb(style.fg, page.ink), rgb(style.bg, *background));
                let style = theme.style(*meaning);
                assert!(of(style) >= limit, "{name}: {:.2} < {limit}", of(style));
                // On the selected row, which is bold as well.
                let selected = of(style.patch(selection));
                assert!(selected >= limit / 1.5, "{name}, selected: {selected:.2}");
            }
        }
    }
}

/// The colour that most of a cell has.
fn colour(cell: &Cell, page: &Page) -> u32 {
    let style = cell.style();
    let full = cell.symbol() == "█";
    if full != style.add_modifier.contains(Modifier::REVERSED) {
        rgb(style.fg, page.ink)
    } else {
        rgb(style.bg, page.backgrounds[0])
    }
}

#[test]
fn the_cursor_on_the_map_is_seen_on_full_and_on_free_cells() {
    for page in &PAGES {
        let mut stage = Stage::new(fixture::cluster(), TRUE);
        stage.theme = theme(page);
        let mut fleet = view(ViewId::Fleet);
        let mut at = (9, 0);
        let used = rgb(stage.theme.style(Meaning::Used).fg, page.ink);
        stage.draw(&mut *fleet, 120, 30);
        for symbol in ["█", "·"] {
            if symbol == "·" {
                for motion in [Motion::Down; 4].into_iter().chain([Motion::Right; 2]) {
                    fleet.motion(motion);
                }
                at = (11, 4);
            }
            let buf = stage.draw(&mut *fleet, 120, 30);
            let cell = &buf[at];
            assert_eq!(cell.symbol(), symbol);
            let colour = colour(cell, page);
            let (from_page, from_used) = (
                contrast(colour, page.backgrounds[0]),
                contrast(colour, used),
            );
            assert!(from_page >= 3.0, "{} {symbol}: {from_page:.2}", page.theme);
            assert!(from_used >= 1.25, "{} {symbol}: {from_used:.2}", page.theme);
        }
    }
}
