//! Shared memory in the suite: served and attached regions under the face `Remote`. Peers race
//! in threads of their own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Barrier};

use remote_memory::shm::{Attachment, OwnedRegion, RegionServer, attach};
use remote_memory::{Inline, Mapped, RegionDescriptor, Remote, RemoteKey};
use tempfile::TempDir;

use crate::fixture::{DEADLINE, Fixture, Runner, Step};

struct Owner {
    region: Arc<OwnedRegion>,
    server: Option<RegionServer>,
    /// A peer's connection made while the owner lived.
    attachment: Attachment,
}

pub(crate) struct SharedMemory {
    directory: TempDir,
    owners: Vec<Owner>,
}

impl SharedMemory {
    fn owner(&self, key: RemoteKey) -> &Owner {
        self.owners.iter().find(|owner| owner.region.descriptor().key == key).unwrap()
    }

    fn start(&mut self, socket: &str, length_bytes: u64) -> RegionDescriptor {
        let path = self.directory.path().join(socket);
        let region = Arc::new(OwnedRegion::create(socket, length_bytes).unwrap());
        let server = RegionServer::bind(&path, Arc::clone(&region)).unwrap();
        let attachment = attach(&path, DEADLINE).unwrap();
        let descriptor = region.descriptor().clone();
        self.owners.push(Owner { region, server: Some(server), attachment });
        descriptor
    }
}

impl Fixture for SharedMemory {
    const ROUNDS: u64 = 100_000;
    const SWAPS: u64 = 2_000_000;

    fn new() -> Self {
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        Self { directory, owners: Vec::new() }
    }

    fn region(&mut self, length_words: usize) -> RegionDescriptor {
        let socket = format!("owner-{}", self.owners.len());
        self.start(&socket, length_words as u64 * 8)
    }

    fn restart(&mut self, old: RemoteKey) -> RegionDescriptor {
        let owner = self.owners.iter_mut().find(|owner| owner.region.descriptor().key == old);
        let owner = owner.unwrap();
        owner.server = None;
        assert!(!owner.attachment.owner_alive(), "peers see that the owner has ended");
        let descriptor = owner.region.descriptor().clone();
        self.start(&descriptor.label, descriptor.length_bytes)
    }

    fn connect(&mut self) -> Box<dyn Remote> {
        let mut inline = Inline::new();
        for owner in &self.owners {
            inline.add(owner.attachment.region());
        }
        Box::new(inline)
    }

    fn owner_read(&self, key: RemoteKey, offset_bytes: u64) -> u64 {
        self.owner(key).region.read(offset_bytes).unwrap()
    }

    fn owner_write(&self, key: RemoteKey, offset_bytes: u64, value: u64) {
        self.owner(key).region.write(offset_bytes, value).unwrap();
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
                    while runner.turn() {}
                });
            }
        });
    }
}
