//! The TCP service in the suite, encrypted and plain: one service of one owner's process, whose
//! regions come and go. Peers race in threads of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{
    PreSharedKey, Requester, RequesterSettings, Responder, ResponderSettings, Security,
};
use remote_memory::{Access, Mapped, RegionDescriptor, Remote, RemoteKey};

use crate::fixture::{DEADLINE, Fixture, Runner, Step};

pub(crate) struct Service<const ENCRYPTED: bool> {
    responder: Responder,
    regions: BTreeMap<RemoteKey, Arc<OwnedRegion>>,
}

impl<const ENCRYPTED: bool> Service<ENCRYPTED> {
    fn security() -> Security {
        match ENCRYPTED {
            true => Security::Noise(PreSharedKey::from_bytes([42; 32])),
            false => Security::PlainLoopback,
        }
    }
}

impl<const ENCRYPTED: bool> Fixture for Service<ENCRYPTED> {
    const ROUNDS: u64 = 2_000;
    const SWAPS: u64 = 20_000;

    fn new() -> Self {
        let settings = ResponderSettings { security: Self::security(), real_time: false };
        let responder = Responder::bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
        Self { responder, regions: BTreeMap::new() }
    }

    fn region(&mut self, length_words: usize) -> RegionDescriptor {
        let region = Arc::new(OwnedRegion::create("owner", length_words as u64 * 8).unwrap());
        self.responder.serve(Arc::clone(&region) as Arc<dyn Mapped>, Access::ReadWrite).unwrap();
        let descriptor = region.descriptor().clone();
        self.regions.insert(descriptor.key, region);
        descriptor
    }

    /// The service of the process stays, so that the connection of a late peer does too.
    fn restart(&mut self, old: RemoteKey) -> RegionDescriptor {
        assert!(self.responder.retire(old));
        let length_bytes = self.regions[&old].descriptor().length_bytes;
        self.region(length_bytes as usize / 8)
    }

    fn connect(&mut self) -> Box<dyn Remote> {
        let address = self.responder.address();
        let security = Self::security();
        let settings = RequesterSettings { address, security, connect_max: DEADLINE };
        let requester = Requester::connect(settings).unwrap();
        let served = requester.served().iter().map(|region| region.key);
        assert!(served.clone().all(|key| self.regions.contains_key(&key)), "{served:?}");
        Box::new(requester)
    }

    fn owner_read(&self, key: RemoteKey, offset_bytes: u64) -> u64 {
        self.regions[&key].read(offset_bytes).unwrap()
    }

    fn owner_write(&self, key: RemoteKey, offset_bytes: u64, value: u64) {
        self.regions[&key].write(offset_bytes, value).unwrap();
    }

    fn pass_time(&self) {
        std::thread::yield_now();
    }

    fn race(&mut self, peers: Vec<(Box<dyn Remote>, Step)>) {
        let together = Barrier::new(peers.len());
        std::thread::scope(|scope| {
            for peer in peers {
                scope.spawn(|| {
                    let mut runner = Runner::new(peer);
                    together.wait();
                    while runner.turn() {
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
