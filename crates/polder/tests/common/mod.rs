//! What the fault tests share: pools of real processes, clients that count each request once, a
//! reader of the shared words, and questions to `/proc`.

#![allow(dead_code, unreachable_pub)] // Each test file uses a part.

pub mod apart;
pub mod client;
pub mod netns;
pub mod pool;
pub mod process;
pub mod watch;
pub mod wave;
pub mod wiki;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine; a hang fails the test by it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(5);

/// Tests whose figures suffer from neighbours hold this one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test that asked for it runs.
pub fn alone() -> MutexGuard<'static, ()> {
    // A test that failed has nothing that this protects.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `what` is true.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// Sleeps; a name that says why a test waits: something must not happen meanwhile.
pub fn watch_for(time: Duration) {
    std::thread::sleep(time);
}
