//! Finding regions, and noticing that their owners died, on a thread of its own: connecting may
//! block, and the look loop must not.

use super::dial::{Claimant, Dialling};
use super::line::{Line, Place};
use pool_model::{EdgeId, NodeId};
use remote_memory::shm::{Attachment, ShmError, attach};
use remote_memory::{Mapped, Mirror};
use shared_state::{NodeRecord, SiteRecord};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How long one connection may take; an owner that is alive answers within a millisecond.
const ATTACH_DEADLINE: Duration = Duration::from_millis(100);
/// Between two rounds while an owner is missing or requests are under way: a dead agent is then
/// noticed within two looks of an idle edge.
const ROUND_BUSY: Duration = Duration::from_millis(10);
/// Between two rounds while all is well and idle.
const ROUND_IDLE: Duration = Duration::from_millis(200);

/// Whose region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Home,
    Node(NodeId),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Home => f.write_str("the site record"),
            Self::Node(node) => write!(f, "node {node}'s record"),
        }
    }
}

/// What the thread found out.
pub(super) enum Found {
    /// The home's record, and the lease word of this edge's row.
    Home(SiteRecord, u64),
    /// A node's record, and the lease word of this edge's slot.
    Node(NodeRecord, u64),
    /// A line to a region elsewhere, and what was read of it; this edge's place there is taken.
    Line(Target, Arc<Mirror>, Box<dyn Line>),
    /// The owner is gone; its region stays mapped.
    Lost(Target),
    /// Nobody serves it, and why. Told once for each reason.
    Absent(Target, String),
    /// The region can't be used, or not any more, and why. Told once for each reason.
    Broken(Target, String),
}

/// One region that is wanted.
struct Wanted {
    target: Target,
    path: PathBuf,
    state: State,
    /// What was wrong the last time.
    told: String,
}

enum State {
    Absent,
    /// Somebody else's lease is on our slot: wait until it has expired.
    Leased {
        attachment: Attachment,
        word: u64,
        since: Instant,
    },
    Attached(Attachment),
}

/// A record of either kind.
pub(super) enum Record {
    Home(SiteRecord),
    Node(NodeRecord),
}

/// How long a lease lasts: the loop may change it.
#[derive(Clone, Debug)]
pub(super) struct SlotLease(Arc<AtomicU64>);

impl SlotLease {
    pub(super) fn new(lease: Duration) -> Self {
        let shared = Self(Arc::default());
        shared.set(lease);
        shared
    }

    pub(super) fn set(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

pub(super) struct Attacher {
    wanted: Vec<Wanted>,
    dialled: Vec<(Dialling, String)>,
    who: Claimant,
    slot_lease: SlotLease,
    found: Sender<Found>,
    cut: Receiver<Target>,
    busy: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Attacher {
    /// `cut` brings the targets whose lines the loop has given up.
    pub(super) fn new(
        places: impl IntoIterator<Item = (Target, Place)>,
        (who, slot_lease): (Claimant, SlotLease),
        (found, cut): (Sender<Found>, Receiver<Target>),
        busy: Arc<AtomicBool>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (mut wanted, mut dialled) = (Vec::new(), Vec::new());
        for (target, place) in places {
            match place {
                Place::Here(path) => {
                    let told = String::new();
                    wanted.push(Wanted { target, path, state: State::Absent, told });
                }
                Place::Elsewhere { label, dial } => {
                    dialled.push((Dialling::new(target, label, dial), String::new()));
                }
            }
        }
        Self { wanted, dialled, who, slot_lease, found, cut, busy, stop }
    }

    /// Runs until it is told to stop or nobody listens.
    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut all_there = true;
            self.who.slot_lease = self.slot_lease.get();
            for wanted in &mut self.wanted {
                for found in wanted.round(self.who.edge, self.who.slot_lease) {
                    if self.found.send(found).is_err() {
                        return;
                    }
                }
                all_there &= matches!(wanted.state, State::Attached(_));
            }
            while let Ok(target) = self.cut.try_recv() {
                let of = |one: &&mut (Dialling, String)| one.0.target() == target;
                if let Some((dialling, _)) = self.dialled.iter_mut().find(of) {
                    dialling.lost();
                }
            }
            for (dialling, told) in &mut self.dialled {
                let mut tell = Vec::new();
                dialling.round(self.who, &mut tell);
                for found in tell {
                    if is_news(&found, told) && self.found.send(found).is_err() {
                        return;
                    }
                }
                all_there &= dialling.is_handed();
            }
            let hurry = !all_there || self.busy.load(Ordering::Relaxed);
            std::thread::park_timeout(if hurry { ROUND_BUSY } else { ROUND_IDLE });
        }
    }
}

/// Whether it was not told just before.
fn is_news(found: &Found, told: &mut String) -> bool {
    match found {
        Found::Absent(_, why) | Found::Broken(_, why) => {
            let is_news = told != why;
            why.clone_into(told);
            is_news
        }
        _ => {
            told.clear();
            true
        }
    }
}

/// Opens a region as the record that it should be.
pub(super) fn open(target: Target, region: Arc<dyn Mapped>) -> Result<Record, String> {
    match target {
        Target::Home => {
            SiteRecord::open(region).map(Record::Home).map_err(|error| error.to_string())
        }
        Target::Node(node) => {
            let record = NodeRecord::open(region).map_err(|error| error.to_string())?;
            let found = record.header().node;
            if found != node {
                return Err(format!("the record is node {found}'s, not node {node}'s"));
            }
            Ok(Record::Node(record))
        }
    }
}

impl Wanted {
    /// One step for this region; what there is to tell.
    fn round(&mut self, edge: EdgeId, slot_lease: Duration) -> Vec<Found> {
        let mut tell = Vec::new();
        self.state = match std::mem::replace(&mut self.state, State::Absent) {
            State::Attached(attachment) if attachment.owner_alive() => {
                match self.open(&attachment) {
                    Ok(_) => State::Attached(attachment),
                    Err(why) => self.broken(&why, &mut tell),
                }
            }
            State::Attached(_) => {
                tell.push(Found::Lost(self.target));
                self.connect(edge, &mut tell)
            }
            State::Absent => self.connect(edge, &mut tell),
            State::Leased { attachment, word, since } => {
                self.wait(edge, slot_lease, (attachment, word, since), &mut tell)
            }
        };
        tell
    }

    fn connect(&mut self, edge: EdgeId, tell: &mut Vec<Found>) -> State {
        let attachment = match attach(&self.path, ATTACH_DEADLINE) {
            Ok(attachment) => attachment,
            // Nobody there yet, or no longer: that is told by the missing record.
            Err(error @ (ShmError::NoOwner { .. } | ShmError::Deadline { .. })) => {
                return self.unusable(&error.to_string(), Found::Absent, tell);
            }
            Err(error) => return self.broken(&error.to_string(), tell),
        };
        match self.open(&attachment) {
            Ok(record) => {
                let word = record.lease_word(edge).load(Ordering::SeqCst);
                if word == 0 {
                    self.take(attachment, record, word, tell)
                } else {
                    State::Leased { attachment, word, since: Instant::now() }
                }
            }
            Err(why) => self.broken(&why, tell),
        }
    }

    /// A lease that stays the same for its time has expired: its edge is dead.
    fn wait(
        &mut self,
        edge: EdgeId,
        slot_lease: Duration,
        (attachment, word, since): (Attachment, u64, Instant),
        tell: &mut Vec<Found>,
    ) -> State {
        let record = match self.open(&attachment) {
            Ok(record) if attachment.owner_alive() => record,
            _ => return State::Absent,
        };
        let now = record.lease_word(edge).load(Ordering::SeqCst);
        if now != word {
            let why = format!("another edge with number {edge} is alive");
            self.unusable(&why, Found::Absent, tell);
            return State::Leased { attachment, word: now, since: Instant::now() };
        }
        if since.elapsed() < slot_lease {
            return State::Leased { attachment, word, since };
        }
        self.take(attachment, record, word, tell)
    }

    fn take(
        &mut self,
        attachment: Attachment,
        record: Record,
        word: u64,
        tell: &mut Vec<Found>,
    ) -> State {
        self.told.clear();
        tell.push(match record {
            Record::Home(record) => Found::Home(record, word),
            Record::Node(record) => Found::Node(record, word),
        });
        State::Attached(attachment)
    }

    fn broken(&mut self, why: &str, tell: &mut Vec<Found>) -> State {
        self.unusable(why, Found::Broken, tell)
    }

    fn unusable(
        &mut self,
        why: &str,
        found: fn(Target, String) -> Found,
        tell: &mut Vec<Found>,
    ) -> State {
        if self.told != why {
            why.clone_into(&mut self.told);
            tell.push(found(self.target, why.to_owned()));
        }
        State::Absent
    }

    fn open(&self, attachment: &Attachment) -> Result<Record, String> {
        open(self.target, attachment.region())
    }
}

impl Record {
    /// The lease on the edge's place.
    pub(super) fn lease_word(&self, edge: EdgeId) -> &AtomicU64 {
        match self {
            Self::Home(record) => record.lease_word(edge),
            Self::Node(record) => record.lease_word(edge),
        }
    }
}
