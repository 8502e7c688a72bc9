//! Cases with several peers at the same words.

use std::sync::{Arc, Mutex};

use remote_memory::{Op, OpResult};

use crate::fixture::{Fixture, Step, add, peer_of, read, swap, write};

/// Peers in each race: more than the cores of a small machine, so that some are interrupted
/// between their operations.
const PEERS: u64 = 4;

/// What the peers of a race found, handed over at their ends: a lock in between would keep them
/// from meeting each other.
type Found = Arc<Mutex<Vec<u64>>>;

/// Checks that the values from 0 on were found once each.
fn check_each_once(found: &Found, count: u64) {
    let mut found = found.lock().unwrap();
    found.sort_unstable();
    let wrong = found.iter().zip(0..).find(|(value, expected)| *value != expected);
    assert_eq!(wrong, None, "a value was found twice, or never");
    assert_eq!(found.len() as u64, count);
}

pub(crate) fn additions_of_all_peers_add_up<F: Fixture>(fixture: &mut F) {
    let region = fixture.region(8);
    let key = region.key;
    let all = Found::default();
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let (all, mut mine) = (Arc::clone(&all), Vec::new());
        let step: Step = Box::new(move |brought| {
            if let Some(results) = brought {
                let Ok(OpResult::Added { found }) = results[0] else { panic!("{results:?}") };
                mine.push(found);
            }
            if mine.len() as u64 == F::ROUNDS {
                all.lock().unwrap().append(&mut mine);
                return None;
            }
            Some((key, vec![add(8, 1), add(16, u64::MAX)]))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    let total = PEERS * F::ROUNDS;
    assert_eq!(fixture.owner_read(key, 8), total);
    assert_eq!(fixture.owner_read(key, 16), total.wrapping_neg());
    check_each_once(&all, total);
}

/// Swaps in a batch of the next case.
const CHAIN: u64 = 64;

/// Each peer tries to take the word from each value to the next; only one can for each value. A
/// batch tries several values in a row, so that peers meet at most of them.
pub(crate) fn each_value_has_one_winner<F: Fixture>(fixture: &mut F) {
    let region = fixture.region(8);
    let key = region.key;
    let all = Found::default();
    let last = F::SWAPS;
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let (all, mut mine, mut next) = (Arc::clone(&all), Vec::new(), 0_u64);
        let step: Step = Box::new(move |brought| {
            for result in brought.unwrap_or_default() {
                let Ok(OpResult::Swapped { found }) = result else { panic!("{result:?}") };
                assert!(found >= next, "the word went back to {found}, behind {next}");
                if found == next {
                    mine.push(found);
                }
                next += 1;
            }
            if next >= last {
                all.lock().unwrap().append(&mut mine);
                return None;
            }
            Some((key, (next..last.min(next + CHAIN)).map(|v| swap(0, v, v + 1)).collect()))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    assert_eq!(fixture.owner_read(key, 0), last);
    check_each_once(&all, last);
}

/// Both halves of each word are equal, and each word belongs to one round; a torn word would mix
/// two. Words of one read may be of different rounds: that is allowed.
pub(crate) fn words_are_never_torn<F: Fixture>(fixture: &mut F) {
    let region = fixture.region(32);
    let key = region.key;
    let both_halves = |round: u64| round << 32 | round;
    let mut writes = 0;
    let writer: Step = Box::new(move |_| {
        writes += 1;
        let words = vec![both_halves(writes); 20];
        let op =
            if writes % 2 == 0 { Op::Write { offset_bytes: 0, words } } else { write(8, words[0]) };
        (writes <= F::ROUNDS * 4).then(|| (key, vec![op]))
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
            (reads <= F::ROUNDS).then_some((key, batch))
        });
        peers.push((peer_of(fixture, &region), step));
    }
    fixture.race(peers);
    assert_eq!(fixture.owner_read(key, 8), both_halves(F::ROUNDS * 4));
}
