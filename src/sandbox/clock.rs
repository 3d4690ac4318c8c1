//! The server's time, replaceable so that a seeded run writes the same objects twice.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

/// Where the parts of an embedded cluster take the time of day from.
#[derive(Debug, Clone, Copy, Default)]
pub enum Time {
    /// The machine's clock.
    #[default]
    System,
    /// `epoch` at the moment `since` of tokio's clock, and from there as that clock goes. On a
    /// runtime whose clock is paused (see `app::stepped`) it moves only when nothing is left to do.
    Virtual {
        /// The time of day at the start.
        epoch: Timestamp,
        /// The start.
        since: Instant,
    },
}

impl Time {
    /// A time of day that starts at `epoch` now.
    pub fn starting(epoch: Timestamp) -> Self {
        Time::Virtual {
            epoch,
            since: Instant::now(),
        }
    }

    /// The time of day.
    pub fn now(self) -> Timestamp {
        match self {
            Time::System => Timestamp::now(),
            Time::Virtual { epoch, since } => {
                epoch.checked_add(since.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

impl From<Time> for Clock {
    fn from(time: Time) -> Self {
        Clock::from_fn(move || time.now())
    }
}

/// Where the API server takes its time stamps from. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Clock(Arc::new(Timestamp::now))
    }

    /// A clock that `now` reads: a fixed time, a simulated or a faster one.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The time as `metav1.Time`: whole seconds, UTC.
    pub(super) fn time(&self) -> String {
        time(self.now())
    }

    /// The time as `metav1.MicroTime`.
    pub(super) fn micro_time(&self) -> String {
        micro_time(self.now())
    }
}

/// `at` as `metav1.MicroTime`.
pub(super) fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `at` as `metav1.Time`.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
