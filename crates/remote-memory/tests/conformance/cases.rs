//! Cases with one peer at a time.

use remote_memory::{
    AtomicPath, Incarnation, Op, OpError, OpResult, OpenError, RegionDescriptor, RemoteKey,
    SubmitError,
};

use crate::fixture::{DEADLINE, Fixture, add, call, call_one, peer_of, read, swap, write};

pub(crate) fn reads_what_was_written(fixture: &mut impl Fixture) {
    let region = fixture.region(64);
    let mut peer = peer_of(fixture, &region);
    let peer = &mut *peer;
    assert_eq!(call_one(fixture, peer, region.key, read(0)), OpResult::Read(vec![0]));

    // Over several cache lines, not starting at one.
    let words: Vec<u64> = (1..=20).map(|value| value * 0x0101_0101_0101).collect();
    let op = Op::Write { offset_bytes: 40, words: words.clone() };
    assert_eq!(call_one(fixture, peer, region.key, op), OpResult::Written);
    let op = Op::Read { offset_bytes: 40, length_words: 20 };
    assert_eq!(call_one(fixture, peer, region.key, op), OpResult::Read(words));
    // The neighbours are untouched, and the owner sees the same.
    assert_eq!(fixture.owner_read(region.key, 32), 0);
    assert_eq!(fixture.owner_read(region.key, 40), 0x0101_0101_0101);
    assert_eq!(fixture.owner_read(region.key, 40 + 20 * 8), 0);

    fixture.owner_write(region.key, 8, u64::MAX);
    assert_eq!(call_one(fixture, peer, region.key, read(8)), OpResult::Read(vec![u64::MAX]));
}

pub(crate) fn compare_and_swap_swaps_only_what_it_expects(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    // Values that differ in one bit at either end: all 64 bits are compared.
    for (held, asked, swaps) in [
        (5, 5, true),
        (5, 4, false),
        (1 << 63, 0, false),
        (1 << 63, 1 << 63, true),
        (u64::MAX, u64::MAX - 1, false),
        (0, 1 << 32, false),
    ] {
        fixture.owner_write(region.key, 16, held);
        let result = call_one(fixture, &mut *peer, region.key, swap(16, asked, 77));
        assert_eq!(result, OpResult::Swapped { found: held });
        let left = if swaps { 77 } else { held };
        assert_eq!(fixture.owner_read(region.key, 16), left, "{held:x} against {asked:x}");
    }
}

pub(crate) fn fetch_and_add_wraps_around(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    fixture.owner_write(region.key, 24, u64::MAX - 1);
    let batch = vec![add(24, 3), add(24, u64::MAX), add(24, 0)];
    let results = call(fixture, &mut *peer, region.key, batch);
    let found = |found| Ok(OpResult::Added { found });
    assert_eq!(results, [found(u64::MAX - 1), found(1), found(0)]);
    // Nothing spills into the neighbours.
    assert_eq!(fixture.owner_read(region.key, 16), 0);
    assert_eq!(fixture.owner_read(region.key, 32), 0);
}

pub(crate) fn a_batch_takes_effect_in_order(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    let batch = vec![
        read(0),
        write(0, 1),
        swap(0, 1, 2),
        add(0, 10),
        swap(0, 2, 99),
        read(0),
        write(0, 3),
        read(0),
    ];
    let results: Result<Vec<_>, _> =
        call(fixture, &mut *peer, region.key, batch).into_iter().collect();
    let expected = vec![
        OpResult::Read(vec![0]),
        OpResult::Written,
        OpResult::Swapped { found: 1 },
        OpResult::Added { found: 2 },
        OpResult::Swapped { found: 12 },
        OpResult::Read(vec![12]),
        OpResult::Written,
        OpResult::Read(vec![3]),
    ];
    assert_eq!(results, Ok(expected));
}

pub(crate) fn the_last_word_is_reached_and_the_next_is_not(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    assert_eq!(call_one(fixture, &mut *peer, region.key, write(56, 6)), OpResult::Written);
    assert_eq!(call_one(fixture, &mut *peer, region.key, read(56)), OpResult::Read(vec![6]));
    let beyond = [
        read(64),
        write(64, 1),
        swap(64, 0, 1),
        add(64, 1),
        read(u64::MAX - 7),
        Op::Read { offset_bytes: 56, length_words: 2 },
        Op::Write { offset_bytes: 0, words: vec![1; 9] },
    ];
    for op in beyond {
        // A good operation in front must not take effect: the batch is refused as a whole.
        let refused = peer.submit(region.key, vec![write(0, 9), op.clone()], DEADLINE);
        let Err(SubmitError::BadOp { index: 1, error: OpError::OutOfBounds { region_bytes, .. } }) =
            refused
        else {
            panic!("{op:?} gave {refused:?}");
        };
        assert_eq!(region_bytes, 64);
    }
    let all: Vec<u64> = (0..8).map(|word| fixture.owner_read(region.key, word * 8)).collect();
    assert_eq!(all, [0, 0, 0, 0, 0, 0, 0, 6]);
}

pub(crate) fn offsets_are_whole_words(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    for offset_bytes in [1, 4, 7, 12, 63] {
        for op in [
            read(offset_bytes),
            write(offset_bytes, 1),
            swap(offset_bytes, 0, 1),
            add(offset_bytes, 1),
        ] {
            let error = OpError::Misaligned { offset_bytes };
            let refused = peer.submit(region.key, vec![op], DEADLINE);
            assert_eq!(refused, Err(SubmitError::BadOp { index: 0, error }));
        }
    }
    let empty =
        peer.submit(region.key, vec![Op::Read { offset_bytes: 0, length_words: 0 }], DEADLINE);
    assert!(matches!(empty, Err(SubmitError::BadOp { error: OpError::NotSupported { .. }, .. })));
}

pub(crate) fn limits_of_the_queue_are_kept(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = peer_of(fixture, &region);
    let limits = peer.capabilities().clone();
    assert_eq!(peer.submit(region.key, Vec::new(), DEADLINE), Err(SubmitError::Empty));

    let (ops, max) = (limits.batch_ops_max + 1, limits.batch_ops_max);
    let refused = peer.submit(region.key, vec![add(0, 1); ops], DEADLINE);
    assert_eq!(refused, Err(SubmitError::BatchTooLong { ops, max }));

    // Fill the queue without polling: it holds what it says, and no more.
    let mut sent = 0;
    while sent + max <= limits.outstanding_ops_max {
        peer.submit(region.key, vec![add(0, 1); max], DEADLINE).unwrap();
        sent += max;
    }
    let room = limits.outstanding_ops_max - sent;
    let refused = peer.submit(region.key, vec![add(0, 1); room + 1], DEADLINE);
    let expected = SubmitError::QueueFull { outstanding: sent, max: limits.outstanding_ops_max };
    assert_eq!(refused, Err(expected));

    // Completions free their places.
    let mut done = Vec::new();
    while done.len() < sent / max {
        if peer.poll(&mut done) == 0 {
            fixture.pass_time();
        }
    }
    assert_eq!(fixture.owner_read(region.key, 0), sent as u64, "each addition took effect once");
    call_one(fixture, &mut *peer, region.key, add(0, 1));
}

pub(crate) fn a_key_that_was_not_opened_is_refused(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let mut peer = fixture.connect();
    let refused = peer.submit(region.key, vec![write(0, 1)], DEADLINE);
    assert_eq!(refused, Err(SubmitError::NotOpen { key: region.key }));
    peer.open(&region).unwrap();
    peer.open(&region).unwrap();
    call_one(fixture, &mut *peer, region.key, write(0, 1));
    peer.close(region.key);
    let refused = peer.submit(region.key, vec![write(0, 2)], DEADLINE);
    assert_eq!(refused, Err(SubmitError::NotOpen { key: region.key }));
    assert_eq!(fixture.owner_read(region.key, 0), 1);
}

pub(crate) fn a_made_up_key_reaches_nothing(fixture: &mut impl Fixture) {
    let region = fixture.region(8);
    let forged = RegionDescriptor { key: RemoteKey(region.key.0 ^ 1), ..region.clone() };
    let mut peer = fixture.connect();
    match peer.open(&forged) {
        Err(OpenError::Unreachable { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(()) => {
            let results = call(fixture, &mut *peer, forged.key, vec![write(0, 1), read(0)]);
            let expected = [Err(OpError::StaleKey), Err(OpError::AccessDenied { op: "write" })];
            assert!(expected.contains(&results[0]), "{results:?}");
            assert_eq!(results[1], Err(OpError::Flushed));
        }
    }
    assert_eq!(fixture.owner_read(region.key, 0), 0);
}

pub(crate) fn a_restarted_owner_has_a_new_region(fixture: &mut impl Fixture) {
    let old = fixture.region(8);
    let mut late = peer_of(fixture, &old);
    call_one(fixture, &mut *late, old.key, write(0, 5));
    let new = fixture.restart(old.key);
    assert_ne!(new.key, old.key);
    assert_ne!(new.incarnation, old.incarnation);
    // A late operation hits the dead region or an error, never the new region.
    match call(fixture, &mut *late, old.key, vec![swap(0, 0, 1)]).remove(0) {
        Ok(result) => assert_eq!(result, OpResult::Swapped { found: 5 }),
        Err(error) => assert_eq!(error, OpError::StaleKey),
    }
    assert_eq!(fixture.owner_read(new.key, 0), 0);
    let mut peer = peer_of(fixture, &new);
    call_one(fixture, &mut *peer, new.key, swap(0, 0, 1));
    assert_eq!(fixture.owner_read(new.key, 0), 1);
}

pub(crate) fn regions_are_apart(fixture: &mut impl Fixture) {
    let (one, two) = (fixture.region(8), fixture.region(8));
    assert_ne!(one.key, two.key);
    assert_ne!(one.incarnation, two.incarnation);
    let mut peer = peer_of(fixture, &one);
    peer.open(&two).unwrap();
    call_one(fixture, &mut *peer, one.key, write(0, 1));
    call_one(fixture, &mut *peer, two.key, write(0, 2));
    assert_eq!(call_one(fixture, &mut *peer, one.key, read(0)), OpResult::Read(vec![1]));
    assert_eq!(call_one(fixture, &mut *peer, two.key, read(0)), OpResult::Read(vec![2]));
}

pub(crate) fn a_region_of_an_adapter_is_not_opened_by_processor_atomics(
    fixture: &mut impl Fixture,
) {
    let region = fixture.region(8);
    let mut peer = fixture.connect();
    let other = RegionDescriptor { atomic_path: AtomicPath::Adapter(0xa), ..region.clone() };
    assert!(peer.open(&other).is_err(), "opened over another path than its own");
    let changed = RegionDescriptor { incarnation: Incarnation(1), ..region.clone() };
    peer.open(&region).unwrap();
    assert!(peer.open(&changed).is_err(), "one key cannot name two regions");
}
