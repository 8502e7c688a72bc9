//! The polder command.
fn main() {}
