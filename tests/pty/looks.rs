//! What the environment says about colour and characters is obeyed.

use super::demo_with;

/// Whether an SGR sequence sets a colour.
fn has_colour(raw: &[u8]) -> bool {
    let text = String::from_utf8_lossy(raw);
    text.split("\x1b[").skip(1).any(|sequence| {
        let Some((parameters, _)) = sequence.split_once('m') else {
            return false;
        };
        parameters
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b';' || b == b':')
            && parameters
                .split([';', ':'])
                .filter_map(|p| p.parse::<u32>().ok())
                .any(|p| matches!(p, 30..=38 | 40..=48 | 90..=97 | 100..=107))
    })
}

#[test]
fn no_color_is_obeyed() {
    let mut term = demo_with(&[], 24, 80, &[("NO_COLOR", "1")]);
    term.wait_text("leaf-01");
    assert!(!has_colour(&term.raw));
    let mut term = demo_with(&[], 24, 80, &[]);
    term.wait_text("leaf-01");
    assert!(has_colour(&term.raw));
}

#[test]
fn without_utf_8_everything_is_ascii() {
    let mut term = demo_with(&[], 24, 80, &[("LANG", "C")]);
    term.wait_text("leaf-01");
    term.send("2");
    term.wait_text("NODE");
    assert!(term.raw.is_ascii(), "{}", term.screen());
}

#[test]
fn the_mouse_stays_the_terminals() {
    let mut term = demo_with(&[], 24, 80, &[]);
    term.send("2");
    term.wait_text("NODE");
    let raw = String::from_utf8_lossy(&term.raw);
    for mode in ["1000", "1002", "1003", "1006"] {
        assert!(
            !raw.contains(&format!("\x1b[?{mode}h")),
            "mouse mode {mode}"
        );
    }
    // The test can fail: modes are asked for in just this form.
    assert!(raw.contains("\x1b[?1049h"), "the alternate screen");
}

#[test]
fn a_bad_configuration_file_is_told_and_the_console_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "theme = \"dark\"\ncolour = 3\n").unwrap();
    let mut term = demo_with(&["--config", file.to_str().unwrap()], 24, 120, &[]);
    term.wait_text("line 2");
}
