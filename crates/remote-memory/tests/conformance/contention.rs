//! Cases with several peers at the same words.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use remote_memory::{Op, OpResult};

use crate::fixture::{Fixture, Step, add, peer_of, read, swap, write};

/// Peers in each race: more than the cores of a small machine, so that some are interrupted
/// between their operations.
const PEERS: u64 = 4;
/// Rounds of each peer; all of them take well below a second.
const ROUNDS: u64 = 2_000;

pub(crate) fn additions_of_all_peers_add_up(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let key = region.key;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let seen = Arc::clone(&seen);
        let mut rounds = 0;
        let step: Step = Box::new(move |brought| {
            if let Some(results) = brought {
                let Ok(OpResult::Added { found }) = results[0] else { panic!("{results:?}") };
                seen.lock().unwrap().push(found);
            }
            rounds += 1;
            (rounds <= ROUNDS).then(|| (key, vec![add(8, 1), add(16, u64::MAX)]))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    assert_eq!(fixture.owner_read(key, 8), PEERS * ROUNDS);
    assert_eq!(fixture.owner_read(key, 16), (PEERS * ROUNDS).wrapping_neg());
    // Each value was found exactly once.
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..PEERS * ROUNDS).collect::<Vec<_>>());
}

pub(crate) fn each_value_has_one_winner(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let key = region.key;
    let winners = Arc::new(Mutex::new(HashMap::new()));
    let mut peers = Vec::new();
    for peer in 0..PEERS {
        let winners = Arc::clone(&winners);
        let (mut current, mut won) = (0_u64, 0);
        let step: Step = Box::new(move |brought| {
            if let Some(results) = brought {
                let Ok(OpResult::Swapped { found }) = results[0] else { panic!("{results:?}") };
                if found == current {
                    let earlier = winners.lock().unwrap().insert(found, peer);
                    assert_eq!(earlier, None, "value {found} was won twice");
                    won += 1;
                    current += 1;
                } else {
                    assert!(found > current, "the word only grows");
                    current = found;
                }
            }
            (won < ROUNDS / 4).then(|| (key, vec![swap(0, current, current + 1)]))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    let total = PEERS * (ROUNDS / 4);
    assert_eq!(fixture.owner_read(key, 0), total);
    assert_eq!(winners.lock().unwrap().len() as u64, total);
}

/// Both halves of each word are equal, and each word belongs to one round; a torn word would mix
/// two. Words of one read may be of different rounds: that is allowed.
pub(crate) fn words_are_never_torn(fixture: &mut impl Fixture) {
    let region = fixture.region(32);
    let key = region.key;
    let both_halves = |round: u64| round << 32 | round;
    let mut writes = 0;
    let writer: Step = Box::new(move |_| {
        writes += 1;
        let words = vec![both_halves(writes); 20];
        let op =
            if writes % 2 == 0 { Op::Write { offset_bytes: 0, words } } else { write(8, words[0]) };
        (writes <= ROUNDS * 4).then(|| (key, vec![op]))
    });
    let mut peers = vec![(peer_of(fixture, &region), writer)];
    for _ in 1..PEERS {
        let (mut reads, mut newest) = (0, 0);
        let step: Step = Box::new(move |brought| {
            if let Some(results) = brought {
                for result in results {
                    let Ok(OpResult::Read(words)) = result else { panic!("{result:?}") };
                    for word in &words {
                        assert_eq!(word >> 32, word & 0xffff_ffff, "a torn word: {word:016x}");
                    }
                    if words.len() == 1 {
                        assert!(words[0] >= newest, "a word went back");
                        newest = words[0];
                    }
                }
            }
            reads += 1;
            let batch = vec![read(8), Op::Read { offset_bytes: 0, length_words: 20 }];
            (reads <= ROUNDS).then_some((key, batch))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    assert_eq!(fixture.owner_read(key, 8), both_halves(ROUNDS * 4));
}
