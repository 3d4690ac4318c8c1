//! Hands each batch of deltas to every consumer.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::model::Delta;

/// A batch as consumers get it.
pub type Batch = Arc<[Delta]>;

/// Batches that wait for one consumer; when they are that many, reading from the cluster waits.
const DEPTH: usize = 256;

/// The consumers' ends, before the bus runs.
#[derive(Default)]
pub struct Bus {
    consumers: Vec<mpsc::Sender<Batch>>,
}

impl Bus {
    /// One more consumer. It gets each batch, in order; none is ever dropped while it listens.
    pub fn subscribe(&mut self) -> mpsc::Receiver<Batch> {
        let (tx, rx) = mpsc::channel(DEPTH);
        self.consumers.push(tx);
        rx
    }

    /// Carries batches until the source ends or nobody listens any more.
    pub async fn run(mut self, mut source: mpsc::Receiver<Vec<Delta>>) {
        while let Some(batch) = source.recv().await {
            let batch: Batch = batch.into();
            let mut alive = Vec::with_capacity(self.consumers.len());
            for consumer in self.consumers {
                if consumer.send(batch.clone()).await.is_ok() {
                    alive.push(consumer);
                }
            }
            if alive.is_empty() {
                return;
            }
            self.consumers = alive;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Kind;

    fn unreadable(n: usize) -> Delta {
        Delta::Unreadable {
            kind: Kind::Pod,
            what: n.to_string().into(),
        }
    }

    #[tokio::test]
    async fn every_consumer_gets_every_batch_in_order_and_one_that_left_holds_nobody_up() {
        let mut bus = Bus::default();
        let mut first = bus.subscribe();
        let second = bus.subscribe();
        let (tx, rx) = mpsc::channel(1);
        let carrier = tokio::spawn(bus.run(rx));
        drop(second);
        for n in 0..1_000 {
            tx.send(vec![unreadable(n)]).await.unwrap();
            assert_eq!(first.recv().await.unwrap().as_ref(), [unreadable(n)]);
        }
        drop(tx);
        carrier.await.unwrap();
        assert!(first.recv().await.is_none());
    }
}
