//! The openb loader: an extract of the published trace, and files that nobody should write.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use gpudeck::sandbox::openb::{LoadOptions, Progress, load};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};

use crate::cluster::server;

const NODES: &str = include_str!("../data/openb/nodes.csv");
const PODS: &str = include_str!("../data/openb/pods.csv");

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn plain(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn gzipped(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let mut encoder =
            GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        path
    }
}

fn options(nodes: &Path, pods: &Path) -> LoadOptions {
    LoadOptions {
        nodes: nodes.to_owned(),
        pods: pods.to_owned(),
        namespace: "openb".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_extract_loads_twice_and_is_there_once() {
    let client = server().client();
    let files = Files::new();
    let options = options(
        &files.plain("nodes.csv", NODES),
        &files.gzipped("pods.csv.gz", PODS),
    );
    let mut told = Vec::new();
    let first = load(client.clone(), &options, |progress| told.push(progress))
        .await
        .unwrap();
    assert_eq!(
        (first.nodes, first.gpus, first.pods, first.skipped),
        (40, 173, 200, 0)
    );
    assert_eq!(
        told.last(),
        Some(&Progress {
            what: "pods",
            done: 200,
            total: 200
        })
    );

    let second = load(client.clone(), &options, |_| ()).await.unwrap();
    assert_eq!(
        (second.nodes, second.gpus, second.pods, second.skipped),
        (40, 173, 200, 240)
    );
    check(client).await;
}

async fn check(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(nodes.len(), 40);
    for node in &nodes {
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        assert!(taints.is_empty(), "{taints:?}");
    }
    // openb-node-0000,64000,262144,2,P100
    let node = nodes
        .iter()
        .find(|node| node.metadata.name.as_deref() == Some("openb-node-0000"));
    let node = node.unwrap();
    let labels = node.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["nvidia.com/gpu.product"], "P100");
    assert_eq!(labels["nvidia.com/gpu.count"], "2");
    let allocatable = node.status.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!(allocatable["nvidia.com/gpu"].0, "2");

    let pods: Api<Pod> = Api::namespaced(client, "openb");
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.len(), 200);
    let (mut whole, mut shared, mut choosy) = (0, 0, 0);
    for pod in &pods {
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some("gpudeck"));
        let requests = spec.containers[0]
            .resources
            .as_ref()
            .unwrap()
            .requests
            .as_ref()
            .unwrap();
        let annotations = pod.metadata.annotations.as_ref().unwrap();
        let part = annotations.get("gpudeck.dev/milli-gpu");
        let asked = requests.get("nvidia.com/gpu");
        assert!(part.is_none() || asked.is_none(), "{:?}", pod.metadata.name);
        shared += i32::from(part.is_some());
        whole += asked.map_or(0, |count| count.0.parse::<i32>().unwrap());
        choosy += i32::from(spec.affinity.is_some());
        assert!(annotations.contains_key("openb.gpudeck.dev/qos"));
    }
    // Counted in the file: whole devices asked for, shared pods, pods that name models.
    let rows: Vec<Vec<&str>> = PODS
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let expected_whole: i32 = rows
        .iter()
        .filter(|row| row[4] == "1000")
        .map(|row| row[3].parse::<i32>().unwrap())
        .sum();
    let expected_shared = rows
        .iter()
        .filter(|row| row[3] == "1" && row[4] != "1000")
        .count();
    assert_eq!(
        (whole, shared, choosy),
        (expected_whole, i32::try_from(expected_shared).unwrap(), 25)
    );
}

#[tokio::test]
async fn bad_files_name_file_line_and_what_is_right() {
    let client = server().client();
    let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "empty.csv",
            Vec::new(),
            "empty.csv, line 1: no column \"name\"; the header has to name",
        ),
        (
            "nodes.csv",
            NODES.into(),
            "nodes.csv, line 1: no column \"name\"",
        ),
        (
            "number.csv",
            format!("{header}p,abc,1,1,1000,\n").into(),
            "number.csv, line 2: cpu_milli is \"abc\"; a whole number was expected",
        ),
        (
            "negative.csv",
            format!("{header}p,1,-1,1,1000,\n").into(),
            "negative.csv, line 2: memory_mib is \"-1\"; a whole number was expected",
        ),
        (
            "many.csv",
            format!("{header}a,1,1,1,1000,\nb,1,1,99999,1000,\n").into(),
            "many.csv, line 3: num_gpu is 99999; at most 16 was expected",
        ),
        (
            "shared.csv",
            format!("{header}p,1,1,2,500,\n").into(),
            "shared.csv, line 2: 2 GPUs of 500 thousandths each; only one GPU can be shared",
        ),
        (
            "twice.csv",
            format!("{header}p,1,1,0,0,\np,1,1,0,0,\n").into(),
            "twice.csv, line 3: name \"p\" is taken by line 2",
        ),
        (
            "name.csv",
            format!("{header}../../etc\u{1b}[31m,1,1,0,0,\n").into(),
            "name.csv, line 2: name is \"../../etc\\u{1b}[31m\"; a name of lower-case letters",
        ),
        (
            "model.csv",
            format!("{header}p,1,1,1,1000,A|B C\n").into(),
            "model.csv, line 2: GPU model is \"B C\"",
        ),
        (
            "short.csv",
            format!("{header}p,1,1\n").into(),
            "short.csv, line 2: 3 fields; the header has 6",
        ),
        (
            "bytes.csv",
            [header.as_bytes(), b"\xff\xfe,1,1,0,0,\n"].concat(),
            "bytes.csv, line 2: text that is not UTF-8",
        ),
        (
            "broken.csv.gz",
            vec![0x1f, 0x8b, 8, 0, 0, 0],
            "broken.csv.gz: ",
        ),
    ];
    let files = Files::new();
    let nodes = files.plain("good.csv", NODES);
    for (name, text, expected) in cases {
        let pods = files.plain(name, text);
        let error = load(client.clone(), &options(&nodes, &pods), |_| ())
            .await
            .unwrap_err();
        let message = error.to_string();
        let expected = files.folder.path().join(expected).display().to_string();
        assert!(
            message.starts_with(&expected),
            "{message}\nexpected {expected}"
        );
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
    let missing = files.folder.path().join("missing.csv");
    let error = load(client.clone(), &options(&nodes, &missing), |_| ())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("missing.csv: "), "{error}");
    // Nothing is written while any file is bad.
    let nodes: Api<Node> = Api::all(client);
    assert!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
