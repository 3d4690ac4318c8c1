//! How many moves an hour may have.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Moves of the last hour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveBudget {
    an_hour: usize,
    made: VecDeque<Timestamp>,
}

impl MoveBudget {
    /// So many moves in any hour.
    #[must_use]
    pub fn new(an_hour: usize) -> Self {
        Self {
            an_hour,
            made: VecDeque::new(),
        }
    }

    /// Moves that may still be made now.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> usize {
        let recent = self.made.iter().filter(|at| is_recent(**at, now));
        self.an_hour.saturating_sub(recent.count())
    }

    /// Moves are made.
    pub fn spend(&mut self, now: Timestamp, moves: usize) {
        self.made.retain(|at| is_recent(*at, now));
        self.made.extend(std::iter::repeat_n(now, moves));
    }
}

/// Less than an hour ago; what is from the future counts, or a clock set back would free it all.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < SignedDuration::from_hours(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_hour_has_so_many_moves_and_no_more() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let mut budget = MoveBudget::new(5);
        assert_eq!(budget.left(at(0)), 5);
        budget.spend(at(0), 3);
        budget.spend(at(1_800), 1);
        assert_eq!(budget.left(at(3_599)), 1);
        assert_eq!(budget.left(at(3_600)), 4);
        budget.spend(at(3_600), 9);
        assert_eq!(budget.left(at(3_600)), 0);
        assert_eq!(budget.left(at(0)), 0, "a clock that was set back");
    }
}
