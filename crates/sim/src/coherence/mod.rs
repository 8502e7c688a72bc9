//! Strict caches under virtual time: is a hit ever older than what was committed when its request
//! arrived?
//!
//! What runs is real: crate `cache` (look-ups, fetches, fills, revalidation, waiting requests) and
//! the machines of the version table, one operation on one word at a time. What is made up is what
//! they stand on: words, messages, a database, an origin that reads row after row, clients, and
//! processes that die.
//!
//! ```text
//! writers ── begin, commit, end ──► table, rows    one step, then anything may happen  writer
//! settlers ── dead and decided ───► table                                              writer
//! owner ── retire, publish, admit hits ──► next table                                  owner
//! clients ──► edges ── look up, check ──► table                                        edge
//!                └─ miss: sequence, then origin ── row, row, ... ──► respond, fill     edge
//! every answer: each row in it at least as new as committed at the request's arrival   site
//! ```
//!
//! Of the processes each may die between any two steps: an edge (its cache and its requests are
//! lost), a writer, the agent that acts for writers and settles, the owner of the table (which is
//! taken over, or lost). Some edges read the table over a network and get no answer now and then.
//! At the end nothing may be left pending, and every page is a hit again at every edge.

mod edge;
mod options;
mod outcome;
mod owner;
mod site;
mod table;
mod world;
mod writer;

pub use outcome::{Breach, Counts, How, Outcome};

/// What is done wrong, to show that it is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Writers begin and end, then commit.
    BumpBeforeCommit,
    /// Writers commit, then begin and end.
    BumpAfterCommit,
    /// Edges read the sequence when the origin has answered.
    VersionWithResponse,
    /// Requests that waited take the response without a look at its tags.
    SharesUnchecked,
    /// Edges answer by what they found a moment ago, before the request arrived.
    ValidatedBeforeArrival,
    /// Dead writers are settled before their transaction is decided.
    SettledByTimer,
    /// Writers do not raise the summary words of their tags.
    NoSummaries,
    /// A new table serves hits while updates of the earlier one are undecided.
    OpensAtOnce,
}

impl Flaw {
    /// All but none.
    pub const ALL: [Self; 8] = [
        Self::BumpBeforeCommit,
        Self::BumpAfterCommit,
        Self::VersionWithResponse,
        Self::SharesUnchecked,
        Self::ValidatedBeforeArrival,
        Self::SettledByTimer,
        Self::NoSummaries,
        Self::OpensAtOnce,
    ];
}

/// Lives through the history of a seed: some seconds of virtual time, a thousand requests. Takes
/// some milliseconds.
#[must_use]
pub fn run(seed: u64, flaw: Flaw) -> Outcome {
    world::World::new(seed, flaw).run()
}
