//! What is seen through a lens: of one GPU, of a node, of several nodes together.

use super::{Lens, Tint, heat, measure};
use crate::model::Str;
use crate::tui::format;

/// What a lens shows of a GPU, a node or a group. Words are put together only where they are read.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// This, in this colour.
    Value(Tint, Told),
    /// There is nothing to show, which is known: a free GPU has no owner.
    Nothing(&'static str),
    /// It is not known; why.
    Unknown(Text),
}

/// A value, as words will tell it.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// A measure under a lens, of one GPU or of several together.
    Measure(Lens, f64, u32),
    /// What so many GPUs of so many show.
    Kind(Text, u32, u32),
}

impl Seen {
    /// In words, for the line below the map.
    pub fn words(&self) -> String {
        match self {
            Seen::Value(_, Told::Measure(lens, value, gpus)) => {
                let word = match (lens, gpus) {
                    (_, 1) => "",
                    (Lens::Temperature, _) => " at most",
                    _ => " on average",
                };
                format!("{}{word}", measure(*lens, *value))
            }
            Seen::Value(_, Told::Kind(text, gpus, all)) if gpus == all => text.as_str().to_owned(),
            Seen::Value(_, Told::Kind(text, gpus, all)) => {
                format!("{} on {gpus} of {all}", text.as_str())
            }
            Seen::Nothing(text) => (*text).to_owned(),
            Seen::Unknown(why) => format!("{} ({})", format::UNKNOWN, why.as_str()),
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Seen::Nothing("not looked at")
    }
}

/// A text that costs nothing to repeat for each GPU.
#[derive(Clone, Debug)]
pub enum Text {
    /// Ours.
    Fixed(&'static str),
    /// The cluster's, or put together.
    Shared(Str),
}

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Fixed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
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
    pub(super) weight: Weight,
}

/// What can be put together over GPUs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Weight {
    /// GPUs of which a measure is known, their sum, and the highest.
    known: (u32, f64, f64),
    /// GPUs by what they show. There are few kinds on a node.
    kinds: Vec<OfKind>,
    unknown: Option<Text>,
}

/// GPUs that show the same.
#[derive(Clone, PartialEq, Debug)]
struct OfKind {
    /// How bad it is; the text comes second.
    rank: u8,
    text: Text,
    /// None: there is nothing to show.
    tint: Option<Tint>,
    gpus: u32,
}

impl Weight {
    pub(super) fn add(&mut self, rank: u8, text: Text, gpus: u32, tint: Option<Tint>) {
        let same = |k: &&mut OfKind| k.rank == rank && k.text == text;
        match self.kinds.iter_mut().find(same) {
            Some(kind) => kind.gpus = kind.gpus.saturating_add(gpus),
            None => self.kinds.push(OfKind {
                rank,
                text,
                tint,
                gpus,
            }),
        }
    }

    /// Takes in a measure that so many have on average.
    pub(super) fn measured(&mut self, value: f64, times: u32) {
        let (count, sum, highest) = self.known;
        let sum = sum + value * f64::from(times);
        self.known = (count.saturating_add(times), sum, highest.max(value));
    }

    pub(super) fn take(&mut self, one: &One) {
        match one {
            One::Measure(value) => self.measured(*value, 1),
            One::Kind(rank, tint, text) => self.add(*rank, text.clone(), 1, Some(*tint)),
            One::Nothing(text) => self.add(0, Text::Fixed(text), 1, None),
            One::Unknown(why) => {
                self.unknown.get_or_insert_with(|| why.clone());
            }
        }
    }

    /// Takes in what another part is made of.
    pub(super) fn join(&mut self, other: &Weight) {
        self.known.0 = self.known.0.saturating_add(other.known.0);
        self.known.1 += other.known.1;
        self.known.2 = self.known.2.max(other.known.2);
        for kind in &other.kinds {
            self.add(kind.rank, kind.text.clone(), kind.gpus, kind.tint);
        }
        if self.unknown.is_none() {
            self.unknown.clone_from(&other.unknown);
        }
    }

    /// All of it in one, as a lens shows it.
    pub(super) fn seen(&self, lens: Lens) -> Seen {
        let (count, sum, highest) = self.known;
        if count > 0 {
            // Of heat the worst counts, of all else the mean.
            let value = match lens {
                Lens::Temperature => highest,
                _ => sum / f64::from(count),
            };
            return Seen::Value(heat(lens, value), Told::Measure(lens, value, count));
        }
        let all: u32 = self.kinds.iter().map(|k| k.gpus).sum();
        // The worst of health, and what most of them are of all else.
        let chosen = self.kinds.iter().max_by_key(|k| {
            let place = (k.rank, k.text.as_str());
            match lens {
                Lens::Health => (true, 0, place),
                _ => (k.tint.is_some(), k.gpus, place),
            }
        });
        match chosen {
            Some(OfKind {
                tint: Some(tint),
                text,
                gpus,
                ..
            }) => Seen::Value(*tint, Told::Kind(text.clone(), *gpus, all)),
            Some(_) => Seen::Nothing("no pods"),
            None => {
                let why = self.unknown.clone();
                Seen::Unknown(why.unwrap_or(Text::Fixed("it has no GPUs that are known")))
            }
        }
    }
}

/// What a measure of one GPU is.
pub(super) enum One {
    Measure(f64),
    Kind(u8, Tint, Text),
    Nothing(&'static str),
    Unknown(Text),
}
