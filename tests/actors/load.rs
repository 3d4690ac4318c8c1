//! The load generator keeps a cluster busy, and itself within bounds.

use gpudeck::sandbox::actors::load::Settings;
use gpudeck::sandbox::actors::{Manage, Options};
use gpudeck::sandbox::inventory::Fleet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::{Cluster, eventually, first_fit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_fills_the_cluster_and_stays_bounded() {
    let settings = Settings {
        finished_jobs: 5,
        ..Settings::default()
    };
    let mut cluster = Cluster::with(&Options {
        speed: 300.0,
        seed: 3,
        kubelets: Some(Manage::All),
        controllers: true,
        load: Some(settings),
    });
    let fleet = Fleet::sized(24, 3);
    fleet.write(cluster.client.clone()).await.unwrap();
    cluster.spawn(first_fit);

    let jobs: Api<Job> = Api::all(cluster.client.clone());
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let ended = |job: &Job| {
        let conditions = job
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone());
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
    };
    // Jobs come and go: names end in their number, which only grows.
    let mut most_jobs = 0;
    let mut seen_waiting = false;
    let mut seen_running = false;
    let mut seen_services = false;
    let last = eventually("hundred Jobs have been submitted", || {
        let (jobs, pods) = (jobs.clone(), pods.clone());
        async move {
            let jobs = jobs.list(&ListParams::default()).await.unwrap().items;
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            Some((jobs, pods))
        }
    });
    let mut state = last.await;
    for _ in 0..2_000 {
        let (all_jobs, all_pods) = &state;
        most_jobs = most_jobs.max(all_jobs.len());
        seen_waiting |= all_pods
            .iter()
            .any(|pod| phase(pod).as_deref() == Some("Pending"));
        seen_running |= all_pods
            .iter()
            .any(|pod| phase(pod).as_deref() == Some("Running"));
        seen_services |= all_pods
            .iter()
            .any(|pod| pod.metadata.namespace.as_deref() == Some("prod-infer"));
        let numbers = all_jobs.iter().filter_map(|job| {
            let name = job.metadata.name.as_ref()?;
            name.rsplit('-').next()?.parse::<u32>().ok()
        });
        if numbers.max().unwrap_or(0) >= 150 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        state = (
            jobs.list(&ListParams::default()).await.unwrap().items,
            pods.list(&ListParams::default()).await.unwrap().items,
        );
    }
    assert!(seen_waiting && seen_running && seen_services);
    let finished = state.0.iter().filter(|job| ended(job)).count();
    assert!(finished <= 5 + 12, "{finished} finished Jobs are kept");
    assert!(most_jobs < 150, "{most_jobs} Jobs at a time");
    assert!(state.1.len() < 800, "{} pods", state.1.len());
    cluster.stop().await;
}
