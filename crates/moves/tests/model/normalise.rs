//! What a look of the model forgets makes no difference to the real functions.

use crate::state::{NODES_MAX, NOTHING, floor, node, normalise, site};
use moves::protocol::{Help, Prepared, Renew, Seen, SiteWords, prepare};
use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};
use shared_state::words::{Assign, Depart, Departure, Epoch};
use std::collections::HashSet;

const DONOR: usize = 0;
const TAKER: usize = 1;

fn epoch() -> impl Strategy<Value = Epoch> {
    (1..4u32, 1..3u32).prop_map(|(counter, nonce)| Epoch::new(counter, nonce))
}

fn words() -> impl Strategy<Value = [u64; NODES_MAX]> {
    let word = (0..3usize, epoch(), 0..3u32).prop_map(|(at, stamp, version)| {
        Assign { site: (at < 2).then(|| site(at)), stamp, version }.pack()
    });
    proptest::array::uniform4(prop_oneof![5 => word, 1 => Just(NOTHING)])
}

fn depart() -> impl Strategy<Value = u64> {
    let departure = (0..4usize, 0..3u8).prop_map(|(number, version_low)| Departure {
        node: node(number),
        taker: Some(site(TAKER)),
        version_low,
    });
    let word = (epoch(), 0..3u8, proptest::option::of(departure))
        .prop_map(|(epoch, sequence, pending)| Depart { epoch, sequence, pending }.pack());
    prop_oneof![6 => word, 1 => Just(0)]
}

fn seen(depart: u64, nodes: &[u64; NODES_MAX], hard: u16) -> Seen {
    let donor = SiteWords { depart, arrive: 0, floor: floor(hard) };
    let nodes = nodes.iter().map(|&raw| (raw != NOTHING).then_some(raw)).collect();
    Seen { sites: vec![donor, SiteWords::default()], nodes, counted: vec![true; NODES_MAX] }
}

/// Everything that can come of a look, over all choices of the node.
fn outcomes(seen: &Seen) -> HashSet<String> {
    let prepared = (0..NODES_MAX)
        .map(|number| prepare(seen, site(DONOR), Some(site(TAKER)), node(number)))
        .filter(|prepared| !matches!(prepared, Prepared::Refused(_)))
        .map(|prepared| format!("{prepared:?}"));
    let help = Help::plan(seen, site(DONOR), true).map(|help| format!("{help:?}"));
    prepared.chain(help).collect()
}

proptest! {
    #[test]
    fn what_is_forgotten_makes_no_difference(
        depart in depart(),
        nodes in words(),
        hard in 0..3u16,
    ) {
        let mut kept = nodes;
        normalise(&mut kept, site(DONOR), Some(depart));
        let (all, few) = (seen(depart, &nodes, hard), seen(depart, &kept, hard));
        prop_assert_eq!(all.bump_plan(site(DONOR)), few.bump_plan(site(DONOR)));
        if depart != 0 {
            prop_assert_eq!(outcomes(&all), outcomes(&few));
        }
        // A renewal is only ever planned where the descriptor is idle and no stamp is newer.
        let word = Depart::unpack(depart);
        let newer = all.newest(site(DONOR)).is_newer_than(word.epoch);
        if depart != 0 && word.pending.is_none() && !newer {
            prop_assert_eq!(Renew::plan(&all, site(DONOR)), Renew::plan(&few, site(DONOR)));
        }
    }
}
