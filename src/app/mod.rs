//! The `app` room.
