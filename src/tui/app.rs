//! The console's state.
