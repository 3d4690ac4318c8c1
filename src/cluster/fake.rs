//! A scripted API server for tests: one collection of pods, and whatever can go wrong.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// How a kind of request is answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// As an API server does.
    Normal,
    /// No connection.
    Refused,
    /// Never.
    Hangs,
    /// With this code and body.
    Says(u16, String),
    /// For watches: 200 and silence that outlives the asked time-out.
    Silent,
}

struct State {
    pods: BTreeMap<String, Value>,
    version: u64,
    list: Mode,
    watch: Mode,
    watchers: Vec<mpsc::UnboundedSender<Option<Bytes>>>,
    log: Vec<String>,
}

/// The server; clones are the same one.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
}

pub(crate) fn reply(code: u16, body: impl Into<Bytes>) -> Reply {
    Response::builder()
        .status(code)
        .body(Full::new(body.into()).boxed_unsync())
        .unwrap()
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> String {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message})
    .to_string()
}

/// A client over a function from request to reply.
pub(crate) fn client<F, Fut>(serve: F) -> Client
where
    F: Fn(Request<Body>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Reply, std::io::Error>> + Send + 'static,
{
    Client::new(tower::service_fn(serve), "default")
}

impl Fake {
    pub(crate) fn new() -> Self {
        Fake {
            state: Arc::new(Mutex::new(State {
                pods: BTreeMap::new(),
                version: 100,
                list: Mode::Normal,
                watch: Mode::Normal,
                watchers: Vec::new(),
                log: Vec::new(),
            })),
        }
    }

    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        client(move |request| {
            let fake = fake.clone();
            async move { fake.serve(&request.uri().to_string()).await }
        })
    }

    pub(crate) fn modes(&self, list: Mode, watch: Mode) {
        let mut s = self.state.lock().unwrap();
        s.list = list;
        s.watch = watch;
    }

    /// Ends every open watch, as a killed server does.
    pub(crate) fn drop_watches(&self) {
        self.state.lock().unwrap().watchers.clear();
    }

    /// Sends a line to every open watch.
    pub(crate) fn tell(&self, line: &str) {
        let mut s = self.state.lock().unwrap();
        let bytes = Bytes::from(format!("{line}\n"));
        s.watchers.retain(|w| w.send(Some(bytes.clone())).is_ok());
    }

    /// The requests so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().log.clone()
    }

    pub(crate) fn put(&self, name: &str) {
        let object = {
            let mut s = self.state.lock().unwrap();
            s.version += 1;
            let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                "resourceVersion": s.version.to_string()}, "spec": {"containers": []}, "status": {"phase": "Pending"}});
            s.pods.insert(name.to_owned(), object.clone());
            object
        };
        self.tell(&json!({"type": "ADDED", "object": object}).to_string());
    }

    pub(crate) fn delete(&self, name: &str) {
        let object = {
            let mut s = self.state.lock().unwrap();
            s.version += 1;
            let mut object = s.pods.remove(name).unwrap();
            object["metadata"]["resourceVersion"] = s.version.to_string().into();
            object
        };
        self.tell(&json!({"type": "DELETED", "object": object}).to_string());
    }

    pub(crate) async fn serve(&self, uri: &str) -> Result<Reply, std::io::Error> {
        let watch = uri.contains("watch=true");
        let mode = {
            let mut s = self.state.lock().unwrap();
            s.log.push(uri.to_owned());
            if watch {
                s.watch.clone()
            } else {
                s.list.clone()
            }
        };
        match mode {
            Mode::Refused => Err(std::io::Error::new(
                std::io::ErrorKind::ConnectionRefused,
                "connection refused",
            )),
            Mode::Hangs => std::future::pending().await,
            Mode::Says(code, body) => Ok(reply(code, body)),
            Mode::Normal if !watch => Ok(reply(200, self.page(uri))),
            mode => Ok(self.stream(uri, mode == Mode::Silent)),
        }
    }

    fn query(uri: &str, key: &str) -> Option<String> {
        let (_, query) = uri.split_once('?')?;
        query
            .split('&')
            .find_map(|p| p.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
    }

    fn page(&self, uri: &str) -> String {
        let s = self.state.lock().unwrap();
        let limit: usize = Self::query(uri, "limit").map_or(usize::MAX, |l| l.parse().unwrap());
        let from: usize = Self::query(uri, "continue").map_or(0, |c| c.parse().unwrap());
        let items: Vec<&Value> = s.pods.values().skip(from).take(limit).collect();
        let next = if from + items.len() < s.pods.len() {
            (from + items.len()).to_string()
        } else {
            String::new()
        };
        json!({"kind": "PodList", "metadata": {"resourceVersion": s.version.to_string(), "continue": next}, "items": items})
            .to_string()
    }

    fn stream(&self, uri: &str, silent: bool) -> Reply {
        let (tx, rx) = mpsc::unbounded_channel::<Option<Bytes>>();
        let mut s = self.state.lock().unwrap();
        // What changed since the asked version, as a watch cache replays it.
        let from: u64 = Self::query(uri, "resourceVersion").map_or(0, |v| v.parse().unwrap());
        if !silent {
            for pod in s.pods.values() {
                let v: u64 = pod["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse()
                    .unwrap();
                if v > from {
                    let line = json!({"type": "ADDED", "object": pod});
                    tx.send(Some(Bytes::from(format!("{line}\n")))).unwrap();
                }
            }
            s.watchers.push(tx);
        } else {
            // Held open by nobody who speaks.
            std::mem::forget(tx);
        }
        let version = s.version;
        drop(s);
        let secs: u64 = Self::query(uri, "timeoutSeconds").unwrap().parse().unwrap();
        let end = if silent {
            Instant::now() + Duration::from_secs(1 << 20)
        } else {
            Instant::now() + Duration::from_secs(secs)
        };
        let frames = futures::stream::unfold((rx, false), move |(mut rx, over)| async move {
            if over {
                return None;
            }
            match tokio::time::timeout_at(end, rx.recv()).await {
                Ok(Some(Some(bytes))) => {
                    Some((Ok::<_, Infallible>(Frame::data(bytes)), (rx, false)))
                }
                Ok(_) => None,
                Err(_) => {
                    let line = json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version.to_string()}}});
                    Some((
                        Ok(Frame::data(Bytes::from(format!("{line}\n")))),
                        (rx, true),
                    ))
                }
            }
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}
