//! The schedule of a replay.

use super::open::{Due, Planned, Schedule};
use crate::trace::{Next, Replay, TraceError, TraceSummary};

/// The requests of traces, as a reader hands them over.
pub(super) struct Recorded {
    replay: Option<Replay>,
    sites: usize,
}

impl Recorded {
    /// For a generator of so many sites; what a replay has for more goes to the last.
    pub(super) fn new(replay: Replay, sites: usize) -> Self {
        Self { replay: Some(replay), sites }
    }

    /// What was read.
    pub(super) fn finish(&mut self) -> Result<Vec<TraceSummary>, TraceError> {
        self.replay.take().map_or_else(|| Ok(Vec::new()), Replay::finish)
    }
}

impl Schedule for Recorded {
    fn peek(&mut self) -> Planned {
        match self.replay.as_mut().map(Replay::peek) {
            Some(Next::At(from_start_ns)) => Planned::At(from_start_ns),
            Some(Next::NotYet) => Planned::NotYet,
            Some(Next::End) | None => Planned::End,
        }
    }

    fn pop(&mut self) -> Option<Due> {
        let arrival = self.replay.as_mut()?.pop()?;
        let site = arrival.site.min(self.sites.checked_sub(1)?);
        Some(Due { site, set_ns: arrival.at_ns, uri: arrival.uri })
    }
}
