//! What a cache counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::disk::DiskStats;
use crate::status::Forward;

/// Counters on lines of their own, so that threads which count at once do not wait for each other:
/// as many as an edge has threads, as a rule.
const STRIPES: usize = 16;

/// Why requests went to the server, in the order of the counters.
const FORWARDS: [Forward; 7] = [
    Forward::Bypass,
    Forward::Method,
    Forward::UriMiss,
    Forward::VaryMiss,
    Forward::Miss,
    Forward::Stale,
    Forward::Request,
];

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Hit,
    Forward(Forward),
    Stored,
    NotStored,
    Renewed,
    StoodIn,
    Refused,
    Purged,
    Audited(Audit),
}

/// What asking a server about a hit has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// The same response.
    Same,
    /// Another one, although its tags held before and after: a change that nobody told.
    Violation,
    /// It has changed meanwhile, or no server answered.
    Nothing,
}

impl Event {
    fn at(self) -> usize {
        match self {
            Self::Hit => 0,
            Self::Forward(why) => {
                1 + FORWARDS.iter().position(|&other| other == why).expect("all are there")
            }
            Self::Stored => 8,
            Self::NotStored => 9,
            Self::Renewed => 10,
            Self::StoodIn => 11,
            Self::Refused => 12,
            Self::Purged => 13,
            Self::Audited(Audit::Same) => 14,
            Self::Audited(Audit::Violation) => 15,
            Self::Audited(Audit::Nothing) => 16,
        }
    }
}

/// How many counters there are.
const EVENTS: usize = 17;

#[derive(Debug)]
#[repr(align(128))]
struct Stripe([AtomicU64; EVENTS]);

#[derive(Debug)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
}

impl Counters {
    pub(crate) fn new() -> Self {
        let zeros = || Stripe([const { AtomicU64::new(0) }; EVENTS]);
        Self { stripes: std::array::from_fn(|_| zeros()) }
    }

    pub(crate) fn count(&self, event: Event) {
        thread_local! {
            static STRIPE: usize = {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
            };
        }
        // A thread that is ending counts on the first stripe.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        self.stripes[stripe].0[event.at()].fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self, event: Event) -> u64 {
        let each = self.stripes.iter().map(|stripe| &stripe.0[event.at()]);
        each.map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            hits: self.sum(Event::Hit),
            forwarded: FORWARDS.map(|why| (why, self.sum(Event::Forward(why)))),
            stored: self.sum(Event::Stored),
            not_stored: self.sum(Event::NotStored),
            renewed: self.sum(Event::Renewed),
            stood_in: self.sum(Event::StoodIn),
            refused: self.sum(Event::Refused),
            purges: self.sum(Event::Purged),
            audited: [Audit::Same, Audit::Violation, Audit::Nothing]
                .map(|said| self.sum(Event::Audited(said)))
                .iter()
                .sum(),
            violations: self.sum(Event::Audited(Audit::Violation)),
            ..Stats::default()
        }
    }
}

/// Counts since the cache was made, and what it holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Requests answered from the cache without a question.
    pub hits: u64,
    /// Requests that went to a server, by the reason.
    pub forwarded: [(Forward, u64); 7],
    /// Responses stored.
    pub stored: u64,
    /// Responses to GET that were not.
    pub not_stored: u64,
    /// Stored responses that a server said still hold.
    pub renewed: u64,
    /// Stale responses that stood in for a failed server.
    pub stood_in: u64,
    /// Fresh responses that were no hit, because their proof did not hold.
    pub refused: u64,
    /// Purges.
    pub purges: u64,
    /// Hits about which a server was asked too.
    pub audited: u64,
    /// Of these, those that were proved to be older than they may be.
    pub violations: u64,
    /// Responses that had to make room.
    pub evicted: u64,
    /// URLs that something is stored for.
    pub urls: u64,
    /// Bytes held.
    pub bytes: u64,
    /// What the disk tier holds and has done, if there is one.
    pub disk: Option<DiskStats>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            hits: 0,
            forwarded: FORWARDS.map(|why| (why, 0)),
            stored: 0,
            not_stored: 0,
            renewed: 0,
            stood_in: 0,
            refused: 0,
            purges: 0,
            audited: 0,
            violations: 0,
            evicted: 0,
            urls: 0,
            bytes: 0,
            disk: None,
        }
    }
}
