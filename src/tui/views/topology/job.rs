//! Where the pods of one job are, and what they cross.

use std::collections::{BTreeMap, BTreeSet};

use super::better;
use super::tree::{Branch, Level, Step, Tree};
use crate::model::{Cluster, Str, WorkloadKey};
use crate::tui::format;

/// A job that was looked at elsewhere and has pods with GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lit {
    /// Its number in the tree.
    pub(super) gang: u32,
    /// Where it is, and where it would be better off.
    pub(super) sentences: Vec<String>,
}

/// `leaf`, `leaves`; `block`, `blocks`.
fn plural(level: &str) -> String {
    match level.strip_suffix('f') {
        Some(stem) => format!("{stem}ves"),
        None => format!("{level}s"),
    }
}

/// `1 leaf`, `3 leaves`.
fn counted(n: usize, level: &str) -> String {
    match n {
        1 => format!("1 {level}"),
        n => format!("{} {}", format::count_of(n), plural(level)),
    }
}

impl Lit {
    /// The job, if it has pods on the nodes of the tree.
    pub(super) fn of(job: &WorkloadKey, tree: &Tree, cluster: &Cluster) -> Option<Self> {
        let gang = tree.gangs.find(job)?;
        let pods = tree.gangs.total_of(gang);
        if pods == 0 {
            return None;
        }
        let mut places = Places::default();
        places.walk(&tree.top, gang, &mut Vec::new());
        // The closest level first: it is the one that is crossed first.
        let mut levels: Vec<(&Str, &BTreeSet<Vec<Step>>)> = places.switches.iter().collect();
        levels.sort_by_key(|(_, all)| std::cmp::Reverse(all.iter().map(Vec::len).max()));
        let mut parts: Vec<String> = levels
            .iter()
            .map(|(level, all)| counted(all.len(), level))
            .collect();
        if places.domains.len() > 1 {
            parts.push(counted(places.domains.len(), "NVLink domain"));
        }
        let within = match parts.as_slice() {
            [] => String::new(),
            parts => format!(" in {}", parts.join(", ")),
        };
        let crossed = levels.iter().filter(|(_, all)| all.len() > 1);
        let crossed: Vec<String> = crossed.map(|(level, _)| plural(level)).collect();
        let verdict = match crossed.as_slice() {
            _ if places.unknown => "what it crosses is not known: nodes say no switch".to_owned(),
            [] => "crosses nothing".to_owned(),
            some => format!("crosses {}", some.join(" and ")),
        };
        let (pods, nodes) = (counted(pods as usize, "pod"), counted(places.nodes, "node"));
        let mut sentences = vec![format!("{job}: {pods} on {nodes}{within}; {verdict}")];
        let known = !places.unknown;
        sentences.extend(
            known
                .then(|| better::sentence(job, gang, tree, cluster))
                .flatten(),
        );
        Some(Lit { gang, sentences })
    }
}

/// What a job has pods in.
#[derive(Default)]
struct Places {
    nodes: usize,
    switches: BTreeMap<Str, BTreeSet<Vec<Step>>>,
    domains: BTreeSet<Str>,
    unknown: bool,
}

impl Places {
    fn walk(&mut self, branch: &Branch, gang: u32, path: &mut Vec<Step>) {
        for (step, part) in &branch.branches {
            if !part.holds(gang) {
                continue;
            }
            path.push(step.clone());
            match &step.level {
                Level::Switch(level) => {
                    let all = self.switches.entry(level.clone()).or_default();
                    all.insert(path.clone());
                }
                Level::Nvlink => {
                    self.domains.insert(step.name.clone());
                }
                Level::Unknown => self.unknown = true,
                Level::Zone | Level::Model | Level::State => {}
            }
            self.walk(part, gang, path);
            path.pop();
        }
        let here = branch.nodes().filter(|l| l.held.of(gang) > 0);
        self.nodes += here.count();
    }
}
