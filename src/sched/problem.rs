//! What keeps a pod from being placed whatever the nodes look like.

use std::sync::Arc;

use super::config::SchedConfig;
use super::filters::Volumes;
use super::needs::Needs;
use super::state::State;
use crate::model::{Constraints, FilterCount, Kind, Pod, Reason, Str};

fn unsupported(what: String) -> Option<Reason> {
    Some(Reason::Unsupported { what: what.into() })
}

/// The pod's own problem, if it has one.
pub(super) fn of_pod(pod: &Pod, config: &SchedConfig) -> Option<Reason> {
    if !pod.gates.is_empty() {
        return Some(Reason::Gated {
            gates: pod.gates.clone(),
        });
    }
    if !pod.meta.unreadable.is_empty() {
        return unsupported(format!(
            "not all of the pod could be read: {}",
            pod.meta.unreadable.join("; ")
        ));
    }
    if let Err(wrong) = Needs::of_pod(pod, config) {
        return Some(wrong);
    }
    let asks = &pod.constraints.unsupported;
    if !asks.is_empty() {
        return unsupported(format!(
            "{} not placed by this version",
            match &**asks {
                [one] => format!("{one}: is"),
                _ => format!("{}: are", asks.join(", ")),
            }
        ));
    }
    None
}

/// The claims of a class that has some: its bound volumes, or why none of its pods can be placed.
pub(super) fn volumes(
    state: &State,
    namespace: &Str,
    constraints: &Constraints,
) -> Result<Volumes, Reason> {
    let mut found = Volumes::default();
    let source = |kind: Kind| match state.source_trouble(kind) {
        Some(why) => Err(Reason::Unsupported {
            what: format!("{kind} are not known: {why}").into(),
        }),
        None => Ok(()),
    };
    for name in &constraints.claims {
        let Some(claim) = state.claim(namespace, name) else {
            source(Kind::VolumeClaim)?;
            let nodes = state.rows.node_count();
            return Err(Reason::NoNodeFits {
                nodes,
                filters: [FilterCount {
                    nodes,
                    why: format!("persistentvolumeclaim \"{name}\" not found").into(),
                }]
                .into(),
            });
        };
        let Some(volume) = &claim.volume else {
            return Err(Reason::Unsupported {
                what: format!(
                    "persistentvolumeclaim \"{name}\" is not bound yet: this version places a \
                     pod only once its claims are bound"
                )
                .into(),
            });
        };
        match state.volume(volume) {
            Some(volume) => found.bound.push(Arc::clone(volume)),
            None => {
                source(Kind::Volume)?;
                found.missing = true;
            }
        }
    }
    Ok(found)
}
