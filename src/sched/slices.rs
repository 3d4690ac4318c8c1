//! MIG devices of a node: a legal layout for what the kubelet offers, and which instance a pod is
//! counted on.
//!
//! What the node offers wins: the layout only says where its instances can lie. The kubelet picks
//! the instance; counts are exact, positions are our best guess.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mig::{self, Device, Geometry, Mask, Prices, Profile, Scarcity};
use crate::model::{GpuResource, Node, Str};

/// Instances of a node beyond these are counted only.
const MOST: usize = 128;
/// Weight of scarcity beside prices.
const SCARCITY: f64 = 0.3;
/// A layout can only be changed on a GPU where nothing runs (mig-manager), so an idle one is the
/// last to be used, and of the others the one that runs most the first.
const IDLE: f64 = 1.0;
const NEIGHBOUR: f64 = 0.03;
/// Prices among GPUs that run as much.
const AMONG_BUSY: f64 = 0.01;
/// Arrivals of slices after which prices are made anew.
const RENEW_EVERY: u32 = 256;
/// The first few teach most.
const FIRST_RENEWAL: u32 = 32;
/// What each profile is expected before any has come.
const PSEUDO: f64 = 4.0;
/// What was learnt weighs so much after each renewal.
const DECAY: f64 = 0.5;

/// One instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instance {
    profile: &'static Profile,
    device: u8,
    window: Mask,
}

/// The instances of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    geometry: &'static Geometry,
    instances: Vec<Instance>,
}

/// The profile that a resource key stands for on this model.
fn profile_of(geometry: &'static Geometry, key: &str) -> Option<&'static Profile> {
    match GpuResource::from_key(key)? {
        GpuResource::Mig(profile) => geometry.profile(&profile.to_string()),
        _ => None,
    }
}

impl Layout {
    /// A layout for what a node offers; `None` without MIG devices by profile, on a model whose
    /// geometry is not known, or when no legal layout holds what it says it has.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let gpus = &node.gpus;
        let product = gpus.model.as_ref()?.product();
        let geometry = mig::of_product(product, gpus.memory_mib)?;
        let mut wanted: Vec<&'static Profile> = Vec::new();
        for (key, n) in &node.allocatable.extended {
            if let Some(profile) = profile_of(geometry, key) {
                let n = usize::try_from(*n).unwrap_or(0).min(MOST);
                wanted.extend(std::iter::repeat_n(profile, n));
            }
        }
        if wanted.is_empty() || wanted.len() > MOST {
            return None;
        }
        let whole = u32::try_from(node.capacity.extended("nvidia.com/gpu")).unwrap_or(0);
        let devices = gpus.count?.saturating_sub(whole).min(16);
        wanted.sort_by_key(|p| std::cmp::Reverse((p.mem_slices, p.compute)));
        let mut dealt: Vec<Vec<&'static Profile>> = vec![Vec::new(); devices as usize];
        for profile in wanted {
            // The usual layouts are alike on all devices.
            let device = dealt
                .iter_mut()
                .filter(|held| {
                    let mut all = (*held).clone();
                    all.push(profile);
                    legal(geometry, &all).is_some()
                })
                .min_by_key(|held| held.iter().filter(|p| **p == profile).count())?;
            device.push(profile);
        }
        let mut instances = Vec::new();
        for (device, held) in (0..).zip(&dealt) {
            let windows = legal(geometry, held)?;
            instances.extend(held.iter().zip(windows).map(|(profile, window)| Instance {
                profile,
                device,
                window,
            }));
        }
        Some(Self {
            geometry,
            instances,
        })
    }

    /// Short name of the model.
    pub(super) fn model(&self) -> &'static str {
        self.geometry.model
    }

    /// What the model can be cut into.
    pub(super) fn geometry(&self) -> &'static Geometry {
        self.geometry
    }

    /// Profile, device and window of each instance.
    pub(super) fn instances(&self) -> impl Iterator<Item = (&'static str, u8, Mask)> + '_ {
        let all = self.instances.iter();
        all.map(|i| (i.profile.name, i.device, i.window))
    }

    /// All instances free.
    pub(super) fn all(&self) -> u128 {
        (0..self.instances.len()).fold(0, |mask, i| mask | 1 << i)
    }

    /// Devices as those instances occupy them that are not free.
    pub(super) fn devices(&self, free: u128) -> Vec<Device> {
        let count = self.instances.iter().map(|i| usize::from(i.device) + 1);
        let mut devices = vec![Device::default(); count.max().unwrap_or(0)];
        for (i, instance) in self.instances.iter().enumerate() {
            if free >> i & 1 == 0
                && let Some(device) = devices.get_mut(usize::from(instance.device))
            {
                device.mask |= instance.window;
                device.running += 1;
                device.compute += instance.profile.compute;
            }
        }
        devices
    }

    /// The free instance of a resource that costs those who may come least, and that cost.
    fn choose(&self, free: u128, key: &str, prices: Option<&Priced>) -> Option<(usize, f64)> {
        let profile = profile_of(self.geometry, key)?;
        let devices = self.devices(free);
        let mut best: Option<(usize, f64)> = None;
        for (i, instance) in self.instances.iter().enumerate() {
            if free >> i & 1 == 0 || instance.profile != profile {
                continue;
            }
            let device = devices
                .get(usize::from(instance.device))
                .copied()
                .unwrap_or_default();
            let cost = prices.map_or(0.0, |p| p.cost(device, instance.window));
            if best.is_none_or(|(_, least)| cost < least - 1e-9) {
                best = Some((i, cost));
            }
        }
        best
    }

    /// Instances for all slices that a pod asks for, and what they cost together. Fewer when more
    /// is bound than is there.
    pub(super) fn take(
        &self,
        free: u128,
        extended: &[(Str, i64)],
        prices: &SlicePrices,
    ) -> (u128, f64) {
        let priced = prices.of(self.model());
        let (mut taken, mut total) = (0, 0.0);
        for (key, n) in extended {
            for _ in 0..usize::try_from(*n).unwrap_or(0).min(MOST) {
                let Some((i, cost)) = self.choose(free & !taken, key, priced) else {
                    break;
                };
                taken |= 1 << i;
                total += cost;
            }
        }
        (taken, total)
    }
}

/// Legal windows for instances on one device, in their order; `None` when there are none.
fn legal(geometry: &Geometry, held: &[&'static Profile]) -> Option<Vec<Mask>> {
    fn place(held: &[&'static Profile], taken: Mask, windows: &mut Vec<Mask>) -> bool {
        let Some((first, rest)) = held.split_first() else {
            return true;
        };
        for (_, window) in first.free_starts(taken) {
            windows.push(window);
            if place(rest, taken | window, windows) {
                return true;
            }
            windows.pop();
        }
        false
    }
    let compute: u32 = held.iter().map(|p| u32::from(p.compute)).sum();
    let alike = |p: &&'static Profile| held.iter().filter(|o| *o == p).count();
    if compute > u32::from(geometry.compute) || held.iter().any(|p| alike(p) > usize::from(p.most))
    {
        return None;
    }
    let mut windows = Vec::with_capacity(held.len());
    place(held, 0, &mut windows).then_some(windows)
}

/// Prices of one model.
#[derive(Clone, Debug)]
struct Priced {
    prices: Prices,
    weights: Scarcity,
}

impl Priced {
    fn cost(&self, device: Device, window: Mask) -> f64 {
        let after = device.mask | window;
        let lost: f64 = self
            .prices
            .copies(device.mask)
            .iter()
            .zip(self.prices.copies(after))
            .zip(&self.weights)
            .map(|((before, after), weight)| weight * (f64::from(*before) - f64::from(*after)))
            .sum();
        let priced = self.prices.free(device.mask) - self.prices.free(after) + SCARCITY * lost;
        if device.running == 0 {
            return IDLE + priced;
        }
        NEIGHBOUR * f64::from(16_u8.saturating_sub(device.running)) + AMONG_BUSY * priced
    }
}

/// How often slices of a model are asked for, and the prices by that.
#[derive(Clone, Debug)]
struct Learnt {
    geometry: &'static Geometry,
    counts: Vec<f64>,
    /// Arrivals so far, and since the last renewal.
    arrivals: u32,
    since: u32,
    priced: Arc<Priced>,
}

/// Prices of slices, by model.
#[derive(Clone, Debug, Default)]
pub(super) struct SlicePrices {
    models: BTreeMap<&'static str, Learnt>,
    version: u64,
}

impl SlicePrices {
    fn of(&self, model: &str) -> Option<&Priced> {
        self.models.get(model).map(|learnt| &*learnt.priced)
    }

    /// Grows with each change of a price.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// A layout of a model is there.
    pub(super) fn meet(&mut self, layout: &Layout) {
        if !self.models.contains_key(layout.model()) {
            let geometry = layout.geometry;
            let counts = vec![0.0; geometry.plain().count()];
            let priced = Arc::new(price(geometry, &counts, &[]));
            let learnt = Learnt {
                geometry,
                counts,
                arrivals: 0,
                since: 0,
                priced,
            };
            self.models.insert(layout.model(), learnt);
            self.version += 1;
        }
    }

    /// A pod that asks for these has arrived; `devices` tells those of a model as they are now.
    pub(super) fn arrived(
        &mut self,
        extended: &[(Str, i64)],
        devices: impl Fn(&str) -> Vec<Device>,
    ) {
        for learnt in self.models.values_mut() {
            let mut asked = false;
            for (key, n) in extended {
                let Some(profile) = profile_of(learnt.geometry, key) else {
                    continue;
                };
                // The media variant counts as its plain profile.
                let at = learnt.geometry.plain().position(|p| {
                    (p.compute, p.mem_slices) == (profile.compute, profile.mem_slices)
                });
                if let Some(count) = at.and_then(|at| learnt.counts.get_mut(at)) {
                    *count += u32::try_from(*n).map_or(1.0, f64::from).min(64.0);
                    asked = true;
                }
            }
            if !asked {
                continue;
            }
            learnt.since += 1;
            learnt.arrivals = learnt.arrivals.saturating_add(1);
            let due = learnt.since >= RENEW_EVERY || learnt.arrivals == FIRST_RENEWAL;
            if due {
                let devices = devices(learnt.geometry.model);
                learnt.priced = Arc::new(price(learnt.geometry, &learnt.counts, &devices));
                learnt.counts.iter_mut().for_each(|c| *c *= DECAY);
                learnt.since = 0;
                self.version += 1;
            }
        }
    }
}

fn price(geometry: &'static Geometry, counts: &[f64], devices: &[Device]) -> Priced {
    let all: f64 = counts.iter().map(|c| c + PSEUDO).sum();
    let share: Vec<f64> = counts.iter().map(|c| (c + PSEUDO) / all).collect();
    let prices = Prices::new(geometry, &share);
    let weights = mig::scarcity(&prices, &share, devices);
    Priced { prices, weights }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{Meta, NodeGpus, Resources};

    fn node(product: &str, gpus: u32, offers: &[(&str, i64)]) -> Node {
        let mut labels: Vec<(Str, Str)> = [
            ("nvidia.com/gpu.product", product),
            ("nvidia.com/gpu.count", &gpus.to_string()),
            ("nvidia.com/mig.strategy", "mixed"),
        ]
        .map(|(k, v)| (Str::from(k), Str::from(v)))
        .into();
        labels.sort();
        let meta = Meta {
            labels: labels.into(),
            ..Meta::default()
        };
        let mut capacity = Resources::default();
        for (profile, n) in offers {
            let key = match *profile {
                "gpu" => "nvidia.com/gpu".to_owned(),
                name => format!("nvidia.com/mig-{name}"),
            };
            capacity.set_extended(&key.into(), *n);
        }
        Node {
            gpus: NodeGpus::from_labels(&meta, &capacity),
            meta,
            allocatable: capacity.clone(),
            capacity,
            ..Node::default()
        }
    }

    #[test]
    fn what_a_node_offers_gets_a_legal_layout() {
        const H100: &str = "NVIDIA-H100-80GB-HBM3";
        for (product, gpus, offers, legal) in [
            (H100, 1, vec![("3g.40gb", 1), ("2g.20gb", 2)], true),
            (
                H100,
                1,
                vec![("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2)],
                true,
            ),
            (H100, 2, vec![("3g.40gb", 2), ("4g.40gb", 2)], true),
            (H100, 8, vec![("gpu", 4), ("1g.10gb", 28)], true),
            (H100, 1, vec![("1g.10gb", 8)], false),
            (H100, 1, vec![("4g.40gb", 2)], false),
            (H100, 1, vec![("1g.10gb.me", 2)], false),
            ("NVIDIA-A30", 1, vec![("2g.12gb", 1), ("1g.6gb", 2)], true),
            ("NVIDIA-A30", 1, vec![("2g.12gb", 1), ("1g.6gb", 3)], false),
            ("NVIDIA-L40S", 1, vec![("1g.10gb", 1)], false),
            (H100, 1, vec![("gpu", 1)], false),
        ] {
            let layout = Layout::of(&node(product, gpus, &offers));
            assert_eq!(layout.is_some(), legal, "{product} {offers:?}");
            let Some(layout) = layout else { continue };
            // No two instances of a device share a memory slice.
            let all = layout.devices(0);
            let bits: u32 = all.iter().map(|d| d.mask.count_ones()).sum();
            let sizes = layout
                .instances
                .iter()
                .map(|i| u32::from(i.profile.mem_slices));
            assert_eq!(bits, sizes.sum::<u32>(), "{offers:?}");
        }
    }

    #[test]
    fn a_slice_keeps_an_idle_gpu_idle() {
        let layout = Layout::of(&node("NVIDIA-H100-80GB-HBM3", 2, &[("1g.10gb", 14)])).unwrap();
        let mut prices = SlicePrices::default();
        prices.meet(&layout);
        let ask = [(Str::from("nvidia.com/mig-1g.10gb"), 1)];
        let mut free = layout.all();
        let mut used = Vec::new();
        for _ in 0..7 {
            let (taken, _) = layout.take(free, &ask, &prices);
            assert_eq!(taken.count_ones(), 1);
            used.push(layout.instances[taken.trailing_zeros() as usize].device);
            free &= !taken;
        }
        assert!(used.windows(2).all(|w| w[0] == w[1]), "{used:?}");
    }
}
