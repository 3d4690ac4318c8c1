//! The link matrix of a node: by its model at once, and by the server's word when that comes.

use super::sample::Desk;
use std::sync::Arc;

use crate::model::{Change, Delta, GpuNode, GpuPort, Meta, TopoTable, Uid};
use crate::tui::app::{Cmd, Msg};

fn ports() -> Vec<GpuPort> {
    let port = |index: u32| GpuPort {
        index,
        numa: Some(index / 4),
        pcie_root: Some(format!("pci0000:{index}0").into()),
    };
    (0..8).map(port).collect()
}

#[test]
fn links_are_by_model_at_once_and_places_by_the_servers_word() {
    let mut desk = Desk::of_nodes(2);
    desk.size = (200, 40);
    let cmds = desk.press("j m");
    let [Cmd::FetchLinks { generation, node }] = cmds.as_slice() else {
        panic!("{cmds:?}");
    };
    assert_eq!((&**node, *generation), ("n0001", 0));
    let screen = desk.screen();
    for text in [
        "links of n0001",
        "8 × H100-80, NVSwitch ×4",
        "GPU7    NV18",
        "no API tells them",
        "asking the server for its ResourceSlices",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    assert!(!screen.contains("PCIE ROOT"), "{screen}");
    let told = |generation, name: &str, result| Msg::Links {
        generation,
        node: name.into(),
        result,
    };
    // What another place or another node is told of is not shown.
    desk.tell(told(7, "n0001", Ok(ports())));
    desk.tell(told(0, "n0000", Ok(ports())));
    assert!(!desk.screen().contains("PCIE ROOT"), "{}", desk.screen());
    desk.tell(told(0, "n0001", Ok(ports())));
    let screen = desk.screen();
    for text in ["NUMA  PCIE ROOT", "1  pci0000:50", "by the ResourceSlices"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    desk.tell(told(0, "n0001", Err("forbidden (403): no".to_owned())));
    let screen = desk.screen();
    assert!(
        screen.contains("NUMA and PCIe are not known: forbidden (403): no"),
        "{screen}"
    );
    desk.tell(told(0, "n0001", Ok(Vec::new())));
    assert!(
        desk.screen().contains("no ResourceSlice of NVIDIA's DRA"),
        "{}",
        desk.screen()
    );
}

/// What the node's own driver says wins over what its model would have.
#[test]
fn a_nodes_own_table_is_shown_with_what_is_weak_and_the_closest_nics() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("tests/data/samples/topo/hgx-h100-10nic-tabs.txt");
    let table = TopoTable::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut desk = Desk::of_nodes(2);
    desk.size = (200, 50);
    desk.deltas(vec![Delta::GpuNode(Change::Set(Arc::new(GpuNode {
        meta: Meta {
            name: "n0001".into(),
            uid: Uid("g".into()),
            ..Meta::default()
        },
        topology: Some(Arc::new(table)),
        ..GpuNode::default()
    })))]);
    desk.press("j m");
    let screen = desk.screen();
    for text in [
        "GPU4 and GPU6 have 17 NVLinks, fewer than the others",
        "closest NICs",
        "GPU7     PXB  mlx5_9",
        "As the node's own driver tells",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
}
