//! The figures of the papers, each one command, peers side by side.
fn main() {}
