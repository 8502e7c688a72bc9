//! Who waits, who is woken, and that nobody is forgotten.

use proptest::prelude::*;

use super::*;

const FLIGHT: FlightId = FlightId(7);

fn tickets(numbers: &[u64]) -> Vec<Ticket> {
    numbers.iter().copied().map(Ticket).collect()
}

fn full_of_waiters(limits: CollapseLimits, count: u64) -> Collapse {
    let mut collapse = Collapse::new(limits);
    assert_eq!(collapse.arrive(FLIGHT, Ticket(0), 0), Role::Lead);
    for ticket in 1..=count {
        assert_eq!(collapse.arrive(FLIGHT, Ticket(ticket), 0), Role::Wait);
    }
    collapse
}

#[test]
fn who_waited_looks_up_again_when_the_response_is_stored() {
    let mut collapse = full_of_waiters(CollapseLimits::default(), 2);
    assert_eq!(collapse.landed(FLIGHT, Landing::Stored), Wake::LookUp(tickets(&[1, 2])));
    assert_eq!(collapse.held(), (0, 0));
    assert_eq!(collapse.arrive(FLIGHT, Ticket(3), 0), Role::Lead);
    assert_eq!(collapse.landed(FLIGHT, Landing::Stored), Wake::Nobody);
}

#[test]
fn a_response_that_is_not_kept_is_given_to_nobody_else() {
    let mut collapse = full_of_waiters(CollapseLimits::default(), 2);
    assert_eq!(collapse.landed(FLIGHT, Landing::NotStored), Wake::Alone(tickets(&[1, 2])));
}

#[test]
fn when_the_leader_dies_the_next_one_leads_and_the_rest_wait_for_it() {
    let mut collapse = full_of_waiters(CollapseLimits::default(), 3);
    assert_eq!(collapse.crashed(FLIGHT), Wake::Lead(Ticket(1)));
    assert_eq!(collapse.arrive(FLIGHT, Ticket(9), 0), Role::Wait);
    collapse.left(FLIGHT, Ticket(2));
    assert_eq!(collapse.crashed(FLIGHT), Wake::Lead(Ticket(3)));
    assert_eq!(collapse.landed(FLIGHT, Landing::Stored), Wake::LookUp(tickets(&[9])));
    assert_eq!(collapse.crashed(FLIGHT), Wake::Nobody);
}

#[test]
fn waiters_flights_and_rounds_have_limits() {
    let limits = CollapseLimits { waiters_max: 2, flights_max: 1, rounds_max: 2 };
    let mut collapse = full_of_waiters(limits, 2);
    assert_eq!(collapse.arrive(FLIGHT, Ticket(3), 0), Role::Alone);
    assert_eq!(collapse.arrive(FlightId(8), Ticket(4), 0), Role::Alone);
    collapse.left(FLIGHT, Ticket(1));
    assert_eq!(collapse.arrive(FLIGHT, Ticket(5), 2), Role::Alone);
    assert_eq!(collapse.arrive(FLIGHT, Ticket(5), 1), Role::Wait);
}

proptest! {
    /// Nobody is forgotten, and nobody is woken twice.
    #[test]
    fn each_waiter_is_woken_once(steps in prop::collection::vec((0_u64..3, 0_u8..5), 0..200)) {
        let mut collapse = Collapse::new(CollapseLimits::default());
        let mut waiting: Vec<(FlightId, Ticket)> = Vec::new();
        let mut leading: Vec<FlightId> = Vec::new();
        let wake = |waiting: &mut Vec<(FlightId, Ticket)>, flight, ticket| {
            let at = waiting.iter().position(|&one| one == (flight, ticket));
            prop_assert!(at.is_some(), "woken, and did not wait");
            waiting.remove(at.unwrap());
            Ok(())
        };
        for (at, (flight, what)) in steps.into_iter().enumerate() {
            let (flight, ticket) = (FlightId(flight), Ticket(at as u64));
            let leads = leading.iter().position(|&leader| leader == flight);
            match (what, leads) {
                (0..=2, _) => match collapse.arrive(flight, ticket, 0) {
                    Role::Lead => {
                        prop_assert!(leads.is_none(), "two lead");
                        leading.push(flight);
                    }
                    Role::Wait => waiting.push((flight, ticket)),
                    Role::Alone => prop_assert!(false, "no limit was reached"),
                },
                (3, Some(at)) => {
                    leading.remove(at);
                    if let Wake::LookUp(all) = collapse.landed(flight, Landing::Stored) {
                        for ticket in all {
                            wake(&mut waiting, flight, ticket)?;
                        }
                    }
                    prop_assert!(waiting.iter().all(|(of, _)| *of != flight), "forgotten");
                }
                (_, Some(at)) => match collapse.crashed(flight) {
                    Wake::Lead(ticket) => wake(&mut waiting, flight, ticket)?,
                    _ => {
                        leading.remove(at);
                    }
                },
                _ => {}
            }
            prop_assert_eq!(collapse.held(), (leading.len(), waiting.len()));
        }
    }
}
