//! Kueue's arithmetic: which flavor of a ClusterQueue still has room for a workload.

use std::collections::BTreeMap;

use serde_json::Value;

use super::standing::{quantity, text};
use crate::sandbox::actors::quantity::milli;

/// Amounts in thousandths by resource.
pub(super) type Amounts = BTreeMap<String, i128>;

/// Quota of one resource in one flavor of a ClusterQueue.
#[derive(Debug, Clone, Default)]
struct Quota {
    nominal: i128,
    /// `None`: as much as the cohort has.
    borrowing: Option<i128>,
    /// `None`: all of it is lent.
    lending: Option<i128>,
}

/// What a ClusterQueue's spec says of quotas.
#[derive(Debug, Clone, Default)]
pub(super) struct Quotas {
    pub cohort: String,
    /// Flavors in order, with the resources of each.
    flavors: Vec<(String, BTreeMap<String, Quota>)>,
}

/// What admitted workloads hold: by ClusterQueue, flavor and resource.
pub(super) type Usage = BTreeMap<(String, String, String), i128>;

/// A flavor for each resource that a workload asks for and the queue covers.
pub(super) type Assignment = BTreeMap<String, String>;

impl Quotas {
    pub(super) fn read(spec: &Value) -> Self {
        let amount = |value: Option<&Value>| match value? {
            Value::String(text) => milli(text),
            Value::Number(number) => milli(&number.to_string()),
            _ => None,
        };
        let list = |value: &Value, field: &str| {
            let list = value.get(field).and_then(Value::as_array);
            list.cloned().unwrap_or_default()
        };
        let mut flavors = Vec::new();
        for group in list(spec, "resourceGroups") {
            for flavor in list(&group, "flavors") {
                let resources = list(&flavor, "resources");
                let quotas = resources.iter().map(|resource| {
                    let quota = Quota {
                        nominal: amount(resource.get("nominalQuota")).unwrap_or(0),
                        borrowing: amount(resource.get("borrowingLimit")),
                        lending: amount(resource.get("lendingLimit")),
                    };
                    (text(resource, "name"), quota)
                });
                flavors.push((text(&flavor, "name"), quotas.collect()));
            }
        }
        // v1beta1 spells it so.
        let cohort = match text(spec, "cohortName") {
            name if name.is_empty() => text(spec, "cohort"),
            name => name,
        };
        Self { cohort, flavors }
    }

    /// Flavors for `asks` of the queue `name`, the first with room for each resource; else why
    /// not, in Kueue's words.
    pub(super) fn assign(
        &self,
        name: &str,
        asks: &Amounts,
        usage: &Usage,
        all: &BTreeMap<String, Quotas>,
    ) -> Result<Assignment, String> {
        let mut assignment = Assignment::new();
        for (resource, asked) in asks {
            let offers: Vec<(&String, &Quota)> = self
                .flavors
                .iter()
                .filter_map(|(flavor, quotas)| Some((flavor, quotas.get(resource)?)))
                .collect();
            if offers.is_empty() {
                // What no group covers is not counted, except devices, which must be.
                if resource.contains('/') {
                    return Err(format!(
                        "couldn't assign flavors to pod set main: resource {resource} unavailable \
                         in ClusterQueue"
                    ));
                }
                continue;
            }
            let mut short = Vec::new();
            let mut chosen = None;
            for (flavor, quota) in offers {
                let lacks = self.lacks(name, flavor, resource, quota, *asked, usage, all);
                if lacks <= 0 {
                    chosen = Some(flavor.clone());
                    break;
                }
                short.push(format!(
                    "insufficient unused quota for {resource} in flavor {flavor}, {} more needed",
                    quantity(lacks)
                ));
            }
            match chosen {
                Some(flavor) => {
                    assignment.insert(resource.clone(), flavor);
                }
                None => {
                    let why = short.join(", ");
                    return Err(format!("couldn't assign flavors to pod set main: {why}"));
                }
            }
        }
        Ok(assignment)
    }

    /// How much is missing; nothing is missing at 0 or less.
    #[allow(clippy::too_many_arguments)]
    fn lacks(
        &self,
        name: &str,
        flavor: &str,
        resource: &str,
        quota: &Quota,
        asked: i128,
        usage: &Usage,
        all: &BTreeMap<String, Quotas>,
    ) -> i128 {
        let used = |queue: &str| {
            let key = (queue.to_owned(), flavor.to_owned(), resource.to_owned());
            usage.get(&key).copied().unwrap_or(0)
        };
        let own = used(name) + asked - quota.nominal;
        if own <= 0 || self.cohort.is_empty() {
            return own;
        }
        let over_limit = quota.borrowing.map_or(i128::MIN, |limit| own - limit);
        // What the cohort has: own quota, and what the others lend.
        let mut total = 0;
        let mut taken = asked;
        for (other, quotas) in all
            .iter()
            .filter(|(_, quotas)| quotas.cohort == self.cohort)
        {
            let found = quotas.flavors.iter().find(|(of, _)| of == flavor);
            let Some(theirs) = found.and_then(|(_, quotas)| quotas.get(resource)) else {
                continue;
            };
            if other == name {
                total += theirs.nominal;
                taken += used(other);
            } else {
                let lent = theirs.lending.unwrap_or(theirs.nominal).min(theirs.nominal);
                let kept = theirs.nominal - lent;
                total += lent;
                taken += (used(other) - kept).max(0);
            }
        }
        over_limit.max(taken - total)
    }

    /// Its own quota of a resource in a flavor, in thousandths.
    pub(super) fn nominal(&self, flavor: &str, resource: &str) -> i128 {
        let found = self.flavors.iter().find(|(name, _)| name == flavor);
        let quota = found.and_then(|(_, quotas)| quotas.get(resource));
        quota.map_or(0, |quota| quota.nominal)
    }

    /// Flavors with their resources, for the status: nominal quota of each.
    pub(super) fn flavors(&self) -> impl Iterator<Item = (&String, Vec<(&String, i128)>)> {
        self.flavors.iter().map(|(flavor, quotas)| {
            let resources = quotas.iter().map(|(name, quota)| (name, quota.nominal));
            (flavor, resources.collect())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    fn quotas(nominal: u32, borrowing: Option<u32>, lending: Option<u32>) -> Quotas {
        let mut gpu = json!({"name": "nvidia.com/gpu", "nominalQuota": nominal});
        if let Some(limit) = borrowing {
            gpu["borrowingLimit"] = json!(limit.to_string());
        }
        if let Some(limit) = lending {
            gpu["lendingLimit"] = json!(limit.to_string());
        }
        Quotas::read(&json!({
            "cohortName": "all",
            "resourceGroups": [{"flavors": [
                {"name": "reserved", "resources": [gpu]},
                {"name": "spot", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 4}]},
            ]}],
        }))
    }

    #[test]
    fn own_quota_comes_first_then_what_others_lend_then_the_next_flavor() {
        let all = BTreeMap::from([
            ("a".to_owned(), quotas(8, Some(4), None)),
            ("b".to_owned(), quotas(8, None, Some(2))),
        ]);
        let asks = |gpus: i128| Amounts::from([("nvidia.com/gpu".to_owned(), gpus * 1000)]);
        let flavor = |gpus: i128, usage: &Usage| {
            let found = all.get("a").unwrap().assign("a", &asks(gpus), usage, &all);
            found.map(|flavors| flavors.get("nvidia.com/gpu").cloned().unwrap_or_default())
        };
        let none = Usage::new();
        assert_eq!(flavor(8, &none).as_deref(), Ok("reserved"));
        // Two are lent; a third is not, and spot has four and four more of the other queue.
        assert_eq!(flavor(10, &none).as_deref(), Ok("reserved"));
        assert_eq!(
            flavor(11, &none).unwrap_err(),
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu \
             in flavor reserved, 1 more needed, insufficient unused quota for nvidia.com/gpu in \
             flavor spot, 3 more needed"
        );
        let key = (
            "a".to_owned(),
            "reserved".to_owned(),
            "nvidia.com/gpu".to_owned(),
        );
        let used = Usage::from([(key, 8_000)]);
        assert_eq!(flavor(4, &used).as_deref(), Ok("spot"));
    }
}
