//! Additions from afar wake who sleeps on the word.

use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_memory::{Mapped, Op, Remote, WaitEnd, Wake};

use crate::support::{Owner, PATIENCE, securities};

#[test]
fn an_addition_wakes_who_sleeps_on_its_word() {
    for security in securities() {
        let owner = Owner::new(security);
        let mut peer = owner.peer();
        assert!(peer.capabilities().adds_wake);
        let region = Arc::clone(&owner.region);
        let sleeper = std::thread::spawn(move || region.wait(5, 0, PATIENCE).unwrap());
        // An addition that comes before the sleep is seen by it, one that comes later ends it.
        std::thread::sleep(Duration::from_millis(20));
        let started = Instant::now();
        let add = Op::FetchAndAdd { offset_bytes: 40, addend: 1 };
        peer.submit(owner.key(), vec![add], PATIENCE).unwrap();
        while peer.poll(&mut Vec::new()) == 0 {
            peer.wait(PATIENCE);
        }
        assert!(matches!(sleeper.join().unwrap(), WaitEnd::Woken | WaitEnd::Changed));
        assert!(started.elapsed() < PATIENCE / 2);
        assert_eq!(owner.region.read(40), Ok(1));
    }
}
