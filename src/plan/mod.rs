//! The `plan` room.
