//! Backtests of the scheduler on public traces, beside published baselines.

pub mod churn;
pub mod jobs;
pub mod mig;
pub mod openb;
pub mod scenario;
