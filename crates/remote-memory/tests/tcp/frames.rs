//! Frames from a peer: whatever the bytes, reading them gives a message or a clear error.

use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::{collection, prop_assert, prop_assert_eq, proptest};
use remote_memory::tcp::message::{
    BATCH_OPS_MAX, Message, OP_WORDS_MAX, Reply, WireOp, WireResult, begin_reply, decode,
    encode_request, push_result,
};
use remote_memory::tcp::record::{
    PREAMBLE_BYTES, Preamble, RECORD_BYTES_MAX, first_record, record_header,
};
use remote_memory::tcp::{Refusal, WireError};
use remote_memory::{Op, RemoteKey};

fn any_op() -> impl Strategy<Value = Op> {
    let offset = any::<u64>();
    prop_oneof![
        (offset, 1..=OP_WORDS_MAX)
            .prop_map(|(offset_bytes, length_words)| Op::Read { offset_bytes, length_words }),
        (offset, collection::vec(any::<u64>(), 1..40))
            .prop_map(|(offset_bytes, words)| Op::Write { offset_bytes, words }),
        (offset, any::<u64>(), any::<u64>()).prop_map(|(offset_bytes, expected, new)| {
            Op::CompareAndSwap { offset_bytes, expected, new }
        }),
        (offset, any::<u64>())
            .prop_map(|(offset_bytes, addend)| Op::FetchAndAdd { offset_bytes, addend }),
    ]
}

fn any_result() -> impl Strategy<Value = WireResult<'static>> {
    prop_oneof![
        (1..50_usize).prop_map(|words| WireResult::Read(&[7; 400][..words * 8])),
        any::<u64>().prop_map(WireResult::Found),
        any::<u64>().prop_map(WireResult::OutOfBounds),
        proptest::sample::select(vec![
            WireResult::Written,
            WireResult::StaleKey,
            WireResult::Refused,
            WireResult::Misaligned,
        ]),
    ]
}

/// An operation as it should come out.
fn same(op: &Op, wire: &WireOp<'_>) -> bool {
    match (op, *wire) {
        (Op::Read { offset_bytes, length_words }, WireOp::Read { offset_bytes: at, words }) => {
            *offset_bytes == at && *length_words == words
        }
        (Op::Write { offset_bytes, words }, WireOp::Write { offset_bytes: at, words: bytes }) => {
            let flat: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            *offset_bytes == at && flat == bytes
        }
        (
            Op::CompareAndSwap { offset_bytes, expected, new },
            WireOp::CompareAndSwap { offset_bytes: at, expected: held, new: then },
        ) => (*offset_bytes, *expected, *new) == (at, held, then),
        (
            Op::FetchAndAdd { offset_bytes, addend },
            WireOp::FetchAndAdd { offset_bytes: at, addend: sum },
        ) => (*offset_bytes, *addend) == (at, sum),
        _ => false,
    }
}

fn requests(ops: &[Op]) -> Vec<Vec<u8>> {
    let (mut messages, mut first) = (Vec::new(), 0);
    while first < ops.len() {
        let mut message = Vec::new();
        first += encode_request(9, RemoteKey(5), &ops[first..], &mut message);
        messages.push(message);
    }
    messages
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in collection::vec(any::<u8>(), 0..300)) {
        let _ = (decode(&bytes), Preamble::decode(&bytes), first_record(&bytes));
    }

    #[test]
    fn bytes_of_each_kind_are_read_without_a_panic(
        kind in 0..6_u8,
        rest in collection::vec(prop_oneof![0..5_u8, any::<u8>()], 0..200),
    ) {
        let mut bytes = vec![kind];
        bytes.extend(rest);
        let _ = decode(&bytes);
    }

    #[test]
    fn a_batch_is_read_as_it_was_written(ops in collection::vec(any_op(), 1..=BATCH_OPS_MAX)) {
        let (messages, mut left) = (requests(&ops), &ops[..]);
        for (index, message) in messages.iter().enumerate() {
            prop_assert!(message.len() + 16 <= RECORD_BYTES_MAX);
            let Ok(Message::Request(request)) = decode(message) else {
                panic!("{:?}", decode(message));
            };
            prop_assert_eq!((request.ticket, request.key), (9, RemoteKey(5)));
            prop_assert_eq!(request.last, index + 1 == messages.len());
            prop_assert!(request.ops.len() <= left.len());
            let (mine, rest) = left.split_at(request.ops.len());
            prop_assert!(mine.iter().zip(&request.ops).all(|(op, wire)| same(op, wire)));
            left = rest;
        }
        prop_assert!(left.is_empty());
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(results in collection::vec(any_result(), 1..100)) {
        let mut message = Vec::new();
        begin_reply(3, &mut message);
        results.iter().for_each(|result| push_result(result, &mut message));
        prop_assert_eq!(decode(&message), Ok(Message::Reply(Reply { ticket: 3, results })));
    }

    /// A cut message never passes for a whole one, and neither does one with something behind.
    #[test]
    fn a_message_has_its_length(ops in collection::vec(any_op(), 1..8), cut in any::<u16>()) {
        let mut message = requests(&ops).remove(0);
        let length = usize::from(cut) % message.len();
        let found = decode(&message[..length]);
        prop_assert!(matches!(found, Err(WireError::Truncated { .. })), "{:?}", found);
        message.push(0);
        prop_assert_eq!(decode(&message), Err(WireError::Trailing { left_bytes: 1 }));
    }

    /// Changed bytes get past the head, so that every field meets nonsense.
    #[test]
    fn a_damaged_message_is_an_error_or_another_message(
        ops in collection::vec(any_op(), 1..8),
        damage in collection::vec((any::<u16>(), any::<u8>()), 1..6),
    ) {
        let mut message = requests(&ops).remove(0);
        let length = message.len();
        for (at, byte) in damage {
            message[usize::from(at) % length] = byte;
        }
        if let Ok(Message::Request(request)) = decode(&message) {
            prop_assert!(request.ops.len() <= BATCH_OPS_MAX);
        }
    }
}

#[test]
fn a_record_states_a_length_that_it_may_have() {
    assert_eq!(first_record(&[]), Ok(None));
    assert_eq!(first_record(&[3, 0, 0, 0, 1, 2]), Ok(None));
    assert_eq!(first_record(&[2, 0, 0, 0, 1, 2, 9]), Ok(Some(2)));
    let mut longest = record_header(RECORD_BYTES_MAX).to_vec();
    assert_eq!(first_record(&longest), Ok(None));
    longest.resize(4 + RECORD_BYTES_MAX, 0);
    assert_eq!(first_record(&longest), Ok(Some(RECORD_BYTES_MAX)));
    for found_bytes in [0, 65_536, u32::from_le_bytes(*b"HTTP"), u32::MAX] {
        let found = first_record(&found_bytes.to_le_bytes());
        assert_eq!(found, Err(WireError::RecordLength { found_bytes }));
    }
}

#[test]
fn preambles_are_read_piece_by_piece() {
    for refusal in [
        None,
        Some(Refusal::OtherVersion),
        Some(Refusal::OtherSecurity),
        Some(Refusal::TooManyPeers),
        Some(Refusal::OtherKey),
    ] {
        let preamble = Preamble { security: 1, refusal };
        let bytes = preamble.encode();
        for length in 0..PREAMBLE_BYTES {
            assert_eq!(Preamble::decode(&bytes[..length]), Ok(None));
        }
        assert_eq!(Preamble::decode(&bytes), Ok(Some(preamble)));
    }
    // Another protocol is told from its first byte on.
    assert!(matches!(Preamble::decode(b"G"), Err(WireError::Magic { .. })));
    let good = Preamble { security: 0, refusal: None }.encode();
    let mut other = good;
    other[8] = 2;
    assert_eq!(Preamble::decode(&other), Err(WireError::Version { found: 2 }));
    for at in [11, 12, 15] {
        let mut other = good;
        other[at] = 200;
        assert!(matches!(Preamble::decode(&other), Err(WireError::Field { .. })), "byte {at}");
    }
}

#[test]
fn answers_that_do_not_fit_a_record_are_not_asked_for() {
    let read = Op::Read { offset_bytes: 0, length_words: OP_WORDS_MAX };
    let messages = requests(&[read.clone(), read]);
    assert_eq!(messages.len(), 2, "two answers of the longest kind do not fit one record");
    // A peer that asks for both at once is refused.
    let mut both = messages[0].clone();
    both[2] = 2;
    both.extend_from_slice(&messages[1][24..]);
    let refused = decode(&both);
    assert!(matches!(refused, Err(WireError::Field { field: "operations", .. })), "{refused:?}");
}
