//! The look loop over real shared memory, with a host that only pretends to have requests.

#![allow(clippy::unwrap_used)]

mod support;

use moves::looper::{
    Answer, Command, Commander, Looper, LooperHandle, LooperOptions, Place, Update,
};
use moves::{Ending, Mode, Options, Timing};
use policy::{Policy, Reconf, Rigid};
use pool_model::{EdgeId, Guarantee, SiteId, SiteTerms};
use remote_memory::shm::{OwnedRegion, RegionServer};
use shared_state::words::{Assign, Epoch, Lease, Phase, Server};
use shared_state::{
    NODE_REGION_BYTES, NodeHeader, NodeRecord, SiteHeader, SiteRecord, site_region_bytes,
};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{PATIENCE, Pretend, node, site, status, wait_for};
use tempfile::TempDir;

const SITES: u16 = 2;

/// The home and the agents, in this process.
struct Lab {
    folder: TempDir,
    home: SiteRecord,
    nodes: Vec<NodeRecord>,
    servers: Vec<RegionServer>,
}

impl Lab {
    /// A pool whose nodes start at these sites; their agents promise a beat within a minute.
    fn new(start: &[u16], hash: u64) -> Self {
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        let region = OwnedRegion::create("home", site_region_bytes(SITES.into())).unwrap();
        let region = Arc::new(region);
        let header = SiteHeader { sites: SITES, settings_hash: hash };
        let home = SiteRecord::publish(region.clone(), header).unwrap();
        let server = RegionServer::bind(folder.path().join("home"), region).unwrap();
        let mut lab = Self { folder, home, nodes: Vec::new(), servers: vec![server] };
        for (number, &at) in start.iter().enumerate() {
            lab.add(number as u16, at);
        }
        lab
    }

    fn add(&mut self, number: u16, at: u16) {
        let region = Arc::new(OwnedRegion::create("node", NODE_REGION_BYTES).unwrap());
        let header = NodeHeader { node: node(number), max_in_flight: 8 };
        let assign = Assign { site: SiteId::new(at).ok(), stamp: Epoch::ZERO, version: 1 };
        let record = NodeRecord::publish(region.clone(), header, assign).unwrap();
        for number in 1..=SITES {
            let (address, phase) = (Ipv4Addr::LOCALHOST, Phase::Ready);
            record.set_server(site(number), Server { address, port: 9, phase, restarts: 0 });
            record.set_warm(site(number), true);
        }
        record.beat_once(Duration::from_secs(60));
        self.servers.push(RegionServer::bind(self.path(number), region).unwrap());
        self.nodes.push(record);
    }

    fn path(&self, number: u16) -> PathBuf {
        self.folder.path().join(format!("node-{number}"))
    }

    fn options(&self, edge: u8, mode: Mode) -> LooperOptions {
        let nodes = self.nodes.len() as u16;
        LooperOptions {
            core: Options {
                edge: EdgeId::new(edge).unwrap(),
                timing: Timing::default(),
                sites: vec![SiteTerms::default(); SITES.into()],
                nodes,
                settings_version: 1,
                mode,
            },
            incarnation: u32::from(edge) + 1,
            settings_hash: 7,
            look_every: Duration::from_millis(1),
            idle_look_every: Duration::from_millis(50),
            slot_lease: Duration::from_millis(500),
            node_dead: Duration::from_millis(500),
            remote_deadline: Duration::from_millis(50),
            home: Place::Here(self.folder.path().join("home")),
            nodes: (0..nodes).map(|number| Place::Here(self.path(number))).collect(),
            traits: Vec::new(),
        }
    }

    fn at(&self, number: u16) -> u16 {
        self.nodes[usize::from(number)].assign().unwrap().site.map_or(0, SiteId::get)
    }

    fn count(&self, at: u16) -> usize {
        (0..self.nodes.len() as u16).filter(|&number| self.at(number) == at).count()
    }
}

fn start(lab: &Lab, edge: u8, mode: Mode, policy: Box<dyn Policy>) -> (LooperHandle, Pretend) {
    let host = Pretend { edge, ..Pretend::default() };
    let handle = Looper::start(host.clone(), policy, lab.options(edge, mode)).unwrap();
    (handle, host)
}

fn reconf() -> Box<dyn Policy> {
    Box::new(Reconf::default())
}

fn attached(commander: &Commander, lab: &Lab) {
    wait_for("all regions", || {
        let status = status(commander);
        status.home && status.nodes.iter().filter(|n| n.alive).count() == lab.nodes.len()
    });
}

#[test]
fn nodes_follow_the_load_down_to_the_guarantee_and_back() {
    let lab = Lab::new(&[1, 1, 2, 2], 7);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    host.queue(1, 100);
    wait_for("three nodes at site 1", || lab.count(1) == 3);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((lab.count(1), lab.count(2)), (3, 1), "site 2 keeps its guarantee");
    host.queue(1, 0);
    host.queue(2, 100);
    wait_for("three nodes at site 2", || lab.count(2) == 3);
    host.queue(2, 0);
    let status = status(&handle.commander());
    let moved: Vec<_> = status.moves.iter().filter(|m| m.record.ending == Ending::Moved).collect();
    assert_eq!(moved.len(), 3, "{:?}", status.moves);
    assert_eq!(host.moved.lock().unwrap().len(), 3);
    for line in moved {
        assert!(line.first_dispatch_ns.is_some(), "{line:?}");
        assert!(line.record.took_ns < 1_000_000_000, "{line:?}");
    }
    handle.stop();
}

#[test]
fn two_edges_make_one_move_for_one_event_and_never_break_the_floor() {
    let lab = Lab::new(&[1, 2, 2, 2, 2, 2], 7);
    let (one, first) = start(&lab, 0, Mode::Move, reconf());
    let (two, second) = start(&lab, 1, Mode::Move, reconf());
    attached(&one.commander(), &lab);
    attached(&two.commander(), &lab);
    for turn in 0..40 {
        let (hot, cold) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        first.queue(hot, 50);
        second.queue(hot, 50);
        first.queue(cold, 0);
        second.queue(cold, 0);
        wait_for("five nodes where the load is", || {
            assert!(lab.count(1) >= 1 && lab.count(2) >= 1);
            lab.count(hot) == 5
        });
    }
    let (one_says, two_says) = (status(&one.commander()), status(&two.commander()));
    assert_eq!(one_says.edges.len(), 2);
    let moves = one_says.counters.moves + two_says.counters.moves;
    // Four nodes in each of 40 turns; the first turn moves four as well.
    assert_eq!(moves, 160);
    one.stop();
    two.stop();
}

#[test]
fn mode_observe_and_policy_rigid_move_nothing() {
    let lab = Lab::new(&[1, 2, 2], 7);
    let (observe, watching) = start(&lab, 0, Mode::Observe, reconf());
    let (rigid, still) = start(&lab, 1, Mode::Move, Box::new(Rigid));
    attached(&observe.commander(), &lab);
    attached(&rigid.commander(), &lab);
    watching.queue(1, 100);
    still.queue(1, 100);
    wait_for("a decision in the log", || {
        status(&observe.commander()).moves.iter().any(|m| m.record.ending == Ending::WouldMove)
    });
    assert_eq!((lab.count(1), lab.count(2)), (1, 2));
    let says = status(&rigid.commander());
    assert_eq!((says.policy.as_str(), says.counters.moves), ("rigid", 0));
}

#[test]
fn edges_with_other_settings_than_the_home_move_nothing_and_say_so() {
    let lab = Lab::new(&[1, 2, 2], 8);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    host.queue(1, 100);
    wait_for("the warning", || status(&handle.commander()).settings_differ);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((lab.count(1), lab.count(2)), (1, 2));
}

#[test]
fn settings_change_under_two_loops_and_moves_go_on_once_all_agree() {
    let lab = Lab::new(&[1, 2, 2, 2], 7);
    let (one, host) = start(&lab, 0, Mode::Move, Box::new(Rigid));
    let (two, _other) = start(&lab, 1, Mode::Move, reconf());
    attached(&one.commander(), &lab);
    attached(&two.commander(), &lab);
    let update = |edge: u8, change: fn(&mut LooperOptions)| {
        let mut options = lab.options(edge, Mode::Move);
        (options.settings_hash, options.core.settings_version) = (8, 2);
        options.core.sites[1].guarantee = Guarantee::hard(2);
        change(&mut options);
        let update = Update { policy: reconf(), options };
        let asked = if edge == 0 { &one } else { &two };
        asked.commander().ask(Command::Update(Box::new(update)), PATIENCE).unwrap()
    };
    lab.home.set_settings_hash(8);
    let refused = update(0, |options| options.incarnation += 1);
    assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    assert_eq!(update(0, |_| {}), Answer::Done);
    host.queue(1, 100);
    wait_for("the difference", || status(&one.commander()).settings_differ);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(lab.count(1), 1, "the other edge has the old settings");
    // It does not stand in the way if it only ends.
    assert_eq!(two.commander().ask(Command::Retire, PATIENCE).unwrap(), Answer::Done);
    wait_for("a move", || lab.count(1) == 2);
    assert_eq!(update(1, |_| {}), Answer::Done);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(lab.count(2), 2, "the new guarantee holds");
    let says = status(&one.commander());
    assert_eq!((says.policy.as_str(), says.settings_differ), ("reconf", false));
}

#[test]
fn persons_move_cordon_and_pause() {
    let lab = Lab::new(&[1, 2, 2, 0], 7);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    let commander = handle.commander();
    attached(&commander, &lab);
    let Ok(Answer::Moved(record)) =
        commander.ask(Command::Move { node: node(2), to: Some(site(1)) }, PATIENCE)
    else {
        panic!("no record")
    };
    assert_eq!((record.ending, lab.at(2)), (Ending::Moved, 1));
    let refused = commander.ask(Command::Move { node: node(1), to: Some(site(1)) }, PATIENCE);
    let Ok(Answer::Moved(record)) = refused else { panic!("{refused:?}") };
    assert_ne!(record.ending, Ending::Moved, "site 2 must keep one node");
    assert_eq!(lab.at(1), 2);
    assert_eq!(commander.ask(Command::Pause { paused: true }, PATIENCE), Ok(Answer::Done));
    host.queue(2, 100);
    wait_for("the pause", || status(&commander).paused);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(lab.count(2), 1);
    let cordon = Command::Cordon { node: node(3), cordoned: true };
    assert_eq!(commander.ask(cordon, PATIENCE), Ok(Answer::Done));
    assert_eq!(commander.ask(Command::Pause { paused: false }, PATIENCE), Ok(Answer::Done));
    wait_for("the donor's node", || lab.count(2) == 2);
    assert_eq!(lab.at(3), 0, "a cordoned node is not taken");
}

#[test]
fn a_node_whose_agent_is_gone_serves_on_and_takes_part_again_with_a_new_region() {
    let mut lab = Lab::new(&[1, 2, 2], 7);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    lab.servers.pop();
    wait_for("the loss", || !status(&handle.commander()).nodes[2].alive);
    host.queue(1, 100);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((lab.count(1), lab.count(2)), (1, 2), "an uncounted node does not move");
    lab.nodes.pop().unwrap().assign_word().store(Assign::TOMBSTONE, Ordering::SeqCst);
    lab.add(2, 2);
    wait_for("a move", || lab.count(1) == 2);
    assert_eq!(lab.count(2), 1);
}

#[test]
fn noise_in_the_site_words_is_mended_and_moves_go_on() {
    let lab = Lab::new(&[1, 2, 2], 7);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    for number in 1..=SITES {
        lab.home.depart_word(site(number)).unwrap().store(0xdead_beef_dead_beef, Ordering::SeqCst);
    }
    host.queue(1, 100);
    wait_for("a move", || lab.count(1) == 2);
    assert!(status(&handle.commander()).counters.bumps > 0);
}

#[test]
fn a_node_of_no_site_is_set_free_and_there_is_a_record_of_it() {
    let lab = Lab::new(&[1, 2, 2], 7);
    let (handle, host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    let nobody = Assign { site: SiteId::new(900).ok(), stamp: Epoch::ZERO, version: 5_000 };
    lab.nodes[2].assign_word().store(nobody.pack(), Ordering::SeqCst);
    host.queue(1, 100);
    wait_for("the freed node at the loaded site", || lab.at(2) == 1);
    let moves = status(&handle.commander()).moves;
    let of_it = moves.iter().filter(|line| line.record.node == node(2));
    let told: Vec<_> = of_it
        .map(|line| (line.record.ending, line.record.version, line.swapped_ns.is_some()))
        .collect();
    assert_eq!(
        told,
        [(Ending::Freed, Some(5_001), true), (Ending::Moved, Some(5_002), true)],
        "{moves:?}"
    );
}

#[test]
fn an_expired_lease_is_taken_over() {
    let lab = Lab::new(&[1, 2, 2], 7);
    let old = Lease { incarnation: 77, beat: 5 }.pack();
    lab.home.lease_word(EdgeId::MIN).store(old, Ordering::SeqCst);
    lab.nodes[0].lease_word(EdgeId::MIN).store(old, Ordering::SeqCst);
    let (handle, _host) = start(&lab, 0, Mode::Move, reconf());
    attached(&handle.commander(), &lab);
    assert_eq!(lab.nodes[0].lease(EdgeId::MIN).incarnation, 1);
}
