//! One need on its way to become a move: its candidates, its claim, its tries.

use crate::protocol::{Join, Outcome, Prepared, Refusal, Seen, Task, prepare};
use crate::record::{Ending, MoveRecord};
use policy::{Candidate, Stage};
use pool_model::{EdgeId, NodeId, Priority, Reason, SiteId};
use std::cmp::Ordering;

/// Installs tried under one claim. Three lost races in one look mean that the look is stale.
pub(crate) const TRIES_MAX: u8 = 3;

/// A need that may be met in this look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ripe {
    pub(crate) reason: Reason,
    pub(crate) taker: SiteId,
    pub(crate) priority: Priority,
    pub(crate) nodes: u16,
    pub(crate) soft: u16,
    pub(crate) load: f64,
}

impl Ripe {
    /// The order of equal claims: by reason, the higher priority first, by how little of its soft
    /// guarantee the site has, by id.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let share = |of: &Self, by: &Self| u32::from(of.nodes) * u32::from(by.soft.max(1));
        self.reason
            .cmp(&other.reason)
            .then(other.priority.cmp(&self.priority))
            .then(share(self, other).cmp(&share(other, self)))
            .then(self.taker.cmp(&other.taker))
    }
}

/// What the next candidate of a plan calls for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Try {
    /// Run it (after the claim, where there is a taker).
    Ready(Task),
    /// The donor must be bumped first.
    Bump(crate::protocol::BumpPlan),
    /// The donor's nodes must be renewed first.
    Renew(Task),
    /// No candidate is left.
    Exhausted,
}

/// A need that this edge is about to meet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) reason: Reason,
    /// None to set the node free.
    pub(crate) taker: Option<SiteId>,
    /// The site whose need this move prepares, where it is not the taker's own.
    pub(crate) stage_of: Option<SiteId>,
    pub(crate) load: f64,
    pub(crate) request: Option<u64>,
    /// When the look that found it was taken in.
    pub(crate) started_ns: u64,
    /// When the claim was sent, once it has succeeded.
    pub(crate) claimed_ns: Option<u64>,
    pub(crate) tries: u8,
    pub(crate) refusal: Refusal,
    candidates: Vec<Candidate>,
    at: usize,
}

impl Plan {
    pub(crate) fn new(ripe: &Ripe, candidates: Vec<Candidate>, started_ns: u64) -> Self {
        Self {
            reason: ripe.reason,
            taker: Some(ripe.taker),
            stage_of: None,
            load: ripe.load,
            request: None,
            started_ns,
            claimed_ns: None,
            tries: 0,
            refusal: Refusal::NoCandidate,
            candidates,
            at: 0,
        }
    }

    /// The same for a move that prepares the one which is wanted.
    pub(crate) fn staged(ripe: &Ripe, stage: Stage, started_ns: u64) -> Self {
        let own = Self::new(ripe, vec![stage.candidate], started_ns);
        Self { taker: Some(stage.to), stage_of: Some(ripe.taker), ..own }
    }

    /// A plan for one node that a person asked to move.
    pub(crate) fn requested(
        id: u64,
        candidate: Candidate,
        taker: Option<SiteId>,
        started_ns: u64,
    ) -> Self {
        Self {
            reason: Reason::Admin,
            taker,
            stage_of: None,
            load: 0.0,
            request: Some(id),
            started_ns,
            claimed_ns: None,
            tries: 0,
            refusal: Refusal::NoCandidate,
            candidates: vec![candidate],
            at: 0,
        }
    }

    /// Starts over with what a fresh look offers; the claim and the tries stay.
    pub(crate) fn refill(&mut self, candidates: Vec<Candidate>) {
        self.candidates = candidates;
        self.at = 0;
    }

    /// The candidate whose turn it is.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        self.candidates.get(self.at).copied()
    }

    /// The last one, where all were tried.
    pub(crate) fn last_candidate(&self) -> Option<Candidate> {
        self.candidates.last().copied()
    }

    /// Finds the next candidate that can be tried on what the look saw.
    pub(crate) fn advance(&mut self, seen: &Seen) -> Try {
        while let Some(Candidate { node, donor }) = self.candidate() {
            let refusal = match (donor, self.taker) {
                (Some(donor), taker) => match prepare(seen, donor, taker, node) {
                    Prepared::Ready(attempt) => return Try::Ready(Task::Attempt(attempt)),
                    Prepared::Bump(plan) => return Try::Bump(plan),
                    Prepared::Renew(renew) => return Try::Renew(Task::Renew(renew)),
                    Prepared::Refused(refusal) => refusal,
                },
                (None, Some(taker)) => match Join::plan(seen, node, taker) {
                    Ok(join) => return Try::Ready(Task::Join(join)),
                    Err(refusal) => refusal,
                },
                (None, None) => Refusal::AlreadyThere,
            };
            self.refusal = refusal;
            self.at += 1;
        }
        Try::Exhausted
    }

    /// Gives the present candidate up, and after a lost install all of the same donor: its word
    /// has changed since the look.
    pub(crate) fn skip_donor(&mut self) {
        let lost = self.candidate();
        self.at += 1;
        let Some(donor) = lost.and_then(|candidate| candidate.donor) else { return };
        while self.candidate().is_some_and(|candidate| candidate.donor == Some(donor)) {
            self.at += 1;
        }
    }

    /// The line for the log.
    pub(crate) fn record(&self, at_ns: u64, ending: Ending) -> Option<MoveRecord> {
        let Candidate { node, donor } = self.candidate().or(self.last_candidate())?;
        Some(MoveRecord {
            at_ns,
            node,
            from: donor,
            to: self.taker,
            reason: self.reason,
            load: self.load,
            version: None,
            took_ns: at_ns.saturating_sub(self.started_ns),
            ending,
            request: self.request,
        })
    }
}

/// Lets each edge start with another donor, so that edges that meet the needs of several sites at
/// once do not fight for one descriptor. Free nodes stay in front; the order within a donor stays.
pub(crate) fn rotate_donors(candidates: &mut [Candidate], edge: EdgeId) {
    let mut donors: Vec<Option<SiteId>> = Vec::with_capacity(candidates.len());
    for candidate in candidates.iter().filter(|candidate| candidate.donor.is_some()) {
        if !donors.contains(&candidate.donor) {
            donors.push(candidate.donor);
        }
    }
    if donors.len() < 2 {
        return;
    }
    let start = edge.index() % donors.len();
    donors.rotate_left(start);
    candidates.sort_by_key(|candidate| {
        candidate.donor.is_some().then(|| donors.iter().position(|&d| d == candidate.donor))
    });
}

/// How an outcome that ends a move reads in the log; none for one that does not end it.
pub(crate) fn ending_of(outcome: &Outcome) -> Option<Ending> {
    Some(match outcome {
        Outcome::Moved { .. } => Ending::Moved,
        Outcome::LostInstall { .. } => Ending::LostInstall,
        Outcome::LostJoin { .. } => Ending::LostJoin,
        Outcome::CasMissedLate { .. } => Ending::CasMissedLate,
        Outcome::Unsettled { .. } => Ending::Unsettled,
        Outcome::Unreachable { .. } => Ending::Unreachable,
        _ => return None,
    })
}

/// A move that a person asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) node: NodeId,
    pub(crate) to: Option<SiteId>,
    pub(crate) since_ns: u64,
    pub(crate) tried: bool,
}
