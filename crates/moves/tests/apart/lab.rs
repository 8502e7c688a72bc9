//! Owners that serve the home and the nodes over TCP, edges, and the ways between them.

use crate::net::Way;
use crate::support::{PATIENCE, Pretend, node, site, status, wait_for};
use crate::witness::{Seen, Whose, Witness};
use moves::looper::{Looper, LooperHandle, LooperOptions, Place};
use moves::{Mode, Options, Timing};
use policy::Reconf;
use pool_model::{EdgeId, Guarantee, SiteId, SiteTerms};
use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{PreSharedKey, RequesterSettings, Responder, ResponderSettings, Security};
use remote_memory::{Access, Mapped};
use shared_state::words::{Assign, Epoch, Phase, Server};
use shared_state::{
    NODE_REGION_BYTES, NodeHeader, NodeRecord, SiteHeader, SiteRecord, site_region_bytes,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) const SITES: u16 = 2;
pub(crate) const OWNERS: usize = 3;
pub(crate) const HARD: u16 = 1;

pub(crate) fn security() -> Security {
    Security::Noise(PreSharedKey::from_bytes([7; 32]))
}

fn responder() -> Responder {
    let settings = ResponderSettings { security: security(), real_time: false };
    Responder::bind("127.0.0.1:0".parse().unwrap(), settings).unwrap()
}

fn offset(region: &OwnedRegion, word: &AtomicU64) -> u64 {
    let same = |at: &&AtomicU64| std::ptr::eq(*at, word);
    region.words().iter().position(|at| same(&at)).unwrap() as u64 * 8
}

/// The home at owner 0, and the nodes, dealt out to the owners in turn.
pub(crate) struct Lab {
    pub(crate) witness: Arc<Witness>,
    pub(crate) home: SiteRecord,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) owners: Vec<Responder>,
}

impl Lab {
    /// A pool whose nodes start at these sites; their agents promise a beat within a minute.
    pub(crate) fn new(start: &[u16]) -> Self {
        let owners: Vec<_> = (0..OWNERS).map(|_| responder()).collect();
        let witness = Witness::new(HARD.into());
        let home = serve_home(&owners[0], &witness);
        let mut lab = Self { witness, home, nodes: Vec::new(), owners };
        for (number, &at) in start.iter().enumerate() {
            let first = Assign { site: SiteId::new(at).ok(), stamp: Epoch::ZERO, version: 1 };
            let record = lab.serve_node(number as u16, first);
            lab.nodes.push(record);
        }
        lab
    }

    /// A new region of a node, at its owner.
    pub(crate) fn serve_node(&self, number: u16, first: Assign) -> NodeRecord {
        let label = format!("node-{number}");
        let region = Arc::new(OwnedRegion::create(&label, NODE_REGION_BYTES).unwrap());
        let header = NodeHeader { node: node(number), max_in_flight: 8 };
        let record = NodeRecord::publish(region.clone(), header, first).unwrap();
        for number in 1..=SITES {
            let (address, phase) = (Ipv4Addr::LOCALHOST, Phase::Ready);
            record.set_server(site(number), Server { address, port: 9, phase, restarts: 0 });
            record.set_warm(site(number), true);
        }
        record.beat_once(Duration::from_secs(60));
        self.witness.watch(number, &region);
        let assign = offset(&region, record.assign_word());
        let (witness, whose) = (Arc::clone(&self.witness), Whose::Node(number));
        let seen = Seen { region, whose, witness, departs: Vec::new(), assign };
        self.owner(number).serve(Arc::new(seen), Access::ReadWrite).unwrap();
        record
    }

    pub(crate) fn owner(&self, number: u16) -> &Responder {
        &self.owners[usize::from(number) % OWNERS]
    }

    /// The home's memory is lost: it is served anew, empty.
    pub(crate) fn lose_home(&mut self) {
        assert!(self.owners[0].retire(self.home.region().descriptor().key));
        self.home = serve_home(&self.owners[0], &self.witness);
    }

    pub(crate) fn at(&self, number: u16) -> u16 {
        self.nodes[usize::from(number)].assign().unwrap().site.map_or(0, SiteId::get)
    }

    pub(crate) fn count(&self, at: u16) -> usize {
        (0..self.nodes.len() as u16).filter(|&number| self.at(number) == at).count()
    }
}

fn serve_home(owner: &Responder, witness: &Arc<Witness>) -> SiteRecord {
    let region = OwnedRegion::create("home", site_region_bytes(SITES.into())).unwrap();
    let region = Arc::new(region);
    let header = SiteHeader { sites: SITES, settings_hash: 7 };
    let record = SiteRecord::publish(region.clone(), header).unwrap();
    let depart = |number| offset(&region, record.depart_word(site(number)).unwrap());
    let departs = (1..=SITES).map(depart).collect();
    let (witness, whose) = (Arc::clone(witness), Whose::Home);
    let seen = Seen { region, whose, witness, departs, assign: 0 };
    owner.serve(Arc::new(seen), Access::ReadWrite).unwrap();
    record
}

/// An edge with a way of its own to each owner.
pub(crate) struct Edge {
    pub(crate) handle: LooperHandle,
    pub(crate) host: Pretend,
    pub(crate) ways: Vec<Way>,
}

impl Edge {
    pub(crate) fn start(lab: &Lab, number: u8) -> Self {
        let seed = |owner: usize| u64::from(number) << 8 | owner as u64;
        let way = |(index, owner): (usize, &Responder)| Way::to(owner.address(), seed(index));
        let ways: Vec<_> = lab.owners.iter().enumerate().map(way).collect();
        let place = |label: String, address: SocketAddr| Place::Elsewhere {
            label,
            dial: Arc::new(RequesterSettings {
                address,
                security: security(),
                connect_max: Duration::from_millis(500),
            }),
        };
        let nodes = lab.nodes.len() as u16;
        let options = LooperOptions {
            core: Options {
                edge: EdgeId::new(number).unwrap(),
                timing: Timing { hold_ns: 10_000_000, ..Timing::default() },
                sites: vec![
                    SiteTerms::default().with_guarantee(Guarantee::hard(HARD));
                    SITES.into()
                ],
                nodes,
                settings_version: 1,
                mode: Mode::Move,
            },
            incarnation: u32::from(number) + 1,
            settings_hash: 7,
            look_every: Duration::from_millis(2),
            idle_look_every: Duration::from_millis(20),
            slot_lease: Duration::from_secs(2),
            node_dead: Duration::from_millis(500),
            remote_deadline: Duration::from_millis(60),
            home: place("home".to_owned(), ways[0].address),
            traits: Vec::new(),
            nodes: (0..nodes)
                .map(|number| {
                    let way = &ways[usize::from(number) % OWNERS];
                    place(format!("node-{number}"), way.address)
                })
                .collect(),
        };
        let host = Pretend { edge: number, ..Pretend::default() };
        let policy = Box::new(Reconf::default());
        let handle = Looper::start(host.clone(), policy, options).unwrap();
        Self { handle, host, ways }
    }

    pub(crate) fn alive(&self) -> Vec<bool> {
        status(&self.handle.commander()).nodes.iter().map(|node| node.alive).collect()
    }

    /// Waits until the home and all nodes are reached.
    pub(crate) fn reached(&self) {
        wait_for("all regions", || {
            let status = status(&self.handle.commander());
            status.home && status.nodes.iter().all(|node| node.alive)
        });
    }

    pub(crate) fn ask(&self, command: moves::looper::Command) -> moves::looper::Answer {
        self.handle.commander().ask(command, PATIENCE).unwrap()
    }
}
