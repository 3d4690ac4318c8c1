//! Rows of dcgm-exporter put together by GPU.
//!
//! Rows are told apart by their labels, which differ by generation: `UUID` or `uuid`, `pod` or
//! `pod_name`, and `exported_pod` where a Prometheus has put its own `pod` in its place.

use std::collections::{BTreeMap, BTreeSet};

use super::counters::Counter;
use super::exposition::{Sample, samples};
use crate::model::{
    ActivityBy, GpuReading, InstanceReading, Measured, MigProfile, PodName, Str, clean,
};

/// No machine has more; a hostile index must not make room.
const MAX_GPUS: u32 = 256;
/// Pods that may share a GPU.
const MAX_HOLDERS: usize = 64;

/// Who gives the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The exporter itself.
    Exporter,
    /// A Prometheus: `pod` may name the exporter that was scraped.
    Prometheus,
}

/// Rows of one node on their way to readings.
#[derive(Debug, Default)]
pub struct Rows {
    gpus: BTreeMap<u32, Draft>,
}

#[derive(Debug, Default)]
struct Draft {
    uuid: MaybeText,
    four_parts: bool,
    values: BTreeMap<Counter, f64>,
    xids: BTreeMap<u32, u32>,
    holders: BTreeSet<PodName>,
    instances: BTreeMap<u32, Part>,
}

/// A text that may be missing.
type MaybeText = Option<Str>;

#[derive(Debug, Default)]
struct Part {
    profile: Option<MigProfile>,
    values: BTreeMap<Counter, f64>,
    holder: Option<PodName>,
}

/// Reads the page of one exporter.
pub fn page(text: &str) -> Vec<GpuReading> {
    let mut rows = Rows::default();
    samples(text, |sample| rows.add(&sample, Origin::Exporter));
    rows.finish()
}

/// The pod that a row is attributed to.
fn holder(sample: &Sample<'_>, origin: Origin) -> Option<PodName> {
    const NAMES: [(&str, &str); 3] = [
        ("exported_namespace", "exported_pod"),
        ("namespace", "pod"),
        ("pod_namespace", "pod_name"),
    ];
    let (namespace, name) = NAMES.iter().find_map(|(namespace, name)| {
        let pair = (sample.label(namespace)?, sample.label(name)?);
        Some(pair)
    })?;
    let is_exporter = origin == Origin::Prometheus && name.contains("dcgm-exporter");
    (!is_exporter).then(|| PodName {
        namespace: clean(namespace, 63).into(),
        name: clean(name, 253).into(),
    })
}

fn number<T: std::str::FromStr>(sample: &Sample<'_>, key: &str) -> Option<T> {
    sample.label(key)?.trim().parse().ok()
}

impl Rows {
    /// Takes a row in, if it is one of a GPU that is read.
    pub fn add(&mut self, sample: &Sample<'_>, origin: Origin) {
        let Some(counter) = Counter::of(sample.name) else {
            return;
        };
        // Rows of a link or switch carry the GPU's index as well.
        let of_link = ["nvlink", "nvswitch"]
            .iter()
            .any(|k| sample.label(k).is_some());
        let device = || {
            let device = sample.label("device")?;
            device.strip_prefix("nvidia")?.parse().ok()
        };
        let Some(index) = number::<u32>(sample, "gpu").or_else(device) else {
            return;
        };
        if of_link || index >= MAX_GPUS {
            return;
        }
        let draft = self.gpus.entry(index).or_default();
        if draft.uuid.is_none() {
            let uuid = sample.label("UUID").or_else(|| sample.label("uuid"));
            draft.uuid = uuid.map(|u| clean(u, 80).into());
        }
        if let Some(model) = sample
            .label("modelName")
            .or_else(|| sample.label("model_name"))
        {
            draft.four_parts |= model.contains("A30") || model.contains("RTX PRO");
        }
        let holder = holder(sample, origin);
        let value = counter.sound(sample.value);
        if counter == Counter::XidCount {
            let code: Option<u32> = number(sample, "xid");
            if let (Some(code), Some(count)) = (code, value.filter(|n| *n > 0.0)) {
                // Each slice of a cut GPU repeats the counts of its GPU.
                draft.xids.insert(code, whole(count));
            }
            return;
        }
        // A GPU of MIG has rows of its instances only.
        if let Some(gi) = number::<u32>(sample, "GPU_I_ID") {
            let part = draft.instances.entry(gi).or_default();
            if part.profile.is_none() {
                part.profile = sample.label("GPU_I_PROFILE").and_then(|p| p.parse().ok());
            }
            part.holder = part.holder.take().or(holder);
            match counter {
                // These are the GPU's own, told again with each slice.
                Counter::Temperature
                | Counter::MemoryTemperature
                | Counter::Power
                | Counter::SmClock
                | Counter::Xid
                | Counter::RemapFailure => {
                    if let Some(value) = value {
                        draft.values.entry(counter).or_insert(value);
                    }
                }
                // Undefined under MIG, whatever an exporter may say.
                Counter::Utilisation | Counter::UtilisationRatio => {}
                _ => {
                    if let Some(value) = value {
                        part.values.entry(counter).or_insert(value);
                    }
                }
            }
            return;
        }
        if draft.holders.len() < MAX_HOLDERS {
            draft.holders.extend(holder);
        }
        // A share's own row: what it uses is not what the GPU uses.
        if sample.label("vgpu").is_some() {
            return;
        }
        if let Some(value) = value {
            draft.values.entry(counter).or_insert(value);
        }
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The readings, by rising index.
    pub fn finish(self) -> Vec<GpuReading> {
        self.gpus
            .into_iter()
            .map(|(index, draft)| draft.finish(index))
            .collect()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u32 {
    // Every counter's values are bounded before.
    value.round() as u32
}

#[allow(clippy::cast_possible_truncation)]
fn small(value: f64) -> f32 {
    value as f32
}

fn measured(values: &BTreeMap<Counter, f64>) -> Measured {
    let get = |counter| values.get(&counter).copied();
    let utilisation = get(Counter::UtilisationRatio)
        .or_else(|| get(Counter::Utilisation).map(|percent| percent / 100.0));
    let activity = [
        (get(Counter::Sm), ActivityBy::Sm),
        (get(Counter::Engine), ActivityBy::Engine),
        (utilisation, ActivityBy::Utilisation),
    ];
    let mut activity = activity.into_iter();
    let used = get(Counter::MemoryUsed);
    let sum = used.zip(get(Counter::MemoryFree));
    let sum = sum.map(|(used, free)| used + free + get(Counter::MemoryReserved).unwrap_or(0.0));
    Measured {
        activity: activity.find_map(|(share, by)| Some((small(share?), by))),
        tensor: get(Counter::Tensor).map(small),
        dram: get(Counter::Dram).map(small),
        memory_used_mib: used.map(whole),
        memory_total_mib: get(Counter::MemoryTotal).or(sum).map(whole),
    }
}

impl Draft {
    fn finish(self, index: u32) -> GpuReading {
        let get = |counter| self.values.get(&counter).copied();
        let instances: Vec<InstanceReading> = self
            .instances
            .into_iter()
            .map(|(gi, part)| InstanceReading {
                gi,
                measured: measured(&part.values),
                profile: part.profile,
                holder: part.holder,
            })
            .collect();
        let parts = if self.four_parts { 4.0 } else { 7.0 };
        let measured = if instances.is_empty() {
            measured(&self.values)
        } else {
            of_parts(&instances, parts)
        };
        GpuReading {
            index,
            uuid: self.uuid.unwrap_or_else(|| "".into()),
            measured,
            temperature_c: get(Counter::Temperature).map(small),
            memory_temperature_c: get(Counter::MemoryTemperature).map(small),
            power_watts: get(Counter::Power).map(small),
            sm_clock_mhz: get(Counter::SmClock).map(whole),
            last_xid: get(Counter::Xid).map(whole),
            recent_xids: self.xids.into_iter().collect(),
            remap_failed: get(Counter::RemapFailure).map(|n| n > 0.0),
            holders: self.holders.into_iter().collect(),
            instances: instances.into(),
        }
    }
}

/// A cut GPU as a whole: its instances, each by its share of the compute slices.
fn of_parts(instances: &[InstanceReading], parts: f32) -> Measured {
    let weighted = |of: &dyn Fn(&Measured) -> Option<f32>| -> Option<f32> {
        let shares = instances.iter().map(|i| {
            let weight = f32::from(i.profile.as_ref()?.compute_slices) / parts;
            Some(of(&i.measured)? * weight)
        });
        // One that is not known would count as idle.
        let shares: Option<Vec<f32>> = shares.collect();
        shares.map(|s| s.iter().sum::<f32>().min(1.0))
    };
    let by = instances
        .iter()
        .filter_map(|i| i.measured.activity.map(|(_, by)| by))
        .max();
    let sum = |of: &dyn Fn(&Measured) -> Option<u32>| -> Option<u32> {
        let all: Option<Vec<u32>> = instances.iter().map(|i| of(&i.measured)).collect();
        all.map(|all| all.into_iter().fold(0, u32::saturating_add))
    };
    Measured {
        activity: weighted(&|m| m.activity.map(|(share, _)| share)).zip(by),
        tensor: weighted(&|m| m.tensor),
        dram: weighted(&|m| m.dram),
        memory_used_mib: sum(&|m| m.memory_used_mib),
        memory_total_mib: sum(&|m| m.memory_total_mib),
    }
}
