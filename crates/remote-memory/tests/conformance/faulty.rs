//! The simulated network in the suite, without faults: what is left are delays, batches that
//! overtake each other, and operations of others between those of a batch.

use remote_memory::faulty::{Faults, Network, RegionSettings, capabilities};
use remote_memory::{Atomics, RegionDescriptor, Remote, RemoteKey};

use crate::fixture::{Fixture, Runner, Step};

pub(crate) struct Simulated {
    network: Network,
}

impl Fixture for Simulated {
    const ROUNDS: u64 = 2_000;
    const SWAPS: u64 = 10_000;

    fn new() -> Self {
        Self { network: Network::new(7, Faults::none()) }
    }

    fn region(&mut self, length_words: usize) -> RegionDescriptor {
        let settings = RegionSettings::new("owner", length_words as u64 * 8);
        self.network.add_region(&settings).unwrap()
    }

    fn restart(&mut self, old: RemoteKey) -> RegionDescriptor {
        self.network.crash_owner(old);
        self.region(8)
    }

    fn connect(&mut self) -> Box<dyn Remote> {
        Box::new(self.network.connect(capabilities(Atomics::AgreeWithOwner)))
    }

    fn owner_read(&self, key: RemoteKey, offset_bytes: u64) -> u64 {
        self.network.owner(key).read(offset_bytes).unwrap()
    }

    fn owner_write(&self, key: RemoteKey, offset_bytes: u64, value: u64) {
        self.network.owner(key).write(offset_bytes, value).unwrap();
    }

    fn pass_time(&self) {
        assert!(self.network.run_next(), "a peer waits, and nothing is under way");
    }

    fn race(&mut self, peers: Vec<(Box<dyn Remote>, Step)>) {
        let mut runners: Vec<_> = peers.into_iter().map(Runner::new).collect();
        // Each turn lets one event happen, and each peer sends a bounded number of batches.
        while !runners.is_empty() {
            runners.retain_mut(Runner::turn);
            self.network.run_next();
        }
    }
}
