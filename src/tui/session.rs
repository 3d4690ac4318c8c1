//! Where the console is: context, namespace, rights, leader.

use crate::model::Str;

/// Who decides about placement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Leader {
    /// Nobody looked, or may look.
    #[default]
    Unknown,
    /// No scheduler of gpudeck holds or wants the lease.
    None,
    /// This process.
    Here,
    /// Another one.
    Other {
        /// Who holds the lease.
        holder: Str,
        /// Whether this process stands by to take over.
        standby: bool,
    },
}

/// The place that is looked at. A new one replaces everything that was known under the old one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    /// Grows with each switch of context; deltas of another generation are dropped.
    pub generation: u64,
    /// The context's name, or what stands for it (`demo`).
    pub context: Str,
    /// The namespace that is shown; `None`: all.
    pub namespace: Option<Str>,
    /// Contexts that can be switched to, this one included.
    pub contexts: Vec<Str>,
    /// Whether the console was started without a writer.
    pub read_only: bool,
    /// Whether a scheduler of this process takes part.
    pub schedules: bool,
}
