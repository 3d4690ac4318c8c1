//! Carries out what a Plan says. Nothing else in gpudeck changes a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::decode::READY;
use super::http::{Api, ApiError};
use super::source::ClientSource;
use crate::model::{QueueStatus, QueueUse, Str, clean};
use crate::plan::Action;

/// Writes under way at once.
const CONCURRENCY: usize = 32;
/// Longest that one write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Longest that a look at what a write has done may take.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// The annotation that carries the fencing term.
pub const TERM_ANNOTATION: &str = "gpudeck.dev/term";
/// The annotation that tells a pod with a share of a GPU which device of its node holds it.
pub const DEVICE_ANNOTATION: &str = "gpudeck.dev/device";

/// Proof that this run may write. Read-only mode has none, so it cannot build a writer.
#[derive(Clone, Debug)]
pub struct WriteMode(());

impl WriteMode {
    /// The token, or `None` in read-only mode.
    pub fn unless_read_only(read_only: bool) -> Option<Self> {
        (!read_only).then_some(WriteMode(()))
    }
}

/// We do not lead (any more).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the leader")]
pub struct NotLeader;

/// Asked right before each write.
pub trait Fence: Send + Sync {
    /// The term to stamp on the write, if any.
    ///
    /// # Errors
    /// The write must not happen.
    fn check(&self) -> Result<Option<u64>, NotLeader>;
}

/// An operator at the keyboard needs no lease.
pub struct OperatorFence;

impl Fence for OperatorFence {
    fn check(&self) -> Result<Option<u64>, NotLeader> {
        Ok(None)
    }
}

/// What became of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The server did it.
    Done,
    /// The server said no.
    Refused {
        /// HTTP code.
        code: u16,
        /// Its words.
        message: Str,
    },
    /// No certain answer, and the object does not show it (yet): it may still happen. The watch
    /// will tell.
    Unknown {
        /// What went wrong.
        why: Str,
    },
    /// It was not sent.
    NotBegun {
        /// Why not.
        why: Str,
    },
}

/// Writes to the cluster.
#[derive(Clone)]
pub struct Writer {
    source: ClientSource,
    fence: Arc<dyn Fence>,
    permits: Arc<Semaphore>,
}

impl Writer {
    /// Needs the token, so that read-only mode cannot have one.
    pub fn new(_mode: &WriteMode, source: ClientSource, fence: Arc<dyn Fence>) -> Self {
        Writer {
            source,
            fence,
            permits: Arc::new(Semaphore::new(CONCURRENCY)),
        }
    }

    /// Carries out one group of a plan; one outcome per action, in order. After the first action
    /// that is not done, those that are not yet under way are not begun.
    pub async fn execute(&self, group: &[Action]) -> Vec<Outcome> {
        let halted = AtomicBool::new(false);
        let halted = &halted;
        // Owned actions: over borrowed ones the compiler cannot prove this future `Send`.
        futures::stream::iter(group.to_vec())
            .map(|action| async move {
                let Ok(_permit) = self.permits.acquire().await else {
                    return Outcome::NotBegun {
                        why: "the writer is closed".into(),
                    };
                };
                if halted.load(Ordering::SeqCst) {
                    return Outcome::NotBegun {
                        why: "another action of the group was not done".into(),
                    };
                }
                let outcome = self.act(&action).await;
                if outcome != Outcome::Done {
                    halted.store(true, Ordering::SeqCst);
                }
                outcome
            })
            .buffered(CONCURRENCY)
            .collect()
            .await
    }

    async fn act(&self, action: &Action) -> Outcome {
        let mut first = true;
        loop {
            let (api, generation) = self.source.current();
            let term = match self.fence.check() {
                Ok(term) => term,
                Err(e) => {
                    return Outcome::NotBegun {
                        why: e.to_string().into(),
                    };
                }
            };
            let error = match perform(&api, action, term).await {
                Ok(()) => return Outcome::Done,
                Err(e) => e,
            };
            // A 401 says that nothing was done: with new credentials it is asked once more.
            if matches!(error, ApiError::Unauthorized { .. })
                && std::mem::take(&mut first)
                && self.source.rebuild(generation).await.is_ok()
            {
                continue;
            }
            return match outcome(&error) {
                Outcome::Unknown { why } => {
                    look(&api, action).await.unwrap_or(Outcome::Unknown { why })
                }
                certain => certain,
            };
        }
    }
}

/// What an error says of the write. After a 5xx the server does not know itself whether it has
/// stored it: etcd may have, when its answer came too late.
fn outcome(error: &ApiError) -> Outcome {
    match error {
        ApiError::Status { code, message, .. } if *code < 500 => Outcome::Refused {
            code: *code,
            message: message.clone(),
        },
        ApiError::Unauthorized { message, .. } => Outcome::Refused {
            code: 401,
            message: message.clone(),
        },
        other => Outcome::Unknown {
            why: clean(&other.to_string(), 400).into(),
        },
    }
}

/// Reads whether an action without a certain answer was done; `None`: that cannot be told.
async fn look(api: &Api, action: &Action) -> Option<Outcome> {
    let (uid, namespace, name, node) = match action {
        Action::Bind {
            pod,
            namespace,
            name,
            node,
            ..
        } => (pod, namespace, name, Some(node)),
        Action::Evict {
            pod,
            namespace,
            name,
            ..
        } => (pod, namespace, name, None),
        // What was written is told by the watch.
        Action::TellQueue { .. } => return None,
    };
    let refused = |code, message: String| {
        Some(Outcome::Refused {
            code,
            message: clean(&message, 400).into(),
        })
    };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let found = match api.get(&path, LOOK_LIMIT).await {
        Ok(found) => found,
        // A victim that is gone is what was asked for.
        Err(e) if e.code() == Some(404) && node.is_none() => return Some(Outcome::Done),
        Err(e) if e.code() == Some(404) => return refused(404, format!("pod {name} is gone")),
        Err(_) => return None,
    };
    let text = |pointer: &str| found.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    if text("/metadata/uid") != &*uid.0 {
        if node.is_none() {
            return Some(Outcome::Done);
        }
        return refused(404, format!("pod {name} is gone; another has its name"));
    }
    let Some(node) = node else {
        // An eviction was taken when the pod is on its way out.
        let leaves = found.pointer("/metadata/deletionTimestamp").is_some();
        return leaves.then_some(Outcome::Done);
    };
    match text("/spec/nodeName") {
        "" => None,
        at if *at == **node => Some(Outcome::Done),
        at => refused(409, format!("pod {name} is bound to {at} already")),
    }
}

/// Whether a text can be a path segment as it is: names of Kubernetes are, cleaned hostile ones
/// need not be.
fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))
        && text != "."
        && text != ".."
}

async fn perform(api: &Api, action: &Action, term: Option<u64>) -> Result<(), ApiError> {
    match action {
        Action::Bind {
            pod,
            namespace,
            name,
            node,
            device,
        } => {
            if let Some(bad) = [namespace, name, node].into_iter().find(|t| !is_segment(t)) {
                return Err(not_a_name(bad));
            }
            let mut metadata = json!({"name": &**name, "namespace": &**namespace, "uid": &*pod.0});
            // The server copies a binding's annotations to the pod.
            let term = term.map(|term| (TERM_ANNOTATION, term.to_string()));
            let device = device.map(|device| (DEVICE_ANNOTATION, device.to_string()));
            let annotations: serde_json::Map<String, Value> = term
                .into_iter()
                .chain(device)
                .map(|(key, value)| (key.to_owned(), Value::String(value)))
                .collect();
            if let (false, Some(map)) = (annotations.is_empty(), metadata.as_object_mut()) {
                map.insert("annotations".to_owned(), Value::Object(annotations));
            }
            let body: Value = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": metadata,
                "target": {"apiVersion": "v1", "kind": "Node", "name": &**node},
            });
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
            api.send(Method::POST, &path, &body, WRITE_LIMIT).await?;
            Ok(())
        }
        Action::Evict {
            pod,
            namespace,
            name,
            ..
        } => {
            if let Some(bad) = [namespace, name].into_iter().find(|t| !is_segment(t)) {
                return Err(not_a_name(bad));
            }
            // The server asks the disruption budgets, and ends only the pod of this UID.
            let body: Value = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": &**name, "namespace": &**namespace},
                "deleteOptions": {"preconditions": {"uid": &*pod.0}},
            });
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
            api.send(Method::POST, &path, &body, WRITE_LIMIT).await?;
            Ok(())
        }
        Action::TellQueue {
            queue,
            name,
            version,
            status,
        } => {
            if !is_segment(name) {
                return Err(not_a_name(name));
            }
            let body: Value = json!({
                "metadata": {"uid": &*queue.0, "resourceVersion": &*version.0},
                "status": queue_status(status, term),
            });
            let path = format!("/apis/gpudeck.dev/v1alpha1/gpuqueues/{name}/status");
            api.send(Method::PATCH, &path, &body, WRITE_LIMIT).await?;
            Ok(())
        }
    }
}

/// A status as the API has it. Annotations of a status are not kept, so the term is a field.
fn queue_status(status: &QueueStatus, term: Option<u64>) -> Value {
    let gpus = |milli: i64| match milli % 1_000 {
        0 => (milli / 1_000).to_string(),
        _ => format!("{milli}m"),
    };
    let sum = |of: fn(&QueueUse) -> i64| {
        let parts = status.gpus.iter().map(of);
        gpus(parts.fold(0, i64::saturating_add))
    };
    let list = status.gpus.iter().map(|u| {
        let mut one = json!({
            "allocated": gpus(u.used_milli_gpu),
            "pending": gpus(u.waiting_milli_gpu),
            "share": gpus(u.share_milli_gpu),
        });
        if let Some(map) = one.as_object_mut() {
            let model = u.model.as_ref().map(|model| ("model", model.to_string()));
            let tier = u.tier.map(|tier| ("tier", tier.name().to_owned()));
            let words = model.into_iter().chain(tier);
            map.extend(words.map(|(key, text)| (key.to_owned(), Value::String(text))));
        }
        one
    });
    let (ready, reason, message) = match &status.fault {
        None => ("True", "InUse", "the scheduler uses it"),
        Some(fault) => ("False", "Invalid", &**fault),
    };
    json!({
        "allocated": sum(|u| u.used_milli_gpu),
        "pending": sum(|u| u.waiting_milli_gpu),
        "share": sum(|u| u.share_milli_gpu),
        "gpus": list.collect::<Vec<Value>>(),
        "jobs": {"running": status.running_jobs, "waiting": status.waiting_jobs},
        "term": term,
        "conditions": [{
            "type": READY, "status": ready, "reason": reason, "message": message,
            "lastTransitionTime": status.since.map(|at| format!("{at:.0}")),
        }],
    })
}

fn not_a_name(bad: &str) -> ApiError {
    ApiError::Status {
        code: 400,
        reason: "BadRequest".into(),
        message: format!("{bad:?} is no name that a server can have").into(),
        retry_after_secs: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

    use std::sync::Mutex;

    use super::super::fake::{self, Reply};
    use super::*;
    use crate::model::Uid;

    fn bind(name: &str) -> Action {
        Action::Bind {
            pod: Uid(format!("uid-{name}").into()),
            namespace: "ns".into(),
            name: name.into(),
            node: "n1".into(),
            device: None,
        }
    }

    type Log = Arc<Mutex<Vec<(String, Value)>>>;

    /// A server that answers each pod's binding by the start of the pod's name.
    fn server() -> (ClientSource, Log) {
        let log: Log = Arc::default();
        let seen = log.clone();
        let client = fake::client(move |request| {
            let seen = seen.clone();
            async move {
                let path = request.uri().path().to_owned();
                if request.method() == Method::GET {
                    return Ok(shown(path.rsplit('/').next().unwrap()));
                }
                let body = request.into_body().collect_bytes().await.unwrap();
                seen.lock()
                    .unwrap()
                    .push((path.clone(), serde_json::from_slice(&body).unwrap()));
                if let Some((_, code)) = path.split_once("/says-") {
                    let code = code[..3].parse().unwrap();
                    return Ok(fake::reply(code, fake::status(code, "", "no etcd")));
                }
                if path.contains("/taken") {
                    let words = "pod taken is already assigned to node \"n0\"";
                    return Ok(fake::reply(409, fake::status(409, "Conflict", words)));
                }
                if path.contains("/hangs") {
                    std::future::pending::<()>().await;
                }
                Ok(fake::reply(201, fake::status(201, "", "")))
            }
        });
        (ClientSource::fixed(client, "https://fake"), log)
    }

    /// A pod as the server shows it, by the end of its name.
    fn shown(name: &str) -> Reply {
        let node = match name.rsplit('-').next() {
            Some("gone") => return fake::reply(404, fake::status(404, "NotFound", "")),
            Some("unread") => return fake::reply(403, fake::status(403, "Forbidden", "")),
            Some("done") => "n1",
            Some("elsewhere") => "n2",
            _ => "",
        };
        let uid = format!("uid-{}", name.trim_end_matches("-new"));
        let pod = json!({"metadata": {"name": name, "uid": uid}, "spec": {"nodeName": node}});
        fake::reply(200, pod.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_answer_that_says_nothing_the_pod_is_read() {
        let refused = |code, message: &str| Outcome::Refused {
            code,
            message: message.into(),
        };
        let unknown = |code: u16| Outcome::Unknown {
            why: format!("the API server answered {code}: no etcd").into(),
        };
        for (name, expected) in [
            ("says-400-done", refused(400, "no etcd")),
            ("says-500-done", Outcome::Done),
            ("says-503-done", Outcome::Done),
            ("says-504-done", Outcome::Done),
            ("hangs-done", Outcome::Done),
            ("says-500-waits", unknown(500)),
            ("says-504-waits", unknown(504)),
            ("says-503-unread", unknown(503)),
            ("says-500-gone", refused(404, "pod says-500-gone is gone")),
            (
                "says-500-elsewhere",
                refused(409, "pod says-500-elsewhere is bound to n2 already"),
            ),
            (
                "says-500-new",
                refused(404, "pod says-500-new is gone; another has its name"),
            ),
        ] {
            let (source, log) = server();
            let outcomes = writer(source, OperatorFence).execute(&[bind(name)]).await;
            assert_eq!(outcomes, [expected], "{name}");
            assert_eq!(log.lock().unwrap().len(), 1, "{name}: it is sent once");
        }
    }

    fn writer(source: ClientSource, fence: impl Fence + 'static) -> Writer {
        Writer::new(
            &WriteMode::unless_read_only(false).unwrap(),
            source,
            Arc::new(fence),
        )
    }

    /// Leads for a number of writes.
    struct Leads(Mutex<u32>);

    impl Fence for Leads {
        fn check(&self) -> Result<Option<u64>, NotLeader> {
            let mut left = self.0.lock().unwrap();
            *left = left.checked_sub(1).ok_or(NotLeader)?;
            Ok(Some(7))
        }
    }

    #[test]
    fn read_only_mode_has_no_token() {
        assert!(WriteMode::unless_read_only(true).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_names_the_uid_and_the_term() {
        let (source, log) = server();
        let outcomes = writer(source, Leads(Mutex::new(9)))
            .execute(&[bind("a")])
            .await;
        assert_eq!(outcomes, [Outcome::Done]);
        let (path, body) = log.lock().unwrap()[0].clone();
        assert_eq!(path, "/api/v1/namespaces/ns/pods/a/binding");
        assert_eq!(body["metadata"]["uid"], "uid-a");
        assert_eq!(body["metadata"]["annotations"][TERM_ANNOTATION], "7");
        assert_eq!(body["target"]["name"], "n1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queues_status_names_the_version_it_was_counted_for_and_the_term() {
        let (source, log) = server();
        let used = QueueUse {
            model: Some("H100-80".into()),
            used_milli_gpu: 1_500,
            waiting_milli_gpu: 8_000,
            share_milli_gpu: 2_000,
            ..QueueUse::default()
        };
        let status = QueueStatus {
            gpus: [used].into(),
            running_jobs: 1,
            waiting_jobs: 2,
            fault: None,
            since: "2026-11-30T12:00:00.5Z".parse().ok(),
        };
        let tell = |name: &str| Action::TellQueue {
            queue: Uid("uid-q".into()),
            name: name.into(),
            version: crate::model::ResourceVersion("41".into()),
            status: Arc::new(status.clone()),
        };
        let writer = writer(source, Leads(Mutex::new(9)));
        assert_eq!(writer.execute(&[tell("q")]).await, [Outcome::Done]);
        let (path, body) = log.lock().unwrap()[0].clone();
        assert_eq!(path, "/apis/gpudeck.dev/v1alpha1/gpuqueues/q/status");
        assert_eq!(
            body["metadata"],
            json!({"uid": "uid-q", "resourceVersion": "41"})
        );
        assert_eq!(
            body["status"],
            json!({
                "allocated": "1500m", "pending": "8", "share": "2", "term": 7,
                "gpus": [{"model": "H100-80", "allocated": "1500m", "pending": "8", "share": "2"}],
                "jobs": {"running": 1, "waiting": 2},
                "conditions": [{"type": "Ready", "status": "True", "reason": "InUse",
                    "message": "the scheduler uses it",
                    "lastTransitionTime": "2026-11-30T12:00:00Z"}],
            })
        );
        let outcomes = writer.execute(&[tell("../x")]).await;
        assert!(matches!(outcomes[0], Outcome::Refused { code: 400, .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_keeps_the_rest_of_the_group_from_beginning() {
        let (source, log) = server();
        let mut group = vec![bind("taken")];
        group.extend((0..100).map(|i| bind(&format!("p{i}"))));
        let outcomes = writer(source, OperatorFence).execute(&group).await;
        assert_eq!(
            outcomes[0],
            Outcome::Refused {
                code: 409,
                message: "pod taken is already assigned to node \"n0\"".into()
            }
        );
        let sent = log.lock().unwrap().len();
        assert!(sent <= CONCURRENCY, "{sent} were sent");
        assert!(matches!(outcomes[100], Outcome::NotBegun { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_outcome_is_unknown() {
        let (source, _) = server();
        let outcomes = writer(source, OperatorFence)
            .execute(&[bind("hangs")])
            .await;
        assert_eq!(
            outcomes,
            [Outcome::Unknown {
                why: "the API server https://fake did not answer within 10 s".into()
            }]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_is_asked_before_each_write() {
        let (source, log) = server();
        let group: Vec<Action> = (0..10).map(|i| bind(&format!("p{i}"))).collect();
        let outcomes = writer(source, Leads(Mutex::new(3))).execute(&group).await;
        assert_eq!(log.lock().unwrap().len(), 3);
        assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Done).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hostile_name_is_never_part_of_a_url() {
        let (source, log) = server();
        let outcomes = writer(source, OperatorFence)
            .execute(&[bind("../../nodes/x?a=b")])
            .await;
        assert!(matches!(outcomes[0], Outcome::Refused { code: 400, .. }));
        assert!(log.lock().unwrap().is_empty());
    }
}
