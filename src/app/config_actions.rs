//! `[[actions]]` of the configuration: a person's own programs for a row.

use serde::Deserialize;
use serde::de::Error as _;

use crate::plan::Danger;
use crate::tui::actions::UserAction;
use crate::tui::key::Key;
use crate::tui::view::ViewId;

/// A row of `actions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Action {
    /// Name in the palette.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub about: String,
    /// The key that gives it.
    #[serde(default, deserialize_with = "key")]
    pub key: Option<Key>,
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Views in which it can be given.
    #[serde(default, deserialize_with = "views")]
    pub views: Vec<ViewId>,
    /// How much it can hurt.
    #[serde(default = "strictest", deserialize_with = "danger")]
    pub danger: Option<Danger>,
    /// Ask before it runs.
    #[serde(default)]
    pub confirm: bool,
}

/// What is not told to be harmless is taken for the worst.
fn strictest() -> Option<Danger> {
    Some(Danger::Disruptive)
}

fn key<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Key>, D::Error> {
    let text = String::deserialize(from)?;
    let key = text.parse::<Key>().map_err(|e| {
        D::Error::custom(format!(
            "{e}; expected a key like \"ctrl-g\", \"alt-x\", \"f5\""
        ))
    })?;
    Ok(Some(key))
}

fn views<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<ViewId>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let all = || ViewId::ALL.into_iter().chain([ViewId::Browse]);
    let view = |name: &String| {
        all().find(|v| v.name() == name).ok_or_else(|| {
            let names: Vec<&str> = all().map(ViewId::name).collect();
            D::Error::custom(format!("no view {name:?}; expected {}", names.join(", ")))
        })
    };
    names.iter().map(view).collect()
}

fn danger<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Danger>, D::Error> {
    Ok(match &*String::deserialize(from)? {
        "reads" => None,
        "safe" => Some(Danger::Safe),
        "reversible" => Some(Danger::Reversible),
        "disruptive" => Some(Danger::Disruptive),
        other => {
            return Err(D::Error::custom(format!(
                "no danger {other:?}; expected reads, safe, reversible, disruptive"
            )));
        }
    })
}

impl Action {
    /// The action, for the console.
    pub fn action(&self) -> UserAction {
        UserAction {
            name: self.name.clone(),
            about: self.about.clone(),
            key: self.key,
            program: self.command.clone(),
            args: self.args.clone(),
            views: self.views.clone(),
            danger: self.danger,
            confirm: self.confirm,
        }
    }
}
