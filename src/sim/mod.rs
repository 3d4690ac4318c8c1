//! Backtests of the scheduler on public traces, beside published baselines.

pub mod openb;
