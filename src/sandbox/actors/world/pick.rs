//! Which nodes something happens to.

use std::collections::BTreeMap;

use crate::sandbox::actors::clock::{Clock, hash};
use crate::sandbox::actors::objects::Node;

/// A choice of nodes. Everything that is said must hold; nothing said means all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePick {
    /// Names, in which `*` stands for any text; empty: any name.
    pub names: Vec<String>,
    /// Labels the node must have, with their values; `*` for any value.
    pub labels: BTreeMap<String, String>,
    /// At most so many of them, chosen by the seed.
    pub count: Option<usize>,
}

impl NodePick {
    /// The nodes of these names.
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The nodes with this label.
    pub fn labelled(key: &str, value: &str) -> Self {
        Self {
            labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            ..Self::default()
        }
    }

    /// Whether the node is among those chosen from, whatever the count.
    pub fn matches(&self, node: &Node) -> bool {
        let name = &node.metadata.name;
        let named = self.names.is_empty() || self.names.iter().any(|form| fits(form, name));
        named
            && self.labels.iter().all(|(key, form)| {
                let value = node.metadata.labels.get(key);
                value.is_some_and(|value| fits(form, value))
            })
    }

    /// Names of the chosen nodes, in order; `key` tells one choice under a seed from another.
    pub(super) fn choose<'a>(
        &self,
        nodes: impl Iterator<Item = &'a Node>,
        clock: Clock,
        key: &str,
    ) -> Vec<String> {
        let chosen = nodes.filter(|node| self.matches(node));
        let mut names: Vec<String> = chosen.map(|node| node.metadata.name.clone()).collect();
        if let Some(count) = self.count {
            names.sort_by_key(|name| (hash(clock.seed(), &format!("{key}/{name}")), name.clone()));
            names.truncate(count);
        }
        names.sort();
        names
    }
}

/// Whether `text` has the form, in which `*` stands for any text.
fn fits(form: &str, text: &str) -> bool {
    let Some((head, rest)) = form.split_once('*') else {
        return form == text;
    };
    let Some(mut left) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(last) = parts.pop() else {
        return true;
    };
    for part in parts {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = left.get(at + part.len()..).unwrap_or_default();
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_any_text() {
        for (form, text, wanted) in [
            ("h100-001", "h100-001", true),
            ("h100-001", "h100-0011", false),
            ("h100-*", "h100-001", true),
            ("*", "", true),
            ("*-001", "h100-001", true),
            ("h*-*1", "h100-001", true),
            ("h*-*2", "h100-001", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(form, text), wanted, "{form} {text}");
        }
    }
}
