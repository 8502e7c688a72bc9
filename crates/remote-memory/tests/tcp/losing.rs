//! Lost connections, owners that start again, and what is known of operations afterwards.

use std::time::Duration;

use remote_memory::tcp::ConnectError;
use remote_memory::{ConnectionState, Mapped, Op, OpError, OpResult, Remote};

use crate::proxy::{Proxy, Ways};
use crate::support::{Owner, PATIENCE, add, all, call, eventually, next, read, securities, swap};

#[test]
fn an_owner_that_starts_again_has_a_new_region_and_the_old_key_is_stale() {
    for security in securities() {
        let old = Owner::new(security.clone());
        let (address, old_key) = (old.responder.address(), old.key());
        let mut peer = old.peer();
        call(&mut peer, old_key, vec![add(0, 5)])[0].as_ref().unwrap();
        drop(old);
        peer.submit(old_key, vec![swap(0, 5, 6)], PATIENCE).unwrap();
        let [Err(lost)] = &next(&mut peer).results[..] else { panic!("the owner was gone") };
        assert!(matches!(lost, OpError::Disconnected | OpError::NotSent), "{lost}");
        // Nobody is there yet: the error says so, and trying again is allowed.
        peer.reconnect();
        assert!(peer.finish_connecting().is_err());

        let new = Owner::at(address, security);
        peer.reconnect();
        peer.finish_connecting().unwrap();
        assert_eq!(peer.served(), [new.region.descriptor().clone()]);
        assert_ne!(peer.served()[0].incarnation.0, 0);
        let results = call(&mut peer, old_key, vec![swap(0, 0, 6), read(0)]);
        assert_eq!(results, [Err(OpError::StaleKey), Err(OpError::Flushed)]);
        assert_eq!(new.word(0), 0, "a late operation reached the new region");
        assert!(matches!(peer.why_broken(), Some(ConnectError::OperationRefused { .. })));

        peer.close(old_key);
        peer.reconnect();
        peer.finish_connecting().unwrap();
        peer.open(new.region.descriptor()).unwrap();
        call(&mut peer, new.key(), vec![swap(0, 0, 6)])[0].as_ref().unwrap();
        assert_eq!(new.word(0), 6);
    }
}

/// Batches are under way when the connection is cut, again and again: what was answered took
/// effect, what is doubtful took effect at most once and in order, what was not sent did not.
#[test]
fn a_cut_in_the_middle_leaves_doubt_only_where_it_says() {
    for security in securities() {
        let owner = Owner::new(security);
        let proxy = Proxy::to(owner.responder.address());
        let mut peer = owner.peer_by(proxy.address);
        let (mut sure, mut doubtful, mut unsent) = (0_u64, 0_u64, 0_u64);
        for round in 0..20_u64 {
            proxy.set(Ways { late_max: Duration::from_micros(300), ..Ways::default() });
            for _ in 0..50 {
                peer.submit(owner.key(), vec![add(8, 1); 8], PATIENCE).unwrap();
                peer.poll(&mut Vec::new());
            }
            let mut done = Vec::new();
            std::thread::sleep(Duration::from_micros(round * 100));
            peer.poll(&mut done);
            proxy.cut();
            peer.submit(owner.key(), vec![add(8, 1); 8], PATIENCE)
                .unwrap_or_else(|_| panic!("the cut is only seen by a poll"));
            eventually("all completions are there", || {
                peer.poll(&mut done);
                peer.connection() == ConnectionState::Broken
            });
            peer.poll(&mut done);
            for result in done.iter().flat_map(|completion| &completion.results) {
                match result {
                    Ok(_) => sure += 1,
                    Err(OpError::NotSent) => unsent += 1,
                    Err(error) => {
                        assert!(error.may_have_landed(), "{error}");
                        doubtful += 1;
                    }
                }
            }
            peer.reconnect();
            peer.finish_connecting().unwrap();
        }
        // Completions that the polls between the batches brought were dropped: they were sure.
        let total = 20 * 51 * 8;
        let dropped = total - sure - doubtful - unsent;
        let landed = owner.word(8);
        assert!(landed >= sure + dropped, "{landed} landed, {} were sure", sure + dropped);
        assert!(landed <= total - unsent, "{landed} landed, {} were sent", total - unsent);
        assert!(doubtful > 0, "no cut fell into a batch");
    }
}

#[test]
fn what_was_never_sent_says_so() {
    for security in securities() {
        let owner = Owner::new(security);
        let proxy = Proxy::to(owner.responder.address());
        let mut peer = owner.peer_by(proxy.address);
        proxy.set(Ways { hold: true, ..Ways::default() });
        // More than all buffers on the way hold: the rest waits in the peer.
        let words = vec![1; 64];
        let batch = vec![Op::Write { offset_bytes: 0, words }; 128];
        for _ in 0..32 {
            peer.submit(owner.key(), batch.clone(), Duration::from_millis(200)).unwrap();
            assert_eq!(peer.poll(&mut Vec::new()), 0);
        }
        let done = all(&mut peer, 32);
        let firsts: Vec<_> = done.iter().map(|completion| completion.results[0].clone()).collect();
        assert_eq!(firsts[0], Err(OpError::TimedOut));
        let known = [Err(OpError::TimedOut), Err(OpError::NotSent)];
        assert!(firsts.iter().all(|first| known.contains(first)), "{firsts:?}");
        for completion in &done {
            let sent = completion.results[0] != Err(OpError::NotSent);
            let rest = if sent { OpError::Flushed } else { OpError::NotSent };
            assert!(completion.results[1..].iter().all(|result| *result == Err(rest.clone())));
        }
        proxy.cut();
    }
}

/// A stopped owner: deadlines tell it, and once it goes on, late answers are dropped and later
/// batches get their own.
#[test]
fn late_answers_go_to_nobody_else() {
    for security in securities() {
        let owner = Owner::new(security);
        let proxy = Proxy::to(owner.responder.address());
        let mut peer = owner.peer_by(proxy.address);
        proxy.set(Ways { hold_answers: true, ..Ways::default() });
        for value in 0..10 {
            let batch = vec![add(16, 1), read(24), swap(24, value, value + 1)];
            peer.submit(owner.key(), batch, Duration::from_millis(30)).unwrap();
        }
        for completion in all(&mut peer, 10) {
            let late = [Err(OpError::TimedOut), Err(OpError::Flushed), Err(OpError::Flushed)];
            assert_eq!(completion.results, late);
        }
        assert_eq!(peer.connection(), ConnectionState::Up, "a deadline breaks nothing");
        eventually("all landed", || owner.word(16) == 10 && owner.word(24) == 10);
        proxy.set(Ways::default());
        let results = call(&mut peer, owner.key(), vec![add(16, 1), swap(24, 5, 6)]);
        assert_eq!(results[0], Ok(OpResult::Added { found: 10 }));
        assert_eq!(results[1], Ok(OpResult::Swapped { found: 10 }));
        assert_eq!(peer.poll(&mut Vec::new()), 0, "a late answer made a completion");
    }
}
