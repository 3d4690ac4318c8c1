//! The samples on the screen: each watched object of every file, hostile ones among them, is in
//! the console's picture, and no cell of any view holds what a terminal would act on.

use gpudeck::cluster::decode::Decoder;
use gpudeck::model::{Delta, Kind, SourceReport, SourceState};
use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::theme::Depth;
use gpudeck::tui::view::ViewId;
use gpudeck::tui::{App, Msg, Session, Settings, views};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::samples::{assert_plain, files, kind_of, objects};

/// Every sample as the watchers tell it, and how many could not be read.
fn deltas(at: Timestamp) -> (Vec<Delta>, usize) {
    let mut decoder = Decoder::new();
    let mut deltas: Vec<Delta> = Kind::ALL
        .into_iter()
        .map(|kind| {
            Delta::Source(SourceReport {
                kind,
                namespace: None,
                state: SourceState::Live,
                at,
            })
        })
        .collect();
    let mut unread = 0;
    for path in files() {
        for object in objects(&path) {
            let Some(kind) = kind_of(&object) else {
                continue;
            };
            deltas.push(match decoder.decode(kind, &object.to_string()) {
                Ok(object) => object.into_set(),
                Err(what) => {
                    unread += 1;
                    Delta::Unreadable { kind, what }
                }
            });
        }
    }
    (deltas, unread)
}

/// Draws a frame and looks at each of its cells.
fn look(app: &mut App, context: &str) {
    let area = Rect::new(0, 0, 200, 60);
    let mut buffer = Buffer::empty(area);
    app.render(area, &mut buffer);
    for cell in &buffer.content {
        assert_plain(cell.symbol(), context);
    }
}

#[test]
fn no_view_shows_what_a_terminal_would_act_on() {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let (deltas, unread) = deltas(now);
    assert!(deltas.len() > 150, "only {} objects", deltas.len());
    for ascii in [false, true] {
        let settings = Settings::built_in(Depth::True, Glyphs { ascii });
        let mut app = App::new(settings, Session::default(), views::all(), now);
        let generation = app.world().session.generation;
        app.update(
            Msg::Deltas {
                generation,
                deltas: deltas.clone(),
            },
            now,
        );
        assert_eq!(app.world().cluster.unreadable().count(), unread);
        for id in ViewId::ALL {
            assert!(app.open_view(id));
            look(&mut app, id.name());
            // Each row comes under the cursor and is described.
            for row in 0..if ascii { 1 } else { 80 } {
                app.update(Msg::Key("d".parse().unwrap()), now);
                look(&mut app, &format!("{} row {row}", id.name()));
                for key in ["esc", "j"] {
                    app.update(Msg::Key(key.parse().unwrap()), now);
                }
            }
        }
    }
}
