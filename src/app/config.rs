//! The user's configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use serde::Deserialize;

use super::config_actions::Action;
use crate::model::{FabricRules, LabelLevels, NamedPlace, Pricing, Quantity, Str, Tier};
use crate::sandbox::scenario::plain_words;
use crate::sched::{SchedConfig, TypeProfile};
use crate::telemetry::{self, Auth, PrometheusSettings};
use crate::tui::actions::{self, UserAction};

/// `config.toml`. Every field is optional; flags and environment win over it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Theme name or file.
    pub theme: Option<String>,
    /// Keymap name or file.
    pub keymap: Option<String>,
    /// `auto`, `true`, `256`, `16` or `mono`.
    pub color: Option<super::cli::ColorArg>,
    /// Draw with ASCII only.
    pub ascii: Option<bool>,
    /// Never write.
    pub read_only: Option<bool>,
    /// Where the scheduler places pods.
    pub scheduler: Scheduler,
    /// Who tells what GPUs measure.
    pub telemetry: Telemetry,
    /// Where nodes hang in the network.
    pub fabric: Fabric,
    /// Which nodes are of which tier.
    pub tiers: Tiers,
    /// What GPU-hours cost.
    pub prices: Prices,
    /// The person's own programs for a row.
    pub actions: Vec<Action>,
}

/// `[telemetry]`: without a Prometheus the exporters themselves are asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Telemetry {
    /// Ask nobody.
    pub off: bool,
    /// Address of a Prometheus, without `/api/v1`.
    pub prometheus: Option<String>,
    /// User name for it; needs `password-file`.
    pub username: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities to trust.
    pub ca_file: Option<PathBuf>,
    /// PEM file with certificate and key, for mTLS.
    pub identity_file: Option<PathBuf>,
    /// Seconds between two questions; 30 unless stated.
    pub interval: Option<u32>,
}

impl Telemetry {
    /// Who is asked.
    pub fn settings(&self) -> telemetry::Settings {
        if self.off {
            return telemetry::Settings::Off;
        }
        let Some(url) = &self.prometheus else {
            return telemetry::Settings::Exporters;
        };
        let mut settings = PrometheusSettings::at(url);
        settings.auth = match (&self.username, &self.password_file, &self.token_file) {
            (Some(username), Some(password_file), _) => Auth::Basic {
                username: username.clone(),
                password_file: password_file.clone(),
            },
            (_, _, Some(token_file)) => Auth::Bearer {
                token_file: token_file.clone(),
            },
            _ => Auth::None,
        };
        settings.ca_file.clone_from(&self.ca_file);
        settings.identity_file.clone_from(&self.identity_file);
        if let Some(secs) = self.interval {
            settings.interval = Duration::from_secs(u64::from(secs.max(5)));
        }
        telemetry::Settings::Prometheus(settings)
    }
}

/// `[fabric]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fabric {
    /// Node labels that tell the levels of the fabric, the widest first.
    pub levels: Vec<String>,
    /// Where nodes hang that no label tells of.
    pub place: Vec<FabricPlace>,
}

/// `[[fabric.place]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricPlace {
    /// Node names; `*` stands for any text.
    pub nodes: String,
    /// Names of the switches above them, the widest first.
    pub path: Vec<String>,
}

impl Fabric {
    /// What is stated here, for the model.
    pub fn rules(&self) -> FabricRules {
        let texts = |list: &[String]| list.iter().map(|t| Str::from(&**t)).collect();
        FabricRules {
            places: self
                .place
                .iter()
                .map(|p| NamedPlace {
                    nodes: Str::from(&*p.nodes),
                    path: texts(&p.path),
                })
                .collect(),
            levels: match &self.levels[..] {
                [] => Vec::new(),
                keys => vec![LabelLevels {
                    name: "config".into(),
                    keys: texts(keys),
                }],
            },
            ..FabricRules::default()
        }
    }
}

/// `[tiers]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tiers {
    /// Rules in order, before those for the labels of providers; the first that fits wins.
    pub rules: Vec<TierRule>,
}

/// A row of `tiers.rules`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TierRule {
    /// Label of the node.
    pub label: String,
    /// Its value; any, if not stated.
    pub value: Option<String>,
    /// `owned`, `reserved`, `on-demand`, `spot` or `calendar`.
    #[serde(deserialize_with = "tier")]
    pub tier: Tier,
}

/// `[prices]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Prices {
    /// Sign before amounts.
    pub currency: String,
    /// The rate card; the most exact rate that fits a node is its own.
    pub rate: Vec<Rate>,
}

impl Default for Prices {
    fn default() -> Self {
        Prices {
            currency: "$".to_owned(),
            rate: Vec::new(),
        }
    }
}

/// A row of `prices.rate`; what is not stated fits every node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rate {
    /// Begin of the model's short name, as the Nodes view shows it.
    pub model: Option<String>,
    /// Tier of the nodes.
    #[serde(default, deserialize_with = "some_tier")]
    pub tier: Option<Tier>,
    /// Label topology.kubernetes.io/region of the nodes.
    pub region: Option<String>,
    /// Label topology.kubernetes.io/zone of the nodes.
    pub zone: Option<String>,
    /// Price of an hour of one whole GPU.
    pub per_gpu_hour: f64,
    /// Where the price is from.
    pub source: Option<String>,
    /// As of when it is so.
    pub as_of: Option<String>,
}

/// Reads the name of a tier.
fn tier<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Tier, D::Error> {
    let text = String::deserialize(from)?;
    Tier::from_name(&text).ok_or_else(|| {
        let names: Vec<&str> = Tier::ALL.iter().map(|t| t.name()).collect();
        serde::de::Error::custom(format!("no tier {text:?}; expected {}", names.join(", ")))
    })
}

fn some_tier<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Tier>, D::Error> {
    tier(from).map(Some)
}

impl Config {
    /// The person's own programs for a row.
    pub fn actions(&self) -> Vec<UserAction> {
        self.actions.iter().map(Action::action).collect()
    }

    /// Rules for tiers, and the rate card.
    pub fn pricing(&self) -> Pricing {
        let text = |t: &String| Str::from(&**t);
        let rules = self.tiers.rules.iter().map(|rule| crate::model::TierRule {
            label: text(&rule.label),
            value: rule.value.as_ref().map(text),
            tier: rule.tier,
        });
        let rates = self.prices.rate.iter().map(|rate| {
            let source = rate.source.as_deref().unwrap_or("rate card");
            let as_of = rate
                .as_of
                .as_ref()
                .map_or(String::new(), |d| format!(", as of {d}"));
            crate::model::Rate {
                model: rate.model.as_ref().map(text),
                tier: rate.tier,
                region: rate.region.as_ref().map(text),
                zone: rate.zone.as_ref().map(text),
                per_gpu_hour: rate.per_gpu_hour,
                source: format!("{source}{as_of}").into(),
            }
        });
        Pricing {
            rules: rules.collect(),
            rates: rates.collect(),
            currency: text(&self.prices.currency),
        }
    }
}

/// `[scheduler]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scheduler {
    /// GPU pods go to spot nodes only with a checkpoint contract; true unless stated.
    pub spot_needs_checkpoint: Option<bool>,
    /// Node labels that tell the levels of the fabric, the widest first.
    pub topology_levels: Vec<String>,
    /// Workload types beside, or in place of, `inference` and `training`.
    pub types: BTreeMap<String, WorkloadType>,
}

/// `[scheduler.types.NAME]`; what is not stated is as in the type of that name that ships, or no.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct WorkloadType {
    /// GPU memory that it needs, a quantity.
    #[serde(deserialize_with = "memory")]
    pub memory: Option<u32>,
    /// No replica of a shared device will do.
    pub own_device: Option<bool>,
    /// It stays off nodes that can be taken away.
    pub latency_sensitive: Option<bool>,
    /// Replicas of one owner are kept apart.
    pub spread: Option<bool>,
}

/// Reads a quantity of memory as MiB, rounded up.
fn memory<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let bytes = text.parse::<Quantity>().map_or(0, Quantity::units);
    let mib = u64::try_from(bytes).unwrap_or(0).div_ceil(1 << 20);
    match u32::try_from(mib) {
        Ok(mib) if mib > 0 => Ok(Some(mib)),
        _ => Err(serde::de::Error::custom(format!(
            "memory {text:?} is not an amount above zero, like 18Gi"
        ))),
    }
}

impl Scheduler {
    /// The scheduler's settings with what is stated here.
    pub fn settings(&self) -> SchedConfig {
        let mut settings = SchedConfig::default();
        if let Some(needed) = self.spot_needs_checkpoint {
            settings.spot_needs_checkpoint = needed;
        }
        settings.topology_levels = self
            .topology_levels
            .iter()
            .map(|l| Str::from(&**l))
            .collect();
        for (name, stated) in &self.types {
            let profile: &mut TypeProfile = settings.types.entry(Str::from(&**name)).or_default();
            profile.memory_mib = stated.memory.or(profile.memory_mib);
            let or = |stated: Option<bool>, usual: &mut bool| *usual = stated.unwrap_or(*usual);
            or(stated.own_device, &mut profile.own_device);
            or(stated.latency_sensitive, &mut profile.latency_sensitive);
            or(stated.spread, &mut profile.spread);
        }
        settings
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its parts do not go together.
    #[error("{}: {message}", .file.display())]
    Sense {
        /// The file.
        file: PathBuf,
        /// What is wrong and what would be right.
        message: String,
    },
    /// It is not what is expected.
    #[error("{}: line {line}: {message}", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
}

/// gpudeck's folder in the user's configuration folder, if the system tells one.
pub fn folder() -> Option<PathBuf> {
    etcetera::choose_base_strategy()
        .ok()
        .map(|base| base.config_dir().join("gpudeck"))
}

/// Reads `explicit`, or `config.toml` in the user's folder; a missing default file is no error.
///
/// # Errors
/// A file that cannot be read, or that holds an unknown key or a wrong value (file and line are
/// named).
pub fn load(explicit: Option<&Path>) -> Result<Config, ConfigError> {
    let (file, optional) = match explicit {
        Some(file) => (file.to_path_buf(), false),
        None => match folder() {
            Some(folder) => (folder.join("config.toml"), true),
            None => return Ok(Config::default()),
        },
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => parse(&file, &text),
        Err(source) if optional && source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Config::default())
        }
        Err(source) => Err(ConfigError::Read { file, source }),
    }
}

fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let config: Config = toml::from_str(text).map_err(|e| {
        let start = e.span().map_or(0, |span| span.start);
        let line = text.bytes().take(start).filter(|b| *b == b'\n').count() + 1;
        ConfigError::Parse {
            file: file.to_path_buf(),
            line,
            message: plain_words(e.message()),
        }
    })?;
    let fault = config.pricing().fault();
    match fault.or_else(|| actions::check(&config.actions()).err()) {
        Some(message) => Err(ConfigError::Sense {
            file: file.to_path_buf(),
            message,
        }),
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mistake_names_file_line_and_what_is_allowed() {
        let e = parse(Path::new("c.toml"), "theme = \"dark\"\ncolour = 3\n")
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with("c.toml: line 2: unknown field `colour`, expected one of"),
            "{e}"
        );
        let e = parse(Path::new("c.toml"), "ascii = \"yes\"\n")
            .unwrap_err()
            .to_string();
        let told = "c.toml: line 1: found the text \"yes\", expected true or false";
        assert_eq!(e, told);
        assert_eq!(parse(Path::new("c.toml"), "").unwrap(), Config::default());
    }

    /// Whatever stands in the place of a setting, no word of the code is in what is told.
    #[test]
    fn wrong_values_are_told_in_plain_words() {
        let wrong = [
            "\"x\"",
            "7",
            "-7",
            "1.5",
            "true",
            "[]",
            "[1]",
            "{}",
            "{ a = 1 }",
            "1979-05-27",
        ];
        let code = [
            "f64",
            "f32",
            "u8",
            "u16",
            "u32",
            "u64",
            "i64",
            "usize",
            "bool",
            "map",
            "sequence",
            "struct",
            "enum",
            "variant",
            "tuple",
            "string",
            "integer",
            "floating",
            "invalid type",
        ];
        for setting in super::super::config_docs::SETTINGS {
            for value in wrong {
                let line = format!("{} = {value}\n", setting.key);
                let text = match setting.table {
                    "" => line,
                    table => format!("[{table}]\n{line}"),
                };
                let Err(e) = parse(Path::new("c.toml"), &text) else {
                    continue;
                };
                let e = e.to_string();
                let words = e.split(|c: char| !c.is_ascii_alphanumeric());
                let named: Vec<&str> = words.filter(|w| code.contains(w)).collect();
                assert!(named.is_empty() && !e.contains("invalid type"), "{text}{e}");
            }
        }
    }

    #[test]
    fn tiers_and_prices_are_the_operators() {
        let text = "[tiers]\nrules = [{ label = \"pool\", value = \"dc1\", tier = \"owned\" }]\n\
                    [prices]\ncurrency = \"€\"\n\
                    [[prices.rate]]\nmodel = \"H100\"\ntier = \"spot\"\nper-gpu-hour = 2.25\n\
                    source = \"our contract\"\nas-of = \"2026-10-01\"\n";
        let pricing = parse(Path::new("c.toml"), text).unwrap().pricing();
        assert_eq!(&*pricing.currency, "€");
        assert_eq!(pricing.rules[0].tier, Tier::Owned);
        assert_eq!(&*pricing.rates[0].source, "our contract, as of 2026-10-01");
        let rate = "[[prices.rate]]\nper-gpu-hour = 1\n";
        for (wrong, told) in [
            (
                "[tiers]\nrules = [{ label = \"x\", tier = \"cheap\" }]\n",
                "expected owned,",
            ),
            (&*rate.repeat(2), "are for the same nodes"),
            (
                "[[prices.rate]]\nper-gpu-hour = -1\n",
                "is no price of a GPU-hour",
            ),
        ] {
            let e = parse(Path::new("c.toml"), wrong).unwrap_err().to_string();
            assert!(e.starts_with("c.toml: ") && e.contains(told), "{e}");
        }
    }

    #[test]
    fn workload_types_add_to_those_that_ship() {
        let text = "[scheduler]\nspot-needs-checkpoint = false\ntopology-levels = [\"x/rack\"]\n\
                    [scheduler.types.inference]\nmemory = \"20Gi\"\n\
                    [scheduler.types.batch]\nspread = true\n";
        let settings = parse(Path::new("c.toml"), text)
            .unwrap()
            .scheduler
            .settings();
        assert!(!settings.spot_needs_checkpoint);
        assert_eq!(settings.topology_levels.len(), 1);
        let inference = &settings.types["inference"];
        assert_eq!(inference.memory_mib, Some(20 * 1024));
        assert!(inference.latency_sensitive && settings.types["batch"].spread);
        assert_eq!(
            Config::default().scheduler.settings(),
            SchedConfig::default()
        );
        let wrong = "[scheduler.types.inference]\nmemory = \"lots\"\n";
        let e = parse(Path::new("c.toml"), wrong).unwrap_err().to_string();
        assert!(
            e.starts_with("c.toml: line 2: ") && e.contains("like 18Gi"),
            "{e}"
        );
    }
}
