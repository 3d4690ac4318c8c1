//! Query parameters of a request.

use super::path::percent_decode;
use super::selector::{FieldSelector, LabelSelector};
use super::status::ApiError;

/// Decoded parameters in the order sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part behind the `?`.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = percent_decode(name, true).zip(percent_decode(value, true));
            let Some(pair) = decoded else {
                return Err(ApiError::bad_request("invalid URL escape in the query"));
            };
            pairs.push(pair);
        }
        Ok(Query(pairs))
    }

    /// The first value of a parameter; an empty one counts as not given.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
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
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {:?}: invalid syntax",
                super::status::clip(text)
            ))
        })
    }

    /// Whether the write is to be tried only. Any value but `All` is an error.
    pub(super) fn dry_run(&self) -> Result<bool, ApiError> {
        let mut dry = false;
        for (_, value) in self.0.iter().filter(|(n, _)| n == "dryRun") {
            if value != "All" {
                return Err(ApiError::unprocessable(format!(
                    " \"\" is invalid: dryRun: Unsupported value: {:?}: supported values: \"All\"",
                    super::status::clip(value)
                )));
            }
            dry = true;
        }
        Ok(dry)
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
        let rv = match query.get("resourceVersion") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                ApiError::unprocessable(format!(
                    "resourceVersion: Invalid value: {:?}: strconv.ParseUint: parsing {:?}: invalid syntax",
                    super::status::clip(text),
                    super::status::clip(text)
                ))
            })?),
        };
        let rv_match = match query.get("resourceVersionMatch") {
            None => RvMatch::Unset,
            Some("Exact") => RvMatch::Exact,
            Some("NotOlderThan") => RvMatch::NotOlderThan,
            Some(other) => {
                return Err(list_invalid(&format!(
                    "resourceVersionMatch: Unsupported value: {:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"",
                    super::status::clip(other)
                )));
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
            watch: query.flag("watch"),
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

fn list_invalid(why: &str) -> ApiError {
    ApiError::unprocessable(format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"))
}
