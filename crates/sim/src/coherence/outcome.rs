//! What a run showed: counts, violations, the last lines of its history, and one number for it all.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Lines that are kept: those before a violation tell how it came about.
const LINES_MAX: usize = 100;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// From the cache, its tags read after it arrived.
    Hit,
    /// The same, after it had waited for another request's fetch.
    Collapsed,
    /// From the cache, after the origin had said that it holds.
    Renewed,
    /// By the origin.
    Fetched,
    /// By the origin, past the cache.
    Bypassed,
}

/// Declares counts, with their sum over runs and their names for whoever prints them.
macro_rules! counts {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// What happened how often.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counts {
            /// Adds those of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }

            /// Each with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counts! {
    /// Requests that arrived at an edge.
    requests,
    /// Answered from the cache at once.
    hits,
    /// Answered from the cache after waiting for another request's fetch.
    collapsed,
    /// Answered from the cache after the origin had said that it holds.
    renewed,
    /// Answered by the origin.
    fetched,
    /// Answered by the origin, past the cache.
    bypassed,
    /// Not answered: the origin failed.
    failed,
    /// Not answered: the edge died.
    cut_off,
    /// Not answered: the client went away.
    left,
    /// Times that a stored response was no hit because its proof did not hold.
    refused,
    /// Times that near summary words proved a stored response.
    by_summaries,
    /// Times that they did not and its own near words did.
    by_own_words,
    /// Times that a request waited for another's fetch.
    waited,
    /// Clients that went away while others waited for their fetch.
    leads_left,
    /// Responses that the origin made.
    origin,
    /// Responses that were stored.
    stored,
    /// Updates that writers wished for.
    updates,
    /// Updates that were committed.
    commits,
    /// Updates that were rolled back.
    rollbacks,
    /// Updates that could not begin: no record was free, or the table was given up.
    refused_updates,
    /// Updates ended by their token, since whoever had begun them was gone.
    ended_by_token,
    /// Updates of dead writers that were settled.
    settled,
    /// Edges that died.
    edge_crashes,
    /// Times that whoever answers writers and settles died.
    agent_crashes,
    /// Writers that died between two steps of a begin.
    deaths_in_begin,
    /// Writers that died with their commit on its way.
    deaths_in_commit,
    /// Writers that died between two steps of an end.
    deaths_in_end,
    /// Settlers that died between two steps.
    deaths_in_settle,
    /// Tables that a restarted owner took over and gave up for a new one.
    tables_retired,
    /// Tables that were lost with all processes.
    tables_lost,
    /// Operations on a table elsewhere that were never answered.
    lost_batches,
    /// Threads that were without a processor for a while.
    preemptions,
}

impl Counts {
    pub(super) fn answered(&mut self, how: How) {
        *match how {
            How::Hit => &mut self.hits,
            How::Collapsed => &mut self.collapsed,
            How::Renewed => &mut self.renewed,
            How::Fetched => &mut self.fetched,
            How::Bypassed => &mut self.bypassed,
        } += 1;
    }

    /// Reads and updates.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.requests + self.updates
    }

    /// Of a hundred requests that were answered, how many from the cache at once.
    #[must_use]
    pub fn hits_pct(&self) -> f64 {
        let answers = self.hits + self.collapsed + self.renewed + self.fetched + self.bypassed;
        100.0 * self.hits as f64 / answers.max(1) as f64
    }
}

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: String,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened how often.
    pub counts: Counts,
    /// The first things that must never happen.
    pub breaches: Vec<Breach>,
    /// A hash of the whole history.
    pub history_hash: u64,
    /// The last lines of it, up to the first breach.
    pub history_tail: Vec<String>,
    /// When it ended.
    pub ended_ns: u64,
}

/// A line of the history.
#[derive(Clone, Debug, Hash)]
pub(super) enum Note {
    Answer { edge: usize, page: usize, how: How, body: Bytes },
    Edge { edge: usize, is_up: bool },
    Agent { is_up: bool },
    Begun { update: usize, rows: Vec<usize> },
    Committed { update: usize, rows: Vec<usize> },
    RolledBack { update: usize },
    Ended { update: usize },
    WriterDied { writer: usize, update: usize },
    Settled { update: usize },
    TableGivenUp { table: usize, is_lost: bool },
    TableOpen { table: usize },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up = |is_up: bool| if is_up { "starts" } else { "dies" };
        match self {
            Self::Answer { edge, page, how, body } => {
                let body = String::from_utf8_lossy(body);
                write!(f, "edge {edge}: page {page} is {body:?} ({how:?})")
            }
            Self::Edge { edge, is_up } => write!(f, "edge {edge} {}", up(*is_up)),
            Self::Agent { is_up } => write!(f, "the agent {}", up(*is_up)),
            Self::Begun { update, rows } => write!(f, "update {update} of rows {rows:?} has begun"),
            Self::Committed { update, rows } => write!(f, "update {update} commits rows {rows:?}"),
            Self::RolledBack { update } => write!(f, "update {update} is rolled back"),
            Self::Ended { update } => write!(f, "update {update} is ended"),
            Self::WriterDied { writer, update } => {
                write!(f, "writer {writer} dies in update {update}")
            }
            Self::Settled { update } => write!(f, "update {update} is settled"),
            Self::TableGivenUp { table, is_lost: false } => write!(f, "table {table} is given up"),
            Self::TableGivenUp { table, is_lost: true } => write!(f, "table {table} is lost"),
            Self::TableOpen { table } => write!(f, "table {table} admits hits"),
        }
    }
}

/// The history of a run.
#[derive(Debug, Default)]
pub(super) struct Log {
    hash: u64,
    lines: VecDeque<(u64, Note)>,
    /// Once something was breached, what led there stays.
    is_frozen: bool,
}

impl Log {
    pub(super) fn add(&mut self, at_ns: u64, note: Note) {
        // The standard library's hasher, with its fixed keys.
        let mut hasher = DefaultHasher::new();
        (self.hash, at_ns, &note).hash(&mut hasher);
        self.hash = hasher.finish();
        if self.is_frozen {
            return;
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back((at_ns, note));
    }

    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn tail(&self) -> Vec<String> {
        let line = |(at_ns, note): &(u64, Note)| format!("{:12.6} s  {note}", *at_ns as f64 / 1e9);
        self.lines.iter().map(line).collect()
    }
}
