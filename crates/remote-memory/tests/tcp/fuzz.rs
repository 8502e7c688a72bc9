//! Seeded, structured noise against a living service and a living peer: `cargo xtask fuzz`.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use fuzzing::{Random, Target};
use remote_memory::tcp::message::{encode_hello, encode_request};
use remote_memory::tcp::record::{Preamble, record_header};
use remote_memory::tcp::{Requester, RequesterSettings, Security};
use remote_memory::{Op, Remote, RemoteKey};

use crate::support::{Owner, PATIENCE, add, call, connect, sealed};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Stands for the key of the region, which is another one in each run.
const ANY_KEY: RemoteKey = RemoteKey(0x1122_3344_5566_7788);

/// Number, small number, or one of the numbers at which mistakes live.
fn word(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.next(),
        1 => random.below(600) as u64,
        2 => [0, 8, 504, 512, 4096, 65_535, 65_536, 1 << 32, u64::MAX - 7][random.below(9)],
        _ => random.below(64) as u64 * 8,
    }
}

fn op(random: &mut Random) -> Op {
    let offset_bytes = word(random);
    match random.below(4) {
        0 => Op::Read { offset_bytes, length_words: 1 + random.below(5000) },
        1 => Op::Write { offset_bytes, words: vec![word(random); 1 + random.below(80)] },
        2 => Op::CompareAndSwap { offset_bytes, expected: word(random), new: word(random) },
        _ => Op::FetchAndAdd { offset_bytes, addend: word(random) },
    }
}

/// A session as a peer might have it.
fn session(random: &mut Random) -> Vec<u8> {
    let mut bytes = Preamble { security: 0, refusal: None }.encode().to_vec();
    let mut push = |message: &[u8]| {
        bytes.extend_from_slice(&record_header(message.len()));
        bytes.extend_from_slice(message);
    };
    push(&encode_hello());
    let mut message = Vec::new();
    for ticket in 0..random.below(6) as u64 {
        let ops: Vec<Op> = (0..1 + random.below(8)).map(|_| op(random)).collect();
        encode_request(ticket, ANY_KEY, &ops, &mut message);
        push(&message);
    }
    bytes
}

/// The same with the region's real key.
fn with_key(bytes: &[u8], key: RemoteKey) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let any = ANY_KEY.0.to_le_bytes();
    while let Some(at) = bytes.windows(any.len()).position(|window| window == any) {
        bytes[at..at + any.len()].copy_from_slice(&key.0.to_le_bytes());
    }
    bytes
}

#[test]
fn fuzz_tcp_service() {
    let owner = Owner::new(Security::PlainLoopback);
    let known = RefCell::new(owner.peer());
    let still_serves = || call(&mut known.borrow_mut(), owner.key(), vec![add(0, 1)])[0].is_ok();
    let sessions = Cell::new(0);
    let check = |bytes: &[u8], random: &mut Random| {
        let bytes = with_key(bytes, owner.key());
        let mut socket = TcpStream::connect(owner.responder.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // The service may hang up at any byte.
        let cut = random.below(bytes.len() + 1);
        let _ = socket.write_all(&bytes[..cut]).and_then(|()| socket.write_all(&bytes[cut..]));
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        sessions.set(sessions.get() + 1);
        assert!(sessions.get() % 16 != 0 || still_serves());
        answer.len()
    };
    let target = Target::new("tcp_service", HERE).made_by(session);
    target.smoke_cases(200).case_max(2 * PATIENCE).run(check);
    assert!(still_serves());
}

/// What an owner might say: a preamble, and messages of noise.
fn answers(random: &mut Random) -> Vec<u8> {
    let security = random.below(2) as u8;
    let mut bytes = Preamble { security, refusal: None }.encode().to_vec();
    for _ in 0..random.below(4) {
        let length = 1 + random.below(80);
        bytes.extend_from_slice(&record_header(length));
        bytes.push(random.below(6) as u8);
        bytes.extend((1..length).map(|_| (random.next() as u8) * (random.below(2) as u8)));
    }
    bytes
}

/// An owner that answers with noise, behind a good preamble or none.
#[test]
fn fuzz_tcp_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let check = |bytes: &[u8], random: &mut Random| {
        let security = [Security::PlainLoopback, sealed(1)][random.below(2)].clone();
        let connect_max = Duration::from_millis(200);
        let mut peer =
            Requester::begin(RequesterSettings { address, security, connect_max }).unwrap();
        let (mut owner, _) = listener.accept().unwrap();
        let _ = owner.write_all(bytes);
        let _ = owner.shutdown(Shutdown::Write);
        // Up with an empty welcome at best, and broken soon.
        let outcome = peer.finish_connecting();
        if outcome.is_ok() {
            let forged = owner.read(&mut [0; 64]);
            assert!(forged.is_ok());
            peer.poll(&mut Vec::new());
        }
        outcome.map_err(|error| std::mem::discriminant(&error))
    };
    Target::new("tcp_owner", HERE).made_by(answers).smoke_cases(200).run(check);
}

/// With the key: a stranger's noise never gets beyond the handshake.
#[test]
fn an_encrypting_service_outlives_strangers() {
    let mut random = Random::new(1);
    let owner = Owner::new(sealed(1));
    let mut known = owner.peer();
    for _ in 0..200 {
        let mut bytes = with_key(&session(&mut random), owner.key());
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        if let Some(security) = bytes.get_mut(10) {
            *security = 1;
        }
        let mut socket = TcpStream::connect(owner.responder.address()).unwrap();
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let counts = owner.responder.counts();
    assert_eq!(counts.peers, 1, "a stranger got in: {counts:?}");
    assert!(counts.turned_away > 0, "the limit of failures: {counts:?}");
    assert_eq!(owner.word(0), 0);
    assert!(call(&mut known, owner.key(), vec![add(0, 1)])[0].is_ok());
    crate::support::eventually("the door opens", || {
        connect(owner.responder.address(), sealed(1)).is_ok()
    });
}
