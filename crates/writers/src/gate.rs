//! The paper's reader and writer queues: a document is never read while it is written.
//!
//! ```text
//! read:   nobody writes it and nobody waits for it:  proceed.    else: wait behind them
//! write:  nobody reads or writes it:                 proceed.    else: wait behind them
//! end, or the connection's end: the place is free; the first that wait proceed:
//!         one writer, or all readers up to the next writer
//! ```
//!
//! Who comes first goes first, so neither readers nor writers starve: a writer waits for those who
//! read when it came, and readers that come later wait for it. Differs from the paper in two ways:
//! several writers may wait, and a reader that came before the second writer reads before it.
//!
//! Pure: connections are numbers, and whoever is let in is told by the caller. A gate guards what
//! applications do with each other; what caches may answer is decided by begin and end.

use std::collections::{HashMap, HashSet, VecDeque};

/// Places in all gates of a site, of those who are in and of those who wait: sixteen for each
/// connection that there may be.
pub const PLACES_MAX: usize = 16_384;

/// Places of one connection: an application that needs more at once locks too much, and every
/// connection's end goes through its places.
pub const CONNECTION_PLACES_MAX: usize = 256;

/// How a document is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// With other readers.
    Read,
    /// Alone.
    Write,
}

/// What becomes of a wish to come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It is in.
    Proceed,
    /// It will be told.
    Wait,
}

/// Why nobody comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// It would wait for itself.
    #[error("this connection is at that document already; end that first")]
    There,
    /// As many as there may be are in gates or wait at them.
    #[error("too many documents are read, written or waited for")]
    Full,
}

/// One connection at one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    connection: u64,
    kind: Use,
}

/// Those at one document. There is none where nobody is.
#[derive(Debug, Default)]
struct Gate {
    /// Readers, or one writer.
    inside: Vec<Place>,
    /// In the order in which they came. The first cannot go in.
    queue: VecDeque<Place>,
}

impl Gate {
    fn admits(&self, kind: Use) -> bool {
        match kind {
            Use::Read => self.inside.iter().all(|place| place.kind == Use::Read),
            Use::Write => self.inside.is_empty(),
        }
    }

    /// Lets those in who can go in now.
    fn advance(&mut self, admitted: &mut Vec<u64>) {
        while let Some(&first) = self.queue.front().filter(|first| self.admits(first.kind)) {
            self.queue.pop_front();
            self.inside.push(first);
            admitted.push(first.connection);
        }
    }

    fn has(&self, connection: u64) -> bool {
        self.inside.iter().chain(&self.queue).any(|place| place.connection == connection)
    }
}

/// The gates of one site.
#[derive(Debug, Default)]
pub struct Gates {
    gates: HashMap<Box<[u8]>, Gate>,
    /// At which documents each connection is.
    connections: HashMap<u64, HashSet<Box<[u8]>>>,
    places: usize,
}

impl Gates {
    /// A connection wants to use a document.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn enter(
        &mut self,
        connection: u64,
        document: &[u8],
        kind: Use,
    ) -> Result<Entered, Refused> {
        let there = self.connections.get(&connection);
        if there.is_some_and(|there| there.contains(document)) {
            return Err(Refused::There);
        }
        let own = there.map_or(0, HashSet::len);
        if own >= CONNECTION_PLACES_MAX || self.places >= PLACES_MAX {
            return Err(Refused::Full);
        }
        self.places += 1;
        self.connections.entry(connection).or_default().insert(document.into());
        let gate = self.gates.entry(document.into()).or_default();
        let place = Place { connection, kind };
        if gate.queue.is_empty() && gate.admits(kind) {
            gate.inside.push(place);
            return Ok(Entered::Proceed);
        }
        gate.queue.push_back(place);
        Ok(Entered::Wait)
    }

    /// A connection ends its use of a document; false if it was not in. Adds the connections that
    /// proceed now.
    pub fn leave(
        &mut self,
        connection: u64,
        document: &[u8],
        kind: Use,
        admitted: &mut Vec<u64>,
    ) -> bool {
        let place = Place { connection, kind };
        let inside = self.gates.get(document).is_some_and(|gate| gate.inside.contains(&place));
        if inside {
            self.remove(connection, document, admitted);
            if let Some(there) = self.connections.get_mut(&connection) {
                there.remove(document);
                if there.is_empty() {
                    self.connections.remove(&connection);
                }
            }
        }
        inside
    }

    /// A connection has ended, with whatever it held or waited for.
    pub fn disconnected(&mut self, connection: u64, admitted: &mut Vec<u64>) {
        for document in self.connections.remove(&connection).unwrap_or_default() {
            self.remove(connection, &document, admitted);
        }
    }

    /// Frees a place.
    fn remove(&mut self, connection: u64, document: &[u8], admitted: &mut Vec<u64>) {
        let Some(gate) = self.gates.get_mut(document) else { return };
        let is_other = |place: &Place| place.connection != connection;
        gate.inside.retain(is_other);
        gate.queue.retain(is_other);
        self.places -= 1;
        gate.advance(admitted);
        if gate.inside.is_empty() && gate.queue.is_empty() {
            self.gates.remove(document);
        }
    }

    /// What must hold always; for tests.
    pub fn check_invariants(&self) {
        let mut places = 0;
        for (document, gate) in &self.gates {
            let writers = gate.inside.iter().filter(|place| place.kind == Use::Write).count();
            assert!(writers == 0 || gate.inside.len() == 1, "a writer is alone");
            let first = gate.queue.front();
            assert!(first.is_none_or(|first| !gate.admits(first.kind)), "nobody waits for nothing");
            assert!(!gate.inside.is_empty(), "where nobody is in there is no gate");
            for place in gate.inside.iter().chain(&gate.queue) {
                let there = &self.connections[&place.connection];
                assert!(there.contains(document) && gate.has(place.connection));
                places += 1;
            }
        }
        assert_eq!(places, self.places);
        assert_eq!(places, self.connections.values().map(HashSet::len).sum::<usize>());
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
