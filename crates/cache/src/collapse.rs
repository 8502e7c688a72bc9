//! Requests for the same response at the same time: one asks the server, the others wait.
//!
//! A pure machine: the edge tells it what happens and wakes whom it names. **A waiter is given no
//! response.** It is told to look up again, after its own arrival, like a request that has just
//! come; so it shares the response only if that is a hit for it, which in mode `strict` means that
//! the tags hold now. A response that may not be kept is for its own client alone: those who waited
//! ask for themselves, all at once.
//!
//! ```text
//! arrive   no flight, or it is full or the ticket has waited too often: it flies or goes alone
//!          else: it waits
//! landed   stored: all waiters look up again;  not stored: all go alone
//! crashed  the first waiter leads (it looks up and fetches); the rest wait for it
//! ```
//!
//! A server that gave no response has *landed*, not stored: were it crashed, each waiter in turn
//! would wait for the same dead server. Who looks up and finds nothing arrives again, one round
//! further: under steady purges the rounds end it.

use std::collections::{HashMap, VecDeque};

use crate::rules::NotStored;

/// What requests wait by: the same for those that one response could be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlightId(pub(crate) u64);

/// A request, as the edge calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a request does that needs a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It asks, and tells how that ended: [`Collapse::landed`] or [`Collapse::crashed`].
    Lead,
    /// It waits until it is named.
    Wait,
    /// It asks for itself, and tells nothing.
    Alone,
}

/// How a flight ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// Its response is stored, or would be but for a purge: it is worth while to look up again.
    Stored,
    /// It is for its own client alone, or there is none.
    NotStored,
}

impl Landing {
    /// What [`Cache::finish`](crate::Cache::finish), or a reply without a fill, means for those who
    /// wait.
    #[must_use]
    pub const fn of(stored: Result<(), NotStored>) -> Self {
        match stored {
            Ok(()) | Err(NotStored::Purged) => Self::Stored,
            Err(_) => Self::NotStored,
        }
    }
}

/// What those who waited do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Each looks up again, with [`Request::waited`](crate::Request::waited).
    LookUp(Vec<Ticket>),
    /// Each asks a server for itself.
    Alone(Vec<Ticket>),
    /// This one leads from now on; the rest wait for it.
    Lead(Ticket),
    /// Nobody waited.
    Nobody,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Requests that wait for one response: one more asks for itself.
    pub waiters_max: usize,
    /// Flights at a time: one more request is alone.
    pub flights_max: usize,
    /// How often one request waits: under steady updates a page may be old whenever it comes, and
    /// its first reader must not wait for ever.
    pub rounds_max: u32,
}

impl Default for CollapseLimits {
    fn default() -> Self {
        Self { waiters_max: 1_024, flights_max: 16 << 10, rounds_max: 2 }
    }
}

/// All flights of one edge.
#[derive(Debug, Default)]
pub struct Collapse {
    limits: CollapseLimits,
    flights: HashMap<FlightId, VecDeque<Ticket>>,
}

impl Collapse {
    /// Nothing flies yet.
    #[must_use]
    pub fn new(limits: CollapseLimits) -> Self {
        Self { limits, flights: HashMap::new() }
    }

    /// A request that needs a server, and has waited `rounds` times already.
    pub fn arrive(&mut self, flight: FlightId, ticket: Ticket, rounds: u32) -> Role {
        let room = self.flights.len() < self.limits.flights_max;
        match self.flights.get_mut(&flight) {
            None if room => {
                self.flights.insert(flight, VecDeque::new());
                Role::Lead
            }
            Some(waiters)
                if waiters.len() < self.limits.waiters_max && rounds < self.limits.rounds_max =>
            {
                waiters.push_back(ticket);
                Role::Wait
            }
            _ => Role::Alone,
        }
    }

    /// The leader's response has come to its end, or its head says that it is not kept.
    pub fn landed(&mut self, flight: FlightId, landing: Landing) -> Wake {
        let waiters: Vec<Ticket> = self.flights.remove(&flight).unwrap_or_default().into();
        match landing {
            _ if waiters.is_empty() => Wake::Nobody,
            Landing::Stored => Wake::LookUp(waiters),
            Landing::NotStored => Wake::Alone(waiters),
        }
    }

    /// The leader's client went away before there was a response.
    pub fn crashed(&mut self, flight: FlightId) -> Wake {
        let next = self.flights.get_mut(&flight).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.flights.remove(&flight);
        }
        next.map_or(Wake::Nobody, Wake::Lead)
    }

    /// A waiter's client went away.
    pub fn left(&mut self, flight: FlightId, ticket: Ticket) {
        if let Some(waiters) = self.flights.get_mut(&flight) {
            waiters.retain(|other| *other != ticket);
        }
    }

    /// Flights and waiters now.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.flights.len(), self.flights.values().map(VecDeque::len).sum())
    }
}

#[cfg(test)]
#[path = "collapse_tests.rs"]
mod tests;
