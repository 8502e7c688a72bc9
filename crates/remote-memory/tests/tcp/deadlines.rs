//! Deadlines, late operations, and sleeping until something comes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use remote_memory::tcp::ConnectError;
use remote_memory::{ConnectionState, OpError, OpResult, Remote};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use crate::proxy::{Proxy, Ways};
use crate::support::{Owner, PATIENCE, add, all, call, eventually, next, read, securities, swap};

/// What a move does when its compare-and-swap times out: it looks at the word, and knows by the
/// full value whether its own landed. Frames are up to 100 ms late, deadlines are 20 ms.
#[test]
fn a_late_swap_lands_and_is_told_from_others_by_its_word() {
    let owner = Owner::new(securities()[0].clone());
    let proxy = Proxy::to(owner.responder.address());
    let mut late = owner.peer_by(proxy.address);
    let mut sure = owner.peer();
    proxy.set(Ways { late_max: Duration::from_millis(100), ..Ways::default() });
    let deadline = Duration::from_millis(20);
    let (mut word, mut landed_late, mut missed) = (0_u64, 0, 0);
    for round in 1..=30_u64 {
        let mine = round << 32 | 1;
        late.submit(owner.key(), vec![swap(0, word, mine)], deadline).unwrap();
        match next(&mut late).results.remove(0) {
            Ok(OpResult::Swapped { found }) => {
                assert_eq!(found, word);
                word = mine;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(error.may_have_landed(), "{error}");
                // Someone else takes the word, at once or when the late one has probably landed, by
                // its full value as it was seen: exactly one of both gets it.
                if round % 2 == 0 {
                    std::thread::sleep(Duration::from_millis(150));
                }
                let other = round << 32 | 2;
                let result = call(&mut sure, owner.key(), vec![swap(0, word, other)]).remove(0);
                match result.unwrap() {
                    OpResult::Swapped { found } if found == word => {
                        missed += 1;
                        word = other;
                    }
                    OpResult::Swapped { found } => {
                        assert_eq!(found, mine, "somebody else's word");
                        landed_late += 1;
                        word = mine;
                    }
                    result => panic!("{result:?}"),
                }
            }
        }
        assert_eq!(owner.word(0), word);
    }
    // A round trip behind the last: nothing comes later than this, and nothing changed the word.
    proxy.set(Ways::default());
    call(&mut late, owner.key(), vec![read(0)])[0].as_ref().unwrap();
    assert_eq!(owner.word(0), word);
    println!("{landed_late} landed late, {missed} missed");
    assert!(missed > 0, "no late swap found the word changed");
    assert!(landed_late > 0, "no late swap landed");
}

/// As above, but nobody interferes: each late swap is seen to land.
#[test]
fn what_timed_out_may_land_later() {
    let owner = Owner::new(securities()[1].clone());
    let proxy = Proxy::to(owner.responder.address());
    let mut peer = owner.peer_by(proxy.address);
    proxy.set(Ways { hold: true, ..Ways::default() });
    peer.submit(owner.key(), vec![swap(0, 0, 7)], Duration::from_millis(20)).unwrap();
    assert_eq!(next(&mut peer).results, [Err(OpError::TimedOut)]);
    assert_eq!(owner.word(0), 0);
    proxy.set(Ways::default());
    eventually("it lands", || owner.word(0) == 7);
}

#[test]
fn an_owner_that_stays_silent_is_taken_for_gone() {
    let owner = Owner::new(securities()[0].clone());
    let proxy = Proxy::to(owner.responder.address());
    let mut peer = owner.peer_by(proxy.address);
    proxy.set(Ways { hold: true, ..Ways::default() });
    let start = Instant::now();
    // Each turn leaves operations behind; their number is bounded.
    while peer.connection() == ConnectionState::Up {
        assert!(start.elapsed() < PATIENCE, "nobody gave up");
        peer.submit(owner.key(), vec![add(0, 1); 256], Duration::from_millis(1)).unwrap();
        next(&mut peer);
    }
    let why = peer.why_broken().unwrap();
    assert!(matches!(why, ConnectError::Silent { operations, .. } if *operations > 4096), "{why}");
    // A new connection is as good as any.
    proxy.set(Ways::default());
    peer.reconnect();
    peer.finish_connecting().unwrap();
    assert!(call(&mut peer, owner.key(), vec![read(0)])[0].is_ok());
}

/// Sleeps on a descriptor as an event loop does, far longer than it takes.
fn sleep_on(descriptor: impl AsFd) {
    let seconds = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
    let ready = rustix::event::poll(&mut fds, Some(&seconds)).unwrap();
    assert_eq!(ready, 1, "the descriptor never got readable");
}

#[test]
fn a_sleeper_is_woken_by_answers_deadlines_and_ends() {
    for security in securities() {
        let owner = Owner::new(security);
        let proxy = Proxy::to(owner.responder.address());
        let mut peer = owner.peer_by(proxy.address);
        let sleep_for = |peer: &mut dyn Remote, deadline| {
            peer.submit(owner.key(), vec![read(0)], deadline).unwrap();
            let mut done = Vec::new();
            // Poll until empty, arm, poll again, sleep.
            while peer.poll(&mut done) == 0 {
                let descriptor = peer.arm().unwrap().try_clone_to_owned().unwrap();
                if peer.poll(&mut done) > 0 {
                    break;
                }
                sleep_on(descriptor);
            }
            done.remove(0).results.remove(0)
        };
        for _ in 0..50 {
            assert!(sleep_for(&mut peer, PATIENCE).is_ok());
        }
        proxy.set(Ways { hold: true, ..Ways::default() });
        for _ in 0..5 {
            let late = sleep_for(&mut peer, Duration::from_millis(10));
            assert_eq!(late, Err(OpError::TimedOut));
        }
        proxy.set(Ways::default());
        assert!(sleep_for(&mut peer, PATIENCE).is_ok());
        proxy.cut();
        assert_eq!(sleep_for(&mut peer, PATIENCE), Err(OpError::Disconnected));
    }
}

#[test]
fn a_wait_ends_in_time() {
    let owner = Owner::new(securities()[0].clone());
    let mut peer = owner.peer();
    for timeout in [Duration::ZERO, Duration::from_millis(5), Duration::from_millis(60)] {
        let start = Instant::now();
        peer.wait(timeout);
        assert!(start.elapsed() < PATIENCE / 2, "{timeout:?} took {:?}", start.elapsed());
    }
    // A completion that is there is not slept upon.
    peer.submit(owner.key(), vec![read(0)], Duration::ZERO).unwrap();
    all(&mut peer, 1);
}
