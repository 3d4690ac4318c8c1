//! Any collection of the API as a list: what was asked for and what came back.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::Str;

/// A collection of the API, as discovery names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceRef {
    /// API group, empty for core.
    pub group: Str,
    /// Version.
    pub version: Str,
    /// Plural name, as in URLs.
    pub plural: Str,
    /// Kind.
    pub kind: Str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be listed.
    pub listable: bool,
}

impl ResourceRef {
    /// As kubectl takes it where the plural alone is not enough: `workloads.kueue.x-k8s.io`.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `kueue.x-k8s.io/v1beta1`, or `v1` for core.
    pub fn group_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// A question for a list. An answer carries it back: only the answer to the latest one is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The session's generation.
    pub generation: u64,
    /// Grows with each question.
    pub turn: u64,
    /// Which collection.
    pub resource: ResourceRef,
    /// In this namespace only.
    pub namespace: Option<Str>,
}

/// An object in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrowseRow {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// Creation.
    pub created: Option<Timestamp>,
    /// What of it could not be read, in words.
    pub unreadable: Str,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Its objects.
    pub rows: Vec<BrowseRow>,
    /// What is left out or could not be read.
    pub notes: Vec<Str>,
}

/// Why there is no list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoListing {
    /// The user may not list it; the server's words.
    Denied(String),
    /// Anything else, in one sentence.
    Failed(String),
}

/// What is known of the list that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Answer {
    /// Nothing yet.
    #[default]
    Awaited,
    /// A list, and when it came.
    Listed(Arc<Listing>, Timestamp),
    /// None.
    Refused(NoListing),
}

/// The list that is looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Browse {
    /// What was asked for last.
    pub ask: Option<Ask>,
    /// What came back.
    pub answer: Answer,
    /// Grows with each change of the answer.
    pub version: u64,
    /// Collections that the cluster offers; empty until they are asked for.
    pub resources: Vec<ResourceRef>,
}

/// Where nothing is browsed.
pub static NOTHING: Browse = Browse {
    ask: None,
    answer: Answer::Awaited,
    version: 0,
    resources: Vec::new(),
};

impl Browse {
    /// Asks for a list. The one of the same collection stays in sight until the new one is there.
    pub(super) fn ask(&mut self, generation: u64, resource: ResourceRef, namespace: Option<Str>) {
        let turn = self.ask.as_ref().map_or(1, |a| a.turn + 1);
        let namespace = namespace.filter(|_| resource.namespaced);
        let same = self
            .ask
            .as_ref()
            .is_some_and(|a| a.resource == resource && a.namespace == namespace);
        if !same || !matches!(self.answer, Answer::Listed(..)) {
            self.answer = Answer::Awaited;
            self.version += 1;
        }
        self.ask = Some(Ask {
            generation,
            turn,
            resource,
            namespace,
        });
    }

    /// Takes an answer, unless it is to an older question.
    pub(super) fn take(&mut self, ask: &Ask, result: Result<Listing, NoListing>, now: Timestamp) {
        if self.ask.as_ref() != Some(ask) {
            return;
        }
        self.answer = match result {
            Ok(listing) => Answer::Listed(Arc::new(listing), now),
            Err(why) => Answer::Refused(why),
        };
        self.version += 1;
    }

    /// The collection that is looked at.
    pub fn resource(&self) -> Option<&ResourceRef> {
        self.ask.as_ref().map(|a| &a.resource)
    }
}
