//! What is read of GPUs on their boards: ResourceSlices and tables of `nvidia-smi topo -m`.

use std::sync::Arc;

use gpudeck::cluster::decode::Decoder;
use gpudeck::model::{
    Cluster, Delta, GpuCell, Kind, LinkMatrix, SourceReport, SourceState, Str, TopoTable,
    board_groups,
};
use serde_json::{Value, json};

use crate::samples::{file, kind_of, text};

/// A cluster of these objects, all kinds known.
fn cluster(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::new();
    for kind in Kind::ALL {
        cluster.apply(&Delta::Source(SourceReport {
            kind,
            namespace: None,
            state: SourceState::Live,
            at: "2026-11-30T12:00:00Z".parse().unwrap(),
        }));
    }
    let mut decoder = Decoder::new();
    for object in objects {
        if let Some(kind) = kind_of(object) {
            let read = decoder.decode(kind, &object.to_string()).unwrap();
            cluster.apply(&read.into_set());
        }
    }
    cluster
}

/// A node that says nothing of GPUs.
fn bare(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A node in one line: model, count, each GPU with its instances, groups and taints.
fn told(cluster: &Cluster, name: &str) -> String {
    let (node, held) = cluster.node(name).unwrap();
    let model = node.gpus.model.as_ref().map_or("?", |m| m.short());
    let count = node.gpus.count.map_or("?".to_owned(), |n| n.to_string());
    let published = cluster.published(name);
    let mut parts = vec![format!("{name}: {model} x{count}")];
    for (gpu, cell) in (0..).zip(cluster.cells(node, held)) {
        let mut words = match cell {
            GpuCell::Free => String::new(),
            GpuCell::Used => "held".to_owned(),
            GpuCell::Unhealthy => "not given out".to_owned(),
            GpuCell::Shared { .. } => "shared".to_owned(),
            GpuCell::Mig { instances, .. } => {
                let parts = instances.iter().map(|i| {
                    let used = if i.used { "*" } else { "" };
                    format!("{}@{}{used}", i.profile, i.start)
                });
                parts.collect::<Vec<_>>().join(" ")
            }
        };
        for taint in published.taints(gpu) {
            words.push_str(&format!(" [{}]", taint.in_words()));
        }
        if !words.is_empty() {
            parts.push(format!("{gpu}: {}", words.trim()));
        }
    }
    let (ports, table) = cluster.board(name);
    for group in board_groups(&ports, table.map(|t| &**t)) {
        parts.push(format!("{} {:?}", group.name, group.gpus));
    }
    parts.join(" | ")
}

#[test]
fn every_sample_of_published_devices_reads_right() {
    for (name, more, wanted) in [
        (
            "dra/resourceslices-full-gpu-taints.json",
            &["hgx-t02.lab.example", "gke-deck-a4-flex-3d90bb1e-z2lv"][..],
            &[
                "hgx-t02.lab.example: H100-80 x8 | 2: [gpu.nvidia.com/xid=43: for information] | \
                 5: not given out [gpu.nvidia.com/xid=79: not given out] | \
                 7: [gpu.nvidia.com/unmonitored: for information] | \
                 NUMA 0 [0, 1, 2, 3] | NUMA 1 [4, 5, 6, 7]",
                "gke-deck-a4-flex-3d90bb1e-z2lv: B200 x2",
            ][..],
        ),
        (
            "dra/resourceslice-static-mig.json",
            &["hgx-m04.lab.example"],
            &["hgx-m04.lab.example: H100-80 x1 | 3: 3g.40gb@0 1g.10gb@4"],
        ),
        (
            "dra/resourceslices-dynamic-mig-split-1.35.json",
            &["hgx-t01.lab.example"],
            &["hgx-t01.lab.example: H100-80 x1"],
        ),
        (
            "dra/resourceslice-dynamic-mig-combined-1.34.json",
            &["hgx-t03.lab.example"],
            &["hgx-t03.lab.example: H100-80 x1"],
        ),
        (
            "dra/computedomain-gb200.json",
            &["nvl72-r1-t00"],
            &["nvl72-r1-t00: GB200 x4 | NUMA 0 [0, 1] | NUMA 1 [2, 3]"],
        ),
    ] {
        let mut objects: Vec<Value> = more.iter().map(|name| bare(name)).collect();
        objects.extend(file(name));
        let cluster = cluster(&objects);
        let found: Vec<String> = more.iter().map(|name| told(&cluster, name)).collect();
        assert!(found == wanted, "{name} is read as\n{found:#?}");
        // A node that comes after its slices reads the same, and without them as it was.
        objects.reverse();
        let mut cluster = self::cluster(&objects);
        let found: Vec<String> = more.iter().map(|name| told(&cluster, name)).collect();
        assert!(found == wanted, "{name} is read as\n{found:#?}");
        for object in file(name).iter().filter(|o| kind_of(o).is_some()) {
            let kind = kind_of(object).unwrap();
            let read = Decoder::new().decode(kind, &object.to_string()).unwrap();
            cluster.apply(&read.to_gone());
        }
        for name in more {
            assert_eq!(told(&cluster, name), format!("{name}: ? x?"));
        }
    }
}

#[test]
fn devices_that_claims_hold_are_held() {
    let mut objects = vec![bare("hgx-t01.lab.example"), bare("hgx-t02.lab.example")];
    objects.extend(file("dra/resourceclaims.json"));
    objects.extend(file("dra/resourceslices-full-gpu-taints.json"));
    objects.extend(file("dra/resourceslices-dynamic-mig-split-1.35.json"));
    objects.extend(file("dra/pods-with-claims.json"));
    let cluster = cluster(&objects);
    assert_eq!(
        told(&cluster, "hgx-t01.lab.example"),
        "hgx-t01.lab.example: H100-80 x1 | 0: 1g.10gb@2* 3g.40gb@4*"
    );
    let t02 = told(&cluster, "hgx-t02.lab.example");
    assert!(
        t02.contains("| 0: held | 1: held |") && t02.contains("3: held | 4: held"),
        "{t02}"
    );
}

/// Other drivers, versions and forms of the same.
#[test]
fn devices_in_other_forms() {
    let slice =
        |version: &str, driver: &str, generation: i64, of: i64, name: &str, devices: Value| {
            json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceSlice",
            "metadata": {"name": name, "uid": name},
            "spec": {"driver": driver, "nodeName": "n", "devices": devices,
                "pool": {"name": "n", "generation": generation, "resourceSliceCount": of}}})
        };
    let gpu = |name: &str, attributes: Value| {
        json!({"name": name, "attributes": attributes,
        "capacity": {"memory": {"value": "81559Mi"}}})
    };
    let h100 =
        || json!({"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}});
    let read = |slices: &[Value]| {
        let mut objects = vec![bare("n")];
        objects.extend(slices.iter().cloned());
        told(&cluster(&objects), "n")
    };
    let ours = "gpu.nvidia.com";
    // v1beta1 has the device below `basic`, older drivers tell an index, and a quantity is plain.
    let old = json!([{"name": "gpu-0", "basic": {"attributes": {"index": {"int": 1},
        "type": {"string": "gpu"}, "productName": {"string": "Tesla T4"}}, "capacity": {"memory": "15Gi"}}}]);
    assert_eq!(read(&[slice("v1beta1", ours, 1, 1, "a", old)]), "n: T4 x1");
    // The driver's domain may be written out.
    let full = json!([gpu(
        "a",
        json!({"gpu.nvidia.com/type": {"string": "gpu"},
        "gpu.nvidia.com/minor": {"int": 0}, "gpu.nvidia.com/productName": {"string": "NVIDIA B200"}})
    )]);
    assert_eq!(read(&[slice("v1", ours, 1, 1, "a", full)]), "n: B200 x1");
    // Of two generations the newer counts; of a pool that is not whole the number is not known.
    let two = json!([gpu("gpu-0", h100()), gpu("gpu-1", h100())]);
    let one = json!([gpu("gpu-0", h100())]);
    let slices = [
        slice("v1beta2", ours, 7, 1, "a", two.clone()),
        slice("v1beta2", ours, 8, 1, "b", one.clone()),
    ];
    assert_eq!(read(&slices), "n: H100-80 x1");
    assert_eq!(read(&[slice("v1", ours, 1, 2, "a", one)]), "n: H100-80 x?");
    // NICs, channels, devices of virtual machines and of other makers are no GPUs of ours.
    for driver in ["dra.net", "gpu.amd.com", "compute-domain.nvidia.com"] {
        assert_eq!(
            read(&[slice("v1", driver, 1, 1, "a", two.clone())]),
            "n: ? x?"
        );
    }
    let vfio = json!([gpu("gpu-vfio-0", json!({"type": {"string": "vfio"}}))]);
    assert_eq!(read(&[slice("v1", ours, 1, 1, "a", vfio)]), "n: ? x?");
    // Pairs below one PCIe root.
    let root = |name: &str, root: &str| {
        let mut own = h100();
        own["resource.kubernetes.io/pcieRoot"] = json!({"string": root});
        gpu(name, own)
    };
    let pairs = json!([
        root("gpu-0", "pci0000:10"),
        root("gpu-1", "pci0000:10"),
        root("gpu-2", "pci0000:80"),
        root("gpu-3", "pci0000:80")
    ]);
    assert_eq!(
        read(&[slice("v1", ours, 1, 1, "a", pairs)]),
        "n: H100-80 x4 | PCIe pci0000:10 [0, 1] | PCIe pci0000:80 [2, 3]"
    );
}

/// A table in few words: links of each GPU, NUMA nodes, closest NICs, what is weak.
fn table_told(text: &str) -> String {
    let table = match TopoTable::read(text) {
        Ok(table) => Arc::new(table),
        Err(why) => return why.to_string(),
    };
    let matrix = LinkMatrix::told_by(&table, None, &[]);
    let mut lines = Vec::new();
    for (n, gpu) in table.gpus.iter().enumerate() {
        let links: Vec<String> = matrix.links[n].iter().map(|l| l.name()).collect();
        let nics: Vec<String> = table.to_nics[n].iter().map(|l| l.name()).collect();
        let numa = gpu.numa.map_or("—".to_owned(), |n| n.to_string());
        let cpus = table.cpus[n].as_deref().unwrap_or("—");
        lines.push(format!(
            "{}: {} | {} | cpus {cpus} numa {numa}",
            gpu.index,
            links.join(" "),
            nics.join(" ")
        ));
    }
    let nics: Vec<&str> = table.nics.iter().map(|n| &**n).collect();
    lines.push(format!("nics {}", nics.join(" ")));
    for group in board_groups(&[], Some(&table)) {
        lines.push(format!("{} {:?}", group.name, group.gpus));
    }
    for (a, b, n) in &table.weak {
        lines.push(format!("weak {a}-{b} {n}"));
    }
    lines.join("\n")
}

#[test]
fn every_sample_table_of_links_reads_right() {
    let mut out = String::new();
    for name in [
        "dgx-a100",
        "hgx-h100-10nic-tabs",
        "l40s-pcie-2socket",
        "v100-dgx1-cube-mesh-old-format",
        "mig-container-missing-affinity",
        "error-lost-gpu",
    ] {
        let told = table_told(&text(&format!("topo/{name}.txt")));
        out.push_str(&format!("== {name}\n{told}\n"));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn tables_in_other_forms() {
    // GB200: NUMA is a list, headers are underlined, links to NICs are all alike.
    let gb200 = "\t\u{1b}[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\r\n\
        GPU0\t X \tNV18\tSYS\t0-71\t0,2-17\t\t2\r\nGPU1\tNV18\t X \tSYS\t72-143\t1,18-33\t\t18\r\nNIC0\tSYS\tSYS\t X \t\t\t\t\r\n";
    assert_eq!(
        table_told(gb200),
        "0: X NV18 | SYS | cpus 0-71 numa —\n1: NV18 X | SYS | cpus 72-143 numa —\nnics NIC0"
    );
    // One GPU, and a row that is cut off.
    assert_eq!(
        table_told("        GPU0    CPU Affinity\nGPU0     X      0-7\n"),
        "0: X |  | cpus 0-7 numa —\nnics "
    );
    assert_eq!(
        table_told("        GPU0    GPU1\nGPU0     X\nGPU1    NV4      X\n"),
        "0: X — |  | cpus — numa —\n1: NV4 X |  | cpus — numa —\nnics "
    );
    for odd in ["", "\u{1b}[2J", "GPU0", "\t\t\t", "No devices were found\n"] {
        assert!(TopoTable::read(odd).is_err(), "{odd:?}");
    }
    let why: Str = TopoTable::read("No devices were found\n").unwrap_err();
    assert_eq!(&*why, "no table: No devices were found");
    // At no byte does a cut table panic.
    let whole = text("topo/hgx-h100-10nic-tabs.txt");
    for end in 0..whole.len() {
        let _ = whole.get(..end).map(TopoTable::read);
    }
}

/// A node's own table wins over what its model would have, and parts it into groups.
#[test]
fn a_table_in_a_gpu_node_is_the_nodes_board() {
    let agent = |text: &str| {
        json!({"apiVersion": "gpudeck.dev/v1alpha1", "kind": "GpuNode",
        "metadata": {"name": "n", "uid": "g"}, "status": {"topology": text}})
    };
    let cluster = cluster(&[bare("n"), agent(&text("topo/l40s-pcie-2socket.txt"))]);
    let (ports, table) = cluster.board("n");
    assert!(ports.is_empty());
    let groups = board_groups(&ports, table.map(|t| &**t));
    let names: Vec<String> = groups
        .iter()
        .map(|g| format!("{} {:?}", g.name, g.gpus))
        .collect();
    assert_eq!(
        names,
        [
            "PCIe switch 0, NUMA 0 [0, 1]",
            "PCIe switch 1, NUMA 0 [2, 3]",
            "PCIe switch 2, NUMA 1 [4, 5]",
            "PCIe switch 3, NUMA 1 [6, 7]"
        ]
    );
    let broken = self::cluster(&[agent(&text("topo/error-lost-gpu.txt"))]);
    let note = broken.gpu_node("n").unwrap().meta.unreadable.join(" ");
    assert!(
        note.contains("no table: Unable to determine the device handle for GPU3"),
        "{note}"
    );
}
