//! Ends the program if a check does not: a parser that hangs is as bad as one that panics.

use std::process::abort;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

type Current = Mutex<Option<(Instant, Vec<u8>)>>;

/// Knows which input is being checked, and since when.
pub(crate) struct Watch(Arc<Current>);

impl Watch {
    /// Starts to watch; `stuck` is called with an input whose check takes longer than `case_max`.
    pub(crate) fn start(case_max: Duration, stuck: impl Fn(&[u8]) + Send + 'static) -> Self {
        let current = Arc::new(Current::default());
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || look(&watched, case_max, stuck));
        Self(current)
    }

    pub(crate) fn begin(&self, input: &[u8]) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = current.take().map(|(_, bytes)| bytes).unwrap_or_default();
        *current = Some((Instant::now(), refilled(bytes, input)));
    }

    /// Between two checks, and while a failed input is made smaller.
    pub(crate) fn rest(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn refilled(mut bytes: Vec<u8>, input: &[u8]) -> Vec<u8> {
    bytes.clear();
    bytes.extend_from_slice(input);
    bytes
}

fn look(watched: &Weak<Current>, case_max: Duration, stuck: impl Fn(&[u8])) {
    while let Some(current) = watched.upgrade() {
        let found = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        drop(current);
        if let Some((since, input)) = found
            && since.elapsed() > case_max
        {
            stuck(&input);
            abort();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
