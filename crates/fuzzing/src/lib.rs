//! Seeded, structured noise for everything that reads bytes of others. It runs on stable Rust, in
//! tests only, and stands beside the floors: any crate may use it for its tests, and it uses none.
//!
//! A *target* is a name, a corpus of small files in its crate (`fuzz-corpus/NAME/`) and a check: a
//! function that is handed bytes and panics if what it finds must not be.
//!
//! ```no_run
//! # fn parse(bytes: &[u8]) -> Result<u8, String> { bytes.first().copied().ok_or("empty".into()) }
//! fuzzing::Target::new("numbers", env!("CARGO_MANIFEST_DIR"))
//!     .tokens(&["0x", "ffffffff", "-"])
//!     .run(|bytes, _random| parse(bytes));
//! ```
//!
//! ```text
//! for each file of the corpus: check it
//! until the time is over (in a plain `cargo test`: some cases of one fixed seed):
//!     take an input of the pool, or one that the target's maker made
//!     change it up to eight times: bits, bytes, tokens, numbers, ranges, a part of another input
//!     check it; if what the check returned was never returned before, keep the input in the pool
//! a check that panics, or never ends: write the input to a file, smaller if it panics so too,
//!     and say how to repeat it
//! ```
//!
//! What a check returns (an outcome, an error) stands in for the coverage that a fuzzer with an
//! instrumented build would see. A run is a function of its seed, which it prints:
//! `POLDER_FUZZ_SEED` sets it, `POLDER_FUZZ_S` says for how many seconds, `POLDER_FUZZ_FILE`
//! checks one file alone. `cargo xtask fuzz` sets all three.

mod corpus;
mod mutate;
mod random;
mod shrink;
mod target;
mod watch;

pub use random::Random;
pub use target::Target;
