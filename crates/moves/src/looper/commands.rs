//! What persons ask of a running loop.

use super::status::LoopStatus;
use super::update::Update;
use crate::record::MoveRecord;
use pool_model::{NodeId, SiteId};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::Duration;
use thiserror::Error;

/// A request to the loop.
#[derive(Debug)]
pub enum Command {
    /// What does the pool look like? Answered by [`Answer::Status`].
    Status {
        /// Leave out the moves before this one, counted from the start of the loop; `u64::MAX`
        /// for none at all.
        moves_from: u64,
    },
    /// Give the node to the site, or set it free. Answered by [`Answer::Moved`].
    Move {
        /// The node.
        node: NodeId,
        /// The taker.
        to: Option<SiteId>,
    },
    /// Take the node out of service (true) or back. Answered by [`Answer::Done`].
    Cordon {
        /// The node.
        node: NodeId,
        /// Whether it is taken out.
        cordoned: bool,
    },
    /// Stop all moves of the policy (true), in all edges, or go on. Answered by [`Answer::Done`].
    Pause {
        /// Whether moves stop.
        paused: bool,
    },
    /// Go on under other settings. Answered by [`Answer::Done`] or [`Answer::Refused`].
    Update(Box<Update>),
    /// This edge ends soon: decide nothing more, and disagree with nobody. Answered by
    /// [`Answer::Done`].
    Retire,
}

/// What the loop answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The state of the pool as this edge sees it.
    Status(Box<LoopStatus>),
    /// How the attempt ended.
    Moved(MoveRecord),
    /// It is done.
    Done,
    /// It can't be done now, and why.
    Refused(String),
}

/// The loop does not answer: it has ended, or is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Gone {
    /// The loop has ended.
    #[error("the look loop has ended")]
    Ended,
    /// No answer in time.
    #[error("the look loop did not answer in time")]
    TimedOut,
}

pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) answer: Sender<Answer>,
}

/// Asks a running loop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Commander {
    asked: Sender<Asked>,
    looper: Thread,
}

impl Commander {
    pub(super) fn new(asked: Sender<Asked>, looper: Thread) -> Self {
        Self { asked, looper }
    }

    /// Asks and waits for the answer. Blocks, at most for `patience`.
    pub fn ask(&self, command: Command, patience: Duration) -> Result<Answer, Gone> {
        let (answer, wait) = channel();
        self.asked.send(Asked { command, answer }).map_err(|_| Gone::Ended)?;
        self.looper.unpark();
        wait.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => Gone::TimedOut,
            RecvTimeoutError::Disconnected => Gone::Ended,
        })
    }
}

/// Requests that wait for the loop, and those that wait for their record.
#[derive(Debug)]
pub(super) struct Inbox {
    asked: Receiver<Asked>,
    waiting: Vec<(u64, Sender<Answer>)>,
    next_id: u64,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.command.fmt(f)
    }
}

impl Inbox {
    pub(super) fn new(asked: Receiver<Asked>) -> Self {
        Self { asked, waiting: Vec::new(), next_id: 1 }
    }

    pub(super) fn take(&self) -> Option<Asked> {
        self.asked.try_recv().ok()
    }

    /// Remembers who waits for the record of a request; the request's id.
    pub(super) fn wait(&mut self, answer: Sender<Answer>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push((id, answer));
        id
    }

    /// Answers who waits for this record.
    pub(super) fn ended(&mut self, record: &MoveRecord) {
        let Some(id) = record.request else { return };
        let Some(place) = self.waiting.iter().position(|(waits, _)| *waits == id) else { return };
        let (_, answer) = self.waiting.swap_remove(place);
        // Whoever asked may have gone; then nobody wants the answer.
        drop(answer.send(Answer::Moved(*record)));
    }
}
