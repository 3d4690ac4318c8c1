//! mig-parted's configuration files: read as strictly as it does, and made for GPU models as the
//! operator's generator and its default ConfigMap have them.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::geometry::{Model, Profile};
use super::hardware::{Machine, with_plus};
use super::mig::{Target, Targets};
use super::models::cut_models;

/// A file: configurations by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    version: String,
    #[serde(rename = "mig-configs")]
    configs: BTreeMap<String, Vec<Entry>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    device_filter: Option<Filters>,
    devices: Indices,
    mig_enabled: bool,
    mig_devices: Option<BTreeMap<String, u32>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Filters {
    One(Filter),
    Many(Vec<Filter>),
}

/// `0xDDDDVVVV[:0xSSSSSSSS]`; YAML reads one without quotes as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Filter {
    Number(u64),
    Text(String),
}

impl Filter {
    /// Device and vendor as one number; the subsystem is of the board and not looked at.
    fn id(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => {
                let first = text.split(':').next()?.trim();
                let digits = first.strip_prefix("0x").or(first.strip_prefix("0X"))?;
                u64::from_str_radix(digits, 16).ok()
            }
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Indices {
    Some(Vec<u32>),
    Word(String),
}

/// What is wrong with a file or with the configuration asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FileError {
    /// Not a file of mig-parted.
    #[error("error parsing the mig-parted file: {0}")]
    Unreadable(String),
    /// No configuration of that name.
    #[error("mig-parted config \"{0}\" is not in the file")]
    Missing(String),
    /// A configuration that cannot be meant for this node.
    #[error("mig-parted config \"{name}\" is not valid: {why}")]
    Invalid {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
}

impl File {
    /// Reads a file; unknown fields are refused.
    pub(super) fn read(text: &str) -> Result<Self, FileError> {
        let unreadable = |why: String| FileError::Unreadable(why);
        let file: Self =
            serde_saphyr::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        if file.version != "v1" {
            return Err(unreadable(format!("unknown version: {}", file.version)));
        }
        Ok(file)
    }

    /// What the configuration `name` makes of the GPUs of `machine`; later entries win.
    pub(super) fn targets(&self, name: &str, machine: &Machine) -> Result<Targets, FileError> {
        let entries = self.configs.get(name);
        let entries = entries.ok_or_else(|| FileError::Missing(name.to_owned()))?;
        let mut targets = Targets::new();
        for entry in entries.iter().filter(|entry| entry.is_for(machine.model)) {
            let invalid = |why: String| FileError::Invalid {
                name: name.to_owned(),
                why,
            };
            let target = entry.target(machine.model).map_err(invalid)?;
            let indices = machine.gpus.iter().map(|gpu| gpu.index);
            let matched: Vec<u32> = match &entry.devices {
                Indices::Word(word) if word == "all" => indices.collect(),
                Indices::Word(word) => {
                    return Err(invalid(format!("devices is \"{word}\", not all or a list")));
                }
                Indices::Some(list) => indices.filter(|index| list.contains(index)).collect(),
            };
            for index in matched {
                targets.insert(index, target.clone());
            }
        }
        Ok(targets)
    }
}

impl Entry {
    fn is_for(&self, model: &Model) -> bool {
        let filters = match &self.device_filter {
            None => return true,
            Some(Filters::One(filter)) => std::slice::from_ref(filter),
            Some(Filters::Many(filters)) => filters.as_slice(),
        };
        let mut ids = filters.iter().filter_map(Filter::id);
        ids.any(|id| {
            let of_model = |device: &u16| u64::from(*device) << 16 | NVIDIA == id;
            model.pci_devices.iter().any(of_model)
        })
    }

    fn target(&self, model: &'static Model) -> Result<Target, String> {
        if !self.mig_enabled {
            return Ok(Target::default());
        }
        if model.profiles.is_empty() {
            return Err("MIG is enabled for a GPU that cannot be cut".to_owned());
        }
        let devices = self.mig_devices.as_ref();
        let devices = devices.ok_or("mig-devices is missing where MIG is enabled")?;
        let mut target = Target {
            mig: true,
            ..Target::default()
        };
        // Compute slices asked for of each profile: several compute instances share one instance.
        let mut slices: BTreeMap<&'static str, (&'static Profile, u32)> = BTreeMap::new();
        for (name, count) in devices {
            let (ci, base) = match name.split_once("c.") {
                Some((ci, base)) => (ci.parse::<u32>().ok(), base),
                None => (None, name.as_str()),
            };
            let profile = model.profile(base).or_else(|| with_plus(model, base));
            let profile = profile.ok_or_else(|| format!("no MIG profile \"{name}\" here"))?;
            let each = ci.unwrap_or(profile.compute);
            if each != profile.compute {
                target.split.insert(profile.name);
            }
            slices.entry(profile.name).or_insert((profile, 0)).1 += each * count;
        }
        for (name, (profile, wanted)) in slices.into_iter().filter(|(_, (_, n))| *n > 0) {
            target
                .profiles
                .insert(name, wanted.div_ceil(profile.compute));
        }
        Ok(target)
    }
}

/// NVIDIA's PCI vendor id.
const NVIDIA: u64 = 0x10DE;

/// The configurations that the operator generates for a node with this model.
pub(super) fn generated(model: &'static Model) -> String {
    let mut names: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for (name, mut block) in blocks(model) {
        block.devices.clear();
        names.entry(name).or_default().push(block);
    }
    text(&names, "")
}

/// The configurations of the default ConfigMap: for all models, told apart by device filters, with
/// `more` lines below.
pub(super) fn for_all_models(more: &str) -> String {
    let mut names: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for model in cut_models() {
        for (name, block) in blocks(model) {
            names.entry(name).or_default().push(block);
        }
    }
    text(&names, more)
}

/// One entry: the device ids it is for, and the profiles.
struct Block {
    devices: Vec<u16>,
    profiles: Vec<(&'static str, u32)>,
}

/// `all-<profile>` and `all-balanced` of a model.
fn blocks(model: &'static Model) -> Vec<(String, Block)> {
    let block = |profiles| Block {
        devices: model.pci_devices.to_vec(),
        profiles,
    };
    let mut all: Vec<(String, Block)> = model
        .profiles
        .iter()
        .map(|profile| {
            let name = format!("all-{}", profile.name.replace('+', "."));
            (name, block(vec![(profile.name, profile.max)]))
        })
        .collect();
    let of_slices = |slices| {
        let mut profiles = model.profiles.iter();
        profiles.find(|profile| profile.compute == slices)
    };
    let balanced = match (of_slices(1), of_slices(2), of_slices(3)) {
        (Some(one), Some(two), Some(three)) => vec![(one, 2), (two, 1), (three, 1)],
        (Some(one), Some(two), None) => vec![(one, 2), (two, 1)],
        _ => return all,
    };
    let balanced = balanced.into_iter().map(|(p, count)| (p.name, count));
    all.push(("all-balanced".to_owned(), block(balanced.collect())));
    all
}

fn text(names: &BTreeMap<String, Vec<Block>>, more: &str) -> String {
    let mut out = String::from(
        "version: v1\nmig-configs:\n  all-disabled:\n  - devices: all\n    mig-enabled: false\n  \
         all-enabled:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {}\n",
    );
    // Writing to a String cannot fail.
    for (name, blocks) in names {
        let _ = writeln!(out, "  {name}:");
        for block in blocks {
            let ids = block.devices.iter();
            let ids: Vec<String> = ids.map(|id| format!("'0x{id:04X}10DE'")).collect();
            if ids.is_empty() {
                out.push_str("  - devices: all\n");
            } else {
                let _ = writeln!(out, "  - device-filter: [{}]", ids.join(", "));
                out.push_str("    devices: all\n");
            }
            out.push_str("    mig-enabled: true\n    mig-devices:\n");
            for (profile, count) in &block.profiles {
                let _ = writeln!(out, "      {profile}: {count}");
            }
        }
    }
    for line in more.lines() {
        let _ = writeln!(out, "  {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::super::super::clock::Clock;
    use super::super::config::PluginConfig;
    use super::super::hardware::Hardware;
    use super::super::models::model;
    use super::*;

    fn targets(product: &str, text: &str, name: &str) -> Result<Targets, String> {
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"nvidia.com/gpu.product": product}},
            "status": {"capacity": {"nvidia.com/gpu": "2"}},
        }));
        let hardware = Hardware::new(Clock::new(1.0, 1), PluginConfig::default());
        hardware.see(&node.unwrap());
        let file = File::read(text).map_err(|error| error.to_string())?;
        let found = hardware.with("n", |machine| file.targets(name, machine));
        found.unwrap().map_err(|error| error.to_string())
    }

    #[test]
    fn one_name_means_for_each_model_what_its_filter_says() {
        let text = for_all_models("");
        let count = |product: &str, profile: &str| {
            let all = format!("all-{profile}");
            targets(product, &text, &all).unwrap()[&1].profiles[profile]
        };
        assert_eq!(count("NVIDIA-A100-SXM4-80GB", "1g.10gb"), 7);
        assert_eq!(count("NVIDIA-A100-SXM4-40GB", "1g.10gb"), 4);
        assert_eq!(count("NVIDIA-H200", "1g.35gb"), 4);
        assert_eq!(count("NVIDIA-GB300", "1g.35gb"), 7);
        for model in ["NVIDIA-H100-80GB-HBM3", "NVIDIA-A30"].map(model) {
            assert!(File::read(&generated(model)).is_ok());
        }
    }

    #[test]
    fn entries_apply_in_order_and_compute_instances_share_an_instance() {
        let text = "\
version: v1
mig-configs:
  split:
  - devices: all
    mig-enabled: false
  - device-filter: 0x233010DE
    devices: [1]
    mig-enabled: true
    mig-devices: {1c.3g.40gb: 3, 3g.40gb: 1}
  other-board:
  - device-filter: ['0x20B010DE:0x134F10DE']
    devices: all
    mig-enabled: false
";
        let all = targets("NVIDIA-H100-80GB-HBM3", text, "split").unwrap();
        assert!(!all[&0].mig);
        assert_eq!(all[&1].profiles["3g.40gb"], 2);
        assert!(all[&1].split.contains("3g.40gb"));
        let none = targets("NVIDIA-H100-80GB-HBM3", text, "other-board").unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn what_mig_parted_refuses_is_refused() {
        let why = |entry: &str| {
            let text = format!("version: v1\nmig-configs:\n  x:\n  - {entry}\n");
            targets("NVIDIA-H100-80GB-HBM3", &text, "x").unwrap_err()
        };
        assert!(why("{devices: all, mig-enabled: false, colour: red}").contains("colour"));
        assert!(why("{devices: all, mig-enabled: true}").contains("mig-devices is missing"));
        let other = why("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}");
        assert!(other.contains("no MIG profile \"1g.5gb\""), "{other}");
        assert!(why("{devices: some, mig-enabled: false}").contains("not all or a list"));
        let text = for_all_models("");
        let missing = targets("NVIDIA-H100-80GB-HBM3", &text, "nothing").unwrap_err();
        assert!(missing.contains("\"nothing\" is not in the file"));
    }
}
