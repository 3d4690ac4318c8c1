//! A living cluster: pods of an openb list arrive as a Poisson stream and leave again.
//!
//! Every tenth node of the trace; pods are drawn with replacement; the rate is such that they ask
//! for `load` percent of the GPUs on average. A run starts with the pods that such a stream would
//! have running, and is measured after a warm-up. In the loss model a pod that fits nowhere is
//! lost; in the queue model it waits, and whoever fits may overtake.

mod report;
mod run;
mod stream;
mod tally;

pub use report::{ChurnReport, ChurnRow, Setting};
pub use run::{Experiment, Moving, run};
pub use stream::{Arrival, Lives, Stream};
pub use tally::{Outcome, Rejected, Waits};

use std::fmt;
use std::str::FromStr;

/// What becomes of a pod that fits nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// It is lost.
    Loss,
    /// It waits; those behind it may go first.
    Queue,
}

impl Model {
    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Queue => "queue",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "loss" => Ok(Self::Loss),
            "queue" => Ok(Self::Queue),
            _ => Err(format!("no model {text:?}; there are loss and queue")),
        }
    }
}
