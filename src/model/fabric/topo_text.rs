//! What `nvidia-smi topo -m` prints, read back: the links of a node's GPUs and NICs as its driver
//! sees them.
//!
//! Sources: NVIDIA's legend; outputs of R418 to R580 (NIC columns called `mlx5_N` before R510, an
//! empty cell between the last two columns since R535, NUMA lists on GB200).

use super::super::text::{Str, clean};
use super::matrix::{GpuPort, Link};

/// Devices of one table, at most.
const MOST: usize = 128;

/// A table of `nvidia-smi topo -m`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopoTable {
    /// GPUs in the order of rows and columns, with the NUMA node where the table tells one.
    pub gpus: Vec<GpuPort>,
    /// From each GPU to each GPU.
    pub links: Vec<Vec<Link>>,
    /// NICs as their columns are called, by the legend's names where there is one.
    pub nics: Vec<Str>,
    /// From each GPU to each NIC.
    pub to_nics: Vec<Vec<Link>>,
    /// CPUs that each GPU is next to (`0-55,112-167`), where told.
    pub cpus: Vec<Option<Str>>,
    /// Fewer NVLinks than the others have: a link is down.
    pub weak: Vec<(u32, u32, u8)>,
}

fn link(cell: &str) -> Link {
    match cell {
        "X" => Link::Own,
        "PIX" => Link::Bridge,
        "PXB" => Link::Bridges,
        "PHB" => Link::Root,
        "NODE" => Link::Numa,
        "SYS" | "SOC" => Link::System,
        _ => match cell.strip_prefix("NV").and_then(|n| n.parse().ok()) {
            Some(n) if n > 0 => Link::NvLinks(n),
            _ => Link::Unknown,
        },
    }
}

/// A line as its cells. Tabs part them where there are any, else blanks; `CPU Affinity` and the like
/// are one cell.
fn cells(line: &str) -> Vec<String> {
    let own = |cell: &str| cell.trim().to_owned();
    if line.contains('\t') {
        return line.split('\t').map(own).collect();
    }
    let mut line = line.to_owned();
    for name in ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"] {
        line = line.replace(name, &name.replace(' ', "_"));
    }
    let mut all: Vec<String> = line.split_whitespace().map(own).collect();
    if line.starts_with(' ') {
        all.insert(0, String::new());
    }
    all
}

/// Without the marks of a terminal: headers are underlined.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else if c == '\t' || !c.is_control() {
            out.push(c);
        }
    }
    out
}

fn gpu_index(name: &str) -> Option<u32> {
    name.strip_prefix("GPU")?.parse().ok()
}

/// The one NUMA node that a cell names; a list of several is none.
fn numa(cell: Option<&String>) -> Option<u32> {
    cell?.parse().ok()
}

impl TopoTable {
    /// Reads what the program printed.
    ///
    /// # Errors
    /// There is no table in it; then what it said instead.
    pub fn read(text: &str) -> Result<Self, Str> {
        let lines: Vec<String> = text.lines().map(plain).collect();
        let is_head = |line: &String| {
            let cells = cells(line);
            let mut named = cells.iter().filter(|c| !c.is_empty());
            named.next().is_some_and(|c| gpu_index(c).is_some())
                && !cells.iter().any(|c| c == "X")
                && cells.first().is_some_and(String::is_empty)
        };
        let Some(at) = lines.iter().position(is_head) else {
            let said = lines.iter().find(|l| !l.trim().is_empty());
            let said = said.map_or("nothing", |l| l.trim());
            return Err(clean(&format!("no table: {said}"), 300).into());
        };
        let head = lines.get(at).map(|l| cells(l)).unwrap_or_default();
        let affinity = |cell: &str| cell.contains("ffinity") || cell.contains("NUMA");
        let columns: Vec<&String> = head.iter().skip(1).take_while(|c| !affinity(c)).collect();
        let columns: Vec<&String> = columns.into_iter().filter(|c| !c.is_empty()).collect();
        if columns.len() > MOST {
            return Err("no table: too many columns".into());
        }
        let legend = |name: &str| -> Str {
            let told = lines.iter().find_map(|l| {
                let rest = l.trim().strip_prefix(name)?.strip_prefix(':')?;
                Some(rest.trim().to_owned())
            });
            clean(&told.unwrap_or_else(|| name.to_owned()), 60).into()
        };
        let is_gpu = |c: &&String| gpu_index(c).is_some();
        let mut table = TopoTable {
            nics: columns
                .iter()
                .filter(|c| !is_gpu(c))
                .map(|c| legend(c))
                .collect(),
            ..TopoTable::default()
        };
        for line in lines.iter().skip(at + 1) {
            let row = cells(line);
            let Some(index) = row.first().and_then(|c| gpu_index(c)) else {
                continue;
            };
            let cell = |n: usize| row.get(n + 1).map_or(Link::Unknown, |c| link(c));
            let numbered = || columns.iter().enumerate();
            table.links.push(
                numbered()
                    .filter(|(_, c)| is_gpu(c))
                    .map(|(n, _)| cell(n))
                    .collect(),
            );
            table.to_nics.push(
                numbered()
                    .filter(|(_, c)| !is_gpu(c))
                    .map(|(n, _)| cell(n))
                    .collect(),
            );
            let after = columns.len() + 1;
            let cpus = row.get(after).filter(|c| !c.is_empty() && *c != "N/A");
            table.cpus.push(cpus.map(|c| clean(c, 60).into()));
            table.gpus.push(GpuPort {
                index,
                numa: numa(row.get(after + 1)),
                pcie_root: None,
            });
        }
        table.find_weak();
        Ok(table)
    }

    /// Pairs of GPUs with fewer NVLinks than most pairs, where all have some.
    fn find_weak(&mut self) {
        let full = |links: &[Link]| {
            let others = links.iter().filter(|l| **l != Link::Own);
            others.copied().all(|l| matches!(l, Link::NvLinks(_)))
        };
        if self.gpus.len() < 3 || !self.links.iter().all(|l| full(l)) {
            return;
        }
        let count = |l: &Link| match l {
            Link::NvLinks(n) => Some(*n),
            _ => None,
        };
        let most = self.links.iter().flatten().filter_map(count).max();
        for (a, links) in self.gpus.iter().zip(&self.links) {
            for (b, link) in self.gpus.iter().zip(links) {
                if let Some(n) = count(link).filter(|n| a.index < b.index && Some(*n) < most) {
                    self.weak.push((a.index, b.index, n));
                }
            }
        }
    }

    /// Groups of GPUs that reach each other over PCIe bridges alone.
    pub fn bridged(&self) -> Vec<Vec<u32>> {
        let near = |l: &Link| matches!(l, Link::Bridge | Link::Bridges);
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for (gpu, links) in self.gpus.iter().zip(&self.links) {
            let peers = self.gpus.iter().zip(links).filter(|(_, l)| near(l));
            let peers: Vec<u32> = peers.map(|(g, _)| g.index).collect();
            match groups
                .iter_mut()
                .find(|g| g.iter().any(|i| peers.contains(i)))
            {
                Some(group) => group.push(gpu.index),
                None => groups.push(vec![gpu.index]),
            }
        }
        groups
    }
}
