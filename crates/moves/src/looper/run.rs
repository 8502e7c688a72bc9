//! The loop's thread.

use super::attach::{Attacher, Found, Record, SlotLease, Target, open};
use super::commands::{Answer, Command, Commander, Inbox};
use super::dial::Claimant;
use super::faults::Faults;
use super::host::{FirstDispatch, Host};
use super::line::{Line, Place};
use super::pace::{Pace, Tempo};
use super::pool::{Pool, Terms};
use super::reach::Reach;
use super::status::{LoopStatus, MoveLine};
use super::stop_point;
use super::swaps::Swaps;
use super::{monotonic, nanos};
use crate::protocol::{BadWord, Look, Looked, Machine, Op, Outcome, Reply, Task, Word};
use crate::{Core, Input, Mode, MoveRecord, Options, RECORDS_MAX, Work};
use policy::Policy;
use pool_model::{NodeId, NodeTraits, SiteId};
use remote_memory::Mirror;
use shared_state::words::{Assign, Epoch, Lease};
use shared_state::{EdgeDemand, EdgeRow, EdgeService, NodeRecord, SiteRecord};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// What a loop is made of.
#[derive(Clone, Debug)]
pub struct LooperOptions {
    /// The decision core's part.
    pub core: Options,
    /// This edge's life, drawn at random at its start; not zero.
    pub incarnation: u32,
    /// The hash of this edge's settings for the pool.
    pub settings_hash: u64,
    /// How often it looks while requests are under way.
    pub look_every: Duration,
    /// How often it looks while there are none.
    pub idle_look_every: Duration,
    /// After which time an edge whose lease does not change counts as dead.
    pub slot_lease: Duration,
    /// After which time an agent whose beat does not change counts as dead, at the least.
    pub node_dead: Duration,
    /// After which time an operation on a region elsewhere that was not answered counts as lost.
    pub remote_deadline: Duration,
    /// Where the home's region is.
    pub home: Place,
    /// Where the nodes' regions are, by node.
    pub nodes: Vec<Place>,
    /// What the settings state of the nodes, by node; those that are missing are usual ones.
    pub traits: Vec<NodeTraits>,
}

impl LooperOptions {
    pub(super) fn terms(&self) -> Terms {
        let mut nodes = self.traits.clone();
        nodes.resize(usize::from(self.core.nodes), NodeTraits::default());
        Terms { sites: self.core.sites.clone(), nodes }
    }
}

/// The loop's threads could not be started.
#[derive(Debug, Error)]
#[error("a thread of the look loop can't be started: {0}")]
pub struct StartError(#[from] std::io::Error);

/// How often a busy edge rings each agent, so that it beats fast: agents go on for a second.
const RING_EVERY: Duration = Duration::from_millis(500);

/// The timer slack of the loop's thread: a deadline of 1 ms deserves better than the kernel's
/// default of 50 us.
const TIMER_SLACK_NS: u64 = 1_000;

/// How long a loop that starts waits for regions that it has not found yet before it decides on
/// moves: nodes that are still starting would look like nodes that are missing.
const START_GRACE: Duration = Duration::from_secs(3);

/// One operation over mapped memory, for the politeness of helping: 50 ns and a page fault.
const OP_TIME_NS: u64 = 1_000;

/// A running loop.
#[derive(Debug)]
pub struct LooperHandle {
    commander: Commander,
    stop: Arc<AtomicBool>,
    looper: Option<JoinHandle<()>>,
    attacher: Option<JoinHandle<()>>,
}

/// The loop.
pub struct Looper<H> {
    host: H,
    pub(super) options: LooperOptions,
    pub(super) core: Core,
    pub(super) policy: Box<dyn Policy>,
    pub(super) pool: Pool,
    pub(super) reach: Reach,
    pub(super) pace: Pace,
    pub(super) slot_lease: SlotLease,
    /// It decides nothing any more.
    pub(super) retired: bool,
    lease: Lease,
    found: Receiver<Found>,
    cut: Sender<Target>,
    inbox: Inbox,
    busy: Arc<AtomicBool>,
    tempo: Tempo,
    stop: Arc<AtomicBool>,
    demand: Vec<EdgeDemand>,
    service: Vec<EdgeService>,
    lines: VecDeque<MoveLine>,
    swaps: Swaps,
    first: VecDeque<FirstDispatch>,
    records_seen: u64,
    rung: Duration,
    random: u64,
    look_us: u32,
    paused: bool,
    faults: Faults,
    started: Duration,
    complete: bool,
}

impl<H: Host + 'static> Looper<H> {
    /// Starts the loop's two threads. Regions that are not there yet are attached when they come.
    pub fn start(
        mut host: H,
        policy: Box<dyn Policy>,
        options: LooperOptions,
    ) -> Result<LooperHandle, StartError> {
        let (found_sender, found) = channel();
        let (cut, cut_receiver) = channel();
        let (asked_sender, asked) = channel();
        let (busy, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let slot_lease = SlotLease::new(options.slot_lease);
        let ways = (found_sender, cut_receiver);
        let attacher = attacher(&options, slot_lease.clone(), ways, &busy, &stop);
        let attacher =
            std::thread::Builder::new().name("attach".into()).spawn(move || attacher.run())?;
        let (busy_here, stop_here) = (Arc::clone(&busy), Arc::clone(&stop));
        let looper = std::thread::Builder::new().name("look".into()).spawn(move || {
            host.looker(std::thread::current());
            let mut looper = Self::new(host, policy, options, (found, cut), Inbox::new(asked));
            (looper.busy, looper.stop) = (busy_here, stop_here);
            looper.slot_lease = slot_lease;
            looper.run();
        })?;
        let commander = Commander::new(asked_sender, looper.thread().clone());
        Ok(LooperHandle { commander, stop, looper: Some(looper), attacher: Some(attacher) })
    }

    fn new(
        host: H,
        policy: Box<dyn Policy>,
        options: LooperOptions,
        (found, cut): (Receiver<Found>, Sender<Target>),
        inbox: Inbox,
    ) -> Self {
        let nodes = options.core.nodes;
        let times = (options.slot_lease, options.node_dead);
        let hash = options.settings_hash;
        let pool = Pool::new(options.core.edge, hash, times, options.terms());
        let pace = Pace::new(options.look_every, options.idle_look_every, monotonic());
        Self {
            host,
            core: Core::new(options.core.clone()),
            policy,
            pool,
            reach: Reach::new(
                options.core.edge,
                options.core.sites.len(),
                nodes.into(),
                options.remote_deadline,
            ),
            pace,
            slot_lease: SlotLease::new(options.slot_lease),
            retired: false,
            lease: Lease { incarnation: options.incarnation, beat: 0 },
            found,
            cut,
            inbox,
            busy: Arc::default(),
            tempo: Tempo::Idle,
            stop: Arc::default(),
            demand: Vec::new(),
            service: Vec::new(),
            lines: VecDeque::new(),
            swaps: Swaps::default(),
            first: VecDeque::new(),
            records_seen: 0,
            rung: Duration::ZERO,
            random: u64::from(options.incarnation) | 1,
            look_us: 0,
            paused: false,
            faults: Faults::default(),
            started: monotonic(),
            complete: false,
            options,
        }
    }

    fn run(&mut self) {
        // Without the finer slack looks are late by some ten microseconds; nothing else changes.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK_NS));
        while !self.stop.load(Ordering::Relaxed) {
            let cpu = thread_cpu();
            let now = monotonic();
            let look_time = self.pace.look_time(now);
            self.host.sleeps(false);
            self.take_found();
            self.tell();
            self.look(look_time);
            self.note_moves();
            self.answer(look_time);
            if self.busy.load(Ordering::Relaxed) {
                // An idle loop's looks find cold caches; they say nothing about a busy one.
                self.pace.spent(thread_cpu().saturating_sub(cpu));
            }
            self.look_us = u32::try_from((monotonic() - now).as_micros()).unwrap_or(u32::MAX);
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        let is_busy = self.host.is_busy();
        self.busy.store(is_busy, Ordering::Relaxed);
        self.tempo = match is_busy {
            true if self.pool.is_calm() => Tempo::Calm,
            true => Tempo::Busy,
            false => Tempo::Idle,
        };
        let now = monotonic();
        let deadline = self.pace.next(now, self.tempo);
        if self.tempo != Tempo::Busy {
            self.host.sleeps(true);
            // A request that queued just before was not told to wake this thread.
            if self.has_come() {
                return;
            }
        }
        std::thread::park_timeout(deadline.saturating_sub(now));
    }

    /// Whether there is more to do by now than the tempo says.
    fn has_come(&mut self) -> bool {
        if self.tempo == Tempo::Idle {
            return self.host.is_busy();
        }
        self.host.demand(&mut self.demand);
        self.demand.iter().any(|demand| demand.queued > 0)
    }

    /// Takes over regions that were found, and notes agents that are gone.
    fn take_found(&mut self) {
        while let Ok(found) = self.found.try_recv() {
            match found {
                Found::Home(record, expected) => self.take_home(record, expected),
                Found::Node(record, expected) => {
                    let node = record.header().node;
                    if self.take_node(&record, expected) {
                        self.reach.node_found(node, record);
                    }
                }
                Found::Line(target, mirror, line) => self.take_line(target, mirror, line),
                Found::Lost(Target::Home) => {
                    tracing::warn!("the home is gone: no moves until it is back");
                    self.reach.forget(Target::Home);
                }
                Found::Lost(Target::Node(node)) => {
                    tracing::warn!(node = node.get(), "agent gone: its node serves on, unmoved");
                    self.pool.connected(node, false);
                }
                Found::Absent(target, why) => tracing::debug!(%target, %why, "no region"),
                Found::Broken(target, why) => self.give_up(target, why),
            }
        }
    }

    /// A record has become something else: nothing that stands there is believed any more.
    fn give_up(&mut self, target: Target, why: String) {
        self.faults.broken(target, why);
        if let Target::Node(node) = target {
            self.pool.connected(node, false);
        }
        self.reach.forget(target);
    }

    /// A line to a region elsewhere is up: to the one that is mirrored, or to a new one.
    fn take_line(&mut self, target: Target, mirror: Arc<Mirror>, line: Box<dyn Line>) {
        let line = match self.reach.resume(target, &mirror, line) {
            Ok(()) => {
                tracing::info!(%target, "reached again");
                return self.regained(target);
            }
            Err(line) => line,
        };
        let record = match open(target, mirror.clone()) {
            Ok(record) => record,
            Err(why) => return self.give_up(target, why),
        };
        let expected = record.lease_word(self.options.core.edge).load(Ordering::SeqCst);
        match record {
            Record::Home(record) => {
                if self.take_lease(&record, expected) {
                    self.reach.home_reached(record, mirror, line);
                    self.regained(target);
                }
            }
            Record::Node(record) => {
                if self.take_node(&record, expected) {
                    self.reach.node_reached(record, mirror, line);
                }
            }
        }
    }

    fn regained(&mut self, target: Target) {
        if let Target::Node(node) = target {
            self.pool.connected(node, true);
        }
        self.faults.mended(target);
    }

    fn take_home(&mut self, record: SiteRecord, expected: u64) {
        if self.take_lease(&record, expected) {
            self.reach.home_found(record);
            self.faults.mended(Target::Home);
        }
    }

    fn take_lease(&mut self, record: &SiteRecord, expected: u64) -> bool {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let word = record.lease_word(self.options.core.edge);
        let lease = self.lease.pack();
        if word.compare_exchange(expected, lease, order.0, order.1).is_err() {
            tracing::error!("another edge took this edge's row; no moves");
            return false;
        }
        true
    }

    fn take_node(&mut self, record: &NodeRecord, expected: u64) -> bool {
        let node = record.header().node;
        match self.host.attached(record.clone(), expected) {
            Ok(()) => {
                self.regained(Target::Node(node));
                true
            }
            Err(error) => {
                tracing::error!(node = node.get(), %error, "slot not taken");
                false
            }
        }
    }

    /// Tells the other edges that this one lives and what waits here; rings agents while busy.
    fn tell(&mut self) {
        self.host.demand(&mut self.demand);
        self.host.service(monotonic(), &mut self.service);
        self.lease = self.lease.beaten();
        if let Some(home) = &self.reach.memory.home {
            let edge = self.options.core.edge;
            for (index, &demand) in self.demand.iter().enumerate() {
                if let Ok(site) = SiteId::from_index(index) {
                    home.set_demand(edge, site, demand);
                    home.set_service(
                        edge,
                        site,
                        self.service.get(index).copied().unwrap_or_default(),
                    );
                }
            }
            let every = self.pace.every(self.tempo);
            let row = EdgeRow {
                lease: self.lease,
                settings_hash: self.told_hash(),
                look_us: self.look_us,
                look_every_us: u32::try_from(every.as_micros()).unwrap_or(u32::MAX),
                pid: std::process::id(),
            };
            home.set_edge_row(edge, &row);
            self.paused = home.is_paused();
        }
        let now = monotonic();
        if self.demand.iter().any(|demand| demand.total() > 0) && now - self.rung >= RING_EVERY {
            self.rung = now;
            self.reach.ring_all();
        }
    }

    fn look(&mut self, look_time: Duration) {
        self.read();
        if !self.judge_and_hand(look_time) || !self.is_complete() {
            return;
        }
        self.core.set_paused(None, self.paused);
        let differ = self.pool.settings_differ || self.retired;
        let mode = if differ { Mode::Observe } else { self.options.core.mode };
        self.core.set_mode(mode);
        self.faults.looked(&self.pool.seen, look_time);
        if mode == Mode::Move {
            self.free_lost(look_time);
        }
        let started = monotonic();
        self.decide_on_look(look_time);
        // Looks within this look are bounded by the core.
        loop {
            let now = look_time + (monotonic() - started);
            let nonce = self.draw();
            let is_unready = |node, site| self.reach.memory.is_unready(node, site);
            let who = (&self.pool, &self.reach);
            let input = input(who, &*self.policy, &is_unready, now, nonce);
            match self.core.next(&input) {
                Work::Run(task) => self.run_task(task, look_time, started),
                Work::LookAgain => {
                    self.read();
                    if !self.judge_and_hand(look_time) {
                        return;
                    }
                    self.decide_on_look(look_time);
                }
                Work::Rest => return,
            }
        }
    }

    /// Whether every node was found once, or has had its time.
    fn is_complete(&mut self) -> bool {
        self.complete |= self.reach.memory.nodes.iter().all(Option::is_some)
            || monotonic().saturating_sub(self.started) > START_GRACE;
        self.complete
    }

    /// A node whose word names no site of the pool serves nobody and counts for nobody: noise was
    /// written there. It is set free; from then on it moves like any other. Its version is the
    /// next after the noise, so there is a record of it: whoever replays the moves finds the jump
    /// explained.
    fn free_lost(&mut self, look_time: Duration) {
        for word in self.pool.seen.bad_words() {
            let BadWord::Assign(node, expected) = word else { continue };
            let Some(lost) = Assign::unpack(expected) else { continue };
            let freed = lost.moved(None, Epoch::ZERO);
            let (word, new) = (Word::Assign(node), freed.pack());
            let op = Op::CompareAndSwap { word, expected, new };
            let reach = &mut self.reach;
            // A miss means that somebody else has done it, and has the record.
            if self.swaps.perform(op, |op| reach.perform(op))
                == (Reply::Swapped { found: expected })
            {
                self.core.freed(nanos(look_time), node, freed.version);
            }
        }
    }

    fn decide_on_look(&mut self, look_time: Duration) {
        let nonce = self.draw();
        let is_unready = |node, site| self.reach.memory.is_unready(node, site);
        let who = (&self.pool, &self.reach);
        let input = input(who, &*self.policy, &is_unready, look_time, nonce);
        self.core.looked(&input, |node| self.pool.is_serving(node));
    }

    fn run_task(&mut self, mut task: Task, look_time: Duration, started: Duration) {
        let (reach, swaps) = (&mut self.reach, &mut self.swaps);
        let outcome = task.drive(|op| {
            let reply = swaps.perform(op, |op| reach.perform(op));
            stop_point::passed(&op, &reply);
            reply
        });
        match outcome {
            Outcome::Moved { node, .. } => self.hand_move(node),
            Outcome::Helped { moved: Some((node, ..)), .. } => self.hand_move(node),
            _ => {}
        }
        let now = look_time + (monotonic() - started);
        self.core.ended(nanos(now), &outcome);
    }

    /// A node changed hands: requests go there from now on; its agent is told.
    fn hand_move(&mut self, node: NodeId) {
        let place = node.index();
        let Some(Some(record)) = self.reach.memory.nodes.get(place) else { return };
        if let Some(assign) = record.assign() {
            let limit = self.reach.limit(place, Some(assign));
            self.host.moved(node, assign, limit);
        }
        self.reach.ring(node);
    }

    /// Reads all words. A home that is lost leaves the site words as they were.
    fn read(&mut self) {
        let mut cut = Vec::new();
        self.reach.refresh(&mut cut);
        cut.into_iter().for_each(|target| self.lost(target));
        let reach = &self.reach;
        if Look::new(&self.pool.seen).drive(&mut self.pool.seen, |op| reach.read(op))
            == Looked::HomeLost
        {
            for (index, raw) in self.pool.seen.nodes.iter_mut().enumerate() {
                let node = u16::try_from(index).ok().and_then(|index| NodeId::new(index).ok());
                let word = node.map(|node| reach.read(Op::Read(Word::Assign(node))));
                *raw = match word {
                    Some(Reply::Value(word)) => Some(word),
                    _ => None,
                };
            }
        }
    }

    /// The line to a region was cut: it is dialled again.
    fn lost(&mut self, target: Target) {
        tracing::warn!(%target, "does not answer; no moves with it until it is reached again");
        if let Target::Node(node) = target {
            self.pool.connected(node, false);
        }
        // Without the other thread nothing is found any more, and it outlives this one.
        let _ = self.cut.send(target);
    }

    /// Judges the look and hands it to the host; whether decisions can be made.
    fn judge_and_hand(&mut self, look_time: Duration) -> bool {
        self.pool.judge(&self.reach, look_time, |node| self.host.is_failing(node));
        self.host.looked(&self.pool.nodes, &self.pool.sites);
        self.reach.memory.home.is_some()
    }

    /// Puts new records and first requests to moved nodes into the log.
    fn note_moves(&mut self) {
        let records = self.core.records();
        for record in records.since(self.records_seen) {
            self.inbox.ended(record);
            log(record);
            if self.lines.len() >= RECORDS_MAX {
                self.lines.pop_front();
            }
            let swapped_ns = self.swaps.of(record);
            self.lines.push_back(MoveLine { record: *record, swapped_ns, first_dispatch_ns: None });
        }
        self.swaps.clear();
        self.records_seen = records.total();
        for first in self.host.first_dispatches() {
            let FirstDispatch { node, version, at } = first;
            if self.first.len() >= RECORDS_MAX {
                self.first.pop_front();
            }
            self.first.push_back(first);
            let line = self
                .lines
                .iter_mut()
                .rev()
                .find(|line| line.record.node == node && line.record.version == Some(version));
            if let Some(line) = line {
                line.first_dispatch_ns.get_or_insert(nanos(at));
            }
        }
    }

    fn answer(&mut self, look_time: Duration) {
        while let Some(asked) = self.inbox.take() {
            let answer = match asked.command {
                Command::Status { moves_from } => Answer::Status(Box::new(self.status(moves_from))),
                Command::Move { node, to } => {
                    let id = self.inbox.wait(asked.answer.clone());
                    match self.core.request(nanos(look_time), id, node, to) {
                        Ok(()) => continue,
                        Err(full) => Answer::Refused(full.to_string()),
                    }
                }
                Command::Cordon { node, cordoned } => done(self.reach.set_cordoned(node, cordoned)),
                Command::Pause { paused } => done(self.reach.set_paused(paused)),
                Command::Update(update) => self.update(*update),
                Command::Retire => self.retire(),
            };
            // Whoever asked may have gone; then nobody wants the answer.
            drop(asked.answer.send(answer));
        }
    }

    fn status(&self, moves_from: u64) -> LoopStatus {
        let first = self.records_seen - self.lines.len() as u64;
        let skip = usize::try_from(moves_from.saturating_sub(first)).unwrap_or(usize::MAX);
        LoopStatus {
            policy: self.policy.name().to_owned(),
            observe: self.options.core.mode == Mode::Observe,
            paused: self.paused,
            settings_differ: self.pool.settings_differ || self.core.settings_conflict(),
            home: self.reach.memory.home.is_some(),
            sites: self.pool.site_states(),
            nodes: self.pool.node_states(&self.reach),
            edges: self.pool.edge_states(&self.reach.memory),
            moves: self.lines.iter().skip(skip).copied().collect(),
            first_dispatches: if moves_from == u64::MAX {
                Vec::new()
            } else {
                self.first.iter().copied().collect()
            },
            moves_total: self.records_seen,
            counters: self.core.counters(),
            look_cost: self.pace.cost(),
            look_every: self.pace.every(Tempo::Busy),
            look_every_now: self.pace.every(self.tempo),
            stretched: self.pace.is_stretched(),
            faults: self.faults.texts(),
        }
    }

    fn draw(&mut self) -> u32 {
        // Marsaglia's xorshift: the nonce only has to differ between edges and epochs.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as u32 & 0xfff
    }
}

impl LooperHandle {
    /// Asks the loop. Cheap to clone.
    #[must_use]
    pub fn commander(&self) -> Commander {
        self.commander.clone()
    }

    /// Stops both threads and waits for them: at most one look and one connection.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in [self.looper.take(), self.attacher.take()].into_iter().flatten() {
            thread.thread().unpark();
            // A panic of the thread was reported when it happened.
            drop(thread.join());
        }
    }
}

impl Drop for LooperHandle {
    fn drop(&mut self) {
        self.end();
    }
}

fn attacher(
    options: &LooperOptions,
    slot_lease: SlotLease,
    ways: (Sender<Found>, Receiver<Target>),
    busy: &Arc<AtomicBool>,
    stop: &Arc<AtomicBool>,
) -> Attacher {
    let node = |(index, place): (usize, &Place)| {
        let node = NodeId::new(u16::try_from(index).ok()?).ok()?;
        Some((Target::Node(node), place.clone()))
    };
    let nodes = options.nodes.iter().enumerate().filter_map(node);
    let places = std::iter::once((Target::Home, options.home.clone())).chain(nodes);
    let who = Claimant {
        edge: options.core.edge,
        incarnation: options.incarnation,
        sites: options.core.sites.len(),
        slot_lease: options.slot_lease,
    };
    Attacher::new(places, (who, slot_lease), ways, Arc::clone(busy), Arc::clone(stop))
}

fn input<'a>(
    (pool, reach): (&'a Pool, &Reach),
    policy: &'a dyn Policy,
    is_unready: &'a dyn Fn(NodeId, SiteId) -> bool,
    now: Duration,
    nonce: u32,
) -> Input<'a> {
    Input {
        now_ns: nanos(now),
        seen: &pool.seen,
        view: &pool.view,
        policy,
        is_unready,
        op_time_ns: reach.op_time().map_or(OP_TIME_NS, nanos).max(OP_TIME_NS),
        nonce,
    }
}

/// The answer to a change of the home's words.
fn done(is_done: bool) -> Answer {
    if is_done {
        return Answer::Done;
    }
    Answer::Refused("the home's site record is not reached; try again when it is back".to_owned())
}

fn thread_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

fn log(record: &MoveRecord) {
    let site = |site: Option<SiteId>| site.map_or(0, SiteId::get);
    tracing::debug!(
        node = record.node.get(),
        from = site(record.from),
        to = site(record.to),
        reason = record.reason.name(),
        load = record.load,
        ending = record.ending.name(),
        "move"
    );
}
