//! The whole console over the cluster of the pictures: keys in, frames and side effects out.

use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::session::Leader;
use gpudeck::tui::theme::Depth;
use gpudeck::tui::view::{Target, ViewId};
use gpudeck::tui::{App, Cmd, Msg, Session, Settings, views};
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::fixture;
use crate::screen::text;

struct Desk {
    app: App,
    area: Rect,
}

impl Desk {
    fn new(width: u16, height: u16, ascii: bool) -> Self {
        let settings = Settings::built_in(Depth::True, Glyphs { ascii });
        let session = Session {
            context: "prod-eu1".into(),
            contexts: vec!["prod-eu1".into(), "lab".into()],
            read_only: true,
            ..Session::default()
        };
        let mut desk = Desk {
            app: App::new(settings, session, views::all(), fixture::now()),
            area: Rect::new(0, 0, width, height),
        };
        desk.tell(Msg::Deltas {
            generation: 0,
            deltas: fixture::deltas(),
        });
        desk.tell(Msg::Leader(Leader::Other {
            holder: "gpudeck-7f".into(),
            standby: true,
        }));
        desk
    }

    fn tell(&mut self, msg: Msg) -> Vec<Cmd> {
        let cmds = self.app.update(msg, fixture::now());
        self.draw();
        cmds
    }

    fn press(&mut self, keys: &str) -> Vec<Cmd> {
        keys.split_whitespace()
            .flat_map(|k| self.tell(Msg::Key(k.parse().unwrap())))
            .collect()
    }

    fn typed(&mut self, text: &str) {
        for c in text.chars() {
            let key = if c == ' ' {
                "space".to_owned()
            } else {
                c.to_string()
            };
            self.press(&key);
        }
    }

    fn draw(&mut self) -> Buffer {
        let mut buf = Buffer::empty(self.area);
        self.app.render(self.area, &mut buf);
        buf
    }

    fn screen(&mut self) -> String {
        text(&self.draw())
    }

    fn view(&self) -> ViewId {
        self.app.view().unwrap().id()
    }
}

#[test]
fn whole_screens() {
    for (width, height) in [(80, 24), (120, 40)] {
        for (key, id) in [
            ("1", "fleet"),
            ("2", "nodes"),
            ("3", "topology"),
            ("5", "jobs"),
            ("6", "timeline"),
        ] {
            let mut desk = Desk::new(width, height, false);
            desk.press(key);
            insta::assert_snapshot!(format!("whole-{id}-{width}"), desk.screen());
        }
    }
}

#[test]
fn palettes_and_descriptions() {
    let mut desk = Desk::new(120, 40, false);
    desk.press(":");
    desk.typed("h100");
    insta::assert_snapshot!("whole-palette-nodes", desk.screen());
    desk.press("enter d");
    insta::assert_snapshot!("whole-describe-node", desk.screen());
}

#[test]
fn a_job_is_entered_and_left_and_its_pod_fetched() {
    let mut desk = Desk::new(120, 40, false);
    desk.press("5");
    let job = desk.app.view().unwrap().selected();
    assert!(matches!(job, Some(Target::Workload(_))), "{job:?}");
    desk.press("enter");
    let pod = desk.app.view().unwrap().selected();
    assert!(matches!(pod, Some(Target::Pod(_))), "{pod:?}");
    let cmds = desk.press("y");
    assert!(
        matches!(&cmds[..], [Cmd::FetchObject(o)] if &*o.kind == "Pod" && !o.namespace.is_empty()),
        "{cmds:?}"
    );
    desk.press("esc esc");
    assert_eq!(desk.app.view().unwrap().selected(), job);
}

#[test]
fn filters_with_column_terms_and_their_faults() {
    let mut desk = Desk::new(120, 40, false);
    desk.press("2 /");
    desk.typed("model=h100 free>0");
    let (shown, all) = desk.app.view().unwrap().count();
    assert!(0 < shown && shown < all, "{shown} of {all}");
    desk.typed(" frea>1");
    let screen = desk.screen();
    let footer = screen.lines().last().unwrap();
    assert!(footer.contains("frea"), "{footer}");
    desk.press("enter");
    let screen = desk.screen();
    assert_eq!(
        screen.lines().last().unwrap(),
        footer,
        "a fault keeps the line open"
    );
    desk.press("ctrl-u");
    desk.typed("free>0");
    desk.press("enter");
    assert_eq!(desk.app.view().unwrap().filter(), "free>0");
}

#[test]
fn a_switch_of_context_leaves_nothing_of_the_old_one_in_any_view() {
    let mut desk = Desk::new(120, 40, false);
    desk.press("5 enter 2 space /");
    desk.typed("h100");
    desk.press("enter 6 1 d");
    desk.tell(Msg::Session(Session {
        generation: 1,
        context: "lab".into(),
        ..Session::default()
    }));
    for key in ["1", "2", "3", "5", "6"] {
        desk.press(key);
        let screen = desk.screen();
        for old in ["h100", "train", "prod-eu1", "marked"] {
            assert!(!screen.contains(old), "{old} in view {key}:\n{screen}");
        }
        assert!(desk.app.view().unwrap().selected().is_none(), "{key}");
    }
}

#[test]
fn the_namespace_in_view_limits_jobs_and_events() {
    let mut desk = Desk::new(120, 40, false);
    desk.press("5 n");
    desk.typed("team-a");
    desk.press("enter");
    let screen = desk.screen();
    assert!(
        screen.contains("team-a") && !screen.contains("prod-infer"),
        "{screen}"
    );
    assert_eq!(desk.view(), ViewId::Jobs);
}

const PRESSES: &[&str] = &[
    "j",
    "k",
    "h",
    "l",
    "g",
    "G",
    "pgup",
    "pgdn",
    "ctrl-d",
    "ctrl-u",
    "enter",
    "esc",
    "/",
    ":",
    "?",
    "a",
    "=",
    ">",
    "backspace",
    "s",
    "space",
    "v",
    "y",
    "d",
    "c",
    "[",
    "]",
    "1",
    "2",
    "3",
    "i",
    "I",
    "5",
    "6",
    "n",
    "z",
    "Z",
    "o",
    "tab",
    "down",
    "up",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_keys_in_any_view_at_any_size(
        width in 0u16..131,
        height in 0u16..46,
        ascii in any::<bool>(),
        presses in prop::collection::vec(prop::sample::select(PRESSES), 0..40),
    ) {
        let mut desk = Desk::new(width, height, ascii);
        for press in presses {
            let cmds = desk.press(press);
            prop_assert!(!cmds.contains(&Cmd::Quit));
        }
        let buf = desk.draw();
        prop_assert!(buf.content.iter().all(|c| !c.symbol().chars().any(char::is_control)));
        prop_assert!(!ascii || buf.content.iter().all(|c| c.symbol().is_ascii()));
    }
}
