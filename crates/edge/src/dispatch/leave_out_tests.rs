//! Which servers are left out, and which come back little by little, over real shared memory.

use super::tests::{MAX, NOW, SLOW, SLOW_START, Somebody};
use super::tests::{ask, assign, core, granted, leave, look, look_at, node, record, site};
use super::*;
use shared_state::slot;
use shared_state::words::Server;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A server that had crashed was left alone for ten seconds, although its agent had started it
/// again at once, and so was the node's server of another site.
#[test]
fn a_new_process_or_site_is_not_blamed_for_the_last_one() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 10);
    let restart = |restarts| {
        let server = Server { restarts, ..records[0].server(site(1)) };
        records[0].set_server(site(1), server);
    };
    let eject = |core: &mut Core<Somebody>, number| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        let (node, site, since) = (node(0), site(number), NOW);
        let grant = Grant { node, site, version: 1, address, life: 1, since };
        while !core.report(&grant, Verdict::ConnectFailed, NOW) {}
        look(core, &records, &[]);
        assert!(core.is_failing(node, NOW));
    };
    eject(&mut core, 1);
    restart(1);
    look(&mut core, &records, &[]);
    assert!(!core.is_failing(node(0), NOW), "another process");
    eject(&mut core, 1);
    records[0].assign_word().store(assign(2, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    assert!(!core.is_failing(node(0), NOW), "another site's server");
    assert!(!core.is_failing(node(7), NOW), "nobody knows that node");
}

fn fail(core: &mut Core<Somebody>, grant: &Grant) {
    while !core.report(grant, Verdict::ConnectFailed, NOW) {}
}

/// Where so many requests go.
fn go(core: &mut Core<Somebody>, number: u16, count: usize, now: Duration) -> Vec<usize> {
    let mut nodes = vec![0; 8];
    for _ in 0..count {
        let who = || Somebody(0, Rc::default());
        let grant = granted(core.request(site(number), Ask::default(), now, who));
        nodes[grant.node.index()] += 1;
        leave(core, &grant);
    }
    nodes
}

#[test]
fn half_of_a_site_is_left_out_and_beyond_that_nobody() {
    let records: Vec<_> = (0..4).map(|number| record(number, 1)).collect();
    let mut core = core(0, &records, 100);
    let grants: Vec<_> = (0..4).map(|_| granted(ask(&mut core, 1))).collect();
    fail(&mut core, &grants[0]);
    fail(&mut core, &grants[1]);
    look(&mut core, &records, &[]);
    let (out, left) = (grants[0].node.index(), grants[2].node.index());
    let nodes = go(&mut core, 1, 40, NOW);
    assert_eq!((nodes[out], nodes[grants[1].node.index()], nodes[left]), (0, 0, 20));
    let counts = core.counts(NOW)[0];
    assert_eq!((counts.ejections, counts.failing, counts.ejected, counts.spread), (2, 2, 2, 0));
    fail(&mut core, &grants[2]);
    let nodes = go(&mut core, 1, 40, NOW);
    assert_eq!(nodes[..4], [10; 4], "three of four: all take their part");
    let counts = core.counts(NOW)[0];
    assert_eq!((counts.ejections, counts.failing, counts.ejected, counts.spread), (3, 3, 0, 40));
    // Servers that fail their checks are none of those that could be left out.
    look_at(&mut core, &records, &[], NOW, |place| place == out || place == left);
    let nodes = go(&mut core, 1, 40, NOW);
    assert_eq!((nodes[out], nodes[left]), (20, 20), "two of two");
    grants.iter().for_each(|grant| drop(leave(&mut core, grant)));
}

#[test]
fn while_requests_go_to_all_a_server_that_answers_is_back() {
    let records: Vec<_> = (0..4).map(|number| record(number, 1)).collect();
    let mut core = core(0, &records, 100);
    let grants: Vec<_> = (0..4).map(|_| granted(ask(&mut core, 1))).collect();
    fail(&mut core, &grants[0]);
    core.report(&grants[0], Verdict::Answered, NOW);
    assert_eq!(core.counts(NOW)[0].failing, 1, "it was under way before");
    fail(&mut core, &grants[1]);
    fail(&mut core, &grants[2]);
    core.report(&grants[2], Verdict::Answered, NOW);
    core.report(&grants[1], Verdict::Answered, NOW);
    let counts = core.counts(NOW)[0];
    assert_eq!((counts.failing, counts.ejected), (2, 2), "no more than may be left out");
}

#[test]
fn the_only_server_of_a_site_is_never_left_out() {
    let records = [record(0, 1), record(1, 2)];
    let mut core = core(0, &records, 100);
    let grant = granted(ask(&mut core, 1));
    fail(&mut core, &grant);
    assert_eq!(go(&mut core, 1, 5, NOW)[0], 5);
    assert!(core.is_failing(node(0), NOW), "but it is told that it fails");
}

#[test]
fn checks_that_pass_again_end_an_ejection() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 100);
    let grant = granted(ask(&mut core, 1));
    fail(&mut core, &grant);
    let bad = grant.node.index();
    leave(&mut core, &grant);
    assert_eq!(go(&mut core, 1, 10, NOW)[bad], 0);
    look_at(&mut core, &records, &[], NOW, |place| place != bad);
    look(&mut core, &records, &[]);
    assert_eq!(go(&mut core, 1, 10, NOW)[bad], 5);
    assert_eq!(core.counts(NOW)[0].failing, 0);
}

/// Requests that broke when their node moved were blamed on the next site's server.
#[test]
fn what_an_earlier_server_did_is_not_said_of_the_present_one() {
    let records = [record(0, 1), record(1, 2)];
    let mut core = core(0, &records, 100);
    let old = granted(ask(&mut core, 1));
    records[0].assign_word().store(assign(2, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    for _ in 0..100 {
        assert!(!core.report(&old, Verdict::Broke, NOW));
    }
    assert!(!core.is_failing(node(0), NOW));
}

#[test]
fn a_server_that_came_gets_its_share_little_by_little() {
    let records = [record(0, SLOW), record(1, SLOW), record(2, 1)];
    let mut core = core(0, &records, 100);
    assert_eq!(core.counts(NOW)[3].slow, 0, "who was there before the edge does not start");
    records[2].assign_word().store(assign(SLOW, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    assert_eq!(core.counts(NOW)[3].slow, 1);
    let share = |core: &mut Core<Somebody>, part: f64| {
        let now = NOW + SLOW_START.mul_f64(part);
        go(core, SLOW, 3_000, now)[2] as f64 / 3_000.0
    };
    // Idle servers all look alike: only the draw keeps the new one back.
    for part in [0.0, 0.25, 0.5] {
        let share = share(&mut core, part);
        assert!((share - part / 3.0).abs() < 0.05, "{share} at {part}");
    }
    assert!((share(&mut core, 1.0) - 1.0 / 3.0).abs() < 0.01);
    assert_eq!(core.counts(NOW + SLOW_START)[3].slow, 0);
}

#[test]
fn a_slow_start_bounds_what_is_in_flight_and_takes_what_others_cannot() {
    let records = [record(0, SLOW), record(1, 1)];
    let mut core = core(0, &records, 100);
    records[1].assign_word().store(assign(SLOW, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    let now = NOW + SLOW_START / 4;
    let mut fill = |now| {
        let who = || Somebody(0, Rc::default());
        while let Outcome::Granted(_) = core.request(site(SLOW), Ask::default(), now, who) {}
        let load = |record| slot::server_load(record, Some(site(SLOW)), records[0].edges());
        (load(&records[0]), load(&records[1]))
    };
    assert_eq!(fill(NOW), (MAX, 1), "at least one");
    assert_eq!(fill(now), (MAX, 1), "who waits is let go first");
    look_at(&mut core, &records, &[], now, |_| true);
    let load = slot::server_load(&records[1], Some(site(SLOW)), records[1].edges());
    assert_eq!(load, MAX / 4);
}

#[test]
fn a_server_starts_slowly_after_a_restart_but_not_after_its_agents() {
    let mut records = [record(0, SLOW), record(1, SLOW)];
    let mut core = core(0, &records, 100);
    let server = |restarts| Server { restarts, ..records[0].server(site(SLOW)) };
    let (same, other) = (server(0), server(1));
    records[0].set_server(site(SLOW), other);
    look(&mut core, &records, &[]);
    assert_eq!(core.counts(NOW)[3].slow, 1, "started again");
    look_at(&mut core, &records, &[], NOW, |place| place != 1);
    look(&mut core, &records, &[]);
    assert_eq!(core.counts(NOW)[3].slow, 2, "healthy again");
    let later = NOW + SLOW_START;
    assert_eq!(core.counts(later)[3].slow, 0);
    records[0].assign_word().store(Assign::TOMBSTONE, Ordering::SeqCst);
    look_at(&mut core, &records, &[], later, |_| true);
    records[0] = record(0, SLOW);
    records[0].set_server(site(SLOW), other);
    let lease = shared_state::words::Lease { incarnation: 1, beat: 0 };
    core.attach(NodeSlot::take(records[0].clone(), EdgeId::MIN, 0, lease).unwrap());
    look_at(&mut core, &records, &[], later, |_| true);
    assert_eq!(core.counts(later)[3].slow, 0, "a new region of the same server");
    records[0].set_server(site(SLOW), same);
    look_at(&mut core, &records, &[], later, |_| true);
    assert_eq!(core.counts(later)[3].slow, 1);
}
