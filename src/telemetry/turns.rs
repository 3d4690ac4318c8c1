//! Which exporters are asked next: those of the nodes on the screen often, all others in their turn
//! at a rate that the API server does not feel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Str;

/// Nodes on the screen are asked this often.
const SHOWN_EVERY: Duration = Duration::from_secs(15);
/// All others at most this often.
const OTHERS_EVERY: Duration = Duration::from_secs(60);
/// One that was refused is asked again after this.
const REFUSED_EVERY: Duration = Duration::from_secs(300);
/// Questions under way at once.
const AT_ONCE: usize = 16;
/// Questions a second, all in all.
const PER_SECOND: usize = 20;
/// Nodes on the screen beyond this take their turn like the others.
const MOST_SHOWN: usize = 128;

#[derive(Debug)]
struct Node {
    /// When it was asked last, since the beginning.
    asked: Option<Duration>,
    under_way: bool,
    refused: bool,
}

/// The turns. Time is what has passed since the beginning.
#[derive(Debug, Default)]
pub struct Turns {
    nodes: BTreeMap<Str, Node>,
    shown: BTreeSet<Str>,
    /// Questions of the second that runs.
    second: (u64, usize),
}

impl Turns {
    /// A node has an exporter.
    pub fn set(&mut self, node: &Str) {
        self.nodes.entry(node.clone()).or_insert(Node {
            asked: None,
            under_way: false,
            refused: false,
        });
    }

    /// A node has none any more.
    pub fn remove(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// The nodes on the screen.
    pub fn show(&mut self, nodes: impl IntoIterator<Item = Str>) {
        self.shown = nodes.into_iter().take(MOST_SHOWN).collect();
    }

    /// Those to be asked now; each counts as under way until [`Turns::answered`].
    pub fn next(&mut self, now: Duration) -> Vec<Str> {
        if self.second.0 != now.as_secs() {
            self.second = (now.as_secs(), 0);
        }
        let under_way = self.nodes.values().filter(|n| n.under_way).count();
        let room = AT_ONCE
            .saturating_sub(under_way)
            .min(PER_SECOND.saturating_sub(self.second.1));
        if room == 0 {
            return Vec::new();
        }
        let mut due: Vec<(bool, Option<Duration>, &Str)> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.under_way)
            .filter_map(|(name, node)| {
                let shown = self.shown.contains(name);
                let every = match (node.refused, shown) {
                    (true, _) => REFUSED_EVERY,
                    (false, true) => SHOWN_EVERY,
                    (false, false) => OTHERS_EVERY,
                };
                let is_due = node.asked.is_none_or(|at| at + every <= now);
                is_due.then_some((!shown, node.asked, name))
            })
            .collect();
        due.sort_unstable();
        let chosen: Vec<Str> = due
            .into_iter()
            .take(room)
            .map(|(.., name)| name.clone())
            .collect();
        self.second.1 += chosen.len();
        for name in &chosen {
            if let Some(node) = self.nodes.get_mut(name) {
                node.under_way = true;
                node.asked = Some(now);
            }
        }
        chosen
    }

    /// An answer has come. `refused`: the same will be refused for a while.
    pub fn answered(&mut self, node: &str, refused: bool) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.under_way = false;
            node.refused = refused;
        }
    }

    /// Nodes that have an exporter.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node has one.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn turns(nodes: usize) -> Turns {
        let mut turns = Turns::default();
        for n in 0..nodes {
            turns.set(&format!("n{n:04}").into());
        }
        turns
    }

    #[test]
    fn never_more_at_once_nor_a_second_than_is_allowed_and_everybody_has_a_turn() {
        let mut turns = turns(1_000);
        let mut asked = BTreeSet::new();
        for second in 0..60 {
            let mut this = 0;
            for step in 0..4 {
                let now = secs(second) + Duration::from_millis(step * 250);
                let next = turns.next(now);
                assert!(next.len() <= AT_ONCE);
                this += next.len();
                for node in next {
                    turns.answered(&node, false);
                    asked.insert(node);
                }
            }
            assert!(this <= PER_SECOND, "{this}");
        }
        assert_eq!(asked.len(), 1_000);
    }

    #[test]
    fn an_answer_that_does_not_come_holds_its_place() {
        let mut turns = turns(100);
        assert_eq!(turns.next(secs(0)).len(), AT_ONCE);
        assert!(turns.next(secs(9)).is_empty());
        turns.answered("n0003", false);
        assert_eq!(turns.next(secs(9)).len(), 1);
    }

    #[test]
    fn what_is_on_the_screen_comes_first_and_more_often() {
        let mut turns = turns(10);
        turns.show(["n0007".into()]);
        let first = turns.next(secs(0));
        assert_eq!(first.first().map(|n| &**n), Some("n0007"));
        for node in &first {
            turns.answered(node, false);
        }
        assert!(turns.next(secs(14)).is_empty());
        let next: Vec<Str> = turns.next(secs(15));
        assert_eq!(next, [Str::from("n0007")]);
        turns.answered("n0007", true);
        assert!(!turns.next(secs(60)).contains(&"n0007".into()), "refused");
        assert!(turns.next(secs(315)).contains(&"n0007".into()));
    }
}
