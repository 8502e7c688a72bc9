//! What happens next: events by their time, and by the order in which they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The next step of an edge, in one of its lives.
    Edge { edge: u8, life: u32 },
    /// An operation reaches the memory that it is for.
    Land { flight: u32 },
    /// The next request arrives.
    Arrival,
    /// A node is done with an attempt at a request.
    Served { request: u32, attempt: u32 },
    /// Rates act for one step of time.
    Flow,
    /// A fault begins.
    Fault { index: u16 },
    /// A fault ends.
    Mend { index: u16 },
    /// The properties that need time are checked.
    Watch,
}

#[derive(Clone, Copy, Debug)]
struct Entry<D> {
    at_ns: u64,
    sequence: u64,
    due: D,
}

impl<D> PartialEq for Entry<D> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<D> Eq for Entry<D> {}

impl<D> Ord for Entry<D> {
    /// The earliest is the greatest: the heap gives its greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

impl<D> PartialOrd for Entry<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All events to come. Bounded by what is under way: a few for each edge, one for each request in
/// flight, one for each operation that has not landed.
#[derive(Debug)]
pub(crate) struct Agenda<D> {
    heap: BinaryHeap<Entry<D>>,
    sequence: u64,
}

impl<D> Default for Agenda<D> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<D> Agenda<D> {
    /// Plans an event. Of two at one time the one planned first comes first.
    pub(crate) fn plan(&mut self, at_ns: u64, due: D) {
        self.sequence += 1;
        self.heap.push(Entry { at_ns, sequence: self.sequence, due });
    }

    /// Takes the next event that is due before `until_ns`.
    pub(crate) fn next_before(&mut self, until_ns: u64) -> Option<(u64, D)> {
        let at_ns = self.heap.peek()?.at_ns;
        if at_ns >= until_ns {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at_ns, entry.due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_planned() {
        let mut agenda = Agenda::default();
        agenda.plan(20, Due::Watch);
        agenda.plan(10, Due::Arrival);
        agenda.plan(10, Due::Flow);
        let order: Vec<_> = std::iter::from_fn(|| agenda.next_before(21)).collect();
        assert_eq!(order, [(10, Due::Arrival), (10, Due::Flow), (20, Due::Watch)]);
        agenda.plan(30, Due::Watch);
        assert_eq!(agenda.next_before(30), None);
    }
}
