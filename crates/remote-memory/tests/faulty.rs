//! The faulty transport: what goes wrong, when it lands, and that a seed repeats it.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

use std::time::Duration;

use remote_memory::faulty::{
    Access, Faults, Network, OwnerError, QueuePair, RegionSettings, Statistics, capabilities,
};
use remote_memory::{
    AtomicPath, Atomics, Completion, ConnectionState, Op, OpError, OpResult, OpenError,
    RegionDescriptor, Remote, SubmitError,
};

const DEADLINE: Duration = Duration::from_micros(100);

fn add(offset_bytes: u64, addend: u64) -> Op {
    Op::FetchAndAdd { offset_bytes, addend }
}

fn swap(expected: u64, new: u64) -> Op {
    Op::CompareAndSwap { offset_bytes: 0, expected, new }
}

fn write(offset_bytes: u64, word: u64) -> Op {
    Op::Write { offset_bytes, words: vec![word] }
}

fn one_region(network: &Network) -> RegionDescriptor {
    network.add_region(&RegionSettings::new("owner", 1024)).unwrap()
}

fn peer_of(network: &Network, region: &RegionDescriptor) -> QueuePair {
    let mut peer = network.connect(capabilities(Atomics::AgreeWithOwner));
    peer.open(region).unwrap();
    peer
}

/// Lets time pass until a completion is there.
fn wait(network: &Network, peer: &mut QueuePair) -> Vec<Result<OpResult, OpError>> {
    let mut done = Vec::new();
    while peer.poll(&mut done) == 0 {
        assert!(network.run_next(), "nothing is under way");
    }
    assert_eq!(done.len(), 1);
    done.remove(0).results
}

fn reconnect(network: &Network, peer: &mut QueuePair) {
    while peer.connection() != ConnectionState::Up {
        peer.reconnect();
        assert!(network.run_next(), "connecting takes time and ends");
    }
}

#[test]
fn a_late_request_times_out_and_lands_later() {
    let late = Duration::from_millis(50);
    let faults = Faults { late_per_mille: 1000, late_max: late, ..Faults::none() };
    let network = Network::new(1, faults);
    let region = one_region(&network);
    let mut peer = peer_of(&network, &region);
    peer.submit(region.key, vec![swap(0, 1), add(8, 1)], DEADLINE).unwrap();
    let results = wait(&network, &mut peer);
    assert_eq!(results, [Err(OpError::TimedOut), Err(OpError::Flushed)]);
    assert!(results.iter().all(|result| result.as_ref().unwrap_err().may_have_landed()));
    assert_eq!(network.now(), DEADLINE, "a completion comes by its deadline");
    assert_eq!(peer.connection(), ConnectionState::Broken);
    assert_eq!(network.owner(region.key).read(0), Ok(0), "it has not landed yet");

    // The word changes hands in the meantime: the zombie misses, the addition does not.
    network.owner(region.key).write(0, 7).unwrap();
    network.settle();
    assert_eq!(network.owner(region.key).read(0), Ok(7));
    assert_eq!(network.owner(region.key).read(8), Ok(1));
    assert_eq!(network.statistics().landed_late, 2);
    assert_eq!(peer.poll(&mut Vec::new()), 0, "nobody is told twice");
}

#[test]
fn a_lost_answer_times_out_though_it_landed() {
    let faults = Faults { lost_reply_per_mille: 1000, ..Faults::none() };
    let network = Network::new(2, faults);
    let region = one_region(&network);
    let mut peer = peer_of(&network, &region);
    peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
    assert_eq!(wait(&network, &mut peer), [Err(OpError::TimedOut)]);
    assert_eq!(network.owner(region.key).read(0), Ok(1));
    let statistics = network.statistics();
    assert_eq!((statistics.landed, statistics.landed_late, statistics.replies_lost), (1, 0, 1));
}

#[test]
fn a_lost_request_never_lands() {
    let faults = Faults { lost_request_per_mille: 1000, timeout_breaks: false, ..Faults::none() };
    let network = Network::new(3, faults);
    let region = one_region(&network);
    let mut peer = peer_of(&network, &region);
    peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
    assert_eq!(wait(&network, &mut peer), [Err(OpError::TimedOut)]);
    assert_eq!(peer.connection(), ConnectionState::Up, "told not to break on time-outs");
    network.settle();
    assert_eq!(network.owner(region.key).read(0), Ok(0));
}

#[test]
fn a_refused_operation_flushes_the_rest_and_breaks_the_connection() {
    let network = Network::new(4, Faults::none());
    let settings = RegionSettings { access: Access::ReadOnly, ..RegionSettings::new("ro", 64) };
    let read_only = network.add_region(&settings).unwrap();
    let region = one_region(&network);
    let mut peer = peer_of(&network, &region);
    peer.open(&read_only).unwrap();
    let read = Op::Read { offset_bytes: 0, length_words: 1 };
    let batch = vec![read.clone(), write(0, 1), read];
    peer.submit(read_only.key, batch, DEADLINE).unwrap();
    let expected = [
        Ok(OpResult::Read(vec![0])),
        Err(OpError::AccessDenied { op: "write" }),
        Err(OpError::Flushed),
    ];
    assert_eq!(wait(&network, &mut peer), expected);
    assert_eq!(peer.connection(), ConnectionState::Broken);
    let refused = peer.submit(region.key, vec![add(0, 1)], DEADLINE);
    assert_eq!(refused, Err(SubmitError::NotConnected { state: ConnectionState::Broken }));

    reconnect(&network, &mut peer);
    peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
    assert_eq!(wait(&network, &mut peer), [Ok(OpResult::Added { found: 0 })]);
    assert_eq!(network.owner(read_only.key).read(0), Ok(0));
}

#[test]
fn behind_a_refusal_the_owner_performs_nothing_more() {
    let mut landed = 0;
    for seed in 0..200 {
        let network = Network::new(seed, Faults::none());
        let region = one_region(&network);
        let forged = RegionDescriptor { length_bytes: 4096, ..region.clone() };
        let mut peer = network.connect(capabilities(Atomics::AgreeWithOwner));
        peer.open(&forged).unwrap();
        // The second may overtake the first, or be behind it at an owner that has hung up.
        peer.submit(region.key, vec![write(1024, 1)], DEADLINE).unwrap();
        peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
        network.settle();
        assert_eq!(peer.poll(&mut Vec::new()), 2);
        landed += network.owner(region.key).read(0).unwrap();
    }
    assert!((20..180).contains(&landed), "the second landed in {landed} of 200 runs");
}

#[test]
fn a_descriptor_that_lies_about_its_length_is_caught_by_the_owner() {
    let network = Network::new(5, Faults::none());
    let region = one_region(&network);
    let forged = RegionDescriptor { length_bytes: 4096, ..region.clone() };
    let mut peer = network.connect(capabilities(Atomics::AgreeWithOwner));
    peer.open(&forged).unwrap();
    peer.submit(region.key, vec![write(1024, 1)], DEADLINE).unwrap();
    let expected = OpError::OutOfBounds { offset_bytes: 1024, access_bytes: 8, region_bytes: 1024 };
    assert_eq!(wait(&network, &mut peer), [Err(expected)]);
    assert_eq!(peer.connection(), ConnectionState::Broken);
}

#[test]
fn an_owner_that_crashed_makes_its_key_stale() {
    let network = Network::new(6, Faults::none());
    let old = one_region(&network);
    let mut peer = peer_of(&network, &old);
    // It crashes while a batch is on its way.
    peer.submit(old.key, vec![swap(0, 1), swap(1, 2)], DEADLINE).unwrap();
    network.crash_owner(old.key);
    let new = one_region(&network);
    assert_ne!((old.key, old.incarnation), (new.key, new.incarnation));
    assert_eq!(wait(&network, &mut peer), [Err(OpError::StaleKey), Err(OpError::Flushed)]);
    assert_eq!(network.owner(new.key).read(0), Ok(0));
    assert_eq!(network.owner(old.key).read(0), Err(OwnerError::Gone));
}

#[test]
fn without_atomics_they_are_refused_before_anything_is_sent() {
    let network = Network::new(7, Faults::none());
    let region = one_region(&network);
    let mut peer = network.connect(capabilities(Atomics::None));
    peer.open(&region).unwrap();
    for op in [swap(0, 1), add(0, 1)] {
        let refused = peer.submit(region.key, vec![write(8, 1), op], DEADLINE);
        let Err(SubmitError::BadOp { index: 1, error }) = refused else { panic!("{refused:?}") };
        assert_eq!(error, OpError::NotSupported { reason: "it has no atomics" });
    }
    assert!(!network.run_next(), "nothing was sent");
    peer.submit(region.key, vec![write(8, 1)], DEADLINE).unwrap();
    assert_eq!(wait(&network, &mut peer), [Ok(OpResult::Written)]);
}

#[test]
fn atomics_of_an_adapter_and_of_a_processor_do_not_mix() {
    let network = Network::new(8, Faults::none());
    let settings = RegionSettings {
        atomic_path: AtomicPath::Adapter(0xad),
        ..RegionSettings::new("adapter", 64)
    };
    let region = network.add_region(&settings).unwrap();
    // The owner's processor may load, and store its own words, but no more.
    let owner = network.owner(region.key);
    owner.write(8, 1).unwrap();
    assert_eq!(owner.read(8), Ok(1));
    assert_eq!(owner.compare_and_swap(0, 0, 1), Err(OwnerError::OtherAtomicPath));
    assert_eq!(owner.fetch_and_add(0, 1), Err(OwnerError::OtherAtomicPath));
    for other in [Atomics::AgreeWithOwner, Atomics::None, Atomics::Adapter(0xae)] {
        let opened = network.connect(capabilities(other)).open(&region);
        let region = region.atomic_path;
        assert_eq!(opened, Err(OpenError::OtherAtomicPath { region, transport: other }));
    }
    // A forged path comes as far as the owner.
    let forged = RegionDescriptor { atomic_path: AtomicPath::Cpu, ..region.clone() };
    let mut peer = peer_of(&network, &forged);
    peer.submit(region.key, vec![swap(0, 1)], DEADLINE).unwrap();
    let denied = OpError::AccessDenied { op: "compare-and-swap" };
    assert_eq!(wait(&network, &mut peer), [Err(denied)]);
    // The right adapter does it.
    let mut peer = network.connect(capabilities(Atomics::Adapter(0xad)));
    peer.open(&region).unwrap();
    peer.submit(region.key, vec![swap(0, 1)], DEADLINE).unwrap();
    assert_eq!(wait(&network, &mut peer), [Ok(OpResult::Swapped { found: 0 })]);
}

#[test]
fn batches_overtake_each_other_and_operations_of_one_do_not() {
    let network = Network::new(9, Faults::none());
    let region = one_region(&network);
    let mut peer = peer_of(&network, &region);
    let mut overtaken = 0;
    for _ in 0..200 {
        network.owner(region.key).write(0, 0).unwrap();
        // Whoever comes last leaves its mark; inside a batch that is always the second.
        peer.submit(region.key, vec![write(0, 10), write(0, 11)], DEADLINE).unwrap();
        peer.submit(region.key, vec![write(0, 20), write(0, 21)], DEADLINE).unwrap();
        network.settle();
        assert_eq!(peer.poll(&mut Vec::new()), 2);
        match network.owner(region.key).read(0).unwrap() {
            11 => overtaken += 1,
            21 => {}
            other => panic!("{other} was written before its batch ended"),
        }
    }
    assert!((20..180).contains(&overtaken), "{overtaken} of 200 pairs changed their order");
}

#[test]
fn a_long_read_mixes_old_and_new_lines() {
    let network = Network::new(10, Faults::none());
    let region = one_region(&network);
    let (mut reader, mut writer) = (peer_of(&network, &region), peer_of(&network, &region));
    let mut mixed = 0;
    for round in 1..=200 {
        let write = Op::Write { offset_bytes: 0, words: vec![round; 128] };
        let read = Op::Read { offset_bytes: 0, length_words: 128 };
        writer.submit(region.key, vec![write], DEADLINE).unwrap();
        reader.submit(region.key, vec![read], DEADLINE).unwrap();
        network.settle();
        writer.poll(&mut Vec::new());
        let Ok(OpResult::Read(words)) = &wait(&network, &mut reader)[0] else { panic!() };
        assert!(words.iter().all(|word| *word == round || *word == round - 1));
        assert!(words.chunks(8).all(|line| line.iter().all(|word| *word == line[0])));
        mixed += u32::from(words.iter().any(|word| *word != words[0]));
    }
    assert!(mixed > 20, "{mixed} of 200 reads were mixed");
}

#[test]
fn a_broken_connection_ends_everything_under_way_and_comes_back() {
    let faults =
        Faults { break_per_mille: 1000, reconnect_failure_per_mille: 500, ..Faults::none() };
    let (mut late, mut dropped) = (0, 0);
    for seed in 0..100 {
        let network = Network::new(seed, faults.clone());
        let region = one_region(&network);
        let mut peer = peer_of(&network, &region);
        peer.submit(region.key, vec![add(0, 1), add(0, 1)], DEADLINE).unwrap();
        peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
        let mut done: Vec<Completion> = Vec::new();
        network.settle();
        peer.poll(&mut done);
        assert_eq!(done.len(), 2, "each batch ends, seed {seed}");
        let errors: Vec<_> =
            done.iter().flat_map(|one| &one.results).filter_map(|r| r.clone().err()).collect();
        assert!(errors.iter().all(OpError::may_have_landed), "{errors:?}");
        assert!(!errors.contains(&OpError::TimedOut), "it broke well before the deadline");
        late += network.statistics().landed_late;
        let value = network.owner(region.key).read(0).unwrap();
        assert!(value + errors.len() as u64 >= 3, "what was answered has landed");
        dropped += 3 - value;
        network.set_faults(Faults { reconnect_failure_per_mille: 500, ..Faults::none() });
        reconnect(&network, &mut peer);
        peer.submit(region.key, vec![add(0, 1)], DEADLINE).unwrap();
        assert_eq!(wait(&network, &mut peer), [Ok(OpResult::Added { found: value })]);
    }
    assert!(late > 10 && dropped > 10, "{late} landed after the break, {dropped} never did");
}

/// A counter kept by compare-and-swap under every fault: each peer counts what it knows to have
/// done and what it does not know. The owner's count lies between.
fn count_under_faults(seed: u64) -> (u64, Statistics) {
    let network = Network::new(seed, Faults::many());
    let region = one_region(&network);
    let mut peers: Vec<_> = (0..3).map(|_| (peer_of(&network, &region), 0_u64)).collect();
    let (mut done, mut unknown) = (0, 0);
    for _ in 0..300 {
        for (peer, guess) in &mut peers {
            reconnect(&network, peer);
            peer.submit(region.key, vec![swap(*guess, *guess + 1)], DEADLINE).unwrap();
            match wait(&network, peer).remove(0) {
                Ok(OpResult::Swapped { found }) => {
                    done += u64::from(found == *guess);
                    *guess = found + u64::from(found == *guess);
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) if error.may_have_landed() => unknown += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    network.settle();
    let counted = network.owner(region.key).read(0).unwrap();
    assert!(done <= counted, "seed {seed}: {done} done, {counted} counted");
    assert!(counted <= done + unknown, "seed {seed}: {counted} > {done} + {unknown}");
    (network.fingerprint(), network.statistics())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut total = Statistics::default();
    let mut fingerprints = Vec::new();
    for seed in 0..20 {
        let first = count_under_faults(seed);
        assert_eq!(first, count_under_faults(seed), "seed {seed} did not repeat");
        assert!(!fingerprints.contains(&first.0), "two seeds gave one run");
        fingerprints.push(first.0);
        total.landed_late += first.1.landed_late;
        total.replies_lost += first.1.replies_lost;
        total.requests_lost += first.1.requests_lost;
        total.reconnects += first.1.reconnects;
    }
    // Every kind of fault took part.
    assert!(total.landed_late > 50 && total.replies_lost > 50, "{total:?}");
    assert!(total.requests_lost > 50 && total.reconnects > 50, "{total:?}");
}

#[test]
fn reads_beyond_the_limit_wait_for_earlier_ones() {
    let time_of = |fetches_max| {
        let network = Network::new(11, Faults::none());
        let region = one_region(&network);
        let mut limits = capabilities(Atomics::AgreeWithOwner);
        limits.outstanding_fetches_max = fetches_max;
        let mut peer = network.connect(limits);
        peer.open(&region).unwrap();
        peer.submit(region.key, vec![add(0, 1); 64], Duration::from_secs(1)).unwrap();
        assert!(wait(&network, &mut peer).iter().all(Result::is_ok));
        network.now()
    };
    let (wide, narrow) = (time_of(64), time_of(1));
    assert!(narrow > 3 * wide, "{narrow:?} one at a time, {wide:?} all at once");
}
