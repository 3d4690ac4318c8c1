//! An embedded cluster with actors, a client that shares no code with them, and a scheduler that
//! is just good enough to bind.

use std::collections::BTreeMap;
use std::time::Duration;

use gpudeck::sandbox::actors::{self, Options};
use gpudeck::sandbox::{self, ApiServer, Time};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::serde::Serialize;
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a condition may take; far more than it does.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Cluster {
    /// A cluster in which a minute passes in a second.
    pub(crate) fn start() -> Self {
        Self::with(&Options {
            speed: 60.0,
            ..Options::default()
        })
    }

    pub(crate) fn with(options: &Options) -> Self {
        Self::on(&server(), options)
    }

    /// Actors in `server`.
    pub(crate) fn on(server: &ApiServer, options: &Options) -> Self {
        let client = server.client();
        let cancel = CancellationToken::new();
        // Moved by tokio's clock: where a test stops that one, back-offs must not wait for the
        // machine's.
        let options = Options {
            time: time(),
            ..options.clone()
        };
        let tasks = actors::start(client.clone(), &options, &cancel);
        Self {
            client,
            cancel,
            tasks,
        }
    }

    /// Adds a task to the cluster's, with its own client and the token that ends it.
    pub(crate) fn spawn<F>(&mut self, task: impl FnOnce(Client, CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks
            .spawn(task(self.client.clone(), self.cancel.clone()));
    }

    /// Ends the actors and waits for them: none may hang or panic.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        let end = async {
            while let Some(result) = self.tasks.join_next().await {
                result.unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, end)
            .await
            .expect("an actor did not end");
    }

    /// A Ready node with this many GPUs.
    pub(crate) async fn node(&self, name: &str, gpus: u32) {
        let resources = json!({
            "cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string(),
        });
        self.create_global::<Node>(json!({
            "metadata": {"name": name},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .await;
    }

    async fn create_global<K>(&self, object: Value)
    where
        K: Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api: Api<K> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn create<K>(&self, namespace: &str, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api(namespace)
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) async fn pods(&self, namespace: &str) -> Vec<Pod> {
        self.api(namespace)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }
}

/// An embedded API server without anything that lives in it.
pub(crate) fn server() -> ApiServer {
    ApiServer::new(sandbox::Options {
        clock: time().into(),
        ..sandbox::Options::default()
    })
    .unwrap()
}

/// The present, from here on as tokio's clock goes.
fn time() -> Time {
    Time::starting(jiff::Timestamp::now())
}

/// Waits until `check` gives a value.
pub(crate) async fn eventually<T, F>(what: &str, check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    looking_every(Duration::from_millis(20), DEADLINE, what, check).await
}

/// Waits until `check` gives a value, at most so long; for tests on a stopped clock, whose hours
/// take no time but whose looks do.
pub(crate) async fn eventually_within<T, F>(
    deadline: Duration,
    what: &str,
    check: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Option<T>>,
{
    looking_every(Duration::from_millis(500), deadline, what, check).await
}

async fn looking_every<T, F>(
    pause: Duration,
    deadline: Duration,
    what: &str,
    mut check: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Option<T>>,
{
    let wait = async {
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(pause).await;
        }
    };
    let found = tokio::time::timeout(deadline, wait).await;
    found.unwrap_or_else(|_| panic!("not within {} s: {what}", deadline.as_secs()))
}

/// Binds `pod` to `node` as a scheduler does; false when the server refuses.
pub(crate) async fn bind(client: &Client, pod: &Pod, node: &str) -> bool {
    let name = pod.metadata.name.clone().unwrap();
    let namespace = pod.metadata.namespace.clone().unwrap();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&binding).unwrap())
        .unwrap();
    client.request::<Value>(request).await.is_ok()
}

/// A scheduler that counts devices and node selectors and nothing else; runs until `cancel`.
pub(crate) async fn first_fit(client: Client, cancel: CancellationToken) {
    first_fit_every(Duration::from_millis(30), client, cancel).await;
}

/// The same for tests on a stopped clock, where rounds take longer than the time between them.
pub(crate) async fn first_fit_at_leisure(client: Client, cancel: CancellationToken) {
    first_fit_every(Duration::from_secs(1), client, cancel).await;
}

async fn first_fit_every(pause: Duration, client: Client, cancel: CancellationToken) {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    while !cancel.is_cancelled() {
        let (Ok(nodes), Ok(pods)) = (
            nodes.list(&ListParams::default()).await,
            pods.list(&ListParams::default()).await,
        ) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut free: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.unschedulable) != Some(true)
        }) {
            let all = node
                .status
                .as_ref()
                .and_then(|status| status.allocatable.clone());
            let devices = all.unwrap_or_default().into_iter();
            let devices = devices.filter_map(|(name, count)| Some((name, count.0.parse().ok()?)));
            free.insert(node.metadata.name.clone().unwrap(), devices.collect());
        }
        let ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
        };
        for pod in pods.iter().filter(|pod| !ended(pod)) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            if let Some(left) = node.and_then(|node| free.get_mut(&node)) {
                for (name, count) in devices(pod) {
                    *left.entry(name).or_default() -= count;
                }
            }
        }
        for pod in &pods {
            let spec = pod.spec.as_ref().unwrap();
            if spec.node_name.is_some() || ended(pod) || pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let asks = devices(pod);
            let wanted = spec.node_selector.clone().unwrap_or_default();
            let fits = nodes.iter().find(|node| {
                let labels = node.metadata.labels.clone().unwrap_or_default();
                let left = free.get(node.metadata.name.as_ref().unwrap());
                wanted
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
                    && left.is_some_and(|left| {
                        asks.iter()
                            .all(|(name, count)| left.get(name).is_some_and(|left| left >= count))
                    })
            });
            if let Some(node) = fits {
                let name = node.metadata.name.clone().unwrap();
                if bind(&client, pod, &name).await {
                    for (device, count) in asks {
                        *free
                            .entry(name.clone())
                            .or_default()
                            .entry(device)
                            .or_default() -= count;
                    }
                }
            }
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn devices(pod: &Pod) -> Vec<(String, i64)> {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let mut all = Vec::new();
    for container in containers {
        let requests = container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.clone());
        for (name, count) in requests.unwrap_or_default() {
            if name.contains('/') {
                all.push((name, count.0.parse().unwrap()));
            }
        }
    }
    all
}
