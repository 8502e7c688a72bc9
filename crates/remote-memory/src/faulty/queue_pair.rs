//! A peer's connection to the simulated network.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::world::{ConnectionId, World, nanos};
use crate::batch::OpenRegions;
use crate::region::{RegionDescriptor, RemoteKey};
use crate::remote::{
    Capabilities, Completion, ConnectionState, Op, OpenError, Remote, SubmitError, Ticket,
};

/// A connection with the face [`Remote`]. Polling does not let time pass: the
/// [`Network`](super::Network) does.
pub struct QueuePair {
    world: Arc<Mutex<World>>,
    id: ConnectionId,
    capabilities: Capabilities,
    regions: OpenRegions,
}

impl QueuePair {
    pub(super) fn new(world: Arc<Mutex<World>>, capabilities: Capabilities) -> Self {
        let id = lock(&world).connect(capabilities.clone());
        Self { world, id, capabilities, regions: OpenRegions::default() }
    }
}

/// The world behind its lock. A panic elsewhere leaves it whole enough to report.
pub(super) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote for QueuePair {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&mut self, descriptor: &RegionDescriptor) -> Result<(), OpenError> {
        self.regions.open(descriptor, &self.capabilities)
    }

    fn close(&mut self, key: RemoteKey) {
        self.regions.close(key);
    }

    fn submit(
        &mut self,
        key: RemoteKey,
        batch: Vec<Op>,
        deadline: Duration,
    ) -> Result<Ticket, SubmitError> {
        let mut world = lock(&self.world);
        let outstanding = world.connection(self.id).outstanding_ops;
        self.regions.check_batch(key, &batch, &self.capabilities, outstanding)?;
        world.submit(self.id, key, batch, nanos(deadline))
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let mut world = lock(&self.world);
        let connection = world.connection(self.id);
        let count = connection.done.len();
        for completion in connection.done.drain(..) {
            connection.outstanding_ops -= completion.results.len();
            out.push(completion);
        }
        count
    }

    fn connection(&self) -> ConnectionState {
        lock(&self.world).connection(self.id).state
    }

    fn reconnect(&mut self) {
        lock(&self.world).reconnect(self.id);
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        lock(&self.world).close(self.id);
    }
}
