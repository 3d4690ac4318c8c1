//! Scenarios: a fleet, who works on it, and what happens to it, as TOML files.
//!
//! Those in `scenarios/` are built in. docs/scenarios.md tells what a file may hold.

mod checks;
mod director;
mod happenings;
mod locate;
mod numbers;
mod play;
mod queues;
mod schema;
mod words;

use std::path::Path;

pub use self::happenings::{
    Fabric, Failure, Foreign, Loss, Price, ProviderName, Scale, SchemeName, Spot, Storm,
};
pub use self::play::{Play, PlayError};
pub use self::queues::{QueueGpus, QueueSpec, ReclaimName};
pub use self::schema::{
    Event, Fill, GangShape, Load, MigLayout, ModelName, Nodes, Pool, Scenario, TeamSpec, TierName,
    TimedFault,
};
pub use self::words::plain_words;

/// The built-in scenarios: name and text.
const BUILT_IN: [(&str, &str); 9] = [
    ("tour", include_str!("../../../scenarios/tour.toml")),
    ("quiet", include_str!("../../../scenarios/quiet.toml")),
    (
        "spot-storm",
        include_str!("../../../scenarios/spot-storm.toml"),
    ),
    (
        "mig-wedge",
        include_str!("../../../scenarios/mig-wedge.toml"),
    ),
    ("xid-79", include_str!("../../../scenarios/xid-79.toml")),
    (
        "gang-deadlock",
        include_str!("../../../scenarios/gang-deadlock.toml"),
    ),
    (
        "fragmented",
        include_str!("../../../scenarios/fragmented.toml"),
    ),
    ("foreign", include_str!("../../../scenarios/foreign.toml")),
    ("big", include_str!("../../../scenarios/big.toml")),
];

/// Why a scenario cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a built-in one nor a file.
    #[error(
        "there is no scenario `{name}`; built in are {}; anything else has to be a file",
        built_in_names()
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file has a mistake.
    #[error("{file}: line {line}: {}{message}", shown(.key))]
    Mistake {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The key, such as `pool[2].model`; empty where there is none.
        key: String,
        /// What is wrong and what is allowed.
        message: String,
    },
}

fn shown(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}

fn built_in_names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

/// The names of the built-in scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

impl Scenario {
    /// The built-in scenario of this name, or the one in this file.
    ///
    /// # Errors
    /// There is none, or it has a mistake: file, line, key and what is allowed are named.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(&format!("{name}.toml"), text);
        }
        match std::fs::read_to_string(Path::new(name)) {
            Ok(text) => Self::parse(name, &text),
            Err(source)
                if source.kind() == std::io::ErrorKind::NotFound && !name.ends_with(".toml") =>
            {
                Err(ScenarioError::Unknown {
                    name: super::status::clip(name),
                })
            }
            Err(source) => Err(ScenarioError::Read {
                file: name.to_owned(),
                source,
            }),
        }
    }

    /// Reads the text of a scenario; `file` is what mistakes name.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let mistake = |at: usize, message: String| {
            let (line, mut key) = locate::locate(text, at);
            // What is missing at the top belongs to no key.
            if at == 0 && message.starts_with("missing field") {
                key.clear();
            }
            ScenarioError::Mistake {
                file: file.to_owned(),
                line,
                key,
                message,
            }
        };
        let scenario: Scenario = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            mistake(at, plain_words(error.message()))
        })?;
        scenario
            .check()
            .map_err(|wrong| mistake(wrong.at, wrong.message))?;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_built_in_scenario_is_read() {
        for name in names() {
            let scenario = Scenario::load(name).unwrap();
            assert!(!scenario.about.is_empty(), "{name}");
        }
    }
}
