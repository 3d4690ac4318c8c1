//! The `sandbox` room.
