//! The user's configuration file.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use serde::Deserialize;

/// `config.toml`. Every field is optional; flags and environment win over it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Theme name or file.
    pub theme: Option<String>,
    /// Keymap name or file.
    pub keymap: Option<String>,
    /// `auto`, `true`, `256`, `16` or `mono`.
    pub color: Option<super::cli::ColorArg>,
    /// Draw with ASCII only.
    pub ascii: Option<bool>,
    /// Never write.
    pub read_only: Option<bool>,
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what is expected.
    #[error("{}: line {line}: {message}", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
}

/// gpudeck's folder in the user's configuration folder, if the system tells one.
pub fn folder() -> Option<PathBuf> {
    etcetera::choose_base_strategy()
        .ok()
        .map(|base| base.config_dir().join("gpudeck"))
}

/// Reads `explicit`, or `config.toml` in the user's folder; a missing default file is no error.
///
/// # Errors
/// A file that cannot be read, or that holds an unknown key or a wrong value (file and line are
/// named).
pub fn load(explicit: Option<&Path>) -> Result<Config, ConfigError> {
    let (file, optional) = match explicit {
        Some(file) => (file.to_path_buf(), false),
        None => match folder() {
            Some(folder) => (folder.join("config.toml"), true),
            None => return Ok(Config::default()),
        },
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => parse(&file, &text),
        Err(source) if optional && source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Config::default())
        }
        Err(source) => Err(ConfigError::Read { file, source }),
    }
}

fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    toml::from_str(text).map_err(|e| {
        let start = e.span().map_or(0, |span| span.start);
        let line = text.bytes().take(start).filter(|b| *b == b'\n').count() + 1;
        ConfigError::Parse {
            file: file.to_path_buf(),
            line,
            message: e.message().trim().replace('\n', " "),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mistake_names_file_line_and_what_is_allowed() {
        let e = parse(Path::new("c.toml"), "theme = \"dark\"\ncolour = 3\n")
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with("c.toml: line 2: unknown field `colour`, expected one of"),
            "{e}"
        );
        let e = parse(Path::new("c.toml"), "ascii = \"yes\"\n")
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("c.toml: line 1: invalid type"), "{e}");
        assert_eq!(parse(Path::new("c.toml"), "").unwrap(), Config::default());
    }
}
