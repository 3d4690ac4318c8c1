//! Tells those who wait that something has changed, in the order in which they wait.
//!
//! tokio's `watch` wakes its receivers in an order that it draws by chance, and stepped runs have
//! to be the same twice.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A number that only grows, such as the newest resourceVersion of a table.
#[derive(Debug, Default)]
pub(super) struct Signal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    newest: AtomicU64,
    woken: Notify,
}

impl Signal {
    /// Says that `rv` is the newest.
    pub(super) fn raise(&self, rv: u64) {
        self.0.newest.store(rv, Ordering::Release);
        self.0.woken.notify_waiters();
    }

    /// The newest; 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.0.newest.load(Ordering::Acquire)
    }

    /// A listener that has seen everything up to now.
    pub(super) fn listen(&self) -> Listening {
        Listening {
            shared: self.0.clone(),
            seen: self.newest(),
        }
    }
}

/// One listener's end.
#[derive(Debug)]
pub(super) struct Listening {
    shared: Arc<Shared>,
    seen: u64,
}

impl Listening {
    /// Counts everything up to now as seen.
    pub(super) fn mark_unchanged(&mut self) {
        self.seen = self.shared.newest.load(Ordering::Acquire);
    }

    /// Ends when there is something that was not seen.
    pub(super) async fn changed(&mut self) {
        let mut woken = pin!(self.shared.woken.notified());
        loop {
            // In line before the look: what is raised after it wakes this one.
            woken.as_mut().enable();
            let newest = self.shared.newest.load(Ordering::Acquire);
            if newest != self.seen {
                self.seen = newest;
                return;
            }
            woken.as_mut().await;
            woken.set(self.shared.woken.notified());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn listeners_wake_in_the_order_of_waiting() {
        let signal = Signal::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (mut listening, order) = (signal.listen(), order.clone());
                tokio::spawn(async move {
                    listening.changed().await;
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        signal.raise(7);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(signal.newest(), 7);
    }

    #[tokio::test]
    async fn what_was_seen_wakes_nobody() {
        let signal = Signal::default();
        let mut listening = signal.listen();
        signal.raise(1);
        listening.changed().await;
        signal.raise(2);
        listening.mark_unchanged();
        assert!(
            futures::FutureExt::now_or_never(listening.changed()).is_none(),
            "2 was seen"
        );
    }
}
