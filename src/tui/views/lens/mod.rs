//! Lenses: what the colour of a GPU tells. Shape tells its state under every lens; on terminals
//! without colours a digit or letter takes the place of the colour.

mod glass;
mod seen;

use std::collections::BTreeMap;

pub(super) use self::glass::Glass;
use self::glass::tier_tint;
pub use self::seen::{NodeSeen, Seen, Text, Told};
use crate::model::{Figures, Str};
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
