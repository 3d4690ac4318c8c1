//! Queues: the tree over the namespaces, what each is due, and what it has used.

mod age;
mod decay;
mod faults;
mod quota;
mod share;
mod tree;

pub use age::Ageing;
pub(super) use decay::{PastUse, aged_weight};
pub(super) use quota::Quotas;
pub(super) use share::{Asker, fill};
pub(super) use tree::{GPU, MOST_PARTS, Parts, QueueId, ROOT, Tree, of_milli_gpu, to_milli_gpu};
