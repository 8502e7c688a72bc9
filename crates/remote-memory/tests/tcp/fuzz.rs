//! Seeded, structured noise against a living service and a living peer. A run prints its seed;
//! `POLDER_FUZZ_SEED` replays one, `POLDER_FUZZ_S` lets it take longer than a second.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use remote_memory::tcp::message::{encode_hello, encode_request};
use remote_memory::tcp::record::{Preamble, record_header};
use remote_memory::tcp::{Requester, RequesterSettings, Security};
use remote_memory::{Op, Remote};

use crate::support::{Owner, PATIENCE, Random, add, call, connect, sealed};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = number("POLDER_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 | 1
    });
    println!("POLDER_FUZZ_SEED={seed}");
    seed
}

fn budget() -> Duration {
    Duration::from_secs(number("POLDER_FUZZ_S").unwrap_or(1))
}

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

/// A session as a peer might have it, then damaged: bytes changed, left out, doubled, cut.
fn session(random: &mut Random, owner: &Owner) -> Vec<u8> {
    let mut bytes = Preamble { security: 0, refusal: None }.encode().to_vec();
    let mut push = |message: &[u8]| {
        bytes.extend_from_slice(&record_header(message.len()));
        bytes.extend_from_slice(message);
    };
    push(&encode_hello());
    let mut message = Vec::new();
    for ticket in 0..random.below(6) as u64 {
        let ops: Vec<Op> = (0..1 + random.below(8)).map(|_| op(random)).collect();
        encode_request(ticket, owner.key(), &ops, &mut message);
        push(&message);
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                bytes.splice(at..at + 1, []).for_each(drop);
                bytes.push(0);
            }
            3 => bytes.truncate(at + 1),
            _ => {
                let end = bytes.len().min(at + 1 + random.below(64));
                bytes.extend_from_within(at..end);
            }
        }
    }
    bytes
}

#[test]
fn a_service_outlives_what_peers_send() {
    let mut random = Random(seed());
    let owner = Owner::new(Security::PlainLoopback);
    let mut known = owner.peer();
    let start = Instant::now();
    let mut sessions = 0;
    while start.elapsed() < budget() {
        let bytes = session(&mut random, &owner);
        let mut socket = TcpStream::connect(owner.responder.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // The service may hang up at any byte.
        let cut = random.below(bytes.len() + 1);
        let _ = socket.write_all(&bytes[..cut]).and_then(|()| socket.write_all(&bytes[cut..]));
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
        sessions += 1;
        if sessions % 16 == 0 {
            assert!(call(&mut known, owner.key(), vec![add(0, 1)])[0].is_ok());
        }
    }
    println!("{sessions} sessions");
    assert!(sessions > 10);
    assert!(call(&mut known, owner.key(), vec![add(0, 1)])[0].is_ok());
}

/// An owner that answers with noise, behind a good preamble or none.
#[test]
fn a_peer_outlives_what_owners_send() {
    let mut random = Random(seed());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let start = Instant::now();
    let mut sessions = 0;
    while start.elapsed() < budget() {
        let security = [Security::PlainLoopback, sealed(1)][random.below(2)].clone();
        let connect_max = Duration::from_millis(200);
        let mut peer =
            Requester::begin(RequesterSettings { address, security, connect_max }).unwrap();
        let (mut owner, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let security = random.below(2) as u8;
        bytes.extend_from_slice(&Preamble { security, refusal: None }.encode());
        for _ in 0..random.below(4) {
            let length = 1 + random.below(80);
            bytes.extend_from_slice(&record_header(length));
            bytes.push(random.below(6) as u8);
            bytes.extend((1..length).map(|_| (random.next() as u8) * (random.below(2) as u8)));
        }
        let at = random.below(bytes.len());
        bytes[at] ^= u8::from(random.below(4) == 0) << random.below(8);
        let _ = owner.write_all(&bytes);
        let _ = owner.shutdown(Shutdown::Write);
        // Up with an empty welcome at best, and broken soon.
        if peer.finish_connecting().is_ok() {
            let forged = owner.read(&mut [0; 64]);
            assert!(forged.is_ok());
            peer.poll(&mut Vec::new());
        }
        sessions += 1;
    }
    println!("{sessions} sessions");
    assert!(sessions > 10);
}

/// The same with the key: a stranger's noise never gets beyond the handshake.
#[test]
fn an_encrypting_service_outlives_strangers() {
    let mut random = Random(seed());
    let owner = Owner::new(sealed(1));
    let mut known = owner.peer();
    for _ in 0..200 {
        let mut bytes = session(&mut random, &owner);
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
