//! Keymap, theme and signs, from built-in and the user's files.

use std::path::{Path, PathBuf};

use super::actions::UserAction;
use super::command::CommandId;
use super::config_file::Source;
use super::glyphs::Glyphs;
use super::keymap::Keymap;
use super::theme::{Depth, Theme};

/// Largest file that is read, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// What a person may choose at the start.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// The user's keymap file; it need not exist.
    pub keymap: Option<PathBuf>,
    /// The user's folder of themes; it need not exist.
    pub themes: Option<PathBuf>,
    /// A theme by name, of that folder or built in; `None`: by the terminal.
    pub theme: Option<String>,
    /// Colour depth; `None`: by the environment.
    pub depth: Option<Depth>,
    /// Draw ASCII only; false: by the locale.
    pub ascii: bool,
}

/// How the console looks and which keys it has.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys.
    pub keymap: Keymap,
    /// Colours of the terminal.
    pub depth: Depth,
    /// Styles.
    pub theme: Theme,
    /// Signs.
    pub glyphs: Glyphs,
    /// The person's own actions on a row.
    pub actions: Vec<UserAction>,
    /// Sentences about files that were not taken as they are.
    pub notes: Vec<String>,
}

impl Settings {
    /// The built-in ones for a terminal of this depth.
    pub fn built_in(depth: Depth, glyphs: Glyphs) -> Self {
        Settings {
            keymap: Keymap::built_in(),
            depth,
            theme: Theme::default_for(depth),
            glyphs,
            actions: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads the user's files. It never fails: what cannot be read is told in `notes`, and the
    /// built-in one stands in. Reads files, so call it before the console runs.
    pub fn load(choices: &Choices, env: impl Fn(&str) -> Option<String>) -> Self {
        let depth = choices.depth.unwrap_or_else(|| Depth::from_env(&env));
        let glyphs = if choices.ascii {
            Glyphs { ascii: true }
        } else {
            Glyphs::from_locale(&env)
        };
        let mut settings = Self::built_in(depth, glyphs);
        if let Some(path) = &choices.keymap {
            settings.load_keymap(path);
        }
        if let Some(name) = &choices.theme {
            settings.load_theme(name, choices.themes.as_deref(), depth);
        }
        settings
    }

    /// Takes a person's own actions, which were checked. A key that has another meaning keeps that.
    pub fn take_actions(&mut self, mut actions: Vec<UserAction>) {
        for (at, action) in (0u8..).zip(&mut actions) {
            let Some(key) = action.key else { continue };
            if let Err(taken) = self.keymap.give(key, CommandId::Own(at)) {
                self.notes.push(format!(
                    "action {}: {key} gives {taken} already; it has no key now",
                    action.name
                ));
                action.key = None;
            }
        }
        self.actions = actions;
    }

    fn load_keymap(&mut self, path: &Path) {
        let text = match read(path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(why) => {
                self.notes
                    .push(format!("{why}; the built-in keys are used"));
                return;
            }
        };
        match Keymap::with_user(&Source::new(path.display().to_string(), &text)) {
            Ok((keymap, warnings)) => {
                self.keymap = keymap;
                self.notes.extend(warnings);
            }
            Err(fault) => self
                .notes
                .push(format!("{fault}; the built-in keys are used")),
        }
    }

    fn load_theme(&mut self, name: &str, folder: Option<&Path>, depth: Depth) {
        let stand_in = self.theme.name().to_owned();
        let own = folder
            .filter(|_| is_file_name(name))
            .map(|f| f.join(format!("{name}.toml")));
        let text = own.as_deref().map_or(Ok(None), read);
        match (text, &own) {
            (Ok(Some(text)), Some(path)) => {
                match Theme::parse(&Source::new(path.display().to_string(), &text), depth) {
                    Ok(theme) => self.theme = theme,
                    Err(fault) => self
                        .notes
                        .push(format!("{fault}; the built-in theme {stand_in} is used")),
                }
            }
            (Err(why), _) => self
                .notes
                .push(format!("{why}; the built-in theme {stand_in} is used")),
            _ => match Theme::built_in(name, depth) {
                Some(theme) => self.theme = theme,
                None => {
                    let names: Vec<&str> = Theme::names().collect();
                    let name = crate::model::clean(name, 60);
                    self.notes.push(format!(
                        "no theme {name:?}; expected {} or a file in the folder of themes; {stand_in} is used",
                        names.join(", ")
                    ));
                }
            },
        }
    }
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

/// The text of a file, `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, String> {
    let shown = path.display();
    let refuse = |e: std::io::Error| format!("{shown} cannot be read: {e}");
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e)),
        Ok(meta) if !meta.is_file() => return Err(format!("{shown} is not a file")),
        Ok(meta) if meta.len() > FILE_LIMIT => {
            return Err(format!("{shown} is larger than 1 MiB"));
        }
        Ok(_) => {}
    }
    let bytes = std::fs::read(path).map_err(refuse)?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| format!("{shown} is not UTF-8 text"))
}
