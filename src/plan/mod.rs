//! Plans: the only way in which gpudeck changes a cluster. An operator's key and a scheduler's
//! decision both end in a [`Plan`]; `cluster::write` carries it out.

mod action;

pub use action::{Action, Danger, HeldPlace, Hold, Plan, Verb};
