//! The gates: all histories of a few connections, and long ones by chance against a naive twin.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Enter(u64, u8, Use),
    Leave(u64, u8, Use),
    Die(u64),
}

/// The rules as a list of all who came, in their order.
#[derive(Clone, Debug, Default)]
struct Twin {
    /// Connection, document, use, and whether it is in.
    all: Vec<(u64, u8, Use, bool)>,
}

impl Twin {
    /// Everybody who may go in goes in: all before it at its document are readers that are in, and
    /// it is one too; or nobody is before it.
    fn admit(&mut self) -> Vec<u64> {
        let mut admitted = Vec::new();
        for at in 0..self.all.len() {
            let (connection, document, kind, is_in) = self.all[at];
            let before = self.all[..at].iter().filter(|other| other.1 == document);
            let mut before = before.cloned().collect::<Vec<_>>().into_iter();
            let may = before.all(|other| kind == Use::Read && other.2 == Use::Read && other.3);
            if may && !is_in {
                self.all[at].3 = true;
                admitted.push(connection);
            }
        }
        admitted
    }

    fn place(&self, connection: u64, document: u8) -> Option<&(u64, u8, Use, bool)> {
        self.all.iter().find(|place| (place.0, place.1) == (connection, document))
    }

    fn remove(&mut self, is: impl Fn(&(u64, u8, Use, bool)) -> bool) -> Vec<u64> {
        self.all.retain(|place| !is(place));
        self.admit()
    }
}

/// Both do the step, and say the same.
fn step(gates: &mut Gates, twin: &mut Twin, step: Step) {
    let mut admitted = Vec::new();
    let expected = match step {
        Step::Enter(connection, document, kind) => {
            let entered = gates.enter(connection, &[document], kind);
            if twin.place(connection, document).is_some() {
                assert_eq!(entered, Err(Refused::There), "{step:?}");
                return;
            }
            twin.all.push((connection, document, kind, false));
            let expected = match twin.admit().as_slice() {
                [] => Entered::Wait,
                [one] if *one == connection => Entered::Proceed,
                others => panic!("{others:?} by {step:?}"),
            };
            assert_eq!(entered, Ok(expected), "{step:?}");
            Vec::new()
        }
        Step::Leave(connection, document, kind) => {
            let is_in = twin.place(connection, document).is_some_and(|it| it.2 == kind && it.3);
            let left = gates.leave(connection, &[document], kind, &mut admitted);
            assert_eq!(left, is_in, "{step:?}");
            if !is_in {
                return;
            }
            twin.remove(|place| (place.0, place.1) == (connection, document))
        }
        Step::Die(connection) => {
            gates.disconnected(connection, &mut admitted);
            twin.remove(|place| place.0 == connection)
        }
    };
    let sorted = |mut all: Vec<u64>| {
        all.sort_unstable();
        all
    };
    assert_eq!(sorted(admitted), sorted(expected), "{step:?}");
    gates.check_invariants();
}

fn all_steps(connections: u64, documents: u8) -> Vec<Step> {
    let mut steps = Vec::new();
    for connection in 0..connections {
        for document in 0..documents {
            for kind in [Use::Read, Use::Write] {
                steps.push(Step::Enter(connection, document, kind));
                steps.push(Step::Leave(connection, document, kind));
            }
        }
        steps.push(Step::Die(connection));
    }
    steps
}

fn replay(history: &[Step]) -> (Gates, Twin) {
    let (mut gates, mut twin) = (Gates::default(), Twin::default());
    for &one in history {
        step(&mut gates, &mut twin, one);
    }
    (gates, twin)
}

/// Every state that three connections at one document can come to: each step from each of them
/// does what the rules say.
#[test]
fn all_histories_of_three_connections() {
    let steps = all_steps(3, 1);
    let (mut known, mut left) = (HashSet::new(), VecDeque::from([Vec::new()]));
    while let Some(history) = left.pop_front() {
        for &next in &steps {
            let mut longer: Vec<Step> = history.clone();
            longer.push(next);
            let (gates, twin) = replay(&longer);
            // The order of those who are in changes nothing.
            let mut state: Vec<String> = twin.all.iter().map(|it| format!("{it:?}")).collect();
            let inside = twin.all.iter().filter(|it| it.3).count();
            state[..inside].sort_unstable();
            if known.insert(state) {
                assert!(gates.places <= 3);
                left.push_back(longer);
            }
        }
    }
    // None; one alone (3 x 2); two and three, by who is in and who waits in which order.
    assert!(known.len() > 60, "{}", known.len());
}

proptest! {
    #[test]
    fn long_histories_by_chance(
        history in prop::collection::vec(prop::sample::select(all_steps(6, 2)), 1..300),
    ) {
        replay(&history);
    }

    /// Nobody is passed by one that came later, but readers by readers; and when all go on leaving,
    /// all get in.
    #[test]
    fn nobody_starves(kinds in prop::collection::vec(any::<bool>(), 1..40)) {
        let mut gates = Gates::default();
        let mut order = Vec::new();
        let mut inside = VecDeque::new();
        let kind = |number: usize| if kinds[number] { Use::Read } else { Use::Write };
        for number in 0..kinds.len() {
            if gates.enter(number as u64, b"d", kind(number)) == Ok(Entered::Proceed) {
                inside.push_back(number as u64);
                order.push(number as u64);
            }
        }
        while let Some(connection) = inside.pop_front() {
            let mut admitted = Vec::new();
            let number = usize::try_from(connection).unwrap();
            prop_assert!(gates.leave(connection, b"d", kind(number), &mut admitted));
            order.extend(&admitted);
            inside.extend(admitted);
        }
        prop_assert!(order.into_iter().eq(0..kinds.len() as u64));
        prop_assert!(gates.gates.is_empty() && gates.connections.is_empty());
    }
}

#[test]
fn places_are_bounded() {
    let mut gates = Gates::default();
    let document = |number: usize| number.to_string().into_bytes();
    for number in 0..CONNECTION_PLACES_MAX {
        assert_eq!(gates.enter(0, &document(number), Use::Write), Ok(Entered::Proceed));
    }
    assert_eq!(gates.enter(0, b"x", Use::Read), Err(Refused::Full));
    let mut others = 1;
    while gates.places < PLACES_MAX {
        for number in 0..CONNECTION_PLACES_MAX {
            assert_eq!(gates.enter(others, &document(number), Use::Read), Ok(Entered::Wait));
        }
        others += 1;
    }
    assert_eq!(gates.enter(others, b"x", Use::Read), Err(Refused::Full));
    let mut admitted = Vec::new();
    gates.disconnected(0, &mut admitted);
    assert_eq!(admitted.len(), PLACES_MAX - CONNECTION_PLACES_MAX, "all that waited read");
    assert_eq!(gates.enter(others, b"x", Use::Read), Ok(Entered::Proceed));
}
