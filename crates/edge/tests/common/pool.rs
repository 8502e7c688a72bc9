//! The real dispatcher over node records in memory of this process, with a thread that looks.

use super::origin::Origin;
use super::{PATIENCE, options};
use edge::dispatch::{Dispatch, DispatchOptions, HealthOptions, SiteRules};
use edge::{Edge, SiteOptions};
use moves::looper::{Host, Link, NodeSeen, SiteSeen};
use pool_model::{EdgeId, NodeId, SiteId};
use remote_memory::shm::OwnedRegion;
use shared_state::words::{Assign, Epoch, Phase, Server};
use shared_state::{NODE_REGION_BYTES, NodeHeader, NodeRecord};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sites of the pool: `a.example` and `b.example`.
pub const SITES: [&str; 2] = ["a.example", "b.example"];
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);

pub fn site(index: usize) -> SiteId {
    SiteId::from_index(index).unwrap()
}

/// An edge over some nodes, each with one server that serves whichever site the node has.
pub struct Pool {
    pub edge: Edge,
    pub dispatch: Dispatch,
    pub records: Vec<NodeRecord>,
    stop: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

pub struct Plan {
    pub health: HealthOptions,
    pub max_in_flight: u32,
    pub sites: Vec<SiteOptions>,
    pub rules: Vec<SiteRules>,
}

impl Default for Plan {
    fn default() -> Self {
        let option = |(index, host): (usize, &&str)| SiteOptions::new(site(index), host, &[host]);
        let rule = |index| SiteRules { queue_timeout: PATIENCE, ..SiteRules::new(site(index)) };
        Self {
            health: HealthOptions::default(),
            max_in_flight: 8,
            sites: SITES.iter().enumerate().map(option).collect(),
            rules: (0..SITES.len()).map(rule).collect(),
        }
    }
}

impl Plan {
    /// Starts the edge; all nodes serve the first site.
    pub fn start(self, servers: &[SocketAddr]) -> Pool {
        let record =
            |(number, &address): (usize, &SocketAddr)| record(number, address, self.max_in_flight);
        let records: Vec<NodeRecord> = servers.iter().enumerate().map(record).collect();
        let mut dispatch = Dispatch::new(DispatchOptions {
            edge: EdgeId::MIN,
            incarnation: 1,
            sites: self.rules,
            health: self.health,
        });
        for record in &records {
            dispatch.attached(record.clone(), 0).unwrap();
        }
        look(&mut dispatch, &records);
        let edge = Edge::start(edge::Options { sites: self.sites, ..options() }, &dispatch);
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, mut looks, seen) = (Arc::clone(&stop), dispatch.clone(), records.clone());
        let looker = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                look(&mut looks, &seen);
                std::thread::sleep(LOOK);
            }
        });
        Pool { edge: edge.unwrap(), dispatch, records, stop, looker: Some(looker) }
    }
}

fn record(number: usize, address: SocketAddr, max_in_flight: u32) -> NodeRecord {
    let region = OwnedRegion::create("node", NODE_REGION_BYTES).unwrap();
    let header = NodeHeader { node: NodeId::new(number as u16).unwrap(), max_in_flight };
    let assign = Assign { site: Some(site(0)), stamp: Epoch::ZERO, version: 1 };
    let record = NodeRecord::publish(Arc::new(region), header, assign).unwrap();
    for index in 0..SITES.len() {
        let (address, port) = (Ipv4Addr::LOCALHOST, address.port());
        let server = Server { address, port, phase: Phase::Ready, restarts: 0 };
        record.set_server(site(index), server);
        record.set_warm(site(index), true);
    }
    record
}

fn look(dispatch: &mut Dispatch, records: &[NodeRecord]) {
    let seen = |record: &NodeRecord| {
        let assign = record.assign();
        let open = assign.is_some_and(|a| a.site.is_some_and(|site| record.takes(site, a)));
        let limit = record.header().max_in_flight;
        Some(NodeSeen { assign, open, link: Link::Mapped, limit })
    };
    let seen: Vec<_> = records.iter().map(seen).collect();
    dispatch.looked(&seen, &[SiteSeen::default(); SITES.len()]);
}

impl Pool {
    /// Gives a node to another site; takes effect at once, as a move's compare-and-swap does.
    pub fn move_node(&self, number: usize, to: usize) {
        let word = self.records[number].assign_word();
        let now = self.records[number].assign().unwrap();
        word.store(now.moved(Some(site(to)), Epoch::ZERO).pack(), Ordering::SeqCst);
        std::thread::sleep(LOOK * 10);
    }

    /// What the node's agent says of its server.
    pub fn set_phase(&self, number: usize, phase: Phase) {
        for index in 0..SITES.len() {
            let server = Server { phase, ..self.records[number].server(site(index)) };
            self.records[number].set_server(site(index), server);
            self.records[number].set_warm(site(index), phase == Phase::Ready);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.looker.take().map(JoinHandle::join));
    }
}

/// Servers that say their number.
pub fn numbered(count: usize) -> Vec<Origin> {
    let one = |number: usize| {
        Origin::serving(move |conn, _| conn.answer("200 OK", number.to_string().as_bytes()))
    };
    (0..count).map(one).collect()
}
