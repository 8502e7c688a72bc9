//! Places at which tests end or stop this process, to see that others finish its move.
//!
//! Only in builds with debug assertions. `POLDER_STOP_AFTER_STEP` is the step of a move (1 claim,
//! 2 install, 3 swap, 4 close) after which the process gets a signal, the first time it passes:
//! `kill` (the default) or, with `POLDER_STOP_SIGNAL=stop`, SIGSTOP.

use crate::protocol::{Op, Reply};

/// Notes that an operation was performed; ends or stops the process if a test asked for that.
#[cfg(not(debug_assertions))]
pub(super) fn passed(_op: &Op, _reply: &Reply) {}

/// How long it may take until a stop signal has stopped all threads; microseconds are usual.
#[cfg(debug_assertions)]
const STOPPED_WITHIN: std::time::Duration = std::time::Duration::from_millis(100);

/// Notes that an operation was performed; ends or stops the process if a test asked for that.
#[cfg(debug_assertions)]
pub(super) fn passed(op: &Op, reply: &Reply) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static STEP: OnceLock<Option<u8>> = OnceLock::new();
    static PASSED: AtomicBool = AtomicBool::new(false);
    let wanted = STEP.get_or_init(|| std::env::var("POLDER_STOP_AFTER_STEP").ok()?.parse().ok());
    if wanted.is_none() || step(op, reply) != *wanted || PASSED.swap(true, Ordering::SeqCst) {
        return;
    }
    let stops = std::env::var("POLDER_STOP_SIGNAL").is_ok_and(|signal| signal == "stop");
    let signal = if stops { rustix::process::Signal::STOP } else { rustix::process::Signal::KILL };
    // A process may always signal itself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    if stops {
        // Another thread may be the one to take the signal: this one must not go on meanwhile.
        std::thread::sleep(STOPPED_WITHIN);
    }
}

/// Which step of a move a compare-and-swap was that took place.
#[cfg(debug_assertions)]
fn step(op: &Op, reply: &Reply) -> Option<u8> {
    use crate::protocol::Word;
    use shared_state::words::{Assign, Depart};

    let Op::CompareAndSwap { word, expected, new } = op else { return None };
    if *reply != (Reply::Swapped { found: *expected }) {
        return None;
    }
    match word {
        Word::Arrive(_) => Some(1),
        Word::Depart(_) => {
            let (before, after) = (Depart::unpack(*expected), Depart::unpack(*new));
            match (before.pending, after.pending) {
                (None, Some(_)) => Some(2),
                (Some(_), None) if before.epoch == after.epoch => Some(4),
                _ => None,
            }
        }
        // A renewed stamp is no move: the version stays.
        Word::Assign(_) => {
            let version = |word| Assign::unpack(word).map(|assign| assign.version);
            (version(*expected) != version(*new)).then_some(3)
        }
        Word::Floor(_) => None,
    }
}
