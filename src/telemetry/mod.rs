//! What the GPUs measure: dcgm-exporter's text, read from its pods or out of a Prometheus, becomes
//! the model's [`crate::model::NodeTelemetry`].
//!
//! Nothing here talks to Kubernetes: a page of an exporter comes in as text.

pub mod counters;
pub mod dcgm;
pub mod exposition;
pub mod prometheus;
pub mod settings;
pub mod turns;

pub use dcgm::page;
pub use prometheus::{Prometheus, PrometheusError};
pub use settings::{Auth, PrometheusSettings, Settings};
pub use turns::Turns;
