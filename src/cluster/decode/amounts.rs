//! Resource lists: requests, limits, capacity.

use serde::de::MapAccess;

use super::read::{Ctx, EntryKey, Number, Read, object, sort_last_wins};
use crate::model::{Quantity, Resources, Str};

/// A quantity; the API server takes a bare number as well as a text.
#[derive(Default)]
pub(super) struct Amount(pub(super) Quantity);

impl Read<'_> for Amount {
    const WANTED: &'static str = "a quantity (like 2, 500m, 1.5Gi)";
    fn text(&mut self, raw: &str, _ctx: &mut Ctx<'_>) -> bool {
        match raw.parse() {
            Ok(q) => {
                self.0 = q;
                true
            }
            Err(_) => false,
        }
    }
    fn number(&mut self, n: Number, _ctx: &mut Ctx<'_>) -> bool {
        match n.to_string().parse() {
            Ok(q) => {
                self.0 = q;
                true
            }
            Err(_) => false,
        }
    }
}

/// A resource list in which "not stated" and "zero" differ.
#[derive(Default, Clone)]
pub(super) struct Amounts {
    cpu_milli: Option<i64>,
    mem_bytes: Option<i64>,
    ephemeral_bytes: Option<i64>,
    pods: Option<i64>,
    extended: Vec<(Str, i64)>,
    /// Stated, but not readable: nothing may stand in for these.
    unread: Vec<Str>,
}

impl<'de> Read<'de> for Amounts {
    const WANTED: &'static str = "an object of quantities";

    fn map<A: MapAccess<'de>>(
        &mut self,
        mut access: A,
        ctx: &mut Ctx<'_>,
    ) -> Result<bool, A::Error> {
        while let Some(key) = access.next_key_seed(EntryKey(ctx, |_| true))? {
            let Some(key) = key else { continue };
            let mut checked = Checked {
                unit: match &*key {
                    "cpu" => Unit::Milli,
                    "memory" | "ephemeral-storage" => Unit::Bytes,
                    _ => Unit::Count,
                },
                amount: None,
            };
            ctx.entry(&key, &mut checked, &mut access)?;
            let Some(amount) = checked.amount else {
                self.unread.push(key);
                continue;
            };
            match &*key {
                "cpu" => self.cpu_milli = Some(amount),
                "memory" => self.mem_bytes = Some(amount),
                "ephemeral-storage" => self.ephemeral_bytes = Some(amount),
                "pods" => self.pods = Some(amount),
                _ => self.extended.push((key, amount)),
            }
        }
        sort_last_wins(&mut self.extended);
        Ok(true)
    }
}

/// How an amount is counted.
#[derive(Default, Clone, Copy, PartialEq)]
enum Unit {
    Milli,
    Bytes,
    /// Whole things: devices, pods, bytes of huge pages.
    #[default]
    Count,
}

/// A quantity that makes sense as an amount of a resource.
#[derive(Default)]
struct Checked {
    unit: Unit,
    amount: Option<i64>,
}

impl Checked {
    fn take(&mut self, q: Quantity, shown: &str, ctx: &mut Ctx<'_>) -> bool {
        let amount = if self.unit == Unit::Milli {
            q.milli()
        } else {
            q.units()
        };
        let why = if q.is_negative() {
            "is negative"
        } else if amount == i64::MAX {
            "is beyond any machine"
        } else if self.unit == Unit::Count && !q.is_whole() {
            "is not a whole number"
        } else {
            self.amount = Some(amount);
            return true;
        };
        ctx.note(format_args!(
            "{} {why} and is not counted",
            super::read::quoted(shown)
        ));
        true
    }
}

impl Read<'_> for Checked {
    const WANTED: &'static str = Amount::WANTED;
    fn text(&mut self, raw: &str, ctx: &mut Ctx<'_>) -> bool {
        let mut q = Amount::default();
        q.text(raw, ctx) && self.take(q.0, raw, ctx)
    }
    fn number(&mut self, n: Number, ctx: &mut Ctx<'_>) -> bool {
        let mut q = Amount::default();
        q.number(n, ctx) && self.take(q.0, &n.to_string(), ctx)
    }
}

fn pick(a: &mut Option<i64>, b: Option<i64>, f: impl Fn(i64, i64) -> i64) {
    *a = match (*a, b) {
        (Some(x), Some(y)) => Some(f(x, y)),
        (x, y) => x.or(y),
    };
}

impl Amounts {
    fn combine(&mut self, other: &Amounts, f: impl Fn(i64, i64) -> i64 + Copy) {
        let unread = &self.unread;
        let blocked = |key: &str| unread.iter().any(|k| **k == *key);
        let of = |key: &str, value: Option<i64>| value.filter(|_| !blocked(key));
        pick(&mut self.cpu_milli, of("cpu", other.cpu_milli), f);
        pick(&mut self.mem_bytes, of("memory", other.mem_bytes), f);
        pick(
            &mut self.ephemeral_bytes,
            of("ephemeral-storage", other.ephemeral_bytes),
            f,
        );
        for (key, amount) in &other.extended {
            match self.extended.binary_search_by(|(k, _)| k.cmp(key)) {
                Ok(at) => {
                    if let Some((_, mine)) = self.extended.get_mut(at) {
                        *mine = f(*mine, *amount);
                    }
                }
                Err(_) if blocked(key) => {}
                Err(at) => self.extended.insert(at, (key.clone(), *amount)),
            }
        }
    }

    /// Fills what is not stated here from `other` (limits stand in for requests).
    pub(super) fn fill_from(&mut self, other: &Amounts) {
        self.combine(other, |mine, _| mine);
    }

    /// The larger of both, resource by resource.
    pub(super) fn max(&mut self, other: &Amounts) {
        self.combine(other, i64::max);
    }

    pub(super) fn into_resources(self) -> Resources {
        Resources {
            cpu_milli: self.cpu_milli.unwrap_or(0),
            mem_bytes: self.mem_bytes.unwrap_or(0),
            ephemeral_bytes: self.ephemeral_bytes.unwrap_or(0),
            pods: self.pods.unwrap_or(0),
            extended: self.extended.into(),
        }
    }
}

object! { ResourcesRead {
    requests: Amounts = "requests",
    limits: Amounts = "limits",
}}

impl ResourcesRead {
    /// Requests, with limits in place of those that are missing.
    pub(super) fn into_amounts(self) -> Amounts {
        let mut amounts = self.requests;
        amounts.fill_from(&self.limits);
        amounts
    }
}
