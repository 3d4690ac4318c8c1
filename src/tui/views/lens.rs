//! Lenses: what the colour of a GPU tells. Shape tells its state under every lens; on terminals
//! without colours a digit or letter takes the place of the colour.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::node_row::NodeRow;
use crate::model::{Cluster, Figures, GpuReading, Holder, Str, Xid, XidClass};
use crate::tui::format;
use crate::tui::theme::{Meaning, Theme};

/// What colour tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lens {
    /// What is held by pods.
    #[default]
    Allocation,
    /// The namespace that holds it.
    Owner,
    /// How busy it is.
    Activity,
    /// How much of its memory is in use.
    Memory,
    /// How hot it is.
    Temperature,
    /// What it draws.
    Power,
    /// What is wrong with it.
    Health,
    /// What its node costs and how it can be lost.
    Tier,
    /// Since when its pod runs.
    Age,
}

impl Lens {
    /// All of them, in their turn.
    pub const ALL: [Lens; 9] = [
        Lens::Allocation,
        Lens::Owner,
        Lens::Activity,
        Lens::Memory,
        Lens::Temperature,
        Lens::Power,
        Lens::Health,
        Lens::Tier,
        Lens::Age,
    ];

    /// As the screen writes it.
    pub fn name(self) -> &'static str {
        match self {
            Lens::Allocation => "allocation",
            Lens::Owner => "owner",
            Lens::Activity => "SM active",
            Lens::Memory => "memory",
            Lens::Temperature => "temperature",
            Lens::Power => "power",
            Lens::Health => "health",
            Lens::Tier => "tier",
            Lens::Age => "age of job",
        }
    }

    /// What it tells, for the picker.
    pub fn about(self) -> &'static str {
        match self {
            Lens::Allocation => "what pods hold",
            Lens::Owner => "the namespace that holds each GPU",
            Lens::Activity => "how busy each GPU is, by dcgm-exporter",
            Lens::Memory => "how much GPU memory is in use, by dcgm-exporter",
            Lens::Temperature => "how hot each GPU is, by dcgm-exporter",
            Lens::Power => "watts of each GPU, by dcgm-exporter",
            Lens::Health => "faults of node and device, last Xid",
            Lens::Tier => "owned, reserved, on-demand, spot, calendar",
            Lens::Age => "since when the pod on each GPU runs",
        }
    }

    /// The next in turn.
    pub fn next(self) -> Self {
        let at = Lens::ALL.iter().position(|l| *l == self).unwrap_or(0);
        Lens::ALL
            .get(at + 1)
            .or(Lens::ALL.first())
            .copied()
            .unwrap_or_default()
    }

    /// Whether it looks at pods' devices.
    pub(super) fn needs_holders(self) -> bool {
        matches!(self, Lens::Owner | Lens::Age)
    }

    /// Whether it shows what an exporter measures.
    pub fn is_measured(self) -> bool {
        matches!(
            self,
            Lens::Activity | Lens::Memory | Lens::Temperature | Lens::Power
        )
    }
}

/// A colour, and the sign that stands for it where there are no colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tint {
    /// The colour's meaning.
    pub meaning: Meaning,
    /// The sign.
    pub sign: &'static str,
}

/// The steps of a measure, the lowest first.
const HEAT: [Tint; 5] = [
    tint(Meaning::Heat1, "1"),
    tint(Meaning::Heat2, "2"),
    tint(Meaning::Heat3, "3"),
    tint(Meaning::Heat4, "4"),
    tint(Meaning::Heat5, "5"),
];

const TEAMS: [Meaning; 8] = [
    Meaning::Team1,
    Meaning::Team2,
    Meaning::Team3,
    Meaning::Team4,
    Meaning::Team5,
    Meaning::Team6,
    Meaning::Team7,
    Meaning::Team8,
];

const LETTERS: [&str; 26] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z",
];

const GOOD: Tint = tint(Meaning::Ok, "o");
const WORN: Tint = tint(Meaning::Warn, "w");
const BAD: Tint = tint(Meaning::Danger, "!");

const fn tint(meaning: Meaning, sign: &'static str) -> Tint {
    Tint { meaning, sign }
}

/// The tint of the n-th owner.
fn team(n: usize) -> Tint {
    let meaning = TEAMS.get(n % TEAMS.len()).copied();
    let sign = LETTERS.get(n % LETTERS.len()).copied();
    tint(meaning.unwrap_or(Meaning::Used), sign.unwrap_or("?"))
}

/// Whether a theme has no colours to tell steps apart by.
pub(super) fn is_mono(theme: &Theme) -> bool {
    theme.style(Meaning::Heat1) == theme.style(Meaning::Heat5)
}

/// Owners in their order, so that each keeps its colour.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    numbers: BTreeMap<Str, usize>,
}

impl Owners {
    /// The namespaces whose pods hold GPUs.
    pub fn of(figures: &Figures) -> Self {
        let holding = figures.namespaces.iter();
        let holding = holding.filter(|n| n.gpus > 0 || n.mig_instances > 0);
        let names = holding.map(|n| n.namespace.clone());
        Owners {
            numbers: names.zip(0..).collect(),
        }
    }

    fn tint(&self, namespace: &str) -> Tint {
        team(self.numbers.get(namespace).copied().unwrap_or(usize::MAX))
    }
}

/// What a lens shows of a GPU, a node or a group.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// This, in this colour.
    Value(Tint, String),
    /// There is nothing to show, which is known: a free GPU has no owner.
    Nothing(&'static str),
    /// It is not known; why.
    Unknown(Str),
}

impl Seen {
    /// In words, for the line below the map.
    pub fn words(&self) -> String {
        match self {
            Seen::Value(_, text) => text.clone(),
            Seen::Nothing(text) => (*text).to_owned(),
            Seen::Unknown(why) => format!("{} ({why})", format::UNKNOWN),
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Seen::Nothing("not looked at")
    }
}

/// What a lens shows of a node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodeSeen {
    /// Each GPU.
    pub gpus: Vec<Seen>,
    /// All of them in one.
    pub whole: Seen,
    /// What the one is made of: for sums over several nodes.
    weight: Weight,
}

/// What can be put together over GPUs.
#[derive(Clone, PartialEq, Debug, Default)]
struct Weight {
    /// Measures of GPUs that are known.
    known: Vec<f64>,
    /// GPUs by what they show.
    kinds: BTreeMap<(u8, String), (u32, Option<TintKey>)>,
    unknown: Option<Str>,
}

impl Weight {
    fn add(&mut self, kind: (u8, String), gpus: u32, tint: Option<TintKey>) {
        let sum = &mut self.kinds.entry(kind).or_insert((0, tint)).0;
        *sum = sum.saturating_add(gpus);
    }

    fn take(&mut self, one: &One) {
        match one {
            One::Measure(value) => self.known.push(*value),
            One::Kind(rank, tint, text) => {
                self.add((*rank, text.clone()), 1, Some(key_of(*tint)));
            }
            One::Nothing(text) => self.add((0, (*text).to_owned()), 1, None),
            One::Unknown(why) => {
                self.unknown.get_or_insert_with(|| why.clone());
            }
        }
    }
}

fn key_of(tint: Tint) -> TintKey {
    (tint.meaning as u8, tint.sign)
}

/// A tint as a key that has an order.
type TintKey = (u8, &'static str);

/// What a measure of one GPU is.
enum One {
    Measure(f64),
    Kind(u8, Tint, String),
    Nothing(&'static str),
    Unknown(Str),
}

/// Upper ends of the first four steps.
fn steps(lens: Lens) -> [f64; 4] {
    match lens {
        Lens::Temperature => [45.0, 60.0, 75.0, 85.0],
        Lens::Power => [100.0, 250.0, 400.0, 600.0],
        Lens::Age => [3_600.0, 21_600.0, 86_400.0, 259_200.0],
        _ => [0.2, 0.4, 0.6, 0.8],
    }
}

/// The tint of a measure.
fn heat(lens: Lens, value: f64) -> Tint {
    let at = steps(lens).iter().filter(|end| value >= **end).count();
    HEAT.get(at).copied().unwrap_or(GOOD)
}

/// A measure in its unit.
fn measure(lens: Lens, value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    match lens {
        Lens::Temperature => format!("{value:.0} °C"),
        Lens::Power => format!("{} W", format::count(value.round() as i64)),
        Lens::Age => format::duration(value.round() as i64),
        _ => format!("{:.0}%", value * 100.0),
    }
}

/// What a lens is looked through with.
pub(super) struct Glass<'a> {
    /// Which one.
    pub(super) lens: Lens,
    /// The picture.
    pub(super) cluster: &'a Cluster,
    /// Owners.
    pub(super) owners: &'a Owners,
    /// The time.
    pub(super) now: Timestamp,
}

impl Glass<'_> {
    /// What it shows of a node of which so many GPUs are drawn.
    pub(super) fn node(&self, row: &NodeRow, drawn: usize) -> NodeSeen {
        let holders = if self.lens.needs_holders() {
            self.cluster.holders(&row.name, &row.cells)
        } else {
            Vec::new()
        };
        let mut weight = Weight::default();
        let mut gpus = Vec::with_capacity(drawn);
        for index in 0..drawn {
            let one = self.one(row, index, holders.get(index).map_or(&[], |h| h));
            weight.take(&one);
            gpus.push(match one {
                One::Measure(value) => {
                    Seen::Value(heat(self.lens, value), measure(self.lens, value))
                }
                One::Kind(_, tint, text) => Seen::Value(tint, text),
                One::Nothing(text) => Seen::Nothing(text),
                One::Unknown(why) => Seen::Unknown(why),
            });
        }
        let whole = self.sum(&[&weight]);
        NodeSeen {
            gpus,
            whole,
            weight,
        }
    }

    /// What it shows of a node as a whole, without a look at which pod is on which GPU.
    pub(super) fn whole(&self, row: &NodeRow, drawn: usize) -> NodeSeen {
        let mut weight = Weight::default();
        if self.lens.needs_holders() {
            self.weigh_pods(row, &mut weight);
        } else {
            for index in 0..drawn {
                weight.take(&self.one(row, index, &[]));
            }
        }
        NodeSeen {
            gpus: Vec::new(),
            whole: self.sum(&[&weight]),
            weight,
        }
    }

    /// Owners and ages of all pods with GPUs on a node.
    fn weigh_pods(&self, row: &NodeRow, weight: &mut Weight) {
        let name = &row.name;
        let known = self.cluster.node(name).map(|(_, held)| held);
        let held = known.or_else(|| self.cluster.unknown_node(name).map(|(_, held)| held));
        let uids = held.into_iter().flat_map(|held| &held.pods);
        let mut nobody = true;
        for pod in uids.filter_map(|uid| self.cluster.pod(uid)) {
            let devices: i64 = pod
                .gpu_requests()
                .map(|(_, n)| n)
                .fold(0, i64::saturating_add);
            if devices == 0 {
                continue;
            }
            nobody = false;
            match (self.lens, pod.started.or(pod.meta.created)) {
                (Lens::Owner, _) => {
                    let tint = self.owners.tint(&pod.meta.namespace);
                    let namespace = pod.meta.namespace.to_string();
                    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
                    weight.add((1, namespace), devices, Some(key_of(tint)));
                }
                #[allow(clippy::cast_precision_loss)]
                (_, Some(since)) => weight
                    .known
                    .push(format::secs_since(since, self.now).max(0) as f64),
                (_, None) => weight.take(&One::Unknown("its pod states no start".into())),
            }
        }
        if nobody {
            weight.take(&if row.used_gpus.is_none() {
                One::Unknown("pods are not known".into())
            } else {
                One::Nothing("held by nobody")
            });
        }
    }

    /// Several nodes in one.
    pub(super) fn group<'n>(&self, nodes: impl Iterator<Item = &'n NodeSeen>) -> Seen {
        let weights: Vec<&Weight> = nodes.map(|n| &n.weight).collect();
        self.sum(&weights)
    }

    fn sum(&self, weights: &[&Weight]) -> Seen {
        let known = weights.iter().flat_map(|w| w.known.iter().copied());
        let known: Vec<f64> = known.collect();
        if !known.is_empty() {
            let count = f64::from(u32::try_from(known.len()).unwrap_or(u32::MAX));
            // Of heat the worst counts, of all else the mean.
            let value = match self.lens {
                Lens::Temperature => known.iter().copied().fold(0.0, f64::max),
                _ => known.iter().sum::<f64>() / count,
            };
            let word = match (self.lens, known.len()) {
                (_, 1) => "",
                (Lens::Temperature, _) => " at most",
                _ => " on average",
            };
            let text = format!("{}{word}", measure(self.lens, value));
            return Seen::Value(heat(self.lens, value), text);
        }
        let mut kinds: BTreeMap<(u8, &str), (u32, Option<TintKey>)> = BTreeMap::new();
        for ((rank, text), (count, key)) in weights.iter().flat_map(|w| &w.kinds) {
            let entry = kinds.entry((*rank, text)).or_insert((0, *key));
            entry.0 += count;
        }
        let all: u32 = kinds.values().map(|(count, _)| count).sum();
        // The worst of health, and what most of them are of all else.
        let chosen = match self.lens {
            Lens::Health => kinds.iter().next_back(),
            _ => kinds
                .iter()
                .max_by_key(|(_, (count, key))| (key.is_some(), *count)),
        };
        if let Some(((_, text), (count, key))) = chosen {
            let Some(tint) = key.and_then(tint_of) else {
                return Seen::Nothing("no pods");
            };
            let text = if *count == all {
                (*text).to_owned()
            } else {
                format!("{text} on {count} of {all}")
            };
            return Seen::Value(tint, text);
        }
        let why = weights.iter().find_map(|w| w.unknown.clone());
        Seen::Unknown(why.unwrap_or_else(|| "it has no GPUs that are known".into()))
    }

    fn one(&self, row: &NodeRow, index: usize, holders: &[Holder]) -> One {
        match self.lens {
            Lens::Allocation => One::Nothing("allocation"),
            Lens::Tier => match row.tier() {
                Some(tier) => One::Kind(1, tier_tint(tier), tier.to_owned()),
                None if row.node.is_none() => One::Unknown(row.state.as_str().into()),
                None => One::Unknown("no label or taint tells a tier".into()),
            },
            Lens::Owner => match holders {
                [] if row.used_gpus.is_none() => One::Unknown("pods are not known".into()),
                [] => One::Nothing("held by nobody"),
                [first, rest @ ..] => {
                    let tint = self.owners.tint(&first.namespace);
                    let others = rest.iter().any(|h| h.namespace != first.namespace);
                    let text = if others {
                        format!("{} and others", first.namespace)
                    } else {
                        first.namespace.to_string()
                    };
                    One::Kind(1, tint, text)
                }
            },
            Lens::Age => {
                let since = holders.iter().filter_map(|h| h.started).min();
                match (since, holders) {
                    (Some(since), _) =>
                    {
                        #[allow(clippy::cast_precision_loss)]
                        One::Measure(format::secs_since(since, self.now).max(0) as f64)
                    }
                    (None, []) if row.used_gpus.is_none() => {
                        One::Unknown("pods are not known".into())
                    }
                    (None, []) => One::Nothing("held by nobody"),
                    (None, _) => One::Unknown("its pod states no start".into()),
                }
            }
            Lens::Health => health(row, index),
            Lens::Activity | Lens::Memory | Lens::Temperature | Lens::Power => {
                match reading(row, index) {
                    Ok(gpu) => measured(self.lens, gpu),
                    Err(why) => One::Unknown(why),
                }
            }
        }
    }
}

fn tint_of(key: TintKey) -> Option<Tint> {
    let meaning = Meaning::ALL.iter().find(|m| **m as u8 == key.0)?;
    Some(tint(*meaning, key.1))
}

/// The tint of a tier, by its name.
fn tier_tint(name: &str) -> Tint {
    let at = crate::model::Tier::ALL
        .iter()
        .position(|t| t.name() == name);
    let signs = ["o", "r", "d", "s", "c"];
    let at = at.unwrap_or(0);
    tint(
        TEAMS.get(at).copied().unwrap_or(Meaning::Team1),
        signs.get(at).copied().unwrap_or("?"),
    )
}

/// What an exporter tells of a GPU, or why nothing.
pub(super) fn reading(row: &NodeRow, index: usize) -> Result<&GpuReading, Str> {
    if row.node.is_none() {
        return Err("nodes are not known".into());
    }
    let Some(telemetry) = &row.telemetry else {
        return Err("no exporter was read".into());
    };
    match &telemetry.gpus {
        Err(why) => Err(why.clone()),
        Ok(_) => {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let gpu = telemetry.gpu(index);
            gpu.ok_or_else(|| "the exporter does not tell of this GPU".into())
        }
    }
}

fn measured(lens: Lens, gpu: &GpuReading) -> One {
    let value = match lens {
        Lens::Activity => gpu.measured.activity.map(|(share, _)| f64::from(share)),
        Lens::Memory => gpu.measured.memory_share(),
        Lens::Temperature => gpu.temperature_c.map(f64::from),
        _ => gpu.power_watts.map(f64::from),
    };
    match value {
        Some(value) => One::Measure(value),
        None if lens == Lens::Activity && !gpu.instances.is_empty() => {
            One::Unknown("no profiling counter under MIG".into())
        }
        None => One::Unknown("the exporter has no such counter".into()),
    }
}

fn health(row: &NodeRow, index: usize) -> One {
    if row.node.is_none() {
        return One::Unknown(row.state.as_str().into());
    }
    if !row.is_ready() {
        return One::Kind(4, BAD, row.state.clone());
    }
    if row.cells.get(index).is_some_and(|c| c.sick_share() > 0.0) {
        return One::Kind(4, BAD, "sick: the node does not give it out".to_owned());
    }
    let gpu = reading(row, index).ok();
    if gpu.is_some_and(|g| g.remap_failed == Some(true)) {
        return One::Kind(4, BAD, "row remapping failed".to_owned());
    }
    let recent = gpu.and_then(|g| g.recent_xids.first().map(|(code, _)| *code));
    let last = gpu.and_then(|g| g.last_xid).filter(|code| *code != 0);
    if let Some(code) = recent.or(last) {
        let Xid { meaning, class, .. } = Xid::of(code);
        // The last Xid stays until the driver is loaded anew: alone it tells of the past.
        let now = recent.is_some();
        let text = if now {
            format!("Xid {code}, {meaning}")
        } else {
            format!("last Xid {code}, {meaning}")
        };
        match (class, now) {
            (XidClass::Reboot | XidClass::Hardware, _)
            | (XidClass::Reset | XidClass::Drain | XidClass::Unknown, true) => {
                return One::Kind(3, BAD, text);
            }
            (XidClass::Reset | XidClass::Drain | XidClass::Unknown, false)
            | (XidClass::App, true) => return One::Kind(2, WORN, text),
            (XidClass::App, false) | (XidClass::Ignore, _) => {}
        }
    }
    if row.severity > super::node_row::Severity::Cordoned {
        return One::Kind(2, WORN, row.state.clone());
    }
    One::Kind(1, GOOD, "well".to_owned())
}

/// The legend of a lens: tints with what they mean.
pub(super) fn legend(lens: Lens, owners: &Owners) -> Vec<(Tint, String)> {
    match lens {
        Lens::Allocation => Vec::new(),
        Lens::Owner => owners
            .numbers
            .iter()
            .map(|(name, n)| (team(*n), name.to_string()))
            .collect(),
        Lens::Tier => crate::model::Tier::ALL
            .iter()
            .map(|t| (tier_tint(t.name()), t.name().to_owned()))
            .collect(),
        Lens::Health => vec![
            (GOOD, "well".to_owned()),
            (WORN, "fault or Xid".to_owned()),
            (BAD, "sick or down".to_owned()),
        ],
        _ => {
            let ends = steps(lens);
            let edge = |value: f64| match lens {
                Lens::Temperature => format!("{value:.0}"),
                Lens::Power => format!("{value:.0}"),
                Lens::Age => measure(lens, value),
                _ => format!("{:.0}", value * 100.0),
            };
            let unit = match lens {
                Lens::Temperature => " °C",
                Lens::Power => " W",
                Lens::Age => "",
                _ => "%",
            };
            let mut words = Vec::new();
            let mut from: Option<f64> = None;
            for end in ends {
                words.push(match from {
                    None => format!("<{}{unit}", edge(end)),
                    Some(from) => format!("{}-{}", edge(from), edge(end)),
                });
                from = Some(end);
            }
            words.push(format!("{}+", edge(from.unwrap_or(0.0))));
            HEAT.into_iter().zip(words).collect()
        }
    }
}
