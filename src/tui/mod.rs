//! The `tui` room.
