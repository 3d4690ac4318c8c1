//! The groups of GPUs on a node's board: those below one PCIe switch or root, else those of one NUMA
//! node.

use std::collections::BTreeMap;

use super::{GpuPort, TopoTable};

/// GPUs that are closer to each other than to the others of their node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardGroup {
    /// As the screen writes it: `NUMA 0`, `PCIe pci0000:15, NUMA 0`.
    pub name: String,
    /// Indices of its GPUs, rising.
    pub gpus: Vec<u32>,
}

/// The groups of a node; none where nothing is told of them, or all GPUs are in one. A root that
/// leads to a single GPU, as on boards with NVSwitches, is no group.
pub fn groups(ports: &[GpuPort], table: Option<&TopoTable>) -> Vec<BoardGroup> {
    let table_ports = table.map(|t| &t.gpus[..]).unwrap_or_default();
    let numa = |gpu: u32| {
        let own = |ports: &[GpuPort]| ports.iter().find(|p| p.index == gpu).and_then(|p| p.numa);
        own(ports).or_else(|| own(table_ports))
    };
    let numa_of = |gpus: &[u32]| {
        let first = gpus.first().copied().and_then(numa)?;
        let same = gpus.iter().all(|gpu| numa(*gpu) == Some(first));
        same.then_some(first)
    };
    let mut roots: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for port in ports {
        if let Some(root) = &port.pcie_root {
            roots.entry(root).or_default().push(port.index);
        }
    }
    let mut found: Vec<(String, Vec<u32>)> = roots
        .into_iter()
        .map(|(root, gpus)| (format!("PCIe {root}"), gpus))
        .collect();
    if found.iter().all(|(_, gpus)| gpus.len() < 2) {
        let bridged = table.map(TopoTable::bridged).unwrap_or_default();
        let numbered = (0..).zip(bridged);
        found = numbered
            .map(|(n, gpus)| (format!("PCIe switch {n}"), gpus))
            .collect();
    }
    if found.iter().any(|(_, gpus)| gpus.len() > 1) {
        for (name, gpus) in &mut found {
            if let Some(numa) = numa_of(gpus) {
                name.push_str(&format!(", NUMA {numa}"));
            }
        }
    } else {
        let mut by_numa: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let all = ports.iter().chain(table_ports);
        let mut all: Vec<u32> = all.map(|p| p.index).collect();
        all.sort_unstable();
        all.dedup();
        for gpu in all {
            if let Some(numa) = numa(gpu) {
                by_numa.entry(numa).or_default().push(gpu);
            }
        }
        let named = by_numa.into_iter();
        found = named.map(|(n, gpus)| (format!("NUMA {n}"), gpus)).collect();
    }
    if found.len() < 2 {
        return Vec::new();
    }
    for (_, gpus) in &mut found {
        gpus.sort_unstable();
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    let groups = found.into_iter();
    groups
        .map(|(name, gpus)| BoardGroup { name, gpus })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ports: &[(u32, Option<u32>, Option<&str>)]) -> String {
        let port = |(index, numa, root): &(u32, Option<u32>, Option<&str>)| GpuPort {
            index: *index,
            numa: *numa,
            pcie_root: root.map(Into::into),
        };
        let ports: Vec<GpuPort> = ports.iter().map(port).collect();
        let groups = groups(&ports, None);
        let words = groups.iter().map(|g| format!("{} {:?}", g.name, g.gpus));
        words.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn by_pcie_where_it_parts_them_else_by_numa() {
        // Each GPU of an HGX board has a root of its own.
        let hgx = [
            (0, Some(0), Some("pci0000:15")),
            (1, Some(0), Some("pci0000:37")),
            (2, Some(1), Some("pci0000:97")),
        ];
        assert_eq!(told(&hgx), "NUMA 0 [0, 1]; NUMA 1 [2]");
        let pcie = [
            (2, Some(1), Some("pci0000:80")),
            (3, Some(1), Some("pci0000:80")),
            (1, None, Some("pci0000:10")),
            (0, Some(0), Some("pci0000:10")),
        ];
        assert_eq!(
            told(&pcie),
            "PCIe pci0000:10 [0, 1]; PCIe pci0000:80, NUMA 1 [2, 3]"
        );
        assert_eq!(told(&[(0, Some(0), None), (1, Some(0), None)]), "");
        assert_eq!(told(&[(0, None, None), (1, None, None)]), "");
        assert_eq!(told(&[]), "");
    }
}
