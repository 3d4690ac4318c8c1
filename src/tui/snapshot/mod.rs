//! `gpudeck snapshot`: the views without a terminal, with the same figures as the screen, for
//! scripts and tests.

mod json;
mod text;

use jiff::Timestamp;

use super::filter::Filter;
use super::table::Row;
use super::view::{FilterError, ViewId};
use super::views::list::Spec;
use crate::model::{Cluster, Str};

pub use json::json;
pub use text::text;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The view.
    pub view: ViewId,
    /// The picture of the cluster.
    pub cluster: &'a Cluster,
    /// Only this namespace; `None`: all.
    pub namespace: Option<&'a Str>,
    /// Only rows that pass this filter; empty: all.
    pub filter: &'a str,
    /// Nothing but ASCII (text only).
    pub ascii: bool,
    /// The time against which ages are told.
    pub now: Timestamp,
}

impl Request<'_> {
    fn in_scope(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|n| **n == *namespace)
    }

    /// The rows that pass the filter.
    fn passing<R: Row>(&self, spec: &Spec<R>, rows: Vec<R>) -> Result<Vec<R>, FilterError> {
        let filter = Filter::parse(self.filter, spec.filter)?;
        let passes = |r: &R| filter.matches(r, self.now, spec.search);
        Ok(rows.into_iter().filter(passes).collect())
    }
}
