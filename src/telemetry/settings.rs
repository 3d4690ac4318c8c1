//! Where figures come from.

use std::path::PathBuf;
use std::time::Duration;

/// Who is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Settings {
    /// The exporters themselves, through the API server's `pods/proxy`.
    #[default]
    Exporters,
    /// A Prometheus that scrapes them.
    Prometheus(PrometheusSettings),
    /// Nobody.
    Off,
}

/// How to log in to a Prometheus. Files are read anew for each question: tokens change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Auth {
    /// Not at all.
    #[default]
    None,
    /// User name and password.
    Basic {
        /// User.
        username: String,
        /// File with the password.
        password_file: PathBuf,
    },
    /// A bearer token.
    Bearer {
        /// File with the token.
        token_file: PathBuf,
    },
}

/// A Prometheus, or what answers like one (Thanos, Mimir, VictoriaMetrics).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrometheusSettings {
    /// Its address without `/api/v1`.
    pub url: String,
    /// How to log in.
    pub auth: Auth,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with our certificate and key, for mTLS.
    pub identity_file: Option<PathBuf>,
    /// Between two questions.
    pub interval: Duration,
}

impl PrometheusSettings {
    /// One without a login.
    pub fn at(url: impl Into<String>) -> Self {
        PrometheusSettings {
            url: url.into(),
            auth: Auth::None,
            ca_file: None,
            identity_file: None,
            interval: Duration::from_secs(30),
        }
    }
}
