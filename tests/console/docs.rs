//! Pages that are made from code must be as the code makes them; `UPDATE=1` writes them anew.

use std::path::Path;

use gpudeck::tui::docs;

const AGAIN: &str = "UPDATE=1 cargo test --test console docs";

fn check(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "{file} is not as the code makes it: {AGAIN}"
    );
}

/// Puts `part` between the marks of its name.
fn between(file: &str, mark: &str, part: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let (open, close) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let (before, rest) = text.split_once(&open).expect(&open);
    let (_, after) = rest.split_once(&close).expect(&close);
    format!("{before}{open}{part}{close}{after}")
}

#[test]
fn docs_keys_page() {
    check("docs/keys.md", &docs::keys_page());
}

#[test]
fn docs_themes_page() {
    check("docs/themes.md", &docs::themes_page());
}

#[test]
fn docs_config_page() {
    check("docs/config.md", &gpudeck::app::config_docs::page());
}

/// One test for both parts of the README: each writes the whole file.
#[test]
fn docs_readme_keys_and_screen() {
    let keys = between("README.md", "keys", &docs::keys_table());
    check("README.md", &keys);
    let screen = format!("```text\n{}\n```\n", super::demo::screen(110, 21));
    let screen = between("README.md", "screen", &screen);
    check("README.md", &screen);
}
