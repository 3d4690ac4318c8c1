//! JSON calls to an API server: what every client in this room is built from.
//!
//! Bodies are plain JSON values, so that nothing here depends on typed Kubernetes objects, and
//! every call is bounded by a timeout, because kube bounds none.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Time;

/// How long one call may take before it counts as failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// How often [`Calls::patiently`] repeats a call.
const MAX_ATTEMPTS: u32 = 8;
/// The longest wait between two attempts, also when a server asks for more.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why a call did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused: `code` is the HTTP status.
    #[error("{path}: {message} ({code} {reason})")]
    Refused {
        /// The path called.
        path: String,
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason, such as `AlreadyExists`.
        reason: String,
        /// The server's words.
        message: String,
        /// What the server asked to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// No answer came in time.
    #[error("{path}: no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut {
        /// The path called.
        path: String,
    },
    /// The call never got an answer, or one that could not be read.
    #[error("{path}: {source}")]
    Failed {
        /// The path called.
        path: String,
        /// What kube said.
        source: Box<kube::Error>,
    },
}

impl CallError {
    /// The answer to `path` is not what was asked for.
    pub(super) fn unreadable(path: &str, error: serde_json::Error) -> Self {
        Self::from_kube(path, kube::Error::SerdeError(error))
    }

    /// The HTTP status code of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::TimedOut { .. } | Self::Failed { .. } => None,
        }
    }

    /// The object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// An object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused { code: 409, reason, .. } if reason == "AlreadyExists")
    }

    /// Whether the same call may succeed later: the server is busy, starting or away.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 429 | 500 | 503 | 504),
            Self::TimedOut { .. } => true,
            Self::Failed { source, .. } => !matches!(**source, kube::Error::SerdeError(_)),
        }
    }

    fn from_kube(path: &str, error: kube::Error) -> Self {
        let path = path.to_owned();
        match error {
            kube::Error::Api(status) => Self::Refused {
                path,
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
                retry_after: status
                    .details
                    .as_ref()
                    .map(|details| details.retry_after_seconds)
                    .filter(|secs| *secs > 0)
                    .map(|secs| Duration::from_secs(u64::from(secs))),
            },
            source => Self::Failed {
                path,
                source: Box::new(source),
            },
        }
    }
}

/// The kind of a patch body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386: lists are replaced.
    Merge,
    /// Kubernetes' own: lists of conditions, taints and so on are merged by key.
    Strategic,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// A client for JSON calls.
#[derive(Clone)]
pub struct Calls {
    client: Client,
    time: Time,
}

impl Calls {
    /// Wraps `client`, whose own retries should be off.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            time: Time::System,
        }
    }

    /// The same with another time of day for what is stamped.
    pub fn with_time(self, time: Time) -> Self {
        Self { time, ..self }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// The client below, for watches.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// GET `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.send("GET", path, "application/json", Vec::new()).await
    }

    /// GET `path` as text.
    pub async fn get_text(&self, path: &str) -> Result<String, CallError> {
        let request = request("GET", path, "application/json", Vec::new())?;
        bounded(path, self.client.request_text(request)).await
    }

    /// POST `body` to the collection or subresource at `path`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.send("POST", path, "application/json", encode(path, body)?)
            .await
    }

    /// PATCH the object or subresource at `path`.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        kind: PatchKind,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.send("PATCH", path, kind.content_type(), encode(path, body)?)
            .await
    }

    /// DELETE the object at `path` if it still has this `uid`; an object already gone is a success.
    pub async fn delete(
        &self,
        path: &str,
        uid: &str,
        grace_secs: Option<i64>,
    ) -> Result<(), CallError> {
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        });
        if let (Some(secs), Some(map)) = (grace_secs, options.as_object_mut()) {
            map.insert("gracePeriodSeconds".to_owned(), json!(secs));
        }
        let body = encode(path, &options)?;
        match self
            .send::<serde::de::IgnoredAny>("DELETE", path, "application/json", body)
            .await
        {
            // 409 here is the precondition: another object has taken the name.
            Err(error) if error.is_not_found() || error.code() == Some(409) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<T, CallError> {
        let request = request(method, path, content_type, body)?;
        bounded(path, self.client.request::<T>(request)).await
    }
}

fn request(
    method: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<http::Request<Vec<u8>>, CallError> {
    http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(|error| CallError::from_kube(path, kube::Error::HttpError(error)))
}

async fn bounded<T>(
    path: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(CallError::from_kube(path, error)),
        Err(_) => Err(CallError::TimedOut {
            path: path.to_owned(),
        }),
    }
}

/// Repeats `call` while its error is passing, waiting as long as the server asks (`Retry-After`),
/// else a doubling time from 100 ms. For writers of many objects; actors repeat by state instead.
pub async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut attempt = 1;
    loop {
        match call().await {
            Err(error) if error.is_passing() && attempt < MAX_ATTEMPTS => {
                let asked = match &error {
                    CallError::Refused { retry_after, .. } => *retry_after,
                    CallError::TimedOut { .. } | CallError::Failed { .. } => None,
                };
                let doubling = Duration::from_millis(100 << attempt.min(6));
                tokio::time::sleep(asked.unwrap_or(doubling).min(MAX_WAIT)).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn encode(path: &str, body: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(body).map_err(|error| CallError::unreadable(path, error))
}

/// What a create did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is new.
    New,
    /// One of that name was there; it was left as it is.
    Existing,
}

impl Calls {
    /// Creates `object` in `collection` unless one of that name exists, patiently.
    pub async fn ensure(&self, collection: &str, object: &Value) -> Result<Created, CallError> {
        let result = patiently(|| self.post::<serde::de::IgnoredAny>(collection, object)).await;
        match result {
            Ok(_) => Ok(Created::New),
            Err(error) if error.is_already_exists() => Ok(Created::Existing),
            Err(error) => Err(error),
        }
    }
}

/// Paths of the collections this room uses.
pub mod path {
    /// Nodes.
    pub const NODES: &str = "/api/v1/nodes";
    /// Namespaces.
    pub const NAMESPACES: &str = "/api/v1/namespaces";
    /// Priority classes.
    pub const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    /// Pods of all namespaces.
    pub const PODS: &str = "/api/v1/pods";
    /// Jobs of all namespaces.
    pub const JOBS: &str = "/apis/batch/v1/jobs";
    /// Deployments of all namespaces.
    pub const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
    /// ReplicaSets of all namespaces.
    pub const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";

    /// DaemonSets of all namespaces.
    pub const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
    /// ConfigMaps of all namespaces.
    pub const CONFIG_MAPS: &str = "/api/v1/configmaps";
    /// The GPU operator's ClusterPolicy.
    pub const CLUSTER_POLICIES: &str = "/apis/nvidia.com/v1/clusterpolicies";

    /// The Leases of all kubelets.
    pub const NODE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

    /// Events of all namespaces.
    pub const EVENTS: &str = "/api/v1/events";

    /// The pods of one namespace.
    pub fn pods(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/pods")
    }

    /// The Jobs of one namespace.
    pub fn jobs(namespace: &str) -> String {
        format!("/apis/batch/v1/namespaces/{namespace}/jobs")
    }

    /// The Deployments of one namespace.
    pub fn deployments(namespace: &str) -> String {
        format!("/apis/apps/v1/namespaces/{namespace}/deployments")
    }

    /// The ReplicaSets of one namespace.
    pub fn replica_sets(namespace: &str) -> String {
        format!("/apis/apps/v1/namespaces/{namespace}/replicasets")
    }

    /// The DaemonSets of one namespace.
    pub fn daemon_sets(namespace: &str) -> String {
        format!("/apis/apps/v1/namespaces/{namespace}/daemonsets")
    }

    /// The ConfigMaps of one namespace.
    pub fn config_maps(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/configmaps")
    }

    /// The Leases of one namespace.
    pub fn leases(namespace: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    /// The Events of one namespace.
    pub fn events(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/events")
    }
}
