//! Many batches under way, and several peers at the same words, also by shared memory.

use std::sync::Arc;

use remote_memory::{Mapped, Op, OpResult, Remote};

use crate::support::{Owner, PATIENCE, add, all, read, securities, swap};

#[test]
fn thousands_of_batches_follow_each_other_in_order() {
    for security in securities() {
        let owner = Owner::new(security);
        let mut peer = owner.peer();
        let (mut next, mut done) = (0_u64, Vec::new());
        let mut seen = 0;
        while seen < 20_000 {
            while next < 20_000 && next - seen < 1_000 {
                let batch = vec![add(8, 1), swap(16, next, next + 1), read(16)];
                peer.submit(owner.key(), batch, PATIENCE).unwrap();
                next += 1;
            }
            if peer.poll(&mut done) == 0 {
                peer.wait(PATIENCE);
            }
            for completion in done.drain(..) {
                assert_eq!(completion.ticket.0, seen);
                let expected = [
                    OpResult::Added { found: seen },
                    OpResult::Swapped { found: seen },
                    OpResult::Read(vec![seen + 1]),
                ];
                assert_eq!(completion.results, expected.map(Ok));
                seen += 1;
            }
        }
        assert_eq!(owner.word(8), 20_000);
    }
}

/// Two peers over TCP and one by shared memory add and swap: sums are exact, and each value of
/// the chain has one winner.
#[test]
fn peers_over_tcp_and_shared_memory_agree() {
    const ROUNDS: u64 = 3_000;
    for security in securities() {
        let owner = Owner::new(security);
        let won: Vec<u64> = std::thread::scope(|scope| {
            let remote: Vec<_> = (0..2)
                .map(|_| {
                    let mut peer = owner.peer();
                    let key = owner.key();
                    scope.spawn(move || {
                        let mut won = 0;
                        for value in 0..ROUNDS {
                            let batch = vec![add(0, 1), swap(8, value, value + 1)];
                            peer.submit(key, batch, PATIENCE).unwrap();
                            let results = all(&mut peer, 1).remove(0).results;
                            let Ok(OpResult::Swapped { found }) = results[1] else { panic!() };
                            assert!(found >= value, "the chain went back");
                            won += u64::from(found == value);
                        }
                        won
                    })
                })
                .collect();
            let region = Arc::clone(&owner.region);
            let local = scope.spawn(move || {
                let mut won = 0;
                for value in 0..ROUNDS {
                    region.fetch_and_add(0, 1).unwrap();
                    won += u64::from(region.compare_and_swap(8, value, value + 1) == Ok(value));
                    std::thread::yield_now();
                }
                won
            });
            remote.into_iter().chain([local]).map(|peer| peer.join().unwrap()).collect()
        });
        assert_eq!(owner.word(0), 3 * ROUNDS);
        assert_eq!(owner.word(8), ROUNDS);
        assert_eq!(won.iter().sum::<u64>(), ROUNDS, "{won:?}");
    }
}

/// The longest batch of the longest operations takes many records each way.
#[test]
fn the_longest_batch_goes_through() {
    for security in securities() {
        let owner = Owner::new(security);
        let mut peer = owner.peer();
        let table = remote_memory::shm::OwnedRegion::create("table", 1 << 20).unwrap();
        let table = Arc::new(table);
        let shared = Arc::clone(&table) as Arc<dyn Mapped>;
        owner.responder.serve(shared, remote_memory::Access::ReadWrite).unwrap();
        peer.open(table.descriptor()).unwrap();
        let limits = peer.capabilities().clone();
        let words: Vec<u64> = (0..limits.op_words_max as u64).collect();
        let places = (1 << 20) / (words.len() as u64 * 8);
        let batch = (0..limits.batch_ops_max as u64).map(|index| {
            let offset_bytes = index / 2 % places * words.len() as u64 * 8;
            match index % 2 {
                0 => Op::Write { offset_bytes, words: words.clone() },
                _ => Op::Read { offset_bytes, length_words: words.len() },
            }
        });
        let ticket = peer.submit(table.descriptor().key, batch.collect(), PATIENCE).unwrap();
        let completion = all(&mut peer, 1).remove(0);
        assert_eq!(completion.ticket, ticket);
        assert_eq!(completion.results.len(), limits.batch_ops_max);
        for (index, result) in completion.results.into_iter().enumerate() {
            match index % 2 {
                0 => assert_eq!(result, Ok(OpResult::Written)),
                _ => assert!(result == Ok(OpResult::Read(words.clone())), "operation {index}"),
            }
        }
    }
}
