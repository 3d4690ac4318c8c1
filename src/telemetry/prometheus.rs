//! A Prometheus as the source: one question a counter, its answer sorted by node.
//!
//! Source: the HTTP API of prometheus.io (`/api/v1/query`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::counters::{Counter, NAMES};
use super::dcgm::{Origin, Rows};
use super::exposition::Sample;
use super::settings::{Auth, PrometheusSettings};
use crate::model::{NodeTelemetry, Str, clean};

/// Longest for one answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest until a connection stands.
const CONNECT: Duration = Duration::from_secs(5);
/// The largest answer that is taken.
const MAX_BODY: usize = 256 << 20;

/// Why a Prometheus tells nothing. Each is one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrometheusError {
    /// A setting cannot be used.
    #[error("the Prometheus {url} cannot be asked: {why}")]
    Setting {
        /// Its address.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// No connection, or it broke.
    #[error("cannot reach the Prometheus {url}: {why}")]
    Unreachable {
        /// Its address.
        url: String,
        /// The system's words.
        why: String,
    },
    /// It refuses.
    #[error("the Prometheus {url} answered {code}: {why}")]
    Refused {
        /// Its address.
        url: String,
        /// HTTP code.
        code: u16,
        /// Its words.
        why: String,
    },
    /// The answer is none.
    #[error("the Prometheus {url} gave an answer that cannot be read: {why}")]
    Garbage {
        /// Its address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A client of one Prometheus.
#[derive(Debug, Clone)]
pub struct Prometheus {
    settings: PrometheusSettings,
    http: reqwest::Client,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    data: Data<'a>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
struct Data<'a> {
    #[serde(borrow, default)]
    result: Vec<Series<'a>>,
}

#[derive(Deserialize)]
struct Series<'a> {
    #[serde(borrow)]
    metric: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    value: (f64, Cow<'a, str>),
}

/// The nodes that rows may be of. Exporters name their host by its short name, by the node's name or
/// not at all.
#[derive(Debug, Default, Clone)]
pub struct Nodes {
    full: BTreeMap<Str, Str>,
    short: BTreeMap<Str, Option<Str>>,
}

impl Nodes {
    /// From the names of all nodes.
    pub fn new(names: impl IntoIterator<Item = Str>) -> Self {
        let mut nodes = Nodes::default();
        for name in names {
            let short: Str = name.split('.').next().unwrap_or(&name).into();
            // A short name of two nodes stands for neither.
            nodes
                .short
                .entry(short)
                .and_modify(|n| *n = None)
                .or_insert_with(|| Some(name.clone()));
            nodes.full.insert(name.clone(), name);
        }
        nodes
    }

    fn find(&self, text: &str) -> Option<&Str> {
        let short = || self.short.get(text).and_then(Option::as_ref);
        self.full.get(text).or_else(short)
    }

    /// The node of a row, by the first label that names one.
    fn of(&self, sample: &Sample<'_>) -> Option<&Str> {
        HOST_KEYS.iter().find_map(|key| {
            let value = sample.label(key)?;
            // An instance has a port behind it.
            let host = value.rsplit_once(':').map_or(value, |(host, _)| host);
            self.find(value).or_else(|| self.find(host))
        })
    }
}

/// Labels that name the host, the most exact first.
const HOST_KEYS: [&str; 7] = [
    "node",
    "kubernetes_node",
    "node_name",
    "Hostname",
    "hostname",
    "exported_instance",
    "instance",
];

impl Prometheus {
    /// A client. Reads the certificate files now.
    ///
    /// # Errors
    /// An address that is none, or a file that cannot be used.
    pub fn new(settings: &PrometheusSettings) -> Result<Self, PrometheusError> {
        let wrong = |why: String| PrometheusError::Setting {
            url: settings.url.clone(),
            why,
        };
        let file = |path: &Path| {
            std::fs::read(path).map_err(|e| wrong(format!("{}: {e}", path.display())))
        };
        if reqwest::Url::parse(&settings.url).is_err() {
            return Err(wrong(
                "its url is no address, like https://prometheus.example:9090".to_owned(),
            ));
        }
        let mut builder = reqwest::Client::builder()
            .timeout(LIMIT)
            .connect_timeout(CONNECT)
            .user_agent("gpudeck");
        if let Some(path) = &settings.ca_file {
            let authorities = reqwest::Certificate::from_pem_bundle(&file(path)?)
                .map_err(|e| wrong(format!("{}: {}", path.display(), deepest(&e))))?;
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(path) = &settings.identity_file {
            let identity = reqwest::Identity::from_pem(&file(path)?)
                .map_err(|e| wrong(format!("{}: {}", path.display(), deepest(&e))))?;
            builder = builder.identity(identity);
        }
        let http = builder.build().map_err(|e| wrong(deepest(&e)))?;
        Ok(Prometheus {
            settings: settings.clone(),
            http,
        })
    }

    /// How often it is to be asked.
    pub fn interval(&self) -> Duration {
        self.settings.interval
    }

    /// Asks for all counters, one after the other, and puts the rows together by node. A node of
    /// which it tells nothing is not among the answers.
    ///
    /// # Errors
    /// The first question that has no answer; what came before it is dropped.
    pub async fn read(
        &self,
        nodes: &Nodes,
        now: Timestamp,
    ) -> Result<Vec<NodeTelemetry>, PrometheusError> {
        let mut by_node: BTreeMap<Str, Rows> = BTreeMap::new();
        for (_, names) in NAMES {
            let query = format!("{{__name__=~\"{}\"}}", names.join("|"));
            let body = self.ask(&query).await?;
            self.each(&body, |sample| {
                if let Some(node) = nodes.of(&sample) {
                    let rows = by_node.entry(node.clone()).or_default();
                    rows.add(&sample, Origin::Prometheus);
                }
            })?;
        }
        // When it was scraped: the value that is told is up to five minutes old.
        let temperature = NAMES.iter().find(|(c, _)| *c == Counter::Temperature);
        let names = temperature.map_or(String::new(), |(_, names)| names.join("|"));
        let body = self
            .ask(&format!("timestamp({{__name__=~\"{names}\"}})"))
            .await?;
        let mut scraped: BTreeMap<Str, f64> = BTreeMap::new();
        self.each(&body, |sample| {
            if let Some(node) = nodes.of(&sample) {
                let at = scraped.entry(node.clone()).or_insert(sample.value);
                *at = at.min(sample.value);
            }
        })?;
        let readings = by_node.into_iter().filter(|(_, rows)| !rows.is_empty());
        let readings = readings.map(|(node, rows)| {
            #[allow(clippy::cast_possible_truncation)]
            let at = scraped.get(&node).map(|secs| (*secs * 1_000.0) as i64);
            let at = at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
            NodeTelemetry {
                at: at.filter(|at| *at <= now).unwrap_or(now),
                gpus: Ok(rows.finish().into()),
                node,
            }
        });
        Ok(readings.collect())
    }

    async fn ask(&self, query: &str) -> Result<String, PrometheusError> {
        let url = self.settings.url.trim_end_matches('/');
        let name = self.settings.url.clone();
        let secret = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(|e| PrometheusError::Setting {
                url: name.clone(),
                why: format!("{}: {e}", path.display()),
            })?;
            Ok(text.trim().to_owned())
        };
        let mut request = self
            .http
            .get(format!("{url}/api/v1/query"))
            .query(&[("query", query)]);
        request = match &self.settings.auth {
            Auth::None => request,
            Auth::Basic {
                username,
                password_file,
            } => request.basic_auth(username, Some(secret(password_file)?)),
            Auth::Bearer { token_file } => request.bearer_auth(secret(token_file)?),
        };
        let unreachable = |e: &reqwest::Error| PrometheusError::Unreachable {
            url: name.clone(),
            why: clean(&deepest(e), 300).into_owned(),
        };
        let mut response = request.send().await.map_err(|e| unreachable(&e))?;
        let code = response.status();
        let mut body: Vec<u8> = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|e| unreachable(&e))? {
            if body.len() + piece.len() > MAX_BODY {
                return Err(PrometheusError::Garbage {
                    url: name,
                    why: format!("it is larger than {} MiB", MAX_BODY >> 20),
                });
            }
            body.extend_from_slice(&piece);
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if code.is_success() {
            return Ok(body);
        }
        let said = serde_json::from_str::<Answer<'_>>(&body);
        let said = said.ok().and_then(|a| a.error.map(Cow::into_owned));
        let words = said.unwrap_or_else(|| {
            let first = body.lines().next().unwrap_or_default();
            match first.trim() {
                "" => code.canonical_reason().unwrap_or("no reason").to_owned(),
                first => first.to_owned(),
            }
        });
        Err(PrometheusError::Refused {
            url: name,
            code: code.as_u16(),
            why: clean(&words, 300).into_owned(),
        })
    }

    /// Hands each series of an answer on as a row.
    fn each(&self, body: &str, mut put: impl FnMut(Sample<'_>)) -> Result<(), PrometheusError> {
        let answer: Answer<'_> =
            serde_json::from_str(body).map_err(|e| PrometheusError::Garbage {
                url: self.settings.url.clone(),
                why: clean(&e.to_string(), 300).into_owned(),
            })?;
        for series in &answer.data.result {
            let labels: Vec<(&str, Cow<'_, str>)> = series
                .metric
                .iter()
                .map(|(k, v)| (&**k, Cow::Borrowed(&**v)))
                .collect();
            let name = series.metric.get("__name__").map_or("", |n| &**n);
            put(Sample {
                name,
                value: series.value.1.parse().unwrap_or(f64::NAN),
                labels,
            });
        }
        Ok(())
    }
}

/// The innermost cause of an error.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}
