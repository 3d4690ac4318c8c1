//! How GPU models can be cut: MIG profiles, and the search for placements of a set of them.

/// A way to cut a part off a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Profile {
    /// Name, such as `3g.40gb` or `1g.10gb+me`.
    pub name: &'static str,
    /// Compute slices.
    pub compute: u32,
    /// Units of memory that an instance takes.
    pub units: u32,
    /// Where an instance may begin, in units of memory.
    pub starts: &'static [u32],
    /// Instances that a GPU holds at most.
    pub max: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines, decoders, JPEG engines and optical flow accelerators.
    pub engines: [u32; 4],
}

impl Profile {
    /// The resource of the profile under strategy mixed; also the stem of its labels.
    pub(super) fn resource(&self) -> String {
        format!("nvidia.com/mig-{}", self.name.replace('+', "."))
    }
}

/// A GPU model.
#[derive(Debug)]
pub(super) struct Model {
    /// Words of `nvidia.com/gpu.product` that tell the model: all of these are in it.
    pub words: &'static [&'static str],
    /// PCI device ids, as mig-parted's `device-filter` names them.
    pub pci_devices: &'static [u16],
    /// Memory of a whole GPU in MiB.
    pub memory_mib: u32,
    /// Compute slices of a whole GPU.
    pub compute: u32,
    /// A change of the MIG mode needs a reset of the GPU, and outlives a reboot (Ampere). Later
    /// ones change it at once and forget it when the driver is unloaded.
    pub mode_needs_reset: bool,
    /// Profiles in the order of NVML's profile index; empty without MIG.
    pub profiles: &'static [Profile],
    /// Power in watts: idle and at most.
    pub power_watts: (f64, f64),
    /// Clocks in MHz: multiprocessors at most, memory.
    pub clocks_mhz: (u32, u32),
    /// The profiling counters (`DCGM_FI_PROF_*`) exist.
    pub profiling: bool,
}

impl Model {
    /// The profile of this name; generated configurations write `.` for `+`.
    pub(super) fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// A layout that holds these profiles, each with its start, or `None` when nothing does.
    ///
    /// As mig-parted does, orders of creation are tried until one works; the driver puts each
    /// instance at the first free place.
    pub(super) fn place(
        &self,
        wanted: &[&'static Profile],
    ) -> Option<Vec<(&'static Profile, u32)>> {
        let compute: u32 = wanted.iter().map(|profile| profile.compute).sum();
        if compute > self.compute {
            return None;
        }
        for profile in wanted {
            let of_it = wanted.iter().filter(|other| other.name == profile.name);
            if of_it.count() > usize::try_from(profile.max).unwrap_or(usize::MAX) {
                return None;
            }
        }
        let mut left = wanted.to_vec();
        let mut placed = Vec::with_capacity(wanted.len());
        search(&mut left, &mut placed, 0).then_some(placed)
    }
}

/// Puts what is `left` behind what is `placed`; `taken` has a bit for each unit in use.
fn search(
    left: &mut Vec<&'static Profile>,
    placed: &mut Vec<(&'static Profile, u32)>,
    taken: u32,
) -> bool {
    if left.is_empty() {
        return true;
    }
    let mut tried: Vec<&str> = Vec::new();
    for at in 0..left.len() {
        let Some(profile) = left.get(at).copied() else {
            continue;
        };
        if tried.contains(&profile.name) {
            continue;
        }
        tried.push(profile.name);
        let bits = |start: u32| ((1u32 << profile.units) - 1) << start;
        let free = |start: &&u32| taken & bits(**start) == 0;
        let Some(start) = profile.starts.iter().find(free).copied() else {
            return false;
        };
        left.remove(at);
        placed.push((profile, start));
        if search(left, placed, taken | bits(start)) {
            return true;
        }
        placed.pop();
        left.insert(at, profile);
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::models::model;

    fn place(product: &str, names: &[&str]) -> Option<Vec<(&'static str, u32)>> {
        let model = model(product);
        let wanted: Vec<_> = names
            .iter()
            .map(|name| model.profile(name).unwrap())
            .collect();
        let mut placed: Vec<_> = model
            .place(&wanted)?
            .into_iter()
            .map(|(profile, start)| (profile.name, start))
            .collect();
        placed.sort_by_key(|(_, start)| *start);
        Some(placed)
    }

    #[test]
    fn products_are_told_apart_by_words() {
        let profile = |product: &str| model(product).profiles.first().map(|p| p.name);
        assert_eq!(profile("NVIDIA-GH200-480GB"), Some("1g.12gb"));
        assert_eq!(profile("NVIDIA-H200"), Some("1g.18gb"));
        assert_eq!(profile("NVIDIA-A100-SXM4-40GB"), Some("1g.5gb"));
        assert_eq!(profile("NVIDIA-A100-80GB-PCIe"), Some("1g.10gb"));
        assert_eq!(profile("NVIDIA-H100-NVL"), Some("1g.12gb"));
        assert_eq!(profile("NVIDIA-L40S"), None);
        assert_eq!(profile("Tesla-V100-SXM2-32GB"), None);
    }

    #[test]
    fn layouts_that_exist_are_found_and_others_are_not() {
        // 3g and 4g need both halves; a 1g cannot begin at 7.
        assert_eq!(
            place("H100", &["3g.40gb", "4g.40gb"]),
            Some(vec![("4g.40gb", 0), ("3g.40gb", 4)])
        );
        let balanced = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"];
        let placed = place("H100", &balanced).unwrap();
        assert_eq!(placed.last(), Some(&("3g.40gb", 4)));
        assert_eq!(place("H100", &["1g.10gb"; 7]).unwrap().len(), 7);
        assert_eq!(place("H100", &["1g.10gb"; 8]), None);
        assert_eq!(place("H100", &["3g.40gb", "3g.40gb", "1g.10gb"]), None);
        assert_eq!(place("H100", &["1g.10gb+me", "1g.10gb+me"]), None);
        assert_eq!(place("A30", &["1g.6gb"; 4]).unwrap().len(), 4);
        assert_eq!(
            place("RTX-PRO-6000", &["2g.48gb", "1g.24gb", "1g.24gb"])
                .unwrap()
                .len(),
            3
        );
    }
}
