//! Which server a sticky request belongs to.
//!
//! ```text
//! Stick::Server(n)   n, while it serves the site
//! Stick::Key(k)      the server n with the highest score(k, n)
//! ```
//!
//! The highest random weight (Thaler and Ravishankar, 1998): each pair of a key and a server has
//! a score of its own, so that a server that comes takes only keys for which it scores highest,
//! and one that goes leaves only its own keys to others. One pass over a site's servers, about
//! two nanoseconds each; no table to build when a node moves, and all edges agree.

use super::slow_start;
use crate::face::Stick;
use policy::choose::ServerLoad;
use pool_model::NodeId;

/// A server of the site as the choice sees it: its node, its load, and the part of its share
/// that it takes.
pub(crate) struct Seat<'a> {
    pub(crate) node: NodeId,
    pub(crate) load: &'a ServerLoad,
    pub(crate) part: u32,
}

/// The server that the request belongs to, as an index into the seats; none if it is not open.
pub(crate) fn target<'a>(stick: Stick, seats: impl Iterator<Item = Seat<'a>>) -> Option<usize> {
    let open = seats.enumerate().filter(|(_, seat)| seat.load.open);
    match stick {
        Stick::Server(node) => open.into_iter().find(|(_, s)| s.node == node).map(|(i, _)| i),
        Stick::Key(key) => highest(key, open),
    }
}

/// The highest score; servers that start slowly have it for a part of the keys only, unless there
/// is no other.
fn highest<'a>(key: u64, open: impl Iterator<Item = (usize, Seat<'a>)>) -> Option<usize> {
    let (mut best, mut best_held) = (None, None);
    for (index, seat) in open {
        let score = score(key, seat.node);
        // Bits that decide little about the score: the keys of a part are drawn evenly.
        let held = slow_start::is_held(seat.part, score);
        let place = if held { &mut best_held } else { &mut best };
        if place.is_none_or(|(highest, _)| score > highest) {
            *place = Some((score, index));
        }
    }
    best.or(best_held).map(|(_, index)| index)
}

fn score(key: u64, node: NodeId) -> u64 {
    mix(key ^ mix(u64::from(node.get()) + 1))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): each bit of the input changes half of
/// the output's.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn of(stick: Stick, servers: &[(u16, bool, u32)]) -> Option<u16> {
        let loads: Vec<_> = servers
            .iter()
            .map(|&(_, open, _)| ServerLoad { in_flight: 9, max_in_flight: 8, open })
            .collect();
        let seats = servers.iter().zip(&loads);
        let seats = seats.map(|(&(n, _, part), load)| Seat { node: node(n), load, part });
        target(stick, seats).map(|index| servers[index].0)
    }

    fn open(numbers: &[u16]) -> Vec<(u16, bool, u32)> {
        numbers.iter().map(|&number| (number, true, slow_start::WHOLE)).collect()
    }

    #[test]
    fn a_server_is_found_while_it_is_open_even_when_it_is_full() {
        let mut servers = open(&[3, 5, 9]);
        assert_eq!(of(Stick::Server(node(5)), &servers), Some(5));
        assert_eq!(of(Stick::Server(node(4)), &servers), None);
        servers[1].1 = false;
        assert_eq!(of(Stick::Server(node(5)), &servers), None);
        servers[2].2 = 0;
        assert_eq!(of(Stick::Server(node(9)), &servers), Some(9), "a slow start keeps its own");
    }

    #[test]
    fn keys_spread_evenly() {
        let servers = open(&[0, 1, 2, 3, 4]);
        let mut counts = [0_u32; 5];
        for key in 0..10_000 {
            counts[usize::from(of(Stick::Key(key), &servers).unwrap())] += 1;
        }
        assert!(counts.iter().all(|&count| (1_800..2_200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn a_slow_start_takes_a_part_of_its_keys_and_all_where_it_is_alone() {
        let mut servers = open(&[0, 1]);
        servers[1].2 = slow_start::WHOLE / 4;
        let keys = || 0..10_000_u64;
        let taken = |servers: &[(u16, bool, u32)]| {
            keys().filter(|&key| of(Stick::Key(key), servers) == Some(1)).count()
        };
        assert!((1_100..1_400).contains(&taken(&servers)), "{}", taken(&servers));
        servers[0].1 = false;
        assert_eq!(taken(&servers), 10_000);
    }

    proptest! {
        /// A server that goes leaves only its own keys to others, one that comes takes them only
        /// for itself.
        #[test]
        fn a_move_disturbs_only_the_moved_servers_keys(
            servers in proptest::collection::btree_set(0_u16..16_000, 2..12),
            gone: usize, keys in proptest::collection::vec(any::<u64>(), 1..50),
        ) {
            let servers: Vec<u16> = servers.into_iter().collect();
            let gone = servers[gone % servers.len()];
            let mut left = servers.clone();
            left.retain(|&number| number != gone);
            for key in keys {
                let before = of(Stick::Key(key), &open(&servers));
                let after = of(Stick::Key(key), &open(&left));
                prop_assert!(after.is_some_and(|after| after != gone));
                prop_assert!(before == Some(gone) || before == after);
            }
        }

        /// Against the naive reading: sort all by score, take the first that is open.
        #[test]
        fn the_highest_open_score_wins(
            servers in proptest::collection::btree_map(0_u16..16_000, any::<bool>(), 0..12),
            key: u64,
        ) {
            let servers: Vec<_> =
                servers.into_iter().map(|(n, open)| (n, open, slow_start::WHOLE)).collect();
            let mut sorted = servers.clone();
            sorted.sort_by_key(|&(number, ..)| std::cmp::Reverse(score(key, node(number))));
            let naive = sorted.iter().find(|server| server.1).map(|server| server.0);
            prop_assert_eq!(of(Stick::Key(key), &servers), naive);
        }
    }
}
