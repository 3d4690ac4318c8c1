//! Every screen at every size.

use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::sample::{Desk, node};
use crate::tui::frame::Parts;
use crate::tui::glyphs::Glyphs;
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;

const PRESSES: &[&str] = &[
    "j",
    "G",
    "pgup",
    "enter",
    "esc",
    "/",
    "a",
    "n",
    "backspace",
    ":",
    "?",
    "s",
    "space",
    "v",
    "y",
    "c",
    "[",
    "]",
    "2",
    "1",
    "l",
    "tab",
    "down",
    "z",
    "ctrl-u",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_keys_at_any_size_draw_within_the_screen(
        width in 0u16..131,
        height in 0u16..46,
        nodes in 0usize..60,
        presses in prop::collection::vec(prop::sample::select(PRESSES), 0..12),
        ascii in any::<bool>(),
    ) {
        let mut desk = Desk::with(Settings::built_in(Depth::Ansi256, Glyphs { ascii }));
        desk.fill(nodes);
        desk.deltas(vec![node("日本語-e\u{301}-very-long-name-that-has-no-end-at-all-and-goes-on", 8)]);
        desk.size = (width, height);
        for press in presses {
            desk.press(press);
        }
        // A larger buffer than the screen: cells outside must stay as they were.
        let mut buf = Buffer::filled(Rect::new(0, 0, width + 3, height + 3), ratatui::buffer::Cell::new("~"));
        let area = Rect::new(0, 0, width, height);
        let mut inner = Buffer::empty(area);
        desk.app.render(area, &mut inner);
        buf.merge(&inner);
        prop_assert_eq!(inner.area, area);
        if ascii {
            prop_assert!(inner.content.iter().all(|c| c.symbol().is_ascii()));
        }
        prop_assert!(inner.content.iter().all(|c| !c.symbol().chars().any(char::is_control)));
    }

    #[test]
    fn parts_cover_the_screen_without_overlap(width in 0u16..300, height in 0u16..100) {
        let screen = Rect::new(0, 0, width, height);
        let p = Parts::of(screen);
        let sum: u16 = [p.header, p.upper_rule, p.view, p.lower_rule, p.footer]
            .iter()
            .map(|r| r.height)
            .sum();
        prop_assert_eq!(sum, height);
        prop_assert!(height == 0 || p.view.height > 0);
    }
}

#[test]
fn every_size_from_nothing_to_130_by_45() {
    let mut desk = Desk::of_nodes(40);
    for height in 0..=45 {
        for width in (0..=130).step_by(7).chain([1, 2, 3, 79, 80, 81]) {
            desk.size = (width, height);
            desk.screen();
        }
    }
}
