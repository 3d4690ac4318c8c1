//! What the programs in pods have written: actors that play a program tell it line by line.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::ApiServer;

/// The most lines that are kept of one pod, as a kubelet rotates its files.
const KEPT_LINES: usize = 2_000;

/// Lines by the UID of their pod.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<String, Lines>>);

#[derive(Debug, Default)]
struct Lines {
    /// Lines before those kept.
    dropped: usize,
    kept: VecDeque<(Timestamp, String)>,
}

impl Written {
    /// The lines of a pod from number `from` on, and the number of the next; `None` when the pod
    /// has never written.
    pub(super) fn since(
        &self,
        uid: &str,
        from: usize,
    ) -> Option<(usize, Vec<(Timestamp, String)>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = all.get(uid)?;
        let next = lines.dropped + lines.kept.len();
        let skipped = from.saturating_sub(lines.dropped);
        Some((next, lines.kept.iter().skip(skipped).cloned().collect()))
    }

    /// Forgets a pod that is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(uid);
    }
}

impl ApiServer {
    /// Adds a line to the log of a pod, by its UID. Its `pods/log` has such lines only.
    pub fn write_log(&self, pod_uid: &str, line: &str) {
        let at = self.inner.options.clock.now();
        let all = &self.inner.written.0;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = all.entry(pod_uid.to_owned()).or_default();
        lines.kept.push_back((at, line.to_owned()));
        if lines.kept.len() > KEPT_LINES {
            lines.kept.pop_front();
            lines.dropped += 1;
        }
    }
}
