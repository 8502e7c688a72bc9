//! Noise for what reads frames and messages: no sockets here, so that there are millions of them.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

use fuzzing::{Random, Target};
use remote_memory::tcp::message::{
    BATCH_OPS_MAX, Message, SERVED_REGIONS_MAX, WireOp, begin_reply, decode, encode_hello,
    encode_request, encode_welcome, push_result,
};
use remote_memory::tcp::record::{PREAMBLE_BYTES, Preamble, RECORD_HEADER_BYTES, first_record};
use remote_memory::{Op, frame, label_is_valid, length_is_valid};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn fuzz_shm_frames() {
    let check = |bytes: &[u8], _: &mut Random| {
        let read = frame::decode(bytes);
        if let Ok(announcement) = &read {
            assert_eq!(frame::decode(&frame::encode(announcement)).as_ref(), Ok(announcement));
        }
        if let Ok(Ok(region)) = &read {
            assert!(length_is_valid(region.length_bytes) && label_is_valid(&region.label));
        }
        let region = read.map(|announcement| announcement.map(|region| region.label.len()));
        region.map_err(|error| std::mem::discriminant(&error)).map(|region| region.is_ok())
    };
    Target::new("shm_frames", HERE).tokens(&["PLDRSHM1", "node-3"]).bytes_max(200).run(check);
}

/// The message again, from what was understood of it.
fn encoded(message: &Message<'_>) -> Vec<u8> {
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let op = |op: &WireOp<'_>| match *op {
        WireOp::Read { offset_bytes, words } => Op::Read { offset_bytes, length_words: words },
        WireOp::Write { offset_bytes, words: bytes } => {
            Op::Write { offset_bytes, words: words(bytes) }
        }
        WireOp::CompareAndSwap { offset_bytes, expected, new } => {
            Op::CompareAndSwap { offset_bytes, expected, new }
        }
        WireOp::FetchAndAdd { offset_bytes, addend } => Op::FetchAndAdd { offset_bytes, addend },
    };
    let mut out = Vec::new();
    match message {
        Message::Hello => out.extend(encode_hello()),
        Message::Welcome(regions) => encode_welcome(regions.iter(), &mut out),
        Message::Request(request) => {
            let ops: Vec<Op> = request.ops.iter().map(op).collect();
            let taken = encode_request(request.ticket, request.key, &ops, &mut out);
            assert_eq!(taken, ops.len(), "what came in one request fits one");
        }
        Message::Reply(reply) => {
            begin_reply(reply.ticket, &mut out);
            reply.results.iter().for_each(|result| push_result(result, &mut out));
        }
    }
    out
}

#[test]
fn fuzz_tcp_messages() {
    let check = |bytes: &[u8], _: &mut Random| {
        let preamble = Preamble::decode(bytes);
        if let Ok(Some(preamble)) = preamble {
            assert_eq!(Preamble::decode(&preamble.encode()), Ok(Some(preamble)));
            assert!(bytes.len() >= PREAMBLE_BYTES);
        }
        if let Ok(Some(length)) = first_record(bytes) {
            assert!(length > 0 && length + RECORD_HEADER_BYTES <= bytes.len());
        }
        let read = decode(bytes);
        if let Ok(message) = &read {
            let again = encoded(message);
            // All is the same but the mark of the last request: the encoder sets it itself.
            match (message, decode(&again).expect("what is written is read")) {
                (Message::Request(one), Message::Request(other)) => {
                    assert_eq!(
                        (&one.ops, one.ticket, one.key),
                        (&other.ops, other.ticket, other.key)
                    );
                }
                (one, other) => assert_eq!(*one, other),
            }
        }
        match read {
            Ok(Message::Hello) => (0, 0),
            Ok(Message::Welcome(regions)) => {
                assert!(regions.len() <= SERVED_REGIONS_MAX);
                (1, regions.len())
            }
            Ok(Message::Request(request)) => {
                assert!((1..=BATCH_OPS_MAX).contains(&request.ops.len()));
                (2, request.ops.len())
            }
            Ok(Message::Reply(reply)) => {
                assert!((1..=BATCH_OPS_MAX).contains(&reply.results.len()));
                (3, reply.results.len())
            }
            Err(error) => (4, error.to_string().len()),
        }
    };
    let small = [1_u64, 2, 3, 4, 8, 16, 256, 257, 4096, 4097, 65_535, 1 << 32, u64::MAX];
    let numbers: Vec<[u8; 8]> = small.iter().map(|number| number.to_le_bytes()).collect();
    let halves: Vec<[u8; 4]> = small[..11].iter().map(|n| (*n as u32).to_le_bytes()).collect();
    let target = Target::new("tcp_messages", HERE).tokens(&numbers).tokens(&halves);
    target.tokens(&["PLDRTCP1", "PLDRSHM1"]).run(check);
}
