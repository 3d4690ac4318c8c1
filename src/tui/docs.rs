//! Pages of the documentation that are made from code: the keys and the themes.

use std::fmt::Write;

use super::command::{COMMANDS, Command, Group};
use super::keymap::Keymap;
use super::theme::Meaning;

/// `` `j` `down` ``; empty for a command without a key.
fn keys(keymap: &Keymap, command: &Command) -> String {
    let keys = keymap.keys_of(command.id);
    let quoted = keys.iter().map(|key| match key.to_string().as_str() {
        // A bar would end the cell of the table.
        "|" => "`\\|`".to_owned(),
        key => format!("`{key}`"),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The commands that have a key, in one table.
pub fn keys_table() -> String {
    let keymap = Keymap::built_in();
    let mut out = String::from("| key | what it does |\n|---|---|\n");
    for group in Group::ALL {
        for command in COMMANDS.iter().filter(|c| c.group == group) {
            let keys = keys(&keymap, command);
            if !keys.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "| {keys} | {} |", command.doc);
            }
        }
    }
    out
}

/// `docs/keys.md`.
pub fn keys_page() -> String {
    let keymap = Keymap::built_in();
    let mut out = String::from(KEYS_INTRO);
    for group in Group::ALL {
        let _ = write!(
            out,
            "\n## {}\n\n| command | keys | what it does |\n|---|---|---|\n",
            group.title()
        );
        for command in COMMANDS.iter().filter(|c| c.group == group) {
            let keys = keys(&keymap, command);
            let _ = writeln!(out, "| `{}` | {keys} | {} |", command.name, command.doc);
        }
    }
    out
}

/// `docs/themes.md`.
pub fn themes_page() -> String {
    let mut out = String::from(THEMES_INTRO);
    for meaning in Meaning::ALL {
        let fallback = match meaning.fallback() {
            same if same == *meaning => String::new(),
            other => format!("`{}`", other.name()),
        };
        let _ = writeln!(
            out,
            "| `{}` | {fallback} | {} |",
            meaning.name(),
            meaning.about()
        );
    }
    out
}

const KEYS_INTRO: &str = "\
# Keys

This page is made from the command table (`src/tui/command.rs`); `UPDATE=1 cargo test --test console
docs` writes it anew.

Each command can be given by its name in the palette (`:`). `~/.config/gpudeck/keymap.toml` changes
keys of single commands; a command that it does not name keeps its keys:

```toml
[keys]
quit = \"Q\"              # one key
down = [\"j\", \"down\"]    # several
copy = []               # none
```

Keys are written as `a`, `A`, `ctrl-a`, `alt-a`, `enter`, `esc`, `space`, `tab`, `pgup`, `f5`. A file
with a fault is told in the console with its line and what was expected; the built-in keys are used
then.
";

const THEMES_INTRO: &str = "\
# Themes

This page is made from the table of meanings (`src/tui/theme.rs`); `UPDATE=1 cargo test --test
console docs` writes it anew.

Built in: `dark`, `light`, `high-contrast`, `ansi16`, `mono`. `--theme NAME|FILE` or `theme` in
`config.toml` chooses one; a file in `~/.config/gpudeck/themes/` is chosen by its name without
`.toml`. With `NO_COLOR` set everything is drawn without colours: shapes carry the state as well.

A theme file names colours and gives meanings their style. What it does not name comes from the
theme that it inherits, else from the meaning in the middle column:

```toml
name = \"mine\"
inherits = \"dark\"

[palette]
sea = \"#2a9d8f\"

[meanings]
used = \"sea\"
selection = { bg = \"#303a4a\", bold = true }
```

A style is a colour of the palette, `#rrggbb` or an ANSI name, or a table with `fg`, `bg`, `bold`,
`dim`, `underline`, `reverse`.

| meaning | else as | what it is for |
|---|---|---|
";
