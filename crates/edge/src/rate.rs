//! How many requests a client and a site may make: the generic cell rate algorithm.
//!
//! ```text
//! every     = 1 s / per_s,  tolerance = every * (burst - 1)
//! take(now): due > now + tolerance           refuse; it may come back at due - tolerance
//!            due = max(due, now) + every     let it in
//! ```
//!
//! It is the token bucket with a full bucket of `burst` and `per_s` new tokens a second, in one
//! number instead of two (ITU-T I.371, the virtual scheduling form): `due` says when the bucket is
//! full again. Deviation: `every` is rounded down to nanoseconds, so that a client gets at most a
//! thousandth more than it was allowed.
//!
//! A limit holds at each edge for itself. Its threads share the buckets of clients, which lie in
//! sets of [`WAYS`], each with a lock of its own; a client's set is drawn by a keyed hash. A set
//! that is full forgets the bucket that is full again soonest: memory is bounded whoever asks, and
//! who sends from more addresses than the table holds is left to the limit of the site.
//!
//! Fast path: one lock that nobody contends for and one pass over 128 bytes, about 30 ns; nothing
//! for sites without limits.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Clients whose requests one edge counts for one site: 16 bytes each, so a mebibyte. A client
/// that has not asked for as long as its burst lasts needs none of them.
pub const CLIENTS_MAX: usize = 65_536;

/// Buckets in a set: two lines of a cache.
const WAYS: usize = 8;

/// The highest rate: beyond it a nanosecond's rounding would be more than a thousandth.
pub const PER_S_MAX: u32 = 1_000_000;

/// So many requests a second, and so many at once after a rest. Both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second, at most [`PER_S_MAX`].
    pub per_s: u32,
    /// Requests at once.
    pub burst: u32,
}

/// What one site allows at each edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateOptions {
    /// Each client: an IPv4 address, or the first 64 bits of an IPv6 address, of which one client
    /// has all.
    pub client: Option<Rate>,
    /// All clients together.
    pub site: Option<Rate>,
}

/// Who asked too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    Client,
    Site,
}

/// A request that came too early, and after which time another would not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooEarly {
    pub(crate) limited: Limited,
    wait_ns: u64,
}

impl TooEarly {
    /// For `Retry-After`: at least a second, the smallest that it can say.
    pub(crate) fn retry_after_s(self) -> u64 {
        self.wait_ns.div_ceil(1_000_000_000).max(1)
    }
}

/// The limits of one site and what was used of them.
#[derive(Debug)]
pub(crate) struct Limiter {
    epoch: Instant,
    clients: Option<Clients>,
    site: Option<(Gcra, AtomicU64)>,
}

impl Limiter {
    /// None where nothing is limited.
    pub(crate) fn new(options: &RateOptions) -> Option<Self> {
        if options.client.is_none() && options.site.is_none() {
            return None;
        }
        Some(Self {
            epoch: Instant::now(),
            clients: options.client.map(|rate| Clients::new(Gcra::new(rate), CLIENTS_MAX / WAYS)),
            site: options.site.map(|rate| (Gcra::new(rate), AtomicU64::new(0))),
        })
    }

    /// Whether a request of this client may go on. A client that is refused takes nothing of the
    /// site's share: nobody can use it up alone.
    pub(crate) fn take(&self, address: IpAddr, now: Instant) -> Result<(), TooEarly> {
        let now_ns = nanos(now.saturating_duration_since(self.epoch));
        if let Some(clients) = &self.clients {
            let limited = Limited::Client;
            let taken = clients.take(client_of(address), now_ns);
            taken.map_err(|Wait(wait_ns)| TooEarly { limited, wait_ns })?;
        }
        let Some((gcra, due)) = &self.site else { return Ok(()) };
        let limited = Limited::Site;
        // Each failed swap is another request's success.
        let mut seen = due.load(Ordering::Relaxed);
        loop {
            let next = gcra.take(seen, now_ns);
            let next = next.map_err(|Wait(wait_ns)| TooEarly { limited, wait_ns })?;
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match due.compare_exchange_weak(seen, next, order.0, order.1) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// A client as a number. IPv4 addresses stand where IPv6 has `0:ffff::/32`, from which nobody
/// sends.
fn client_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => 0xffff_u64 << 32 | u64::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// How long until a request would be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait(u64);

/// A rate, without what was used of it.
#[derive(Clone, Copy, Debug)]
struct Gcra {
    every_ns: u64,
    tolerance_ns: u64,
}

impl Gcra {
    fn new(rate: Rate) -> Self {
        let every_ns = 1_000_000_000 / u64::from(rate.per_s.clamp(1, PER_S_MAX));
        Self { every_ns, tolerance_ns: every_ns * u64::from(rate.burst.max(1) - 1) }
    }

    /// The next `due`, or how long to wait.
    fn take(self, due_ns: u64, now_ns: u64) -> Result<u64, Wait> {
        let limit_ns = now_ns + self.tolerance_ns;
        if due_ns > limit_ns {
            return Err(Wait(due_ns - limit_ns));
        }
        Ok(due_ns.max(now_ns) + self.every_ns)
    }
}

/// What one client has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    client: u64,
    due_ns: u64,
}

/// Some clients; one that never asked has a `due_ns` of zero.
type Set = [Bucket; WAYS];

/// The client's bucket; for a new one that of the client that is idle the longest, or will be.
fn bucket_of(set: &mut Set, client: u64) -> &mut Bucket {
    let known = set.iter().position(|bucket| bucket.client == client);
    let idlest = || (0..WAYS).min_by_key(|&place| set[place].due_ns);
    let place = known.or_else(idlest).unwrap_or(0);
    let bucket = &mut set[place];
    if bucket.client != client {
        *bucket = Bucket { client, due_ns: 0 };
    }
    bucket
}

#[derive(Debug)]
struct Clients {
    gcra: Gcra,
    hasher: RandomState,
    sets: Box<[Mutex<Set>]>,
}

impl Clients {
    fn new(gcra: Gcra, sets: usize) -> Self {
        let sets = std::iter::repeat_with(Mutex::default).take(sets).collect();
        Self { gcra, hasher: RandomState::new(), sets }
    }

    fn take(&self, client: u64, now_ns: u64) -> Result<(), Wait> {
        let place = self.hasher.hash_one(client) % self.sets.len() as u64;
        let mut set = self.sets[place as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = bucket_of(&mut set, client);
        bucket.due_ns = self.gcra.take(bucket.due_ns, now_ns)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const S: u64 = 1_000_000_000;

    fn rate(per_s: u32, burst: u32) -> Rate {
        Rate { per_s, burst }
    }

    /// The naive twin: a bucket of tokens, in billionths of one.
    struct Tokens {
        rate: Rate,
        billionths: u128,
        at_ns: u64,
    }

    impl Tokens {
        fn full(rate: Rate) -> Self {
            Self { rate, billionths: u128::from(rate.burst) * u128::from(S), at_ns: 0 }
        }

        fn take(&mut self, now_ns: u64) -> bool {
            let gained = u128::from(now_ns - self.at_ns) * u128::from(self.rate.per_s);
            let full = u128::from(self.rate.burst) * u128::from(S);
            self.billionths = (self.billionths + gained).min(full);
            self.at_ns = now_ns;
            let has = self.billionths >= u128::from(S);
            self.billionths -= if has { u128::from(S) } else { 0 };
            has
        }
    }

    proptest! {
        /// Rates that divide a second exactly, so that both compute without rounding.
        #[test]
        fn gcra_is_a_token_bucket(
            per_s in prop::sample::select(vec![1_u32, 2, 5, 10, 1_000, 1_000_000]),
            burst in 1_u32..50,
            pauses in proptest::collection::vec(0_u64..300_000_000, 1..200),
        ) {
            let gcra = Gcra::new(rate(per_s, burst));
            let mut twin = Tokens::full(rate(per_s, burst));
            let (mut due, mut now) = (0, S);
            for pause in pauses {
                now += pause / u64::from(per_s);
                let taken = gcra.take(due, now);
                prop_assert_eq!(taken.is_ok(), twin.take(now));
                if let Err(Wait(wait)) = taken {
                    prop_assert!(gcra.take(due, now + wait - 1).is_err());
                    prop_assert!(gcra.take(due, now + wait).is_ok());
                }
                due = taken.unwrap_or(due);
            }
        }

        /// As long as a set holds all of its clients, each has a bucket of its own.
        #[test]
        fn clients_do_not_disturb_each_other(
            steps in proptest::collection::vec((0_u64..WAYS as u64, 0_u64..S / 2), 1..200),
        ) {
            let clients = Clients::new(Gcra::new(rate(2, 3)), 1);
            let mut twins: HashMap<u64, Tokens> = HashMap::new();
            let mut now = 1;
            for (client, pause) in steps {
                now += pause;
                let twin = twins.entry(client).or_insert_with(|| Tokens::full(rate(2, 3)));
                prop_assert_eq!(clients.take(client, now).is_ok(), twin.take(now));
            }
        }

        /// Whoever asks, a set keeps the busiest: the one forgotten is never busier than another.
        #[test]
        fn the_idlest_is_forgotten(dues in proptest::array::uniform8(0_u64..1_000)) {
            let mut set: Set = std::array::from_fn(|place| Bucket {
                client: place as u64,
                due_ns: dues[place],
            });
            *bucket_of(&mut set, 99) = Bucket { client: 99, due_ns: 5_000 };
            let gone = (0..WAYS as u64).find(|&c| set.iter().all(|bucket| bucket.client != c));
            prop_assert_eq!(dues[gone.unwrap() as usize], *dues.iter().min().unwrap());
        }
    }

    #[test]
    fn a_client_is_an_address_or_a_network_of_64_bits() {
        let of = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::9"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_ne!(of("::1"), of("0.0.0.1"));
    }

    #[test]
    fn the_table_does_not_grow_and_who_asks_often_stays_in_it() {
        let clients = Clients::new(Gcra::new(rate(1, 2)), 4);
        let mut refused = 0;
        for stranger in 0..100_000 {
            // One who asks all the time among a hundred thousand who ask once.
            let now = S + stranger * 1_000;
            refused += u32::from(clients.take(1 << 60, now).is_err());
            let _ = clients.take(stranger, now);
        }
        assert!(refused > 99_000, "{refused}");
        assert_eq!((clients.sets.len(), size_of_val(&*clients.sets)), (4, 4 * 136));
    }

    #[test]
    fn a_client_that_is_refused_takes_nothing_of_the_site() {
        let options = RateOptions { client: Some(rate(1, 2)), site: Some(rate(1, 3)) };
        let limiter = Limiter::new(&options).unwrap();
        let now = limiter.epoch + Duration::from_secs(10);
        let take = |last: u8, now| limiter.take(IpAddr::from([192, 0, 2, last]), now);
        assert_eq!((take(1, now), take(1, now)), (Ok(()), Ok(())));
        for _ in 0..5 {
            let early = take(1, now).unwrap_err();
            assert_eq!((early.limited, early.retry_after_s()), (Limited::Client, 1));
        }
        assert_eq!(take(2, now), Ok(()));
        let early = take(3, now).unwrap_err();
        assert_eq!((early.limited, early.retry_after_s()), (Limited::Site, 1));
        assert_eq!(take(4, now + Duration::from_secs(1)), Ok(()));
        assert!(Limiter::new(&RateOptions::default()).is_none());
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let early = |wait_ns| TooEarly { limited: Limited::Site, wait_ns }.retry_after_s();
        assert_eq!((early(1), early(S), early(S + 1), early(60 * S)), (1, 1, 2, 60));
    }
}
