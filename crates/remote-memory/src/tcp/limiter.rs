//! Failed handshakes of one address are counted, and after some it is not listened to for a while.
//!
//! A failed handshake costs the owner some microseconds of its fast thread. Guessing a key of
//! 256 bits is hopeless anyway; the limit keeps a stranger, or a peer with an old key that tries
//! again and again, from taking that time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long failures are counted together, and an address is shut out at most.
const WINDOW: Duration = Duration::from_secs(1);
/// Failures of one address within the window before it is shut out: some peers of one machine
/// may try at once after a change of keys.
const FAILURES_MAX: u32 = 16;
/// Addresses that are remembered. More come only from an attack, in which forgetting the oldest
/// is as good as any.
const ADDRESSES_MAX: usize = 256;

/// Counts failures. Time is an argument.
#[derive(Default)]
pub(super) struct Limiter {
    failures: BTreeMap<IpAddr, (Instant, u32)>,
}

impl Limiter {
    /// Notes a failed handshake.
    pub(super) fn failed(&mut self, address: IpAddr, now: Instant) {
        self.failures.retain(|_, (since, _)| now.saturating_duration_since(*since) < WINDOW);
        if self.failures.len() >= ADDRESSES_MAX && !self.failures.contains_key(&address) {
            let oldest = self.failures.iter().min_by_key(|(_, (since, _))| *since);
            let oldest = oldest.map(|(address, _)| *address);
            oldest.and_then(|oldest| self.failures.remove(&oldest));
        }
        self.failures.entry(address).or_insert((now, 0)).1 += 1;
    }

    /// Whether to listen to an address.
    pub(super) fn admits(&self, address: IpAddr, now: Instant) -> bool {
        self.failures.get(&address).is_none_or(|(since, count)| {
            *count < FAILURES_MAX || now.saturating_duration_since(*since) >= WINDOW
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_that_fails_is_shut_out_for_a_while_and_others_are_not() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert!(limiter.admits(address(1), start));
            limiter.failed(address(1), start);
        }
        assert!(!limiter.admits(address(1), start));
        assert!(!limiter.admits(address(1), start + WINDOW / 2));
        assert!(limiter.admits(address(2), start));
        assert!(limiter.admits(address(1), start + WINDOW));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_is_forgotten() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        for number in 0..10_000 {
            limiter.failed(address(number), start + Duration::from_nanos(number.into()));
            assert!(limiter.failures.len() <= ADDRESSES_MAX);
        }
        assert!(limiter.failures.contains_key(&address(9_999)));
        assert!(!limiter.failures.contains_key(&address(0)));
    }
}
