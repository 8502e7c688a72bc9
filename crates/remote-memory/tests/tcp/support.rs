//! What the tests share: an owner, peers, and waiting for completions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{
    PreSharedKey, Requester, RequesterSettings, Responder, ResponderSettings, Security,
};
use remote_memory::{Access, Completion, Mapped, Op, OpError, OpResult, Remote, RemoteKey};

/// For all that must come: far longer than it takes, on a loaded machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Results of one batch.
pub(crate) type Results = Vec<Result<OpResult, OpError>>;

/// Both ways to protect frames.
pub(crate) fn securities() -> [Security; 2] {
    [sealed(1), Security::PlainLoopback]
}

pub(crate) fn sealed(key: u8) -> Security {
    Security::Noise(PreSharedKey::from_bytes([key; 32]))
}

/// A service with one region of 64 words.
pub(crate) struct Owner {
    pub(crate) responder: Responder,
    pub(crate) region: Arc<OwnedRegion>,
    pub(crate) security: Security,
}

impl Owner {
    pub(crate) fn new(security: Security) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), security)
    }

    pub(crate) fn at(address: SocketAddr, security: Security) -> Self {
        let region = Arc::new(OwnedRegion::create("owner", 512).unwrap());
        let settings = ResponderSettings { security: security.clone(), real_time: false };
        let responder = Responder::bind(address, settings).unwrap();
        responder.serve(Arc::clone(&region) as Arc<dyn Mapped>, Access::ReadWrite).unwrap();
        Self { responder, region, security }
    }

    pub(crate) fn key(&self) -> RemoteKey {
        self.region.descriptor().key
    }

    /// A peer by way of `address`, that has opened the region.
    pub(crate) fn peer_by(&self, address: SocketAddr) -> Requester {
        let mut peer = connect(address, self.security.clone()).unwrap();
        assert_eq!(peer.served(), [self.region.descriptor().clone()]);
        peer.open(self.region.descriptor()).unwrap();
        peer
    }

    pub(crate) fn peer(&self) -> Requester {
        self.peer_by(self.responder.address())
    }

    pub(crate) fn word(&self, offset_bytes: u64) -> u64 {
        self.region.read(offset_bytes).unwrap()
    }
}

pub(crate) fn connect(
    address: SocketAddr,
    security: Security,
) -> Result<Requester, remote_memory::tcp::ConnectError> {
    Requester::connect(RequesterSettings { address, security, connect_max: PATIENCE })
}

/// Waits for one completion.
pub(crate) fn next(peer: &mut Requester) -> Completion {
    let mut done = Vec::new();
    let start = Instant::now();
    while peer.poll(&mut done) == 0 {
        assert!(start.elapsed() < PATIENCE, "no completion came");
        peer.wait(PATIENCE);
    }
    assert_eq!(done.len(), 1, "one batch, one completion");
    done.remove(0)
}

/// Waits for so many completions.
pub(crate) fn all(peer: &mut Requester, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    let start = Instant::now();
    while done.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} completions came", done.len());
        if peer.poll(&mut done) == 0 {
            peer.wait(PATIENCE);
        }
    }
    assert_eq!(done.len(), count);
    done
}

pub(crate) fn call(peer: &mut Requester, key: RemoteKey, batch: Vec<Op>) -> Results {
    let ticket = peer.submit(key, batch, PATIENCE).unwrap();
    let completion = next(peer);
    assert_eq!(completion.ticket, ticket);
    completion.results
}

/// Waits until `holds` does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn read(offset_bytes: u64) -> Op {
    Op::Read { offset_bytes, length_words: 1 }
}

pub(crate) fn write(offset_bytes: u64, word: u64) -> Op {
    Op::Write { offset_bytes, words: vec![word] }
}

pub(crate) fn swap(offset_bytes: u64, expected: u64, new: u64) -> Op {
    Op::CompareAndSwap { offset_bytes, expected, new }
}

pub(crate) fn add(offset_bytes: u64, addend: u64) -> Op {
    Op::FetchAndAdd { offset_bytes, addend }
}

/// Small random numbers from a seed (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
