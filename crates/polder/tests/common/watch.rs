//! A peer that only reads: it maps the records of a running pool as an edge does, and notes every
//! change of the words that decide.
//!
//! The words of several nodes cannot be read at one instant. Two passes that found the same were
//! both true at any instant between them, because no `assign` word ever repeats (its version
//! grows): only such pairs count as a picture.

use super::PATIENCE;
use pool_model::{NodeId, SiteId};
use remote_memory::shm::{Attachment, attach};
use shared_state::slot::{LiveEdges, node_load};
use shared_state::words::{Assign, Depart};
use shared_state::{NodeRecord, SiteRecord};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an owner may take to hand out its region.
const ATTACH_WITHIN: Duration = Duration::from_secs(2);
/// Between two pictures: a look takes a millisecond, so no state of a pool is shorter than this.
const PAUSE: Duration = Duration::from_micros(30);
/// Between two checks whether owners still live.
const OWNERS_EVERY: Duration = Duration::from_millis(5);

/// Maps a region as a peer would.
pub fn peer(socket: &Path) -> Attachment {
    let started = Instant::now();
    loop {
        match attach(socket, ATTACH_WITHIN) {
            Ok(attachment) => return attachment,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{}: {error}", socket.display()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The record of a node, as a peer maps it.
pub fn node_record(folder: &Path, node: &str) -> NodeRecord {
    let region = peer(&folder.join(format!("node-{node}.sock"))).region();
    NodeRecord::open(region).expect("a node record")
}

/// The site record, as a peer maps it.
pub fn site_record(folder: &Path) -> SiteRecord {
    SiteRecord::open(peer(&folder.join("home.sock")).region()).expect("a site record")
}

/// Requests that all edges together, dead ones too, have noted at a node.
pub fn noted_everywhere(record: &NodeRecord) -> u32 {
    node_load(record, LiveEdges(u64::MAX))
}

/// What was seen of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeHistory {
    /// Its site under each version that was seen.
    pub sites: BTreeMap<u32, Option<SiteId>>,
    /// When each version was first seen.
    pub since: BTreeMap<u32, Instant>,
    /// How often a record of it was found anew, after its agent had died.
    pub lives: u32,
}

impl NodeHistory {
    /// Changes of its site: renewed stamps and new lives do not count.
    pub fn moves(&self) -> usize {
        let sites: Vec<_> = self.sites.values().collect();
        sites.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// Changes of its site between two moments.
    pub fn moves_within(&self, from: Instant, to: Instant) -> usize {
        let sites: Vec<_> = self.sites.iter().collect();
        let changed = sites.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        changed.filter(|pair| (from..to).contains(&self.since[pair[1].0])).count()
    }
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub nodes: Vec<NodeHistory>,
    /// The fewest nodes that each site was ever seen with.
    pub fewest: Vec<usize>,
    /// The longest that each site's departure can have been pending: from the last time that it
    /// was seen idle, to the next.
    pub pending: Vec<Duration>,
    /// Pictures taken, and passes that differed and so are none.
    pub pictures: u64,
    pub torn: u64,
    /// Versions that came and went between two pictures.
    pub missed: u64,
    /// What must never be.
    pub faults: Vec<String>,
}

impl History {
    pub fn moves(&self) -> usize {
        self.nodes.iter().map(NodeHistory::moves).sum()
    }

    pub fn moves_within(&self, from: Instant, to: Instant) -> usize {
        self.nodes.iter().map(|node| node.moves_within(from, to)).sum()
    }

    /// No site was ever below its hard guarantee, and no version of a node had two sites.
    #[track_caller]
    pub fn assert_sound(&self) {
        assert_eq!(self.faults, Vec::<String>::new(), "{} pictures", self.pictures);
        assert!(self.pictures > 100, "only {} pictures", self.pictures);
    }
}

/// A running watch.
pub struct Watch {
    stop: Arc<AtomicBool>,
    moves: Arc<AtomicU64>,
    thread: Option<JoinHandle<History>>,
}

impl Watch {
    /// Watches the nodes and the sites, whose hard guarantees are `hard`, in order.
    pub fn start(folder: &Path, nodes: &[String], hard: &[usize]) -> Self {
        let (stop, moves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut watcher = Watcher::new(folder, nodes, hard, Arc::clone(&moves));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            while !stopped.load(Ordering::Relaxed) {
                watcher.turn();
                std::thread::sleep(PAUSE);
            }
            watcher.history
        };
        Self { stop, moves, thread: Some(std::thread::spawn(watch)) }
    }

    /// Versions seen so far, over all nodes: grows with each move.
    pub fn changes(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Waits until nodes have changed hands so often again.
    #[track_caller]
    pub fn wait_changes(&self, more: u64) {
        let wanted = self.changes() + more;
        super::eventually(&format!("{more} more moves are made"), || self.changes() >= wanted);
    }

    /// Ends the watch, and checks what must always hold.
    #[track_caller]
    pub fn finish(mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a watch is finished once");
        let history = thread.join().expect("the watch does not panic");
        history.assert_sound();
        history
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Seen {
    socket: PathBuf,
    attachment: Attachment,
    record: NodeRecord,
}

struct Watcher {
    nodes: Vec<Seen>,
    home: SiteRecord,
    _home: Attachment,
    hard: Vec<usize>,
    /// The last picture's words.
    last: Vec<u64>,
    /// For a node whose word is a tombstone, where it was.
    sites: Vec<Option<SiteId>>,
    /// When each site's departure was last seen idle, and whether it has been pending since.
    idle: Vec<(Instant, bool)>,
    owners_seen: Instant,
    moves: Arc<AtomicU64>,
    history: History,
}

impl Watcher {
    fn new(folder: &Path, nodes: &[String], hard: &[usize], moves: Arc<AtomicU64>) -> Self {
        let see = |name: &String| {
            let socket = folder.join(format!("node-{name}.sock"));
            let attachment = peer(&socket);
            let record = NodeRecord::open(attachment.region()).expect("a node record");
            Seen { socket, attachment, record }
        };
        let home = peer(&folder.join("home.sock"));
        let record = SiteRecord::open(home.region()).expect("a site record");
        let history = History {
            nodes: vec![NodeHistory::default(); nodes.len()],
            fewest: vec![usize::MAX; hard.len()],
            pending: vec![Duration::ZERO; hard.len()],
            ..History::default()
        };
        Self {
            nodes: nodes.iter().map(see).collect(),
            home: record,
            _home: home,
            hard: hard.to_vec(),
            last: Vec::new(),
            sites: vec![None; nodes.len()],
            idle: vec![(Instant::now(), false); hard.len()],
            owners_seen: Instant::now(),
            moves,
            history,
        }
    }

    fn pass(&self) -> Vec<u64> {
        let read = |seen: &Seen| seen.record.assign_word().load(Ordering::SeqCst);
        self.nodes.iter().map(read).collect()
    }

    fn turn(&mut self) {
        let now = Instant::now();
        if now - self.owners_seen > OWNERS_EVERY {
            self.owners_seen = now;
            self.find_again();
        }
        self.look_at_departures();
        let (one, other) = (self.pass(), self.pass());
        if one != other {
            self.history.torn += 1;
            return;
        }
        self.history.pictures += 1;
        if one != self.last {
            self.note(&one, now);
            self.last = one;
        }
    }

    /// Maps the new region of a node whose agent has died.
    fn find_again(&mut self) {
        for (seen, history) in self.nodes.iter_mut().zip(&mut self.history.nodes) {
            if seen.attachment.owner_alive() {
                continue;
            }
            let Ok(attachment) = attach(&seen.socket, ATTACH_WITHIN) else { continue };
            if let Ok(record) = NodeRecord::open(attachment.region()) {
                (seen.attachment, seen.record) = (attachment, record);
                history.lives += 1;
            }
        }
    }

    fn look_at_departures(&mut self) {
        for (place, (idle_at, was_pending)) in self.idle.iter_mut().enumerate() {
            let Ok(site) = SiteId::from_index(place) else { continue };
            let word = self.home.depart_word(site).map_or(0, |word| word.load(Ordering::SeqCst));
            let is_pending = word != 0 && Depart::unpack(word).pending.is_some();
            let now = Instant::now();
            if is_pending || *was_pending {
                let longest = &mut self.history.pending[place];
                *longest = (*longest).max(now - *idle_at);
            }
            if !is_pending {
                *idle_at = now;
            }
            *was_pending = is_pending;
        }
    }

    fn note(&mut self, words: &[u64], now: Instant) {
        for (place, &word) in words.iter().enumerate() {
            let Some(assign) = Assign::unpack(word) else { continue };
            self.sites[place] = assign.site;
            self.note_version(place, assign, now);
        }
        for (place, &hard) in self.hard.iter().enumerate() {
            let site = SiteId::from_index(place).ok();
            let count = self.sites.iter().filter(|at| at.is_some() && **at == site).count();
            self.history.fewest[place] = self.history.fewest[place].min(count);
            if count < hard {
                let fault = format!("site {place} has {count} of {hard} nodes: {words:x?}");
                self.history.faults.push(fault);
            }
        }
    }

    fn note_version(&mut self, place: usize, assign: Assign, now: Instant) {
        let history = &mut self.history.nodes[place];
        if let Some(known) = history.sites.get(&assign.version) {
            if *known != assign.site {
                let (node, site) = (NodeId::MIN.get() + place as u16, assign.site);
                let version = assign.version;
                let fault = format!("node {node}: version {version} is {known:?} and {site:?}");
                self.history.faults.push(fault);
            }
            return;
        }
        let newest = history.sites.last_key_value().map(|(version, _)| *version);
        match newest {
            Some(newest) if assign.version < newest => {
                let fault = format!("node {place}: version {} after {newest}", assign.version);
                self.history.faults.push(fault);
            }
            Some(newest) => self.history.missed += u64::from(assign.version - newest - 1),
            None => {}
        }
        let history = &mut self.history.nodes[place];
        history.sites.insert(assign.version, assign.site);
        history.since.insert(assign.version, now);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }
}
