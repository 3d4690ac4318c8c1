//! Whole training jobs on public traces: who starts first, who is interrupted, and what that does to
//! the time until a job is done.
//!
//! Three experiments of one event engine: `philly` and `muri` compare orders on one pool of nodes,
//! `fair` compares ways to share the pool among tenants with quotas. A job is a gang: it runs with
//! all its GPUs or not at all, on one node where it fits one, else on whole nodes and one part.

mod cells;
mod fair;
mod job;
mod nodes;
mod podwise;
mod policy;
mod progress;
mod report;
mod run;
mod stage;
mod tally;
mod waiting;

pub use fair::{FairRow, Sharing, TenantRow, fair, quotas};
pub use job::{Job, JobsError, Trace, read_muri, read_philly, read_tenants};

pub use policy::Policy;
pub use report::{JobsReport, JobsRow};
pub use run::{Setting, run};
pub use tally::{Outcome, Times};
