//! The load generator keeps a cluster busy, and itself within bounds.

use gpudeck::sandbox::actors::load::Settings;
use gpudeck::sandbox::actors::{Manage, Options};
use gpudeck::sandbox::inventory::Fleet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::{Cluster, eventually, first_fit};

/// Finished Jobs that the generator is told to keep.
const KEPT: usize = 5;

/// What was seen of the cluster so far.
#[derive(Debug, Default)]
struct Seen {
    most_jobs: usize,
    most_pods: usize,
    most_finished: usize,
    waiting: bool,
    running: bool,
    services: bool,
    last_number: u32,
}

impl Seen {
    fn add(&mut self, jobs: &[Job], pods: &[Pod]) {
        self.most_jobs = self.most_jobs.max(jobs.len());
        self.most_pods = self.most_pods.max(pods.len());
        self.most_finished = self
            .most_finished
            .max(jobs.iter().filter(|job| ended(job)).count());
        for pod in pods {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            self.waiting |= phase == Some("Pending");
            self.running |= phase == Some("Running");
            self.services |= pod.metadata.namespace.as_deref() == Some("prod-infer");
        }
        // Names end in their number, which only grows.
        for name in jobs.iter().filter_map(|job| job.metadata.name.as_ref()) {
            let number = name.rsplit('-').next().and_then(|text| text.parse().ok());
            self.last_number = self.last_number.max(number.unwrap_or(0));
        }
    }
}

fn ended(job: &Job) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone());
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_fills_the_cluster_and_stays_bounded() {
    let mut cluster = Cluster::with(&Options {
        speed: 300.0,
        seed: 3,
        kubelets: Some(Manage::All),
        controllers: true,
        load: Some(Settings {
            finished_jobs: KEPT,
            ..Settings::default()
        }),
        ..Options::default()
    });
    let fleet = Fleet::sized(24, 3);
    fleet.write(cluster.client.clone()).await.unwrap();
    cluster.spawn(first_fit);

    let jobs: Api<Job> = Api::all(cluster.client.clone());
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let seen = std::sync::Mutex::new(Seen::default());
    eventually("150 Jobs have been submitted", || async {
        let all_jobs = jobs.list(&ListParams::default()).await.unwrap().items;
        let all_pods = pods.list(&ListParams::default()).await.unwrap().items;
        let mut seen = seen.lock().unwrap();
        seen.add(&all_jobs, &all_pods);
        (seen.last_number >= 150).then_some(())
    })
    .await;
    let seen = seen.into_inner().unwrap();
    assert!(seen.waiting && seen.running && seen.services, "{seen:?}");
    // A Job more may end between two looks of the generator, but not many.
    assert!(seen.most_finished <= KEPT * 4, "{seen:?}");
    assert!(seen.most_jobs < 120 && seen.most_pods < 600, "{seen:?}");
    cluster.stop().await;
}
