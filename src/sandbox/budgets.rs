//! The status of disruption budgets, kept as the disruption controller would, unless one does.

use serde_json::Value;

use super::Inner;
use super::object::text;
use super::resources::tables;
use super::selector::LabelSelector;
use super::serve::Call;
use super::store::Refused;

impl Inner {
    /// A pod or a budget was written or is gone: works out again what it counts for.
    pub(super) fn refresh_budgets(&self, call: &Call, object: &Value) {
        let namespace = call.path.namespace.as_str();
        let of_pod = call.res.is("", "pods");
        if !of_pod && !call.res.is("policy", "poddisruptionbudgets") {
            return;
        }
        for stored in self.store.all(tables::BUDGETS, namespace) {
            let budget = stored.value();
            let concerned = if of_pod {
                selects(&budget, object)
            } else {
                text(&budget, "/metadata/uid") == text(object, "/metadata/uid")
            };
            if concerned {
                self.refresh_budget(namespace, &stored.key);
            }
        }
    }

    /// Many pods were written: works out all of them again.
    pub(super) fn refresh_all_budgets(&self) {
        for stored in self.store.all(tables::BUDGETS, "") {
            self.refresh_budget(stored.namespace(), &stored.key);
        }
    }

    fn refresh_budget(&self, namespace: &str, key: &str) {
        while let Some(stored) = self.store.get(tables::BUDGETS, key) {
            let before = stored.value();
            let mut budget = before.clone();
            self.refresh_status(&mut budget, namespace);
            let conditions = before.pointer("/status/conditions");
            let status = budget.get_mut("status").and_then(Value::as_object_mut);
            if let (Some(conditions), Some(status)) = (conditions, status) {
                status.insert("conditions".into(), conditions.clone());
            }
            if budget == before {
                return;
            }
            match self
                .store
                .replace(tables::BUDGETS, key, stored.rv, &mut budget)
            {
                Err(Refused::Changed) => {}
                _ => return,
            }
        }
    }
}

/// Whether a budget's selector selects a pod. One without a selector selects nothing.
fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = budget
        .pointer("/spec/selector")
        .and_then(LabelSelector::from_object);
    let labels = pod.pointer("/metadata/labels");
    selector.is_some_and(|selector| selector.matches_labels(labels))
}
