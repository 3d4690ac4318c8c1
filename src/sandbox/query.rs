//! Query parameters of a request.

use super::path::percent_decode;
use super::selector::{FieldSelector, LabelSelector};
use super::status::{ApiError, Cause, clip};

/// Decoded parameters in the order sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part behind the `?`. A pair with a broken escape is dropped, as in the real server.
    pub(super) fn parse(text: &str) -> Self {
        Query(
            text.split('&')
                .filter(|part| !part.is_empty())
                .filter_map(|part| {
                    let (name, value) = part.split_once('=').unwrap_or((part, ""));
                    percent_decode(name, true).zip(percent_decode(value, true))
                })
                .collect(),
        )
    }

    /// The first value of a parameter; an empty one counts as not given.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    /// Every value of a parameter, in the order sent.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let own = self.0.iter().filter(|(n, _)| n == name);
        own.map(|(_, value)| value.clone()).collect()
    }

    /// A boolean as Go's API machinery reads it: present and neither `false` nor `0` is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .is_some_and(|(_, v)| !matches!(v.as_str(), "false" | "0"))
    }

    /// A whole number.
    pub(super) fn int(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|error: std::num::ParseIntError| {
                use std::num::IntErrorKind::{NegOverflow, PosOverflow};
                let why = match error.kind() {
                    PosOverflow | NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                ApiError::bad_request(format!("strconv.ParseInt: parsing {:?}: {why}", clip(text)))
            })
    }

    /// Whether the write is to be tried only. Any value but `All` is an error about `options`, as
    /// `CreateOptions`.
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        let given: Vec<&str> = self
            .0
            .iter()
            .filter(|(n, _)| n == "dryRun")
            .map(|(_, v)| v.as_str())
            .collect();
        if given.iter().all(|value| *value == "All") {
            return Ok(!given.is_empty());
        }
        let shown: Vec<String> = given.iter().map(|v| clip(v)).collect();
        Err(ApiError::invalid_options(
            options,
            vec![Cause {
                reason: "FieldValueNotSupported",
                message: format!("Unsupported value: {shown:?}: supported values: \"All\""),
                field: "dryRun".into(),
            }],
        ))
    }
}

/// How a list's or watch's `resourceVersion` is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RvMatch {
    Unset,
    Exact,
    NotOlderThan,
}

/// Parameters of list, watch and deletecollection.
#[derive(Debug)]
pub(super) struct ListOptions {
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    /// 0 for no limit.
    pub(super) limit: usize,
    pub(super) continue_token: Option<String>,
    /// `None` where none was sent.
    pub(super) rv: Option<u64>,
    pub(super) rv_match: RvMatch,
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) timeout_secs: Option<u64>,
}

impl ListOptions {
    /// Reads and checks them.
    pub(super) fn parse(query: &Query) -> Result<Self, ApiError> {
        let watch = query.flag("watch");
        let rv = match query.get("resourceVersion") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let shown = clip(text);
                let why = format!(
                    "resourceVersion: Invalid value: {shown:?}: strconv.ParseUint: parsing {shown:?}: invalid syntax"
                );
                if watch {
                    ApiError::unclassified(why)
                } else {
                    ApiError::bad_request(format!("invalid resource version: {why}"))
                }
            })?),
        };
        let rv_match = match query.get("resourceVersionMatch") {
            None => RvMatch::Unset,
            Some("Exact") => RvMatch::Exact,
            Some("NotOlderThan") => RvMatch::NotOlderThan,
            Some(other) => {
                return Err(ApiError::invalid_options(
                    "ListOptions",
                    vec![Cause {
                        reason: "FieldValueNotSupported",
                        message: format!(
                            "Unsupported value: {:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"",
                            clip(other)
                        ),
                        field: "resourceVersionMatch".into(),
                    }],
                ));
            }
        };
        let limit = query.int("limit")?.unwrap_or(0).max(0);
        let timeout_secs = query
            .int("timeoutSeconds")?
            .and_then(|s| u64::try_from(s).ok())
            .filter(|s| *s > 0);
        let send_initial_events = query
            .get("sendInitialEvents")
            .map(|_| query.flag("sendInitialEvents"));
        let options = ListOptions {
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())?,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            continue_token: query.get("continue").map(str::to_owned),
            rv,
            rv_match,
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            timeout_secs,
        };
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.watch {
            if self.send_initial_events.is_some() && self.rv_match != RvMatch::NotOlderThan {
                return Err(list_invalid(
                    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if self.send_initial_events.is_none() && self.rv_match != RvMatch::Unset {
                return Err(list_invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            return Ok(());
        }
        if self.send_initial_events.is_some() {
            return Err(list_invalid(
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ));
        }
        if self.rv_match != RvMatch::Unset && self.rv.is_none() {
            return Err(list_invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if self.rv_match != RvMatch::Unset && self.continue_token.is_some() {
            return Err(list_invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if self.rv_match == RvMatch::Exact && self.rv == Some(0) {
            return Err(list_invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        if self.continue_token.is_some() && self.rv.is_some_and(|rv| rv != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(())
    }
}

/// A 422 about `why`, which reads `FIELD: Forbidden: ...`.
fn list_invalid(why: &str) -> ApiError {
    let (field, why) = why.split_once(": Forbidden: ").unwrap_or((why, ""));
    ApiError::invalid_options("ListOptions", vec![Cause::forbidden(field, why)])
}
