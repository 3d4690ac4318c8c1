//! Waiting counts, up to a bound: long waits go before short ones of about the same priority.

use jiff::Timestamp;

/// Points of priority that waiting gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ageing {
    /// The most that it gives; 0 switches it off.
    pub most_points: i32,
    /// Seconds of waiting for the most points.
    pub full_after_secs: i64,
}

impl Default for Ageing {
    fn default() -> Self {
        Self {
            most_points: 10,
            full_after_secs: 7 * 24 * 3_600,
        }
    }
}

impl Ageing {
    /// The points of a job that waits since then.
    pub fn points(&self, since: Option<Timestamp>, now: Timestamp) -> i32 {
        let Some(since) = since else {
            return 0;
        };
        let waited = now.duration_since(since).as_secs();
        if self.full_after_secs <= 0 || self.most_points <= 0 || waited <= 0 {
            return 0;
        }
        let waited = waited.min(self.full_after_secs);
        let points =
            i128::from(self.most_points) * i128::from(waited) / i128::from(self.full_after_secs);
        i32::try_from(points).unwrap_or(self.most_points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_grow_evenly_and_end() {
        let ageing = Ageing::default();
        let at = |s| Timestamp::from_second(s).unwrap_or(Timestamp::MIN);
        let week = ageing.full_after_secs;
        for (waited, points) in [(0, 0), (-5, 0), (week / 2, 5), (week, 10), (week * 9, 10)] {
            assert_eq!(ageing.points(Some(at(0)), at(waited)), points, "{waited}");
        }
        assert_eq!(ageing.points(None, at(0)), 0);
        assert_eq!(ageing.points(Some(Timestamp::MIN), Timestamp::MAX), 10);
    }
}
