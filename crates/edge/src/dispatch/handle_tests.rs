//! Waiting, waking and fairness, on real runtimes.

use super::super::core::SiteRules;
use super::super::health::HealthOptions;
use super::*;
use pool_model::EdgeId;
use remote_memory::shm::OwnedRegion;
use shared_state::slot::{self, LiveEdges};
use shared_state::words::{Epoch, Phase, Server};
use shared_state::{NODE_REGION_BYTES, NodeHeader};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

const MAX: u32 = 4;
const LIVE: LiveEdges = LiveEdges(0b11);

fn site() -> SiteId {
    SiteId::MIN
}

fn record() -> NodeRecord {
    let region = OwnedRegion::create("node", NODE_REGION_BYTES).unwrap();
    let header = NodeHeader { node: NodeId::MIN, max_in_flight: MAX };
    let assign = Assign { site: Some(site()), stamp: Epoch::ZERO, version: 1 };
    let record = NodeRecord::publish(Arc::new(region), header, assign).unwrap();
    let server = Server { address: Ipv4Addr::LOCALHOST, port: 1, phase: Phase::Ready, restarts: 0 };
    record.set_server(site(), server);
    record.set_warm(site(), true);
    record
}

fn dispatch(edge: u8, record: &NodeRecord, queue_timeout_ms: u64) -> Dispatch {
    let rules = SiteRules {
        site: site(),
        queue_timeout: Duration::from_millis(queue_timeout_ms),
        ..SiteRules::new(site())
    };
    let options = DispatchOptions {
        edge: EdgeId::new(edge).unwrap(),
        incarnation: u32::from(edge) + 1,
        sites: vec![rules],
        health: HealthOptions::default(),
    };
    let mut dispatch = Dispatch::new(options);
    dispatch.attached(record.clone(), 0).unwrap();
    look(&mut dispatch, record, SiteSeen::default());
    dispatch
}

fn look(dispatch: &mut Dispatch, record: &NodeRecord, others: SiteSeen) {
    let limit = record.header().max_in_flight;
    let seen =
        NodeSeen { assign: record.assign(), open: true, link: moves::looper::Link::Mapped, limit };
    dispatch.looked(&[Some(seen)], &[others]);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_permit_that_is_dropped_lets_the_next_one_go() {
    let record = record();
    let dispatch = dispatch(0, &record, 5_000);
    run(async {
        let mut permits = Vec::new();
        for _ in 0..MAX {
            permits.push(dispatch.acquire(site(), Ask::default()).await.unwrap());
        }
        let waits = dispatch.acquire(site(), Ask::default());
        let (waited, ()) = tokio::join!(waits, async { drop(permits.pop()) });
        assert!(waited.is_ok() && dispatch.totals().1 > 0);
    });
    assert_eq!(dispatch.totals(), (0, 0));
    assert_eq!(slot::node_load(&record, LIVE), 0);
}

#[test]
fn a_wait_ends_and_leaves_the_queue() {
    let record = record();
    let mut dispatch = dispatch(0, &record, 20);
    run(async {
        let mut permits = Vec::new();
        for _ in 0..MAX {
            permits.push(dispatch.acquire(site(), Ask::default()).await.unwrap());
        }
        let refused = dispatch.acquire(site(), Ask::default()).await.err();
        assert_eq!(refused, Some(Refusal::QueueTimeout));
        let mut demand = Vec::new();
        dispatch.demand(&mut demand);
        assert_eq!(demand[0].queued, 0);
    });
}

#[test]
fn only_requests_that_were_answered_say_how_long_serving_takes() {
    let record = record();
    let mut dispatch = dispatch(0, &record, 5_000);
    let mut told = Vec::new();
    let mut service = |dispatch: &mut Dispatch| {
        dispatch.service(monotonic(), &mut told);
        told[0]
    };
    let ended = |verdict: Option<Verdict>, held: Duration| {
        run(async {
            let permit = dispatch.acquire(site(), Ask::default()).await.unwrap();
            std::thread::sleep(held);
            verdict.into_iter().for_each(|verdict| permit.report(verdict));
        });
    };
    // Whose client gave up; that never reached its server; whose server failed.
    let held = Duration::from_millis(1);
    for verdict in [None, Some(Verdict::ConnectFailed), Some(Verdict::ServerError(500))] {
        ended(verdict, held);
    }
    assert_eq!(service(&mut dispatch.clone()), EdgeService::default());
    let held = Duration::from_millis(20);
    ended(Some(Verdict::Answered), held);
    let told = service(&mut dispatch);
    let longest = Duration::from_secs(10).as_micros() as u32;
    assert!(told.served == 1 && (20_000..longest).contains(&told.mean_us), "{told:?}");
}

#[test]
fn the_first_request_that_waits_wakes_a_sleeping_look_loop() {
    let record = record();
    let dispatch = dispatch(0, &record, 20);
    let mut asleep = dispatch.clone();
    let (ready, wait) = std::sync::mpsc::channel();
    let looker = std::thread::spawn(move || {
        asleep.looker(std::thread::current());
        asleep.sleeps(true);
        ready.send(()).unwrap();
        let start = Instant::now();
        while asleep.shared.looker_sleeps.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_secs(20));
        }
        start.elapsed()
    });
    wait.recv().unwrap();
    run(async {
        let mut permits = Vec::new();
        for _ in 0..MAX {
            permits.push(dispatch.acquire(site(), Ask::default()).await.unwrap());
        }
        let _ = dispatch.acquire(site(), Ask::default()).await;
    });
    assert!(looker.join().unwrap() < Duration::from_secs(10));
}

/// Two edges, one server, each edge with many requests: the server never has more than its
/// limit, and both edges wait equally long.
#[test]
fn two_edges_share_one_server_fairly() {
    let record = record();
    let edges = [dispatch(0, &record, 60_000), dispatch(1, &record, 60_000)];
    let (stop, at_server) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut medians = Vec::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            edges.iter().map(|edge| scope.spawn(|| run(clients(edge, &at_server)))).collect();
        let (record, mut edges, stop) = (&record, edges.clone(), &stop);
        scope.spawn(move || {
            let mut demand = [Vec::new(), Vec::new()];
            while !stop.load(Ordering::Relaxed) {
                for (edge, demand) in edges.iter_mut().zip(&mut demand) {
                    edge.demand(demand);
                }
                for (place, edge) in edges.iter_mut().enumerate() {
                    let other = demand[1 - place][0];
                    let seen = SiteSeen {
                        others_demand: other.total(),
                        others_queued: other.queued.into(),
                        others_starving: other.is_starving().into(),
                    };
                    look(edge, record, seen);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        medians.extend(clients.into_iter().map(|client| client.join().unwrap()));
        stop.store(true, Ordering::Relaxed);
    });
    let (low, high) = (medians[0].min(medians[1]), medians[0].max(medians[1]));
    assert!(high <= low.mul_f64(1.5), "median waits {low:?} and {high:?}");
    assert_eq!(slot::node_load(&record, LIVE), 0);
}

/// Twenty clients of one edge, each request a few milliseconds at the server; the median wait.
async fn clients(edge: &Dispatch, at_server: &AtomicU32) -> Duration {
    const CLIENTS: usize = 20;
    const REQUESTS: usize = 40;
    let one = async |_: usize| {
        let mut waits = Vec::new();
        for _ in 0..REQUESTS {
            let start = Instant::now();
            let permit = edge.acquire(site(), Ask::default()).await.unwrap();
            waits.push(start.elapsed());
            assert!(at_server.fetch_add(1, Ordering::SeqCst) < MAX, "the server sees too many");
            tokio::time::sleep(Duration::from_millis(2)).await;
            at_server.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        }
        waits
    };
    let mut all = Vec::new();
    let mut running: Vec<_> = (0..CLIENTS).map(|n| Box::pin(one(n))).collect();
    std::future::poll_fn(|context| {
        running.retain_mut(|client| match client.as_mut().poll(context) {
            std::task::Poll::Ready(waits) => {
                all.extend(waits);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.sort_unstable();
    all[all.len() / 2]
}
