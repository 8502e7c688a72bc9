//! The moves of a running pool. Each edge keeps only its last thousand, so they are fetched while
//! it runs.

use super::child::RigError;
use crate::control::{MovesArguments, Request, Response, ask};
use crate::status::MoveRecord;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a pool may take to answer; it does so within a look unless the machine is overloaded.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(15);
/// Moves asked for at a time: all that 8 edges keep.
const MOVES_ASKED: usize = 8 * 1_024;
/// Moves kept; a figure makes some ten thousand.
const MOVES_MAX: usize = 1_000_000;

/// Moves that were made, each once, in the order in which they took effect.
#[derive(Clone, Debug, Default)]
pub struct MoveLog {
    moves: BTreeMap<(u64, u32, String), MoveRecord>,
}

impl MoveLog {
    /// Adds what an edge told. A move that is known already is renewed: its first request may have
    /// come since.
    pub fn add(&mut self, moves: impl IntoIterator<Item = MoveRecord>) {
        for one in moves.into_iter().filter(|one| !one.observed_only) {
            let key = (one.effect_ns, one.edge, one.node.clone());
            if self.moves.len() < MOVES_MAX || self.moves.contains_key(&key) {
                self.moves.insert(key, one);
            }
        }
    }

    /// All of them, by the time at which they took effect.
    pub fn iter(&self) -> impl Iterator<Item = &MoveRecord> {
        self.moves.values()
    }

    /// Those decided from `from_ns` on and before `to_ns`; nanoseconds of the monotonic clock.
    pub fn decided_within(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &MoveRecord> {
        self.iter().filter(move |one| (from_ns..to_ns).contains(&one.decided_ns))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }
}

/// Asks a pool for the moves that it still knows. Blocks for the answer.
pub(super) fn fetch(control: &Path) -> Result<Vec<MoveRecord>, RigError> {
    let request = Request::Moves(MovesArguments { limit: MOVES_ASKED });
    match ask(control, &request, ANSWER_PATIENCE)? {
        Response::Moves(moves) => Ok(moves),
        _ => Err(RigError::WrongAnswer),
    }
}

/// Fetches moves on a thread of its own while load runs.
#[derive(Debug)]
pub struct MoveWatcher {
    stop: Sender<()>,
    thread: Option<JoinHandle<Result<MoveLog, RigError>>>,
}

impl MoveWatcher {
    /// Starts to fetch about every `every`.
    pub(super) fn start(control: PathBuf, every: Duration) -> Result<Self, RigError> {
        let (stop, stopped) = channel();
        let watch = move || {
            let mut log = MoveLog::default();
            loop {
                let over = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                log.add(fetch(&control)?);
                if over {
                    return Ok(log);
                }
            }
        };
        let thread = std::thread::Builder::new().name("moves".into()).spawn(watch);
        let thread = thread.map_err(super::child::doing("cannot start a thread"))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Fetches once more, and gives all moves since the start. Blocks for the answer.
    ///
    /// # Errors
    ///
    /// [`RigError`] when the pool did not answer at some time.
    pub fn finish(mut self) -> Result<MoveLog, RigError> {
        // A thread that failed has gone; its error comes from the join.
        let _ = self.stop.send(());
        let thread = self.thread.take();
        let joined = thread.and_then(|thread| thread.join().ok());
        joined.unwrap_or(Err(RigError::WrongAnswer))
    }
}

impl Drop for MoveWatcher {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            // Whoever drops it without asking wants no moves.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(effect_ns: u64, edge: u32, node: &str, first: Option<u64>) -> MoveRecord {
        MoveRecord {
            at_unix_ms: 0,
            node: node.into(),
            from: Some("red".into()),
            to: Some("blue".into()),
            reason: "load".into(),
            load: None,
            edge,
            move_ms: None,
            observed_only: false,
            decided_ns: effect_ns - 1,
            effect_ns,
            first_dispatch_ns: first,
            ..MoveRecord::default()
        }
    }

    #[test]
    fn moves_count_once_and_learn_of_their_first_request() {
        let mut log = MoveLog::default();
        assert!(log.is_empty());
        log.add([one(20, 0, "n1", None), one(10, 1, "n2", Some(11))]);
        log.add([one(20, 0, "n1", Some(22)), one(20, 1, "n3", None)]);
        let observed = MoveRecord { observed_only: true, ..one(30, 0, "n1", None) };
        log.add([observed]);
        assert_eq!(log.len(), 3);
        let told: Vec<_> = log.iter().map(|m| (m.node.as_str(), m.first_dispatch_ns)).collect();
        assert_eq!(told, [("n2", Some(11)), ("n1", Some(22)), ("n3", None)]);
        assert_eq!(log.decided_within(9, 19).count(), 1);
        assert_eq!(log.decided_within(9, 20).count(), 3);
    }

    #[test]
    fn a_pool_that_does_not_answer_is_an_error() {
        let missing = PathBuf::from("/nonexistent/control.sock");
        let watcher = MoveWatcher::start(missing, Duration::from_millis(1)).unwrap();
        assert!(matches!(watcher.finish(), Err(RigError::Ask(_))));
    }
}
