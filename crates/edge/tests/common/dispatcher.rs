//! A dispatcher over fixed servers, each with so much room.

use edge::{Ask, Dispatcher, Permit, Refusal, Verdict};
use pool_model::{NodeId, SiteId};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

struct Server {
    site: SiteId,
    node: NodeId,
    address: SocketAddr,
    in_flight: AtomicUsize,
    has_left: AtomicBool,
}

struct Inner {
    servers: Vec<Server>,
    room: usize,
    queue_max: usize,
    queue_timeout: Duration,
    waiting: AtomicUsize,
    freed: Notify,
    turn: AtomicUsize,
    verdicts: Mutex<Vec<(u16, Verdict)>>,
}

#[derive(Clone)]
pub struct Fixed(Arc<Inner>);

impl Fixed {
    pub fn new(addresses: &[SocketAddr], room: usize) -> Self {
        Self::with_queue(addresses, room, 1_000, Duration::from_secs(10))
    }

    pub fn with_queue(
        addresses: &[SocketAddr],
        room: usize,
        queue_max: usize,
        queue_timeout: Duration,
    ) -> Self {
        let server = |(number, &address)| Server {
            site: SiteId::MIN,
            node: NodeId::new(number as u16).unwrap(),
            address,
            in_flight: AtomicUsize::new(0),
            has_left: AtomicBool::new(false),
        };
        let servers = addresses.iter().enumerate().map(server).collect();
        Self(Arc::new(Inner {
            servers,
            room,
            queue_max,
            queue_timeout,
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            turn: AtomicUsize::new(0),
            verdicts: Mutex::default(),
        }))
    }

    /// Adds a server of another site.
    pub fn with_site(self, site: SiteId, address: SocketAddr) -> Self {
        let mut inner = Arc::into_inner(self.0).unwrap();
        let node = NodeId::new(inner.servers.len() as u16).unwrap();
        let (in_flight, has_left) = (AtomicUsize::new(0), AtomicBool::new(false));
        inner.servers.push(Server { site, node, address, in_flight, has_left });
        Self(Arc::new(inner))
    }

    /// The server that the next request tries first.
    pub fn next_turn(&self) -> usize {
        self.0.turn.load(Ordering::SeqCst) % self.0.servers.len()
    }

    pub fn skip_turn(&self) {
        self.0.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on the node serves its site no more.
    pub fn leave(&self, at: usize) {
        self.0.servers[at].has_left.store(true, Ordering::SeqCst);
    }

    /// Requests that hold a permit.
    pub fn in_flight(&self) -> usize {
        self.0.servers.iter().map(|server| server.in_flight.load(Ordering::SeqCst)).sum()
    }

    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// What was reported so far, by the number of the node.
    pub fn verdicts(&self) -> Vec<(u16, Verdict)> {
        self.0.verdicts.lock().unwrap().clone()
    }

    fn try_acquire(&self, site: SiteId, avoid: &[NodeId]) -> Option<FixedPermit> {
        let count = self.0.servers.len();
        let turn = self.0.turn.fetch_add(1, Ordering::SeqCst);
        let places = || {
            (0..count)
                .map(|step| (turn + step) % count)
                .filter(|&at| self.0.servers[at].site == site)
        };
        let fresh = places().filter(|&at| !avoid.contains(&self.0.servers[at].node));
        for at in fresh.chain(places()) {
            let in_flight = &self.0.servers[at].in_flight;
            if in_flight.fetch_add(1, Ordering::SeqCst) < self.0.room {
                return Some(FixedPermit { inner: Arc::clone(&self.0), at });
            }
            in_flight.fetch_sub(1, Ordering::SeqCst);
        }
        None
    }
}

/// Counts a request that waits, also when its client leaves.
struct Waiting(Arc<Inner>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Dispatcher for Fixed {
    type Permit = FixedPermit;

    async fn acquire(&self, site: SiteId, ask: Ask<'_>) -> Result<FixedPermit, Refusal> {
        if self.0.servers.is_empty() {
            return Err(Refusal::NoServer);
        }
        if let Some(permit) = self.try_acquire(site, ask.avoid) {
            return Ok(permit);
        }
        let before = self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(Arc::clone(&self.0));
        if before >= self.0.queue_max {
            return Err(Refusal::QueueFull);
        }
        let wait = async {
            loop {
                let freed = self.0.freed.notified();
                if let Some(permit) = self.try_acquire(site, ask.avoid) {
                    return permit;
                }
                freed.await;
            }
        };
        tokio::time::timeout(self.0.queue_timeout, wait).await.map_err(|_| Refusal::QueueTimeout)
    }

    fn has_left(&self, site: SiteId, node: NodeId) -> bool {
        let mut servers = self.0.servers.iter();
        let server = servers.find(|server| server.site == site && server.node == node);
        server.is_none_or(|server| server.has_left.load(Ordering::SeqCst))
    }
}

pub struct FixedPermit {
    inner: Arc<Inner>,
    at: usize,
}

impl Permit for FixedPermit {
    fn node(&self) -> NodeId {
        self.inner.servers[self.at].node
    }

    fn address(&self) -> SocketAddr {
        self.inner.servers[self.at].address
    }

    fn report(&self, verdict: Verdict) {
        self.inner.verdicts.lock().unwrap().push((self.node().get(), verdict));
    }
}

impl Drop for FixedPermit {
    fn drop(&mut self) {
        self.inner.servers[self.at].in_flight.fetch_sub(1, Ordering::SeqCst);
        self.inner.freed.notify_waiters();
    }
}
