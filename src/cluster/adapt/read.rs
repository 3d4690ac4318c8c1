//! Reading a JSON value whose form is not trusted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::model::{GpuResource, Meta, Quantity, Str, WorkloadKey, clean};

/// Longest sentence that is kept.
const SENTENCE: usize = 600;
/// Longest name that is kept.
const NAME: usize = 253;

/// A part of an object, or nothing.
#[derive(Clone, Copy)]
pub(super) struct Part<'a>(Option<&'a Value>);

impl<'a> Part<'a> {
    pub(super) fn of(value: &'a Value) -> Self {
        Part(Some(value))
    }

    pub(super) fn nothing() -> Self {
        Part(None)
    }

    /// What stands below, by keys with dots between them.
    pub(super) fn at(self, path: &str) -> Part<'a> {
        Part(
            path.split('.')
                .try_fold(self.0, |at, key| Some(at?.get(key)))
                .flatten(),
        )
    }

    /// What stands under a key that may contain dots.
    pub(super) fn key(self, key: &str) -> Part<'a> {
        Part(self.0.and_then(|v| v.get(key)))
    }

    pub(super) fn exists(self) -> bool {
        self.0.is_some_and(|v| !v.is_null())
    }

    /// The text as it stands: for comparing, never for showing.
    pub(super) fn raw(self) -> Option<&'a str> {
        self.0?.as_str().filter(|t| !t.is_empty())
    }

    /// A name.
    pub(super) fn name(self) -> Option<Str> {
        self.raw().map(|t| clean(t, NAME).into())
    }

    /// A sentence.
    pub(super) fn sentence(self) -> Option<Str> {
        self.raw().map(|t| clean(t.trim(), SENTENCE).into())
    }

    pub(super) fn truth(self) -> Option<bool> {
        self.0?.as_bool()
    }

    pub(super) fn int(self) -> Option<i64> {
        self.0?.as_i64()
    }

    pub(super) fn count(self) -> Option<u32> {
        self.int().and_then(|n| u32::try_from(n).ok())
    }

    pub(super) fn time(self) -> Option<Timestamp> {
        self.raw()?.parse().ok()
    }

    /// A quantity or plain number in thousandths.
    pub(super) fn milli(self) -> Option<i64> {
        match self.0? {
            Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::milli),
            Value::Number(n) => {
                let n = n.as_f64().filter(|n| n.abs() < 1e12)?;
                #[allow(clippy::cast_possible_truncation)]
                Some((n * 1_000.0).round() as i64)
            }
            _ => None,
        }
    }

    pub(super) fn list(self) -> impl Iterator<Item = Part<'a>> {
        let items = self.0.and_then(Value::as_array);
        items.into_iter().flatten().map(Part::of)
    }

    pub(super) fn entries(self) -> impl Iterator<Item = (&'a str, Part<'a>)> {
        let entries = self.0.and_then(Value::as_object);
        entries
            .into_iter()
            .flatten()
            .map(|(k, v)| (&**k, Part::of(v)))
    }

    /// The devices among amounts by resource name.
    pub(super) fn devices(self) -> Devices {
        let mut devices = Devices::default();
        for (key, amount) in self.entries() {
            if let (Some(resource), Some(milli)) = (GpuResource::from_key(key), amount.milli()) {
                devices.add(resource, milli);
            }
        }
        devices
    }

    /// The condition of a type, as it was told last.
    pub(super) fn condition(self, kind: &str) -> Option<Told> {
        let all = self.at("status.conditions").list();
        let found = all.filter(|c| c.key("type").raw() == Some(kind)).last()?;
        Some(Told {
            holds: found.key("status").raw() == Some("True"),
            reason: found.key("reason").name().unwrap_or_default(),
            message: found.key("message").sentence().unwrap_or_default(),
            since: found.key("lastTransitionTime").time(),
        })
    }

    /// The condition of a type, if it holds.
    pub(super) fn holds(self, kind: &str) -> Option<Told> {
        self.condition(kind).filter(|c| c.holds)
    }
}

/// A condition.
pub(super) struct Told {
    pub(super) holds: bool,
    pub(super) reason: Str,
    pub(super) message: Str,
    pub(super) since: Option<Timestamp>,
}

impl Told {
    /// Its message, or its reason where it has none.
    pub(super) fn words(&self) -> Str {
        if self.message.is_empty() {
            self.reason.clone()
        } else {
            self.message.clone()
        }
    }
}

/// Devices with amounts in thousandths.
#[derive(Default, Clone)]
pub(super) struct Devices(pub(super) BTreeMap<GpuResource, i64>);

impl Devices {
    pub(super) fn add(&mut self, resource: GpuResource, milli: i64) {
        let sum = self.0.entry(resource).or_default();
        *sum = sum.saturating_add(milli);
    }

    /// What a pod of this template asks for, as often as there are such pods: requests, or limits
    /// where those stand for them.
    pub(super) fn add_template(&mut self, template: Part<'_>, times: u32) {
        for container in template.at("spec.containers").list() {
            let requests = container.at("resources.requests").devices();
            let limits = container.at("resources.limits").devices();
            let mut asked = limits.0;
            asked.extend(requests.0);
            for (resource, milli) in asked {
                self.add(resource, milli.saturating_mul(times.into()));
            }
        }
    }

    pub(super) fn into_milli(self) -> Box<[(GpuResource, i64)]> {
        self.0.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// Whole devices, rounded up.
    pub(super) fn into_whole(self) -> Box<[(GpuResource, i64)]> {
        let whole = |n: i64| n.saturating_add(999) / 1_000;
        let asked = self.0.into_iter().filter(|(_, n)| *n > 0);
        asked.map(|(resource, n)| (resource, whole(n))).collect()
    }
}

/// What a workload of this API group and kind is called: as the API does, except where that name
/// is another kind's too.
pub(super) fn kind_of(api_version: Option<&str>, kind: &str) -> Str {
    let volcano = api_version.is_some_and(|v| v.starts_with("batch.volcano.sh/"));
    match kind {
        "Job" if volcano => "VolcanoJob".into(),
        other => clean(other, NAME).into(),
    }
}

/// The workload of an owner. A ReplicaSet with the suffix that Deployments give is told as its
/// Deployment, as pods are.
pub(super) fn workload(
    namespace: &Str,
    api_version: Option<&str>,
    kind: &str,
    name: &str,
) -> WorkloadKey {
    let mut kind = kind_of(api_version, kind);
    let mut name: Str = clean(name, NAME).into();
    if &*kind == "ReplicaSet"
        && let Some((deployment, hash)) = name.rsplit_once('-')
        && (5..=10).contains(&hash.len())
        && hash
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    {
        (kind, name) = ("Deployment".into(), deployment.into());
    }
    WorkloadKey {
        namespace: namespace.clone(),
        kind,
        name,
    }
}

/// The workload of the managing controller, else of the first owner.
pub(super) fn owner(meta: &Meta, part: Part<'_>) -> Option<WorkloadKey> {
    let owners = || part.at("metadata.ownerReferences").list();
    let controls = |o: &Part<'_>| o.key("controller").truth() == Some(true);
    let found = owners().find(controls).or_else(|| owners().next())?;
    let (kind, name) = (found.key("kind").raw()?, found.key("name").raw()?);
    Some(workload(
        &meta.namespace,
        found.key("apiVersion").raw(),
        kind,
        name,
    ))
}
