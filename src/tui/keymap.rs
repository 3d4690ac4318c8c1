//! Keymaps: which key gives which command.

use std::collections::HashMap;

use toml::de::DeValue;

use super::command::{COMMANDS, Command, CommandId};
use super::config_file::{ConfigFault, Source};
use super::key::Key;

const BUILT_IN: &str = include_str!("../../keymaps/default.toml");

/// Keys that terminals, tmux or screen take for themselves, and what they do with them.
const TAKEN: [(&str, &str); 6] = [
    ("ctrl-s", "stops the output of many terminals"),
    ("ctrl-q", "starts the output of many terminals"),
    ("ctrl-z", "suspends programs"),
    ("ctrl-b", "is the prefix of tmux"),
    ("ctrl-a", "is the prefix of screen"),
    ("ctrl-\\", "ends programs"),
];

/// Keys and the commands they give.
#[derive(Clone, Debug, Default)]
pub struct Keymap {
    /// By command, in the order of their lines.
    keys: HashMap<CommandId, Vec<Key>>,
    commands: HashMap<Key, CommandId>,
}

/// One line of a keymap file.
struct Line {
    command: &'static Command,
    keys: Vec<(Key, usize)>,
}

impl Keymap {
    /// The built-in keymap.
    pub fn built_in() -> Self {
        let source = Source::new("keymaps/default.toml", BUILT_IN);
        let mut map = Keymap::default();
        // A test reads the built-in file; were it broken, there would be no keys but ctrl-c.
        if let Ok(lines) = read(&source) {
            for line in lines {
                map.bind(&line);
            }
        }
        map
    }

    /// The built-in keymap changed by the user's file, and sentences about what in it is risky.
    ///
    /// # Errors
    /// The first fault in the file, with its line and what was expected.
    pub fn with_user(source: &Source<'_>) -> Result<(Self, Vec<String>), ConfigFault> {
        let mut map = Self::built_in();
        let mut warnings = Vec::new();
        let lines = read(source)?;
        for line in &lines {
            map.unbind(line.command.id);
        }
        for line in &lines {
            for (key, number) in &line.keys {
                if let Some(loser) = map.commands.get(key).copied() {
                    map.take(*key, loser);
                    let name = Command::of(loser).map_or("", |c| c.name);
                    let left = match map.key_of(loser) {
                        Some(other) => format!("{name} keeps {other}"),
                        None => format!("{name} has no key now"),
                    };
                    let (file, command) = (source.file(), line.command.name);
                    warnings.push(format!(
                        "{file} line {number}: {key} gives {command}; {left}"
                    ));
                }
                let text = key.to_string();
                if let Some((_, why)) = TAKEN.iter().find(|(k, _)| *k == text)
                    && line.command.id != CommandId::Suspend
                {
                    let file = source.file();
                    warnings.push(format!(
                        "{file} line {number}: {key} may never arrive: it {why}"
                    ));
                }
            }
            map.bind(line);
        }
        Ok((map, warnings))
    }

    /// Gives a free key to a command.
    ///
    /// # Errors
    /// What the key gives already.
    pub fn give(&mut self, key: Key, id: CommandId) -> Result<(), &'static str> {
        if let Some(other) = self.commands.get(&key) {
            return Err(Command::of(*other).map_or("another action", |c| c.name));
        }
        self.commands.insert(key, id);
        self.keys.entry(id).or_default().push(key);
        Ok(())
    }

    fn bind(&mut self, line: &Line) {
        let keys = self.keys.entry(line.command.id).or_default();
        for (key, _) in &line.keys {
            keys.push(*key);
            self.commands.insert(*key, line.command.id);
        }
    }

    fn unbind(&mut self, id: CommandId) {
        for key in self.keys.remove(&id).unwrap_or_default() {
            self.commands.remove(&key);
        }
    }

    fn take(&mut self, key: Key, loser: CommandId) {
        self.commands.remove(&key);
        if let Some(keys) = self.keys.get_mut(&loser) {
            keys.retain(|k| *k != key);
        }
    }

    /// The command that a key gives.
    pub fn command(&self, key: Key) -> Option<CommandId> {
        self.commands.get(&key).copied()
    }

    /// The keys that give a command, the one to show first.
    pub fn keys_of(&self, id: CommandId) -> &[Key] {
        self.keys.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The key to show for a command.
    pub fn key_of(&self, id: CommandId) -> Option<Key> {
        self.keys_of(id).first().copied()
    }
}

/// Reads all lines. One key on two lines of the same file is a fault.
fn read(source: &Source<'_>) -> Result<Vec<Line>, ConfigFault> {
    let table = source.table()?;
    let mut lines: Vec<Line> = Vec::new();
    for (section, value) in table.get_ref() {
        let (true, DeValue::Table(keys)) = (section.get_ref() == "keys", value.get_ref()) else {
            let what = format!("unknown key {:?}", section.get_ref());
            return Err(source.fault(section.span(), &what, "one table [keys]"));
        };
        for (name, value) in keys {
            let Some(command) = Command::by_name(name.get_ref()) else {
                return Err(source.fault(
                    name.span(),
                    &format!("unknown command {:?}", name.get_ref()),
                    &nearest_command(name.get_ref()),
                ));
            };
            let texts: Vec<_> = match value.get_ref() {
                DeValue::String(text) => vec![(text.to_string(), value.span())],
                DeValue::Array(items) => {
                    let mut texts = Vec::new();
                    for item in items.iter() {
                        let DeValue::String(text) = item.get_ref() else {
                            return Err(source.fault(item.span(), "not a text", KEY_EXPECTED));
                        };
                        texts.push((text.to_string(), item.span()));
                    }
                    texts
                }
                _ => {
                    let expected = "a key or a list of keys, like \"ctrl-d\" or [\"j\", \"down\"]";
                    return Err(source.fault(value.span(), "not a text or a list", expected));
                }
            };
            let mut keys = Vec::new();
            for (text, span) in texts {
                let key: Key = text
                    .parse()
                    .map_err(|e| source.fault(span.clone(), &format!("{e}"), KEY_EXPECTED))?;
                let other = lines
                    .iter()
                    .find_map(|l| l.keys.iter().find(|(k, _)| *k == key).map(|(_, n)| (l, n)));
                if let Some((line, number)) = other {
                    return Err(source.fault(
                        span,
                        &format!(
                            "{key} is given to {} and, on line {number}, to {}",
                            command.name, line.command.name
                        ),
                        "each key at one command",
                    ));
                }
                keys.push((key, source.line(span.start)));
            }
            lines.push(Line { command, keys });
        }
    }
    Ok(lines)
}

const KEY_EXPECTED: &str =
    "a key like \"g\", \"G\", \"ctrl-d\", \"alt-x\", \"enter\", \"pgdn\", \"space\", \"f5\"";

fn nearest_command(name: &str) -> String {
    let same_start = |c: &&Command| {
        let n = c
            .name
            .bytes()
            .zip(name.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        (n, std::cmp::Reverse(c.name.len()))
    };
    match COMMANDS.iter().max_by_key(same_start) {
        Some(command) if command.name.get(..1) == name.get(..1) => {
            format!("the name of a command, perhaps {:?}", command.name)
        }
        _ => "the name of a command, as the help shows them".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn built_in_file_is_sound_and_uses_no_key_that_terminals_eat() {
        let lines = read(&Source::new("keymaps/default.toml", BUILT_IN)).unwrap();
        for line in &lines {
            for (key, _) in &line.keys {
                let taken = TAKEN.iter().any(|(k, _)| *k == key.to_string());
                assert!(!taken || line.command.id == CommandId::Suspend, "{key}");
            }
        }
        let map = Keymap::built_in();
        assert_eq!(map.command(key("ctrl-c")), Some(CommandId::Quit));
        assert_eq!(map.key_of(CommandId::Quit), Some(key("q")));
    }

    #[test]
    fn user_file_changes_single_commands_and_says_who_lost_a_key() {
        let source = Source::new(
            "keymap.toml",
            "[keys]\nquit = \"d\"\ncopy = []\nredraw = \"ctrl-b\"\n",
        );
        let (map, warnings) = Keymap::with_user(&source).unwrap();
        assert_eq!(map.command(key("d")), Some(CommandId::Quit));
        assert_eq!(map.command(key("q")), None);
        assert_eq!(map.command(key("c")), None);
        assert_eq!(map.command(key("y")), Some(CommandId::Yaml));
        assert_eq!(
            warnings,
            [
                "keymap.toml line 2: d gives quit; describe has no key now",
                "keymap.toml line 4: ctrl-b may never arrive: it is the prefix of tmux",
            ]
        );
    }

    #[test]
    fn swapping_two_keys_is_no_conflict() {
        let source = Source::new("keymap.toml", "[keys]\ndescribe = \"y\"\nyaml = \"d\"\n");
        let (map, warnings) = Keymap::with_user(&source).unwrap();
        assert_eq!(map.command(key("y")), Some(CommandId::Describe));
        assert_eq!(map.command(key("d")), Some(CommandId::Yaml));
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}
