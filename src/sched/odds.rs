//! Odds of being done soon, learnt from jobs that were.
//!
//! A cluster does not know how long a job will run, but it knows how long others have. Service
//! (GPU-seconds) is cut into bands that widen fourfold. For each band it is counted how many jobs
//! were done in it, how many left it, and what service was spent in it; a band's index is the best
//! ratio of the chance to be done within some bands from here on to the service that costs (the
//! index of Gittins, 1979; for GPUs: Tiresias, NSDI '19). Who has the higher index goes first: where
//! most jobs are short and a few very long that favours those that ran little, where all are alike
//! those that ran longest.

/// End of the first band, in GPU-seconds.
const FIRST_END: f64 = 900.0;
/// Each band ends at this multiple of the end before.
const FACTOR: f64 = 4.0;
/// Bands; the last has no end. The one before it ends at 43 GPU-years.
const BANDS: usize = 12;
/// Jobs that each band is taken to have seen before any: half were done in it, as where durations
/// are spread over many orders of magnitude.
const PRIOR_JOBS: f64 = 4.0;
/// Of their service, in parts of the width of the band.
const PRIOR_SERVICE: f64 = 0.5;

/// What was seen of a band.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    done: f64,
    left: f64,
    service: f64,
}

/// What was learnt so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Odds {
    seen: [Seen; BANDS],
    index: [f64; BANDS],
}

impl Default for Odds {
    fn default() -> Self {
        let mut seen = [Seen {
            done: PRIOR_JOBS / 2.0,
            left: PRIOR_JOBS / 2.0,
            service: 0.0,
        }; BANDS];
        for (band, seen) in seen.iter_mut().enumerate() {
            seen.service = PRIOR_JOBS * PRIOR_SERVICE * width(band);
        }
        let mut odds = Odds {
            seen,
            index: [0.0; BANDS],
        };
        odds.refresh();
        odds
    }
}

impl Odds {
    /// The band of a job that was served so many GPU-seconds, from 0.
    #[must_use]
    pub fn band(service_gpu_s: f64) -> u8 {
        let mut band = 0;
        while Self::end(band).is_some_and(|end| service_gpu_s >= end) {
            band += 1;
        }
        band
    }

    /// The GPU-seconds at which a job leaves a band; `None` for the last.
    #[must_use]
    pub fn end(band: u8) -> Option<f64> {
        (usize::from(band) + 1 < BANDS).then(|| FIRST_END * FACTOR.powi(i32::from(band)))
    }

    /// A job left a band and goes on.
    pub fn left(&mut self, band: u8) {
        let band = usize::from(band);
        if let Some(seen) = self.seen.get_mut(band) {
            seen.left += 1.0;
            seen.service += width(band);
        }
        self.refresh();
    }

    /// A job was done after so many GPU-seconds; that it left the bands before has been told.
    pub fn done(&mut self, service_gpu_s: f64) {
        let band = usize::from(Self::band(service_gpu_s));
        if let Some(seen) = self.seen.get_mut(band) {
            seen.done += 1.0;
            seen.service += service_gpu_s - begin(band);
        }
        self.refresh();
    }

    /// Chances to be done per GPU-second from the begin of a band on; the higher goes first.
    #[must_use]
    pub fn index(&self, band: u8) -> f64 {
        let band = usize::from(band).min(BANDS - 1);
        self.index.get(band).copied().unwrap_or_default()
    }

    fn refresh(&mut self) {
        for (band, index) in self.index.iter_mut().enumerate() {
            let (mut stays, mut cost, mut best) = (1.0, 0.0, 0.0_f64);
            for seen in self.seen.iter().skip(band) {
                let jobs = seen.done + seen.left;
                cost += stays * seen.service / jobs;
                stays *= seen.left / jobs;
                best = best.max((1.0 - stays) / cost);
            }
            *index = best;
        }
    }
}

fn begin(band: usize) -> f64 {
    if band == 0 { 0.0 } else { end(band - 1) }
}

fn end(band: usize) -> f64 {
    let band = u8::try_from(band).unwrap_or(u8::MAX);
    Odds::end(band).unwrap_or(f64::INFINITY)
}

/// Of the last band as if it had an end.
fn width(band: usize) -> f64 {
    let begin = begin(band);
    if end(band).is_finite() {
        end(band) - begin
    } else {
        begin * (FACTOR - 1.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn bands_meet_at_their_ends() {
        let mut band = 0;
        while let Some(end) = Odds::end(band) {
            assert_eq!(Odds::band(end - 1.0), band);
            assert_eq!(Odds::band(end), band + 1);
            band += 1;
        }
        assert_eq!(usize::from(band), BANDS - 1);
        assert_eq!(Odds::band(f64::MAX), band);
    }

    #[test]
    fn the_prior_prefers_those_that_ran_little() {
        let odds = Odds::default();
        let all: Vec<f64> = (0..12).map(|band| odds.index(band)).collect();
        assert!(all.windows(2).all(|w| w[0] > w[1]), "{all:?}");
    }

    fn see(odds: &mut Odds, service_gpu_s: f64) {
        (0..Odds::band(service_gpu_s)).for_each(|band| odds.left(band));
        odds.done(service_gpu_s);
    }

    #[test]
    fn where_all_jobs_are_alike_those_that_ran_longest_go_first() {
        let mut odds = Odds::default();
        for _ in 0..200 {
            see(&mut odds, 100_000.0);
        }
        let of = Odds::band(100_000.0);
        let all: Vec<f64> = (0..=of).map(|band| odds.index(band)).collect();
        // The prior still tells in the first band.
        assert!(all[1..].windows(2).all(|w| w[0] < w[1]), "{all:?}");
        assert!(all[all.len() - 1] > 2.0 * all[0], "{all:?}");
    }

    #[test]
    fn where_most_are_short_those_that_ran_little_go_first() {
        let mut odds = Odds::default();
        for n in 0..1_000 {
            see(&mut odds, if n % 10 == 0 { 1e6 } else { 300.0 });
        }
        assert!(odds.index(0) > 10.0 * odds.index(3));
    }
}
