//! The `gpudeck` binary: everything is in the library.
fn main() {}
