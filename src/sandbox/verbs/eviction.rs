//! pods/eviction: deletion that asks the disruption budgets first.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::sandbox::object;
use crate::sandbox::resources::tables;
use crate::sandbox::selector::LabelSelector;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{ApiError, clip};
use crate::sandbox::store::Refused;
use crate::sandbox::{Inner, pods};

use super::TRIES;
use super::delete::DeleteOptions;

/// UIDs of budgets whose status this server works out itself because no controller has.
///
/// Such a status is worked out again at each eviction; one that a client wrote is believed.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct OwnBudgets(Mutex<HashSet<String>>);

impl OwnBudgets {
    fn has(&self, uid: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(uid)
    }

    fn add(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(uid.to_owned());
    }

    /// A client wrote this budget's status, or it is gone.
    pub(in crate::sandbox) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl Inner {
    /// Evicts the addressed pod.
    pub(in crate::sandbox) fn evict(&self, call: &Call) -> Result<Answer, ApiError> {
        let name = call.path.name.as_str();
        let eviction = call.json()?;
        if object::text(&eviction, "/metadata/name") != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let mut options =
            DeleteOptions::from_object(eviction.get("deleteOptions").unwrap_or(&Value::Null))?;
        options.dry |= call.dry_run("CreateOptions")?;
        let stored = self
            .store
            .get(&call.res.table, &call.key())
            .ok_or_else(|| ApiError::not_found(&call.res, name))?;
        let pod = stored.value();
        if needs_budget(&pod) {
            self.take_from_budget(call, &pod, options.dry)?;
            // The budget was taken from for this very pod, not for a successor of its name.
            options
                .uid
                .get_or_insert_with(|| object::text(&pod, "/metadata/uid").to_owned());
        }
        if !options.dry {
            self.mark_evicted(call)?;
        }
        self.delete_one(call, name, &options)?;
        Ok(Answer::Value(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }

    /// Writes the condition that tells a controller why the pod went.
    fn mark_evicted(&self, call: &Call) -> Result<(), ApiError> {
        for _ in 0..TRIES {
            let Some(stored) = self.store.get(&call.res.table, &call.key()) else {
                return Ok(());
            };
            let mut pod = stored.value();
            pods::set_condition(
                &mut pod,
                json!({
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                    "lastTransitionTime": self.options.clock.time(),
                }),
            );
            match self
                .store
                .replace(&call.res.table, &call.key(), stored.rv, &mut pod)
            {
                Err(Refused::Changed) => {}
                _ => return Ok(()),
            }
        }
        Err(ApiError::modified(&call.res, &call.path.name))
    }

    fn take_from_budget(&self, call: &Call, pod: &Value, dry: bool) -> Result<(), ApiError> {
        let namespace = call.path.namespace.as_str();
        for _ in 0..TRIES {
            let Some(pod_object) = self.store.get(&call.res.table, &call.key()) else {
                return Err(ApiError::not_found(&call.res, &call.path.name));
            };
            let mut budgets: Vec<_> = self
                .store
                .all(tables::BUDGETS, namespace)
                .into_iter()
                .map(|stored| (stored.value(), stored.rv))
                .filter(|(budget, _)| {
                    // A budget without selector selects nothing; an empty selector, everything.
                    budget
                        .pointer("/spec/selector")
                        .and_then(LabelSelector::from_object)
                        .is_some_and(|selector| selector.matches(&pod_object))
                })
                .collect();
            if budgets.len() > 1 {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
            let Some((mut budget, rv)) = budgets.pop() else {
                return Ok(());
            };
            self.refresh_status(&mut budget, namespace);
            if !pods::is_ready(pod) && unready_may_go(&budget) {
                return Ok(());
            }
            self.check_budget(&budget)?;
            let allowed = number(&budget, "/status/disruptionsAllowed");
            if let Some(status) = budget.get_mut("status").and_then(Value::as_object_mut) {
                status.insert("disruptionsAllowed".into(), (allowed - 1).into());
                let gone = status
                    .entry("disruptedPods")
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Some(gone) = gone.as_object_mut() {
                    gone.insert(call.path.name.clone(), self.options.clock.time().into());
                }
            }
            if dry {
                return Ok(());
            }
            let sufficient = allowed > 1;
            let observed = number(&budget, "/status/observedGeneration");
            pods::set_condition(
                &mut budget,
                json!({
                    "type": "DisruptionAllowed",
                    "status": if sufficient { "True" } else { "False" },
                    "reason": if sufficient { "SufficientPods" } else { "InsufficientPods" },
                    "message": "",
                    "observedGeneration": observed,
                    "lastTransitionTime": self.options.clock.time(),
                }),
            );
            let key = format!("{namespace}/{}", object::text(&budget, "/metadata/name"));
            match self.store.replace(tables::BUDGETS, &key, rv, &mut budget) {
                Ok(_) | Err(Refused::Missing) => return Ok(()),
                Err(Refused::Changed) => {}
                Err(other) => return Err(ApiError::internal(format!("{other:?}"))),
            }
        }
        Err(ApiError::too_many_requests(REFUSED, json!({}), 10))
    }

    fn check_budget(&self, budget: &Value) -> Result<(), ApiError> {
        let name = object::text(budget, "/metadata/name");
        let allowed = number(budget, "/status/disruptionsAllowed");
        let generation = number(budget, "/metadata/generation");
        let refuse = |why: String, retry_after_secs: u32| {
            let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
            if retry_after_secs > 0
                && let Some(map) = details.as_object_mut()
            {
                map.insert("retryAfterSeconds".into(), retry_after_secs.into());
            }
            Err(ApiError::too_many_requests(
                REFUSED,
                details,
                retry_after_secs,
            ))
        };
        if number(budget, "/status/observedGeneration") < generation {
            return refuse(
                format!("The disruption budget {name} is still being processed by the server."),
                10,
            );
        }
        if allowed < 0 {
            return Err(ApiError::forbidden(
                "policy",
                "poddisruptionbudgets",
                name,
                "pdb disruptions allowed is negative",
            ));
        }
        if allowed == 0 {
            return refuse(
                format!(
                    "The disruption budget {} needs {} healthy pods and has {} currently",
                    clip(name),
                    number(budget, "/status/desiredHealthy"),
                    number(budget, "/status/currentHealthy")
                ),
                0,
            );
        }
        Ok(())
    }

    /// Works the budget's status out from the pods there are, unless a controller has.
    pub(in crate::sandbox) fn refresh_status(&self, budget: &mut Value, namespace: &str) {
        let uid = object::text(budget, "/metadata/uid").to_owned();
        let generation = number(budget, "/metadata/generation");
        let observed = number(budget, "/status/observedGeneration");
        if observed >= generation && !self.own_budgets.has(&uid) {
            return;
        }
        let Some(selector) = budget
            .pointer("/spec/selector")
            .and_then(LabelSelector::from_object)
        else {
            return;
        };
        let (mut expected, mut healthy) = (0_i64, 0_i64);
        for stored in self.store.all(tables::PODS, namespace) {
            if !selector.matches(&stored) {
                continue;
            }
            let pod = stored.value();
            if pods::is_over(&pod) {
                continue;
            }
            expected += 1;
            if pods::is_ready(&pod) && pod.pointer("/metadata/deletionTimestamp").is_none() {
                healthy += 1;
            }
        }
        let desired = match (
            budget.pointer("/spec/minAvailable"),
            budget.pointer("/spec/maxUnavailable"),
        ) {
            (Some(least), _) => share(least, expected),
            (None, Some(most)) => (expected - share(most, expected)).max(0),
            (None, None) => 0,
        };
        self.own_budgets.add(&uid);
        if let Some(map) = budget.as_object_mut() {
            map.insert(
                "status".into(),
                json!({
                    "observedGeneration": generation,
                    "currentHealthy": healthy,
                    "desiredHealthy": desired,
                    "expectedPods": expected,
                    "disruptionsAllowed": (healthy - desired).max(0),
                }),
            );
        }
    }
}

/// A count, or a percentage of `all` rounded up, as `intstr.GetScaledValueFromIntOrPercent`.
fn share(value: &Value, all: i64) -> i64 {
    match value {
        Value::String(text) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<i64>().ok())
            .map_or(0, |percent| {
                (percent.saturating_mul(all) + 99).div_euclid(100)
            }),
        other => other.as_i64().unwrap_or(0),
    }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether evicting this pod disrupts anything: not one that is over, pending or going already.
fn needs_budget(pod: &Value) -> bool {
    !matches!(
        object::text(pod, "/status/phase"),
        "Succeeded" | "Failed" | "Pending"
    ) && pod.pointer("/metadata/deletionTimestamp").is_none()
}

/// Whether the budget lets a pod go that is not ready anyway.
fn unready_may_go(budget: &Value) -> bool {
    let policy = object::text(budget, "/spec/unhealthyPodEvictionPolicy");
    let (healthy, desired) = (
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    policy == "AlwaysAllow" || (healthy >= desired && desired > 0)
}
