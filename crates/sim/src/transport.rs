//! Operations under way, and what becomes of them.
//!
//! An operation lands after one way and its answer comes back after another. Whoever asked waits
//! for its deadline at most; the operation does not know about that and lands all the same.

use crate::options::Options;
use crate::random::Random;
use moves::protocol::{Op, Reply};

/// The longest that an operation is under way in a slow network.
pub(crate) const LATE_MAX_NS: u64 = 400_000_000;
/// In a slow network, of a hundred operations so many are late.
const SLOW_PERCENT: u64 = 25;
/// While there are losses, of a hundred operations so many never arrive, and the answers of so
/// many are lost.
const LOST_PERCENT: u64 = 15;

/// How the network is.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    /// Slow networks under way at once.
    pub(crate) slow: u16,
    pub(crate) lossy: u16,
    /// Other faults under way.
    pub(crate) others: u16,
    /// By edge: which node it cannot reach, and how often that was said.
    cut: Vec<Vec<u8>>,
}

impl Weather {
    pub(crate) fn new(edges: usize, nodes: usize) -> Self {
        Self { slow: 0, lossy: 0, others: 0, cut: vec![vec![0; nodes]; edges] }
    }

    /// An edge cannot reach a node from now on, or can again.
    pub(crate) fn set_cut(&mut self, edge: u8, node: u16, is_cut: bool) {
        let place = &mut self.cut[usize::from(edge)][usize::from(node)];
        *place = if is_cut { *place + 1 } else { place.saturating_sub(1) };
    }

    /// Which nodes an edge cannot reach, by index.
    pub(crate) fn cuts(&self, edge: u8) -> &[u8] {
        &self.cut[usize::from(edge)]
    }

    /// Whether anything is wrong at present.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.slow + self.lossy + self.others > 0
    }

    /// Draws what becomes of an operation.
    pub(crate) fn trip(&self, options: &Options, random: &mut Random) -> Trip {
        let (least, most) = options.transport.way_ns;
        let mut there_ns = random.between(least, most);
        let mut back_ns = random.between(least, most);
        if self.slow > 0 && random.below(100) < SLOW_PERCENT {
            let late_ns = random.between(0, LATE_MAX_NS);
            let on_the_way_there = random.below(2) == 0;
            *(if on_the_way_there { &mut there_ns } else { &mut back_ns }) += late_ns;
        }
        let (mut arrives, mut answered) = (true, true);
        if self.lossy > 0 {
            arrives = random.below(100) >= LOST_PERCENT;
            answered = arrives && random.below(100) >= LOST_PERCENT;
        }
        let deadline_ns = options.transport.deadline_ns;
        let in_time = there_ns + back_ns <= deadline_ns;
        Trip {
            lands_ns: arrives.then_some(there_ns),
            told_ns: if answered && in_time { there_ns + back_ns } else { deadline_ns },
            answered: answered && in_time,
        }
    }
}

/// What becomes of an operation, from when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// When it takes place; never, if it gets lost.
    pub(crate) lands_ns: Option<u64>,
    /// When whoever asked goes on.
    pub(crate) told_ns: u64,
    /// Whether the answer is known then.
    pub(crate) answered: bool,
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) op: Op,
    pub(crate) edge: u8,
    pub(crate) incarnation: u32,
    pub(crate) reply: Reply,
    /// It will still land.
    flying: bool,
    /// Somebody waits for it.
    pub(crate) awaited: bool,
    /// The answer will be known in time.
    answered: bool,
}

/// All operations under way. Bounded by the edges and by what a slow network holds back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flights {
    slab: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    pub(crate) fn send(&mut self, op: Op, edge: u8, incarnation: u32, trip: &Trip) -> u32 {
        let flying = trip.lands_ns.is_some();
        let (reply, awaited, answered) = (Reply::Unknown, true, trip.answered);
        let flight = Flight { op, edge, incarnation, reply, flying, awaited, answered };
        match self.free.pop() {
            Some(id) => {
                self.slab[id as usize] = flight;
                id
            }
            None => {
                self.slab.push(flight);
                u32::try_from(self.slab.len() - 1).expect("few operations are under way")
            }
        }
    }

    /// It takes place now: what it is, and whether somebody still waits.
    pub(crate) fn landing(&self, id: u32) -> Flight {
        self.slab[id as usize]
    }

    /// It took place, and found this.
    pub(crate) fn landed(&mut self, id: u32, reply: Reply) {
        let flight = &mut self.slab[id as usize];
        flight.flying = false;
        if flight.answered {
            flight.reply = reply;
        }
        self.release(id);
    }

    /// Whoever asked goes on, with what is known.
    pub(crate) fn take(&mut self, id: u32) -> Reply {
        let flight = &mut self.slab[id as usize];
        flight.awaited = false;
        let reply = flight.reply;
        self.release(id);
        reply
    }

    /// Whoever asked is gone.
    pub(crate) fn abandon(&mut self, id: u32) {
        self.slab[id as usize].awaited = false;
        self.release(id);
    }

    fn release(&mut self, id: u32) {
        let flight = &self.slab[id as usize];
        if !flight.flying && !flight.awaited {
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moves::protocol::Word;
    use pool_model::SiteId;

    const OP: Op = Op::Read(Word::Floor(SiteId::MIN));

    #[test]
    fn an_answer_is_known_only_if_it_comes_in_time() {
        let mut flights = Flights::default();
        let trip = Trip { lands_ns: Some(5), told_ns: 9, answered: true };
        let known = flights.send(OP, 0, 0, &trip);
        flights.landed(known, Reply::Value(3));
        assert_eq!(flights.take(known), Reply::Value(3));
        let late = flights.send(OP, 0, 0, &Trip { answered: false, ..trip });
        assert_eq!(late, known, "places are used again");
        assert_eq!(flights.take(late), Reply::Unknown);
        assert!(!flights.landing(late).awaited);
        let other = flights.send(OP, 0, 0, &trip);
        assert_ne!(other, late, "it has not landed yet");
        flights.landed(late, Reply::Value(4));
    }
}
