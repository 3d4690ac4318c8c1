//! Every bad file of tests/data/bad-config gives its one sentence, and the console starts with
//! what is built in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::tui::settings::{Choices, Settings};
use crate::tui::theme::Depth;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-config")
}

#[test]
fn each_bad_file_says_file_line_and_what_was_expected() {
    let mut told = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let choices = if name.starts_with("keymap") {
            Choices {
                keymap: Some(path),
                ..Choices::default()
            }
        } else {
            let theme = Some(name.trim_end_matches(".toml").to_owned());
            Choices {
                themes: Some(folder()),
                theme,
                ..Choices::default()
            }
        };
        let settings = Settings::load(&choices, |_| None);
        let shown = settings.notes.join("\n");
        let prefix = format!("{}/", folder().display());
        told.insert(name.clone(), shown.replace(&prefix, ""));
        let standard = Settings::built_in(Depth::Mono, settings.glyphs);
        assert_eq!(settings.theme, standard.theme, "{name}");
        let quit = crate::tui::command::CommandId::Quit;
        assert_eq!(
            settings.keymap.keys_of(quit),
            standard.keymap.keys_of(quit),
            "{name}"
        );
    }
    let text: Vec<String> = told
        .iter()
        .map(|(name, said)| format!("{name}\n    {said}"))
        .collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn missing_files_are_no_fault_but_an_unknown_theme_is() {
    let choices = Choices {
        keymap: Some("/nowhere/keymap.toml".into()),
        themes: Some("/nowhere".into()),
        theme: Some("light".to_owned()),
        depth: Some(Depth::True),
        ascii: false,
    };
    let settings = Settings::load(&choices, |_| None);
    assert!(settings.notes.is_empty(), "{:?}", settings.notes);
    assert_eq!(settings.theme.name(), "light");
    let choices = Choices {
        theme: Some("../../etc/passwd".to_owned()),
        ..choices
    };
    let settings = Settings::load(&choices, |_| None);
    assert_eq!(
        settings.notes,
        [
            "no theme \"../../etc/passwd\"; expected dark, light, high-contrast, ansi16, mono or a file in the folder of themes; dark is used"
        ]
    );
}

#[test]
fn a_folder_and_a_binary_file_in_place_of_a_keymap() {
    let dir = tempfile::tempdir().unwrap();
    let load = |path: PathBuf| {
        let choices = Choices {
            keymap: Some(path),
            ..Choices::default()
        };
        Settings::load(&choices, |_| None).notes.join("\n")
    };
    assert!(load(dir.path().to_owned()).ends_with("is not a file; the built-in keys are used"));
    let file = dir.path().join("keymap.toml");
    std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    assert!(load(file).ends_with("is not UTF-8 text; the built-in keys are used"));
}

#[test]
fn a_theme_of_the_user_inherits_and_is_down_sampled() {
    use ratatui::style::Color;

    use crate::tui::config_file::Source;
    use crate::tui::theme::{Meaning, Theme};
    let text = "name = \"mine\"\ninherits = \"dark\"\n[palette]\nhot = \"#ff0000\"\n[meanings]\nwarn = { fg = \"hot\", bold = true }\n";
    let source = Source::new("mine.toml", text);
    let fg = |depth, meaning| Theme::parse(&source, depth).unwrap().style(meaning).fg;
    assert_eq!(fg(Depth::True, Meaning::Warn), Some(Color::Rgb(255, 0, 0)));
    assert_eq!(fg(Depth::Ansi256, Meaning::Warn), Some(Color::Indexed(196)));
    assert_eq!(fg(Depth::Ansi16, Meaning::Warn), Some(Color::LightRed));
    assert_eq!(fg(Depth::Mono, Meaning::Warn), None);
    // By fallback: stale → warn.
    assert_eq!(fg(Depth::True, Meaning::Stale), Some(Color::Rgb(255, 0, 0)));
    // By inheritance.
    assert_eq!(
        fg(Depth::True, Meaning::Mig),
        Some(Color::Rgb(0xaf, 0x87, 0xff))
    );
}

#[test]
fn depth_by_environment() {
    let env = |pairs: &'static [(&'static str, &'static str)]| {
        move |name: &str| {
            pairs
                .iter()
                .find(|(k, _)| *k == name)
                .map(|(_, v)| (*v).to_owned())
        }
    };
    for (pairs, depth) in [
        (
            &[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")][..],
            Depth::True,
        ),
        (
            &[
                ("TERM", "xterm-256color"),
                ("COLORTERM", "truecolor"),
                ("NO_COLOR", "1"),
            ],
            Depth::Mono,
        ),
        (
            &[("TERM", "xterm-256color"), ("NO_COLOR", "")],
            Depth::Ansi256,
        ),
        (&[("TERM", "screen.xterm-256color")], Depth::Ansi256),
        (&[("TERM", "xterm")], Depth::Ansi16),
        (&[("TERM", "linux")], Depth::Ansi16),
        (&[("TERM", "dumb")], Depth::Mono),
        (&[], Depth::Mono),
    ] {
        assert_eq!(Depth::from_env(env(pairs)), depth, "{pairs:?}");
    }
}
