//! A look at nodes and GPUs through a lens.

use jiff::Timestamp;

use super::seen::{NodeSeen, One, Seen, Text, Told, Weight};
use super::{BAD, GOOD, Lens, Owners, TEAMS, Tint, WORN, heat, tint};
use crate::model::{Cluster, GpuPods, GpuReading, Holder, Xid, XidClass};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::views::node_row::{NodeRow, Severity};

/// What a lens is looked through with.
pub(in crate::tui::views) struct Glass<'a> {
    /// Which one.
    pub(in crate::tui::views) lens: Lens,
    /// The picture.
    pub(in crate::tui::views) cluster: &'a Cluster,
    /// Owners.
    pub(in crate::tui::views) owners: &'a Owners,
    /// The time.
    pub(in crate::tui::views) now: Timestamp,
}

impl Glass<'_> {
    /// What it shows of a node of which so many GPUs are drawn.
    pub(in crate::tui::views) fn node(&self, row: &NodeRow, drawn: usize) -> NodeSeen {
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
                    let told = Told::Measure(self.lens, value, 1);
                    Seen::Value(heat(self.lens, value), told)
                }
                One::Kind(_, tint, text) => Seen::Value(tint, Told::Kind(text, 1, 1)),
                One::Nothing(text) => Seen::Nothing(text),
                One::Unknown(why) => Seen::Unknown(why),
            });
        }
        NodeSeen {
            gpus,
            whole: weight.seen(self.lens),
            weight,
        }
    }

    /// What it shows of a node as a whole, without a look at which pod is on which GPU.
    pub(in crate::tui::views) fn whole(&self, row: &NodeRow, drawn: usize) -> NodeSeen {
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
            whole: weight.seen(self.lens),
            weight,
        }
    }

    /// Owners and ages of all pods with GPUs on a node.
    fn weigh_pods(&self, row: &NodeRow, weight: &mut Weight) {
        let name = &row.name;
        let known = self.cluster.node(name).map(|(_, held)| held);
        let held = known.or_else(|| self.cluster.unknown_node(name).map(|(_, held)| held));
        let pods = held.map(|held| &held.gpu_pods);
        let nobody = pods.is_none_or(GpuPods::is_empty);
        if self.lens == Lens::Owner {
            for (namespace, devices) in pods.into_iter().flat_map(GpuPods::devices) {
                let tint = self.owners.tint(namespace);
                let namespace = Text::Shared(namespace.clone());
                weight.add(1, namespace, devices, Some(tint));
            }
        } else if let Some((pods, mean)) = pods.and_then(GpuPods::started) {
            #[allow(clippy::cast_precision_loss)]
            let age = (self.now.as_second() - mean).max(0) as f64;
            weight.measured(age, pods);
        } else if !nobody {
            weight.take(&One::Unknown(Text::Fixed("its pods state no start")));
        }
        if nobody {
            weight.take(&if row.used_gpus.is_none() {
                One::Unknown(Text::Fixed("pods are not known"))
            } else {
                One::Nothing("held by nobody")
            });
        }
    }

    /// Several nodes in one.
    pub(in crate::tui::views) fn group<'n>(
        &self,
        nodes: impl Iterator<Item = &'n NodeSeen>,
    ) -> Seen {
        let mut sum = Weight::default();
        for node in nodes {
            sum.join(&node.weight);
        }
        sum.seen(self.lens)
    }

    fn one(&self, row: &NodeRow, index: usize, holders: &[Holder]) -> One {
        match self.lens {
            Lens::Allocation => One::Nothing("allocation"),
            Lens::Tier => match row.tier() {
                Some(tier) => One::Kind(1, tier_tint(tier), Text::Fixed(tier)),
                None if row.node.is_none() => One::Unknown(Text::Shared(row.state.as_str().into())),
                None => One::Unknown(Text::Fixed("no label or taint tells a tier")),
            },
            Lens::Owner => match holders {
                [] if row.used_gpus.is_none() => One::Unknown(Text::Fixed("pods are not known")),
                [] => One::Nothing("held by nobody"),
                [first, rest @ ..] => {
                    let tint = self.owners.tint(&first.namespace);
                    let others = rest.iter().any(|h| h.namespace != first.namespace);
                    let namespace = match others {
                        true => format!("{} and others", first.namespace).into(),
                        false => first.namespace.clone(),
                    };
                    One::Kind(1, tint, Text::Shared(namespace))
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
                        One::Unknown(Text::Fixed("pods are not known"))
                    }
                    (None, []) => One::Nothing("held by nobody"),
                    (None, _) => One::Unknown(Text::Fixed("its pod states no start")),
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

/// The tint of a tier, by its name.
pub(super) fn tier_tint(name: &str) -> Tint {
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
pub(in crate::tui::views) fn reading(row: &NodeRow, index: usize) -> Result<&GpuReading, Text> {
    if row.node.is_none() {
        return Err(Text::Fixed("nodes are not known"));
    }
    let Some(telemetry) = &row.telemetry else {
        return Err(Text::Fixed("no exporter was read"));
    };
    match &telemetry.gpus {
        Err(why) => Err(Text::Shared(why.clone())),
        Ok(_) => {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let gpu = telemetry.gpu(index);
            gpu.ok_or(Text::Fixed("the exporter does not tell of this GPU"))
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
            One::Unknown(Text::Fixed("no profiling counter under MIG"))
        }
        None => One::Unknown(Text::Fixed("the exporter has no such counter")),
    }
}

fn health(row: &NodeRow, index: usize) -> One {
    if row.node.is_none() {
        return One::Unknown(Text::Shared(row.state.as_str().into()));
    }
    if !row.is_ready() {
        return One::Kind(4, BAD, Text::Shared(row.state.as_str().into()));
    }
    if row.cells.get(index).is_some_and(|c| c.sick_share() > 0.0) {
        return One::Kind(4, BAD, Text::Fixed("sick: the node does not give it out"));
    }
    let gpu = reading(row, index).ok();
    if gpu.is_some_and(|g| g.remap_failed == Some(true)) {
        return One::Kind(4, BAD, Text::Fixed("row remapping failed"));
    }
    let recent = gpu.and_then(|g| g.recent_xids.first().map(|(code, _)| *code));
    let last = gpu.and_then(|g| g.last_xid).filter(|code| *code != 0);
    if let Some(code) = recent.or(last) {
        let Xid { meaning, class, .. } = Xid::of(code);
        // The last Xid stays until the driver is loaded anew: alone it tells of the past.
        let now = recent.is_some();
        let text = match now {
            true => format!("Xid {code}, {meaning}"),
            false => format!("last Xid {code}, {meaning}"),
        };
        let text = Text::Shared(text.into());
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
    if row.severity > Severity::Cordoned {
        return One::Kind(2, WORN, Text::Shared(row.state.as_str().into()));
    }
    One::Kind(1, GOOD, Text::Fixed("well"))
}
