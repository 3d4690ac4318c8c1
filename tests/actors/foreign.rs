//! Kueue, Volcano and KAI beside each other: their own work is admitted, runs, and is told of in
//! their objects.

use std::collections::BTreeMap;
use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::foreign::{Settings, kai, kueue, volcano};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually_within};

const LONG: Duration = Duration::from_secs(1_800);

async fn with(foreign: Settings) -> Cluster {
    let cluster = Cluster::with(&Options {
        world: World {
            foreign,
            ..World::default()
        },
        ..Options::default()
    });
    cluster.node("n1", 8).await;
    cluster.node("n2", 8).await;
    cluster
}

/// The object at `path`, once `check` holds.
async fn until(cluster: &Cluster, path: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    eventually_within(LONG, what, || async {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let found = cluster.client.request::<Value>(request).await.ok();
        found.filter(&check)
    })
    .await
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}

fn job(name: &str, queue: &str, pods: u32, gpus: u32, run_secs: u32) -> Value {
    let asks = json!({"nvidia.com/gpu": gpus.to_string()});
    json!({
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": true,
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": {
                    "sandbox.gpudeck.dev/train-secs": run_secs.to_string(),
                }},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "train",
                        "resources": {"requests": asks, "limits": asks},
                    }],
                },
            },
        },
    })
}

fn one_queue() -> kueue::Settings {
    kueue::Settings {
        flavors: vec![kueue::Flavor {
            name: "reserved".to_owned(),
            node_labels: BTreeMap::new(),
        }],
        cluster_queues: vec![kueue::ClusterQueue {
            name: "cq".to_owned(),
            cohort: String::new(),
            strict: false,
            gpus: vec![kueue::GpuQuota {
                flavor: "reserved".to_owned(),
                nominal: 8,
                borrowing: None,
            }],
            preempts: "LowerPriority".to_owned(),
            reclaims: String::new(),
        }],
        priorities: vec![("dev".to_owned(), 100), ("prod".to_owned(), 1_000)],
        local_queues: vec![kueue::LocalQueue {
            namespace: "default".to_owned(),
            name: "main".to_owned(),
            cluster_queue: "cq".to_owned(),
        }],
        topology: Vec::new(),
    }
}

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";

/// The only workload whose Job has this name.
async fn workload(
    cluster: &Cluster,
    job: &str,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> Value {
    let of_job = |list: &Value| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items
            .into_iter()
            .find(|item| item["metadata"]["ownerReferences"][0]["name"] == job)
    };
    let list = until(cluster, WORKLOADS, &format!("{job}: {what}"), |list| {
        of_job(list).is_some_and(|item| check(&item))
    })
    .await;
    of_job(&list).unwrap()
}

#[tokio::test(start_paused = true)]
async fn kueue_admits_in_turn_and_counts() {
    let foreign = Settings {
        kueue: Some(one_queue()),
        default_scheduler: true,
        ..Settings::default()
    };
    let cluster = Cluster::with(&Options {
        world: World {
            foreign,
            training: Some(Default::default()),
            ..World::default()
        },
        ..Options::default()
    });
    cluster.node("n1", 8).await;
    for (name, queue) in [("first", "main"), ("second", "main"), ("lost", "mian")] {
        let _: Job = cluster.create("default", job(name, queue, 2, 4, 120)).await;
        workload(&cluster, name, "has a workload", |_| true).await;
    }
    let running = workload(&cluster, "first", "runs", |w| {
        condition(w, "PodsReady") == Some(("True", "Started"))
    })
    .await;
    assert_eq!(condition(&running, "Admitted"), Some(("True", "Admitted")));
    let admission = &running["status"]["admission"];
    assert_eq!(admission["clusterQueue"], "cq");
    assert_eq!(
        admission["podSetAssignments"][0],
        json!({
            "name": "main", "count": 2, "flavors": {"nvidia.com/gpu": "reserved"},
            "resourceUsage": {"nvidia.com/gpu": "8"},
        })
    );
    let name = running["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-first-"), "{name}");

    let waiting = workload(&cluster, "second", "waits", |w| {
        condition(w, "QuotaReserved") == Some(("False", "WaitingForQuota"))
    })
    .await;
    assert_eq!(
        waiting["status"]["conditions"][0]["message"],
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in \
         flavor reserved, 8 more needed"
    );
    let lost = workload(&cluster, "lost", "is told", |w| {
        condition(w, "QuotaReserved") == Some(("False", "Misconfigured"))
    })
    .await;
    assert_eq!(
        lost["status"]["conditions"][0]["message"],
        "LocalQueue mian doesn't exist"
    );
    let queue = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq";
    let queue = until(&cluster, queue, "the queue counts", |queue| {
        queue["status"]["admittedWorkloads"] == 1 && queue["status"]["pendingWorkloads"] == 1
    })
    .await;
    assert_eq!(condition(&queue, "Active"), Some(("True", "Ready")));
    assert_eq!(
        queue["status"]["flavorsUsage"],
        json!([{
            "name": "reserved",
            "resources": [{"name": "nvidia.com/gpu", "total": "8", "borrowed": "0"}],
        }])
    );
    let jobs: Api<Job> = cluster.api("default");
    assert_eq!(
        jobs.get("second").await.unwrap().spec.unwrap().suspend,
        Some(true)
    );

    workload(&cluster, "first", "is finished", |w| {
        condition(w, "Finished") == Some(("True", "Succeeded"))
    })
    .await;
    workload(&cluster, "second", "runs then", |w| {
        condition(w, "PodsReady") == Some(("True", "Started"))
    })
    .await;
    cluster.stop().await;
}

/// Workloads that ask for a topology get nodes with their admission, and their pods go there.
#[tokio::test(start_paused = true)]
async fn kueue_seats_the_pods_of_a_workload_in_one_rack() {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let mut queue = one_queue();
    queue.cluster_queues[0].gpus[0].nominal = 64;
    queue.topology = vec!["rack".to_owned(), HOSTNAME.to_owned()];
    let foreign = Settings {
        kueue: Some(queue),
        default_scheduler: true,
        ..Settings::default()
    };
    let cluster = Cluster::with(&Options {
        world: World {
            foreign,
            training: Some(Default::default()),
            ..World::default()
        },
        ..Options::default()
    });
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in ["a-1", "b-1", "a-2", "b-2"] {
        cluster.node(name, 8).await;
        let labels = json!({"rack": &name[..1], HOSTNAME: name});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let params = PatchParams::default();
        nodes.patch(name, &params, &patch).await.unwrap();
    }
    let asks = |name: &str, pods: u32, run_secs: u32| {
        let mut job = job(name, "main", pods, 4, run_secs);
        let notes = &mut job["spec"]["template"]["metadata"]["annotations"];
        notes["kueue.x-k8s.io/podset-required-topology"] = json!("rack");
        job
    };
    let _: Job = cluster.create("default", asks("four", 4, 600)).await;
    let runs = workload(&cluster, "four", "runs", |w| {
        condition(w, "PodsReady") == Some(("True", "Started"))
    })
    .await;
    assert_eq!(
        runs["spec"]["podSets"][0]["topologyRequest"],
        json!({"required": "rack"})
    );
    let assigned = &runs["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(
        *assigned,
        json!({
            "levels": [HOSTNAME],
            "slices": [{
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "a-", "roots": ["1", "2"]}}],
                "podCounts": {"universal": 2},
            }],
        })
    );
    let on = nodes_of(&cluster).await;
    let on: Vec<&str> = on.values().filter_map(Option::as_deref).collect();
    for node in ["a-1", "a-2"] {
        assert_eq!(on.iter().filter(|name| **name == node).count(), 2, "{on:?}");
    }

    // There are GPUs for it, but not in one rack, before the first has ended and after.
    let _: Job = cluster.create("default", asks("five", 5, 60)).await;
    let waits = workload(&cluster, "five", "waits", |w| {
        condition(w, "QuotaReserved") == Some(("False", "WaitingForQuota"))
    })
    .await;
    assert_eq!(
        waits["status"]["conditions"][0]["message"],
        "couldn't assign flavors to pod set main: topology \"default\" allows to fit only 4 out of \
         5 pod(s)"
    );
    // Each of these takes a whole rack, so that the last comes when one has ended.
    for name in ["second", "third"] {
        let _: Job = cluster.create("default", asks(name, 4, 120)).await;
    }
    for name in ["second", "third"] {
        workload(&cluster, name, "is finished", |w| {
            condition(w, "Finished") == Some(("True", "Succeeded"))
        })
        .await;
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kueue_stops_what_is_deactivated_and_lets_gated_pods_go() {
    let cluster = with(Settings {
        kueue: Some(one_queue()),
        default_scheduler: true,
        ..Settings::default()
    })
    .await;
    let asks = json!({"nvidia.com/gpu": "4"});
    let _: Pod = cluster
        .create(
            "default",
            json!({
                "metadata": {"name": "nb", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
                "spec": {
                    "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
                    "containers": [{
                        "name": "main", "image": "nb",
                        "resources": {"requests": asks, "limits": asks},
                    }],
                },
            }),
        )
        .await;
    let pods: Api<Pod> = cluster.api("default");
    eventually_within(LONG, "the pod runs", || async {
        let status = pods.get("nb").await.unwrap().status.unwrap();
        (status.phase.as_deref() == Some("Running")).then_some(())
    })
    .await;
    let _: Job = cluster
        .create("default", job("long", "main", 1, 4, 100_000))
        .await;
    let running = workload(&cluster, "long", "runs", |w| {
        condition(w, "PodsReady") == Some(("True", "Started"))
    })
    .await;
    let at = format!(
        "{WORKLOADS}/{}",
        running["metadata"]["name"].as_str().unwrap()
    );
    let request = http::Request::patch(&at)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&json!({"spec": {"active": false}})).unwrap())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    workload(&cluster, "long", "is evicted", |w| {
        condition(w, "Evicted") == Some(("True", "Deactivated"))
    })
    .await;
    let evicted = workload(&cluster, "long", "has stopped", |w| {
        condition(w, "Admitted") == Some(("False", "NoReservation"))
    })
    .await;
    assert!(evicted["status"]["admission"].is_null());
    let jobs: Api<Job> = cluster.api("default");
    eventually_within(
        LONG,
        "its Job is suspended and its pods are gone",
        || async {
            let job = jobs.get("long").await.unwrap();
            let active = job.status.and_then(|status| status.active).unwrap_or(0);
            (job.spec.unwrap().suspend == Some(true) && active == 0).then_some(())
        },
    )
    .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kueue_stops_the_less_important_and_lets_it_come_again() {
    let foreign = Settings {
        kueue: Some(one_queue()),
        default_scheduler: true,
        ..Settings::default()
    };
    let cluster = Cluster::with(&Options {
        world: World {
            foreign,
            training: Some(Default::default()),
            ..World::default()
        },
        ..Options::default()
    });
    cluster.node("n1", 8).await;
    for (name, class, secs) in [("sweep", "dev", 600), ("deadline", "prod", 120)] {
        let mut job = job(name, "main", 2, 4, secs);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        let _: Job = cluster.create("default", job).await;
        workload(&cluster, name, "runs", |w| {
            condition(w, "PodsReady") == Some(("True", "Started"))
        })
        .await;
    }
    let first = workload(&cluster, "sweep", "is told", |_| true).await;
    let by = workload(&cluster, "deadline", "is told", |_| true).await;
    assert_eq!(by["spec"]["priority"], 1_000);
    assert_eq!(
        by["spec"]["priorityClassRef"],
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "prod"})
    );
    for (kind, is) in [
        ("Evicted", ("True", "Preempted")),
        ("Preempted", ("True", "InClusterQueue")),
        ("Admitted", ("False", "NoReservation")),
        ("Requeued", ("True", "Preempted")),
        ("QuotaReserved", ("False", "WaitingForQuota")),
    ] {
        assert_eq!(condition(&first, kind), Some(is), "{kind}");
    }
    let said = first["status"]["conditions"].as_array().unwrap();
    let said = said.iter().find(|c| c["type"] == "Preempted").unwrap();
    let words = format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to prioritization in the \
         ClusterQueue; preemptor path: /cq; preemptee path: /cq",
        by["metadata"]["uid"].as_str().unwrap(),
        by["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
            .as_str()
            .unwrap(),
    );
    assert_eq!(said["message"], words);
    assert_eq!(
        first["status"]["schedulingStats"]["evictions"],
        json!([{"reason": "Preempted", "underlyingCause": "", "count": 1}])
    );
    // The quota was free only once the pods of the first had gone.
    let events: Api<Event> = cluster.api("default");
    let all = events.list(&ListParams::default()).await.unwrap();
    let waited = all
        .iter()
        .find(|event| event.reason.as_deref() == Some("WaitingForPreemptedWorkloads"));
    assert_eq!(
        waited.and_then(|event| event.message.as_deref()),
        Some(
            "couldn't assign flavors to pod set main: insufficient unused quota for \
             nvidia.com/gpu in flavor reserved, 8 more needed. Pending the preemption of 1 \
             workload(s)"
        )
    );
    let again = workload(&cluster, "sweep", "runs again", |w| {
        condition(w, "PodsReady") == Some(("True", "Started"))
    })
    .await;
    assert_eq!(
        condition(&again, "Preempted"),
        Some(("False", "QuotaReserved"))
    );
    let said = again["status"]["conditions"].as_array().unwrap();
    let said = said.iter().find(|c| c["type"] == "Evicted").unwrap();
    assert_eq!(said["message"], format!("Previously: {words}"));
    cluster.stop().await;
}

fn member(name: &str, scheduler: &str, gpus: u32, metadata: &Value) -> Value {
    let asks = json!({"nvidia.com/gpu": gpus.to_string()});
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "main", "image": "train", "resources": {"requests": asks, "limits": asks},
            }],
        },
    });
    pod["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    pod
}

async fn nodes_of(cluster: &Cluster) -> BTreeMap<String, Option<String>> {
    let pods = cluster.pods("default").await.into_iter();
    pods.map(|pod| (pod.metadata.name.unwrap(), pod.spec.unwrap().node_name))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn volcano_binds_a_group_whole_and_holds_a_queue_to_its_capability() {
    let cluster = with(Settings {
        volcano: Some(volcano::Settings {
            queues: vec![volcano::Queue {
                name: "nlp".to_owned(),
                parent: String::new(),
                weight: 4,
                deserved_gpus: Some(8),
                capability_gpus: Some(16),
            }],
            topology: vec!["net/leaf".to_owned()],
        }),
        ..Settings::default()
    })
    .await;
    const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
    let queue = "/apis/scheduling.volcano.sh/v1beta1/queues/nlp";
    until(&cluster, queue, "the queue is there", |_| true).await;
    // The network, as its labels tell it.
    for name in ["n1", "n2"] {
        let labels = json!({"metadata": {"labels": {"net/leaf": "leaf-01"}}});
        let request = http::Request::patch(format!("/api/v1/nodes/{name}"))
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&labels).unwrap())
            .unwrap();
        cluster.client.request::<Value>(request).await.unwrap();
    }
    let leaf = "/apis/topology.volcano.sh/v1alpha1/hypernodes/leaf-01";
    let leaf = until(&cluster, leaf, "the leaf has both nodes", |leaf| {
        leaf["status"]["nodeCount"] == 2
    })
    .await;
    assert_eq!(leaf["spec"]["tier"], 1);
    assert_eq!(
        leaf["spec"]["members"][1],
        json!({"type": "Node", "selector": {"exactMatch": {"name": "n2"}}})
    );
    let group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "sft", "namespace": "default"},
        "spec": {"minMember": 2, "queue": "nlp"},
    });
    let request = http::Request::post(GROUPS)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&group).unwrap())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    let in_group = json!({"annotations": {"scheduling.k8s.io/group-name": "sft"}});
    let _: Pod = cluster
        .create("default", member("sft-0", "volcano", 8, &in_group))
        .await;
    let at = format!("{GROUPS}/sft");
    let group = until(&cluster, &at, "one is too few", |group| {
        condition(group, "Unschedulable") == Some(("True", "NotEnoughTasks"))
    })
    .await;
    assert_eq!(group["status"]["phase"], "Pending");
    assert_eq!(nodes_of(&cluster).await["sft-0"], None);

    let _: Pod = cluster
        .create("default", member("sft-1", "volcano", 8, &in_group))
        .await;
    let group = until(&cluster, &at, "the group runs", |group| {
        group["status"]["phase"] == "Running"
    })
    .await;
    assert_eq!(group["status"]["running"], 2);
    assert_eq!(
        condition(&group, "Scheduled"),
        Some(("True", "tasks in gang are ready to be scheduled"))
    );
    let nodes = nodes_of(&cluster).await;
    assert_ne!(nodes["sft-0"], nodes["sft-1"]);

    // A pod without a group gets one, and its queue is full.
    let in_queue = json!({"labels": {"volcano.sh/queue-name": "nlp"}});
    let _: Pod = cluster
        .create("default", member("late", "volcano", 1, &in_queue))
        .await;
    let events: Api<Event> = cluster.api("default");
    let told = eventually_within(LONG, "why it waits", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().find(|event| {
            event.involved_object.name.as_deref() == Some("late")
                && event.reason.as_deref() == Some("FailedScheduling")
        })
    })
    .await;
    assert_eq!(
        told.message.as_deref(),
        Some("queue resource quota insufficient: insufficient nvidia.com/gpu")
    );
    let late = cluster.api::<Pod>("default").get("late").await.unwrap();
    let made = &late.metadata.annotations.unwrap()["scheduling.k8s.io/group-name"];
    assert_eq!(*made, format!("podgroup-{}", late.metadata.uid.unwrap()));
    let queue = until(&cluster, queue, "the queue counts", |queue| {
        queue["status"]["running"] == 1 && queue["status"]["pending"] == 1
    })
    .await;
    assert_eq!(queue["status"]["allocated"]["nvidia.com/gpu"], "16");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kai_groups_pods_and_names_the_limit() {
    let queue = |name: &str, parent: &str, limit_gpus: f64| kai::Queue {
        name: name.to_owned(),
        parent: parent.to_owned(),
        quota_gpus: 8.0,
        limit_gpus,
        over_quota_weight: 1.0,
        priority: 100,
    };
    let cluster = with(Settings {
        kai: Some(kai::Settings {
            queues: vec![
                queue("research", "", -1.0),
                queue("vision", "research", 8.0),
            ],
            topology: vec!["kubernetes.io/hostname".to_owned()],
        }),
        ..Settings::default()
    })
    .await;
    let labels = json!({"labels": {"kai.scheduler/queue": "vision"}});
    for (name, gpus) in [("a", 6), ("b", 4)] {
        let pod = member(name, "kai-scheduler", gpus, &labels);
        let _: Pod = cluster.create("default", pod).await;
        // In turn: a later one is not the older.
        let pods: Api<Pod> = cluster.api("default");
        eventually_within(LONG, "it has its group", || async {
            let pod = pods.get(name).await.unwrap();
            let group = pod.metadata.annotations?.get("pod-group-name").cloned()?;
            let bound = pod.spec.unwrap().node_name.is_some();
            (name == "b" || bound).then_some(group)
        })
        .await;
    }
    let pods: Api<Pod> = cluster.api("default");
    let uid = pods.get("b").await.unwrap().metadata.uid.unwrap();
    let at = format!("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups/pg-b-{uid}");
    let group = until(&cluster, &at, "its group says why", |group| {
        group["status"]["schedulingConditions"][0].is_object()
    })
    .await;
    let why = &group["status"]["schedulingConditions"][0];
    assert_eq!(why["type"], "UnschedulableOnNodePool");
    assert_eq!(
        why["message"],
        "vision quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 6 GPUs \
         allocated and workload requested 4 GPUs"
    );
    assert_eq!(why["reasons"][0]["reason"], "OverLimit");
    assert_eq!(group["spec"]["preemptibility"], "preemptible");
    let parent = "/apis/scheduling.run.ai/v2/queues/research";
    let parent = until(&cluster, parent, "the parent counts", |queue| {
        queue["status"]["requested"]["nvidia.com/gpu"] == "10"
    })
    .await;
    assert_eq!(parent["status"]["childQueues"], json!(["vision"]));
    assert_eq!(parent["status"]["allocated"]["nvidia.com/gpu"], "6");

    // Room comes, and the group's reason goes.
    let patch = json!({"spec": {"resources": {"gpu": {"limit": 16}}}});
    let request = http::Request::patch("/apis/scheduling.run.ai/v2/queues/vision")
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&patch).unwrap())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    until(&cluster, &at, "nothing holds it back", |group| {
        group["status"]["schedulingConditions"] == json!([])
            && group["status"]["resourcesStatus"]["allocated"]["nvidia.com/gpu"] == "4"
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kai_shares_a_gpu_that_a_reservation_holds() {
    let cluster = with(Settings {
        kai: Some(kai::Settings {
            queues: vec![kai::Queue {
                name: "scavenge".to_owned(),
                parent: String::new(),
                quota_gpus: 0.0,
                limit_gpus: -1.0,
                over_quota_weight: 1.0,
                priority: 100,
            }],
            topology: Vec::new(),
        }),
        ..Settings::default()
    })
    .await;
    for (name, part) in [("a", "0.5"), ("b", "0.5"), ("c", "0.25")] {
        let metadata = json!({
            "labels": {"kai.scheduler/queue": "scavenge"}, "annotations": {"gpu-fraction": part},
        });
        let pod = member(name, "kai-scheduler", 0, &metadata);
        let _: Pod = cluster.create("default", pod).await;
    }
    let pods: Api<Pod> = cluster.api("default");
    let mut shared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let pod = eventually_within(LONG, "the pod runs", || async {
            let pod = pods.get(name).await.unwrap();
            let phase = pod.status.as_ref()?.phase.clone()?;
            (phase == "Running").then_some(pod)
        })
        .await;
        let group = pod.metadata.labels.unwrap()["runai-gpu-group"].clone();
        shared.entry(group).or_default().push(name.to_owned());
    }
    // Two halves are a GPU.
    let mut together: Vec<Vec<String>> = shared.into_values().collect();
    together.sort();
    assert_eq!(together.len(), 2, "{together:?}");
    let holders = || async { cluster.pods("kai-resource-reservation").await };
    let held = holders().await;
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|pod| {
        pod.metadata.annotations.as_ref().unwrap()["run.ai/reserve_for_gpu_index"]
            .starts_with("GPU-")
    }));
    let at = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests/c";
    let request = until(&cluster, at, "it is bound", |request| {
        request["status"]["phase"] == "Succeeded"
    })
    .await;
    assert_eq!(
        request["spec"]["receivedGPU"],
        json!({"count": 1, "portion": "0.25"})
    );
    let queue = "/apis/scheduling.run.ai/v2/queues/scavenge";
    until(&cluster, queue, "the queue counts parts", |queue| {
        queue["status"]["allocated"]["nvidia.com/gpu"] == "1250m"
    })
    .await;

    for name in ["a", "b", "c"] {
        pods.delete(name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }
    eventually_within(LONG, "the GPUs are given back", || async {
        holders().await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}
