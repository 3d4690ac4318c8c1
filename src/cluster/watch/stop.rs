//! How lists and watches end.

use super::super::http::{Api, ApiError};
use crate::model::Str;

/// The receiver is gone: nothing is left to do.
pub(super) struct Closed;

/// Why a list or watch ended without its result.
pub(super) enum Stop {
    Trouble(ApiError),
    /// An expired continue token: list from the start.
    Restart,
    /// The server has no such kind, or not in a version that we read.
    Absent(Str),
    Closed,
}

impl From<ApiError> for Stop {
    fn from(e: ApiError) -> Self {
        Stop::Trouble(e)
    }
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Stop::Closed
    }
}

/// The answer to a request for a page, and the client that asked.
pub(super) struct Asked {
    pub(super) api: Api,
    pub(super) generation: u64,
    pub(super) result: Result<String, ApiError>,
}

/// How a watch ended.
pub(super) enum End {
    /// As it should: go on from the last version.
    Resume,
    /// The place in the stream is lost.
    Relist,
}

/// What to do after trouble.
#[derive(PartialEq)]
pub(super) enum Next {
    Again,
    Relist,
}
