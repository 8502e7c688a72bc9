//! Which server of a site takes the next request.
//!
//! The fast path of every request: no allocation, no clock, one pass over a site's nodes (about
//! a nanosecond each). Randomness comes from the caller.

/// What the choice sees of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLoad {
    /// Requests in flight there, over all live edges.
    pub in_flight: u32,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
    /// Whether it may take a request at all (it is ready, not ejected, not draining).
    pub open: bool,
}

impl ServerLoad {
    /// Whether it may take one more request.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.open && self.in_flight < self.max_in_flight
    }

    /// Whether `self` is less loaded than `other`, relative to what each takes.
    fn is_lighter_than(&self, other: &Self) -> bool {
        u64::from(self.in_flight) * u64::from(other.max_in_flight)
            < u64::from(other.in_flight) * u64::from(self.max_in_flight)
    }
}

/// How a server is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// The server with the fewest requests in flight over all edges, relative to its limit; ties
    /// go round.
    #[default]
    LeastInFlight,
    /// One after the other, full ones left out.
    RoundRobin,
    /// The lighter of two drawn at random: no herd where the view is old (Mitzenmacher, 2001).
    TwoChoices,
}

impl Balance {
    /// The server for the next request, as an index into `servers`; none when all are full.
    ///
    /// `turn` counts requests (it breaks ties and drives round robin), `random` is a fresh draw.
    #[must_use]
    pub fn choose(self, servers: &[ServerLoad], turn: usize, random: u64) -> Option<usize> {
        if servers.is_empty() {
            return None;
        }
        match self {
            Self::LeastInFlight => least(servers, turn),
            Self::RoundRobin => next_with_room(servers, turn),
            Self::TwoChoices => two(servers, turn, random),
        }
    }
}

/// Indices from `turn` on, once round.
fn round(length: usize, turn: usize) -> impl Iterator<Item = usize> {
    let start = turn % length;
    (start..length).chain(0..start)
}

fn least(servers: &[ServerLoad], turn: usize) -> Option<usize> {
    let mut best: Option<usize> = None;
    for index in round(servers.len(), turn) {
        let server = &servers[index];
        if server.has_room() && best.is_none_or(|b| server.is_lighter_than(&servers[b])) {
            best = Some(index);
        }
    }
    best
}

fn next_with_room(servers: &[ServerLoad], turn: usize) -> Option<usize> {
    round(servers.len(), turn).find(|&index| servers[index].has_room())
}

fn two(servers: &[ServerLoad], turn: usize, random: u64) -> Option<usize> {
    let count = servers.len() as u64;
    let first = ((random & 0xffff_ffff) % count) as usize;
    let second = ((random >> 32) % count) as usize;
    match (servers[first].has_room(), servers[second].has_room()) {
        (true, true) if servers[second].is_lighter_than(&servers[first]) => Some(second),
        (true, _) => Some(first),
        (false, true) => Some(second),
        // Both are full: any server with room is better than a wait.
        (false, false) => next_with_room(servers, turn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Balance; 3] = [Balance::LeastInFlight, Balance::RoundRobin, Balance::TwoChoices];

    fn server(in_flight: u32, max_in_flight: u32) -> ServerLoad {
        ServerLoad { in_flight, max_in_flight, open: true }
    }

    #[test]
    fn nobody_is_chosen_from_nobody() {
        for balance in ALL {
            assert_eq!(balance.choose(&[], 3, 7), None);
        }
    }

    #[test]
    fn load_counts_relative_to_the_limit() {
        let servers = [server(4, 8), server(5, 16)];
        assert_eq!(Balance::LeastInFlight.choose(&servers, 0, 0), Some(1));
    }

    #[test]
    fn ties_go_round() {
        let servers = [server(1, 8); 3];
        let chosen: Vec<_> =
            (0..4).filter_map(|turn| Balance::LeastInFlight.choose(&servers, turn, 0)).collect();
        assert_eq!(chosen, [0, 1, 2, 0]);
    }

    #[test]
    fn round_robin_leaves_out_the_full_and_the_closed() {
        let closed = ServerLoad { open: false, ..server(0, 8) };
        let servers = [server(8, 8), closed, server(7, 8)];
        for turn in 0..6 {
            assert_eq!(Balance::RoundRobin.choose(&servers, turn, 0), Some(2));
        }
    }

    proptest! {
        #[test]
        fn a_choice_has_room_and_is_made_if_there_is_any(
            loads in proptest::collection::vec((0u32..10, 0u32..10, any::<bool>()), 0..12),
            turn: usize, random: u64,
        ) {
            let servers: Vec<_> = loads
                .iter()
                .map(|&(load, limit, open)| ServerLoad { open, ..server(load, limit) })
                .collect();
            let any = servers.iter().any(ServerLoad::has_room);
            for balance in ALL {
                let chosen = balance.choose(&servers, turn, random);
                prop_assert_eq!(chosen.is_some(), any);
                prop_assert!(chosen.is_none_or(|index| servers[index].has_room()));
            }
        }

        #[test]
        fn least_is_the_lightest(
            loads in proptest::collection::vec((0u32..10, 1u32..10), 1..12), turn: usize,
        ) {
            let servers: Vec<_> = loads.iter().map(|&(a, b)| server(a, b)).collect();
            if let Some(chosen) = Balance::LeastInFlight.choose(&servers, turn, 0) {
                let ratio = |s: &ServerLoad| f64::from(s.in_flight) / f64::from(s.max_in_flight);
                let with_room = servers.iter().filter(|s| s.has_room());
                let least = with_room.map(ratio).fold(f64::MAX, f64::min);
                prop_assert!((ratio(&servers[chosen]) - least).abs() < 1e-9);
            }
        }
    }
}
