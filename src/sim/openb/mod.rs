//! The published openb experiment (Weng et al., "Beware of Fragmentation", USENIX ATC '23).
//!
//! 1,213 nodes with 6,212 GPUs; the pods of a list arrive in a published order until 130 % of the
//! GPUs are asked for. One pod at a time, nothing leaves, and what fits nowhere is dropped. The
//! figure is the share of the GPUs' thousandths that is allocated, as the mean over the arrivals at
//! which the load that has arrived rounds to a percent.

mod error;
mod policy;
mod read;
mod report;
mod run;

pub use error::OpenbError;
pub use policy::PolicyName;
pub use read::{LISTS, Order, Pod, Source, Trace};
pub use report::{Mean, Report, Row};
pub use run::{Curve, replay};
