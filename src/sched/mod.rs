//! The `sched` room.
