//! MIG slices on a fleet of one model whose idle slices can be cut in place.
//!
//! Arrivals are drawn from a mix of profiles. `Fill`: they come until 130 % of the compute is asked
//! for and nothing leaves. `Loss`: they come as a Poisson stream and run for exponential times of
//! mean 1; load 1 asks for as many GPUs as there are when packed without loss; what fits nowhere is
//! lost. `Queue`: there it waits. `Drift`: the loss model under a mix that turns around.

mod life;
mod policy;
mod report;
mod run;

pub use policy::MigPolicy;
pub use report::{Ahead, MigMean, MigReport, OverMixes};
pub use run::{Experiment, MigRow, Mix, run};
