//! Faults of the API server on demand: what a client of a real one meets on a bad day.
//!
//! A fault is asked for by a scenario, by a test ([`ApiServer::inject`]) or by
//! `gpudeck sandbox fault`, which calls the path [`CONTROL_PATH`] as the administrator.

mod board;
mod control;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ApiServer;
use super::span::Span;

pub(super) use self::board::{Asked, Board, Met, WatchFault};
pub use self::control::CONTROL_PATH;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Every request waits for `delay` before it is looked at.
    Latency,
    /// Open watches break off in the middle of their stream; with `for` also those opened meanwhile.
    DropWatches,
    /// Open watches, and those opened meanwhile, say nothing more and do not end either.
    SilentWatches,
    /// The history is forgotten: open watches end with 410, and with `for` new ones and further
    /// pages of lists are refused so.
    Gone,
    /// 429 with a `Retry-After` of `retry-after`.
    TooManyRequests,
    /// 409 for writes of objects that exist, as if another had been faster.
    Conflict,
    /// 500.
    InternalError,
    /// Every connection breaks and none is taken for `for` (1 s); without `keep-history` what
    /// watches have seen is of no use afterwards.
    Restart,
    /// The server's clock is `ahead` or `behind`.
    ClockSkew,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 9] = [
        FaultKind::Latency,
        FaultKind::DropWatches,
        FaultKind::SilentWatches,
        FaultKind::Gone,
        FaultKind::TooManyRequests,
        FaultKind::Conflict,
        FaultKind::InternalError,
        FaultKind::Restart,
        FaultKind::ClockSkew,
    ];

    /// As it is written in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Latency => "latency",
            FaultKind::DropWatches => "drop-watches",
            FaultKind::SilentWatches => "silent-watches",
            FaultKind::Gone => "gone",
            FaultKind::TooManyRequests => "too-many-requests",
            FaultKind::Conflict => "conflict",
            FaultKind::InternalError => "internal-error",
            FaultKind::Restart => "restart",
            FaultKind::ClockSkew => "clock-skew",
        }
    }

    /// The keys that mean something beside `kind` and `for`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            FaultKind::Latency => &["delay", "percent", "verbs", "resources"],
            FaultKind::DropWatches | FaultKind::SilentWatches | FaultKind::Gone => &["resources"],
            FaultKind::TooManyRequests => &["retry-after", "percent", "verbs", "resources"],
            FaultKind::Conflict | FaultKind::InternalError => &["percent", "verbs", "resources"],
            FaultKind::Restart => &["keep-history"],
            FaultKind::ClockSkew => &["ahead", "behind"],
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fault as it is asked for. Times are real ones, whatever the speed of the actors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// For how long; without it until it is cleared, or once where that makes sense.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// Of latency: how long a request waits; 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Of too-many-requests: what the client is asked to wait; 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Span>,
    /// Of restart: whether watches can go on where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_history: Option<bool>,
    /// Of clock-skew: how much the server's clock is ahead of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Span>,
    /// Of clock-skew: how much it is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Span>,
    /// How many of a hundred requests it meets, by a seeded draw; 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Only these API verbs; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Only these kinds by their plural names, such as `pods`; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// Why a fault cannot be had: the key and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct FaultError {
    /// The key that is wrong.
    pub key: &'static str,
    /// Why, and what would be right.
    pub why: String,
}

impl Fault {
    /// A fault with nothing but its kind.
    pub fn new(kind: FaultKind) -> Self {
        Fault {
            kind,
            lasts: None,
            delay: None,
            retry_after: None,
            keep_history: None,
            ahead: None,
            behind: None,
            percent: None,
            verbs: Vec::new(),
            resources: Vec::new(),
        }
    }

    /// The same for a limited time.
    pub fn lasting(self, secs: f64) -> Self {
        Fault {
            lasts: Some(Span::from_secs(secs)),
            ..self
        }
    }

    /// Finds what makes no sense.
    ///
    /// # Errors
    /// A key that the kind does not have, or a value that it cannot have.
    pub fn check(&self) -> Result<(), FaultError> {
        let given = [
            ("delay", self.delay.is_some()),
            ("retry-after", self.retry_after.is_some()),
            ("keep-history", self.keep_history.is_some()),
            ("ahead", self.ahead.is_some()),
            ("behind", self.behind.is_some()),
            ("percent", self.percent.is_some()),
            ("verbs", !self.verbs.is_empty()),
            ("resources", !self.resources.is_empty()),
        ];
        let allowed = self.kind.keys();
        if let Some((key, _)) = given
            .into_iter()
            .find(|(key, is)| *is && !allowed.contains(key))
        {
            let why = format!(
                "is no key of {}; allowed: for, {}",
                self.kind,
                allowed.join(", ")
            );
            return Err(FaultError { key, why });
        }
        if self.percent.is_some_and(|n| !(1..=100).contains(&n)) {
            let why = "a number from 1 to 100 is needed".to_owned();
            return Err(FaultError {
                key: "percent",
                why,
            });
        }
        if let Some(verb) = self.verbs.iter().find(|v| !VERBS.contains(&v.as_str())) {
            let verb = super::status::clip(verb);
            let why = format!("`{verb}` is no verb; allowed: {}", VERBS.join(", "));
            return Err(FaultError { key: "verbs", why });
        }
        if self.kind == FaultKind::ClockSkew && self.ahead.is_some() == self.behind.is_some() {
            let why = "clock-skew needs one of ahead and behind".to_owned();
            return Err(FaultError { key: "ahead", why });
        }
        Ok(())
    }
}

/// A fault that is in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActiveFault {
    /// Its number, counted from 1.
    pub number: u64,
    /// How long it still lasts; `None` until it is cleared.
    pub left: Option<Span>,
    /// What was asked for.
    pub fault: Fault,
}

impl ApiServer {
    /// Makes something go wrong from now on. One that happens once, such as a restart, is over
    /// when this returns as far as [`ApiServer::faults`] is concerned. Needs a tokio runtime.
    ///
    /// # Errors
    /// What is asked for makes no sense.
    pub fn inject(&self, fault: Fault) -> Result<u64, FaultError> {
        self.inner.inject(fault)
    }

    /// The faults that are in force.
    pub fn faults(&self) -> Vec<ActiveFault> {
        self.inner.faults.active()
    }

    /// Ends all faults; how many there were.
    pub fn clear_faults(&self) -> usize {
        self.inner.faults.clear()
    }
}

impl super::Inner {
    /// See [`ApiServer::inject`].
    pub(super) fn inject(&self, fault: Fault) -> Result<u64, FaultError> {
        fault.check()?;
        let forgets = match fault.kind {
            FaultKind::Gone => true,
            FaultKind::Restart => fault.keep_history != Some(true),
            _ => false,
        };
        if forgets {
            self.store.compact();
        }
        Ok(self.faults.add(fault))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_fault_that_makes_no_sense_names_the_key_and_what_is_allowed() {
        let mut fault = Fault::new(FaultKind::Restart);
        fault.delay = Some(Span::from_secs(1.0));
        let error = fault.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "delay: is no key of restart; allowed: for, keep-history"
        );
        let mut fault = Fault::new(FaultKind::InternalError);
        fault.percent = Some(0);
        assert_eq!(fault.check().unwrap_err().key, "percent");
        fault.percent = None;
        fault.verbs = vec!["lsit".into()];
        let error = fault.check().unwrap_err().to_string();
        assert!(error.contains("`lsit`") && error.contains("get, list, watch"));
        assert!(Fault::new(FaultKind::ClockSkew).check().is_err());
    }

    #[test]
    fn names_are_those_of_files() {
        for kind in FaultKind::ALL {
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(text, format!("\"{kind}\""));
        }
    }
}
