//! The labels that GPU feature discovery makes of a machine.

use std::collections::BTreeMap;

use super::config::{Sharing, Strategy};
use super::geometry::Profile;
use super::hardware::Machine;

/// Labels of the GPUs that change with their layout: `nvidia.com/` and these.
const OF_LAYOUT: [&str; 14] = [
    "gpu.product",
    "gpu.count",
    "gpu.replicas",
    "gpu.sharing-strategy",
    "gpu.memory",
    "gpu.multiprocessors",
    "gpu.slices.gi",
    "gpu.slices.ci",
    "gpu.engines.copy",
    "gpu.engines.decoder",
    "gpu.engines.encoder",
    "gpu.engines.jpeg",
    "gpu.engines.ofa",
    "mig.strategy",
];

/// Whether feature discovery owns the label, so that one it does not make any more goes.
pub(super) fn owns(label: &str) -> bool {
    let Some(name) = label.strip_prefix("nvidia.com/") else {
        return false;
    };
    name.starts_with("mig-") || OF_LAYOUT.contains(&name)
}

impl Machine {
    /// The labels of the present layout, without the timestamp.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = Labels(BTreeMap::new());
        let seen: Vec<_> = self.gpus.iter().filter(|gpu| !gpu.lost).collect();
        let cut = seen.iter().any(|gpu| gpu.mig);
        if self.strategy != Strategy::None {
            labels.set("mig.strategy", self.strategy.name());
        }
        if self.strategy == Strategy::Single && cut {
            let of_gpus = seen.iter().map(|gpu| (gpu.mig, gpu.layout()));
            let mut of_gpus = of_gpus.peekable();
            let first = of_gpus.peek().cloned().unwrap_or_default();
            let alike =
                first.0 && first.1.len() == 1 && of_gpus.all(|gpu| gpu.0 && gpu.1.len() == 1);
            let mut instances = seen.iter().flat_map(|gpu| &gpu.instances);
            let profile = instances.next().map(|instance| instance.profile);
            let same = profile
                .is_some_and(|profile| instances.all(|other| other.profile.name == profile.name));
            match profile.filter(|_| alike && same) {
                Some(profile) => {
                    let count: usize = seen.iter().map(|gpu| gpu.instances.len()).sum();
                    let product = format!("{}-MIG-{}", self.product, profile.name);
                    labels.resource("gpu", &product, count, profile.memory_mib, Sharing::NONE);
                    labels.attributes("gpu", profile);
                }
                None => {
                    labels.set("gpu.product", format!("{}-MIG-INVALID", self.product));
                    labels.set("gpu.count", "0");
                    labels.set("gpu.replicas", "0");
                    labels.set("gpu.memory", "0");
                    labels.set("gpu.sharing-strategy", "");
                }
            }
            return labels.0;
        }
        labels.resource(
            "gpu",
            &self.product,
            seen.len(),
            self.memory_mib,
            self.sharing,
        );
        if self.strategy == Strategy::None {
            return labels.0;
        }
        if !seen.is_empty() && seen.iter().all(|gpu| gpu.mig) {
            labels.set("gpu.replicas", "0");
        }
        let mut counts: BTreeMap<&str, (&'static Profile, usize)> = BTreeMap::new();
        for instance in seen.iter().flat_map(|gpu| &gpu.instances) {
            if !instance.split {
                let profile = instance.profile;
                counts.entry(profile.name).or_insert((profile, 0)).1 += 1;
            }
        }
        for (profile, count) in counts.into_values() {
            let stem = profile.resource();
            let stem = stem.trim_start_matches("nvidia.com/");
            let product = format!("{}-MIG-{}", self.product, profile.name.replace('+', "."));
            labels.resource(stem, &product, count, profile.memory_mib, Sharing::NONE);
            labels.attributes(stem, profile);
        }
        labels.0
    }
}

struct Labels(BTreeMap<String, String>);

impl Labels {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(format!("nvidia.com/{name}"), value.into());
    }

    fn resource(&mut self, stem: &str, product: &str, count: usize, memory: u32, sharing: Sharing) {
        let shared = sharing.replicas > 1;
        let suffix = if shared && !sharing.renamed {
            "-SHARED"
        } else {
            ""
        };
        let strategy = if shared { "time-slicing" } else { "none" };
        if !product.is_empty() {
            self.set(&format!("{stem}.product"), format!("{product}{suffix}"));
        }
        self.set(&format!("{stem}.count"), count.to_string());
        self.set(
            &format!("{stem}.replicas"),
            sharing.replicas.max(1).to_string(),
        );
        self.set(&format!("{stem}.sharing-strategy"), strategy);
        self.set(&format!("{stem}.memory"), memory.to_string());
    }

    fn attributes(&mut self, stem: &str, profile: &Profile) {
        let [copy, decoder, jpeg, ofa] = profile.engines;
        for (suffix, value) in [
            ("multiprocessors", profile.multiprocessors),
            ("slices.gi", profile.compute),
            ("slices.ci", profile.compute),
            ("engines.copy", copy),
            ("engines.decoder", decoder),
            ("engines.encoder", 0),
            ("engines.jpeg", jpeg),
            ("engines.ofa", ofa),
        ] {
            self.set(&format!("{stem}.{suffix}"), value.to_string());
        }
    }
}
