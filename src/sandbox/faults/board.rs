//! The faults in force, and what they do to a request or a watch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::{ActiveFault, Fault, FaultKind};
use crate::sandbox::actors::clock::hash;
use crate::sandbox::signal::{Listening, Signal};
use crate::sandbox::span::Span;
use crate::sandbox::status::ApiError;

/// Past breaks kept for watches that have not looked yet.
const KEPT_BREAKS: usize = 64;
/// How long a restarted server is away when nothing is said.
const RESTART: Duration = Duration::from_secs(1);
/// Delay and Retry-After when nothing is said.
const SECOND: Span = Span::second();

/// What a request meets.
#[derive(Debug)]
pub(in crate::sandbox) enum Met {
    /// The connection breaks without an answer.
    Cut,
    /// An answer that has nothing to do with the request.
    Refused(ApiError),
}

impl From<ApiError> for Met {
    fn from(error: ApiError) -> Self {
        Met::Refused(error)
    }
}

/// What becomes of an open watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum WatchFault {
    /// It breaks off.
    Cut,
    /// It ends with an ERROR event, 410.
    Gone,
    /// It says nothing any more.
    Silent,
}

/// What a request is, as far as faults ask.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Asked<'a> {
    /// The API verb.
    pub(in crate::sandbox) verb: &'a str,
    /// The plural name of the kind; empty outside of kinds.
    pub(in crate::sandbox) resource: &'a str,
    /// It goes on with a list from an earlier moment.
    pub(in crate::sandbox) continues: bool,
    /// It changes something that exists.
    pub(in crate::sandbox) changes: bool,
}

#[derive(Debug)]
struct Active {
    number: u64,
    fault: Fault,
    until: Option<Instant>,
}

/// Something that ended open watches at one moment.
#[derive(Debug)]
struct Break {
    at: u64,
    how: WatchFault,
    resources: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<Active>,
    breaks: VecDeque<Break>,
    numbers: u64,
    down_until: Option<Instant>,
}

/// The faults of one server.
#[derive(Debug)]
pub(in crate::sandbox) struct Board {
    seed: u64,
    state: Mutex<State>,
    // Nothing is or was asked for: requests need not take the lock.
    calm: AtomicBool,
    draws: AtomicU64,
    changed: Signal,
    restarts: Signal,
}

fn names(list: &[String], one: &str) -> bool {
    list.is_empty() || list.iter().any(|name| name == one)
}

impl Fault {
    fn meets(&self, asked: Asked<'_>) -> bool {
        names(&self.verbs, asked.verb) && names(&self.resources, asked.resource)
    }
}

impl State {
    fn drop_expired(&mut self, now: Instant) {
        self.active
            .retain(|active| active.until.is_none_or(|until| now < until));
    }
}

impl Board {
    /// A board without faults; draws follow from `seed`.
    pub(in crate::sandbox) fn new(seed: u64) -> Self {
        Board {
            seed,
            state: Mutex::default(),
            calm: AtomicBool::new(true),
            draws: AtomicU64::new(0),
            changed: Signal::default(),
            restarts: Signal::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a fault in force; its number.
    pub(super) fn add(&self, fault: Fault) -> u64 {
        let now = Instant::now();
        let until = fault.lasts.map(|span| now + span.duration());
        let mut state = self.lock();
        state.drop_expired(now);
        state.numbers += 1;
        let number = state.numbers;
        let (how, once) = match fault.kind {
            FaultKind::DropWatches => (Some(WatchFault::Cut), until.is_none()),
            FaultKind::Gone => (Some(WatchFault::Gone), until.is_none()),
            FaultKind::Restart => {
                state.down_until = Some(until.unwrap_or(now + RESTART));
                (Some(WatchFault::Cut), true)
            }
            FaultKind::SilentWatches if until.is_none() => (Some(WatchFault::Silent), true),
            _ => (None, false),
        };
        if let Some(how) = how {
            let resources = fault.resources.clone();
            state.breaks.push_back(Break {
                at: number,
                how,
                resources,
            });
            if state.breaks.len() > KEPT_BREAKS {
                state.breaks.pop_front();
            }
        }
        let restarts = fault.kind == FaultKind::Restart;
        if !once {
            state.active.push(Active {
                number,
                fault,
                until,
            });
        }
        drop(state);
        self.calm.store(false, Ordering::Release);
        self.changed.raise(number);
        if restarts {
            self.restarts.raise(number);
        }
        number
    }

    /// The faults in force.
    pub(super) fn active(&self) -> Vec<ActiveFault> {
        let now = Instant::now();
        let mut state = self.lock();
        state.drop_expired(now);
        let left = |until: Option<Instant>| {
            until.map(|until| Span::from_secs((until - now).as_secs_f64()))
        };
        let all = state.active.iter().map(|active| ActiveFault {
            number: active.number,
            left: left(active.until),
            fault: active.fault.clone(),
        });
        all.collect()
    }

    /// Ends all faults; how many there were.
    pub(super) fn clear(&self) -> usize {
        let mut state = self.lock();
        state.drop_expired(Instant::now());
        state.down_until = None;
        std::mem::take(&mut state.active).len()
    }

    /// Whether connections are refused.
    pub(in crate::sandbox) fn is_down(&self) -> bool {
        if self.calm.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        self.lock().down_until.is_some_and(|until| now < until)
    }

    /// How far the server's clock is off.
    pub(in crate::sandbox) fn skew(&self) -> SignedDuration {
        if self.calm.load(Ordering::Acquire) {
            return SignedDuration::ZERO;
        }
        let now = Instant::now();
        let mut state = self.lock();
        state.drop_expired(now);
        let secs: f64 = state
            .active
            .iter()
            .map(|active| {
                let ahead = active.fault.ahead.unwrap_or_default().secs();
                ahead - active.fault.behind.unwrap_or_default().secs()
            })
            .sum();
        SignedDuration::try_from_secs_f64(secs).unwrap_or_default()
    }

    /// One draw of a hundred.
    fn draw(&self) -> u64 {
        let number = self.draws.fetch_add(1, Ordering::Relaxed);
        hash(self.seed, &format!("fault {number}")) % 100
    }

    /// What a request meets before anybody looks at it; the wait is over when this returns.
    pub(in crate::sandbox) async fn meet(&self, asked: Asked<'_>) -> Result<(), Met> {
        if self.calm.load(Ordering::Acquire) {
            return Ok(());
        }
        let (delay, met) = self.look(asked);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match met {
            None if self.is_down() => Err(Met::Cut),
            None => Ok(()),
            Some(met) => Err(met),
        }
    }

    fn look(&self, asked: Asked<'_>) -> (Duration, Option<Met>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.drop_expired(now);
        let mut delay = Duration::ZERO;
        let mut met = None;
        if state.down_until.is_some_and(|until| now < until) {
            return (delay, Some(Met::Cut));
        }
        for Active { fault, .. } in &state.active {
            if !fault.meets(asked) || met.is_some() {
                continue;
            }
            if fault.percent.is_some_and(|n| self.draw() >= u64::from(n)) {
                continue;
            }
            match fault.kind {
                FaultKind::Latency => delay += fault.delay.unwrap_or(SECOND).duration(),
                FaultKind::TooManyRequests => {
                    let secs = fault.retry_after.unwrap_or(SECOND).secs().ceil();
                    met = Some(Met::Refused(ApiError::overloaded(secs as u32)));
                }
                FaultKind::InternalError => {
                    met = Some(Met::Refused(ApiError::internal_fault()));
                }
                FaultKind::Conflict if asked.changes => {
                    met = Some(Met::Refused(ApiError::conflict_fault(asked.resource)));
                }
                FaultKind::Gone if asked.verb == "watch" || asked.continues => {
                    met = Some(Met::Refused(ApiError::gone_fault()));
                }
                _ => {}
            }
        }
        (delay, met)
    }

    /// The number of the last fault: what a watch that opens now need not look at.
    pub(in crate::sandbox) fn newest(&self) -> u64 {
        self.changed.newest()
    }

    /// Wakes on each new fault.
    pub(in crate::sandbox) fn listen(&self) -> Listening {
        self.changed.listen()
    }

    /// Wakes on each restart.
    pub(in crate::sandbox) fn restarts(&self) -> Listening {
        self.restarts.listen()
    }

    /// What becomes of a watch of `resource` that has heard of the faults up to `since`.
    pub(in crate::sandbox) fn on_watch(&self, resource: &str, since: u64) -> Option<WatchFault> {
        if self.calm.load(Ordering::Acquire) {
            return None;
        }
        let now = Instant::now();
        let mut state = self.lock();
        state.drop_expired(now);
        let broken = state
            .breaks
            .iter()
            .find(|b| b.at > since && names(&b.resources, resource));
        if let Some(broken) = broken {
            return Some(broken.how);
        }
        let mut faults = state.active.iter().map(|active| &active.fault);
        faults.find_map(|fault| {
            let how = match fault.kind {
                FaultKind::DropWatches => WatchFault::Cut,
                FaultKind::SilentWatches => WatchFault::Silent,
                FaultKind::Gone => WatchFault::Gone,
                _ => return None,
            };
            names(&fault.resources, resource).then_some(how)
        })
    }
}
