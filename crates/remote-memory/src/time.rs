//! Durations as the kernel takes them.

use std::time::Duration;

use rustix::time::Timespec;

/// Longest wait in seconds that is handed to the kernel, which refuses values near 2^63. Nobody
/// waits for a year.
const WAIT_MAX_S: u64 = 365 * 24 * 3600;

/// The duration as a `Timespec`, cut to a year.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let seconds = duration.as_secs().min(WAIT_MAX_S);
    Timespec { tv_sec: seconds.cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}
