//! Admission by class at a whole pool: twice as many requests as its servers can answer, and the
//! important ones notice nothing.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Answer, Connection};
use common::pool::{Pool, Recipe};
use common::{alone, eventually};
use polder::control::{Request, Response, SetSiteArguments, SiteSet};
use polder::status::ClassStatus;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two nodes of 4 workers and 40 ms answer 200 requests a second.
const SERVICE: Duration = Duration::from_millis(40);
/// Between two requests of a client: a refusal is answered at once.
const PAUSE: Duration = Duration::from_millis(40);
/// Clients of the last class: 400 requests a second, as long as they are refused.
const OTHERS: usize = 16;
/// Clients of the first class: some 50 requests a second.
const GOLDS: usize = 4;
/// Clients of the last class at each of two sites: enough to wait for longer than anybody should.
const CROWD: usize = 24;
/// How long they send.
const LENGTH: Duration = Duration::from_secs(4);

fn recipe(site: &'static str) -> Recipe {
    let mut recipe = Recipe::new(&[("red", site)], 2).service(SERVICE);
    recipe.edges = 1;
    recipe.max_in_flight = 4;
    recipe
}

fn ask(connection: &mut Connection, site: &str, fields: &str) -> Answer {
    let head = format!("GET / HTTP/1.1\r\nHost: {site}.test\r\n{fields}\r\n");
    connection.stream().write_all(head.as_bytes()).unwrap();
    connection.receive().unwrap()
}

/// What one class of clients got.
#[derive(Debug, Default)]
struct Got {
    /// Times of those that were served, sorted.
    served: Vec<Duration>,
    refused: Vec<Answer>,
}

impl Got {
    fn quantile(&self, share: f64) -> Duration {
        self.served[(share * (self.served.len() - 1) as f64) as usize]
    }
}

fn send(edge: SocketAddr, site: &str, clients: usize, fields: &str, ends: &AtomicBool) -> Got {
    let one = || {
        let mut connection = Connection::open(edge).unwrap();
        let mut got = Got::default();
        while !ends.load(Ordering::Relaxed) {
            let started = Instant::now();
            let answer = ask(&mut connection, site, fields);
            match answer.status {
                200 => got.served.push(started.elapsed()),
                _ => got.refused.push(answer),
            }
            std::thread::sleep(PAUSE);
        }
        got
    };
    let mut all = Got::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            let got = thread.join().unwrap();
            all.served.extend(got.served);
            all.refused.extend(got.refused);
        }
    });
    all.served.sort_unstable();
    all
}

/// Both classes for a while: gold ones, and others.
fn overload(pool: &Pool) -> (Got, Got) {
    overload_site(pool, "red", OTHERS)
}

fn overload_site(pool: &Pool, site: &str, others: usize) -> (Got, Got) {
    let (edge, ends) = (pool.edges[0], AtomicBool::new(false));
    std::thread::scope(|scope| {
        let gold = scope.spawn(|| send(edge, site, GOLDS, "X-Plan: gold\r\n", &ends));
        let others = scope.spawn(|| send(edge, site, others, "", &ends));
        std::thread::sleep(LENGTH);
        ends.store(true, Ordering::Relaxed);
        (gold.join().unwrap(), others.join().unwrap())
    })
}

fn classes(pool: &Pool) -> Vec<ClassStatus> {
    pool.status().sites[0].classes.clone()
}

fn assert_shed(answers: &[Answer]) {
    assert!(!answers.is_empty(), "nobody was shed: it was no overload");
    for answer in answers {
        assert_eq!((answer.status, answer.header("x-polder-reason")), (503, "shed"), "{answer:?}");
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&seconds), "{answer:?}");
    }
}

fn set(pool: &Pool, site: &str, key: &str) -> SiteSet {
    let (site, keys) = (site.to_owned(), vec![key.to_owned()]);
    let set = SetSiteArguments { site, keys, ..SetSiteArguments::default() };
    match pool.ask(&Request::SetSite(set)) {
        Response::SiteSet(done) => done,
        other => panic!("not set: {other:?}"),
    }
}

/// A minute, which nobody has to wait; what one node can't keep.
const LOOSE: &str = "p99_ms=60000";
const TIGHT: &str = "p99_ms=150";
/// Who may be refused before anything is known of how fast a queue empties: each client, and again
/// after its pause.
const COLD: usize = 3 * CROWD;

/// Two sites that both want more than the three nodes can do. The important one gets all but what
/// the other was promised; where an objective is missed all the same, the last class of its site is
/// shed before it waits in vain, and the first class of both sites is served as always.
#[test]
fn where_nodes_do_not_suffice_for_an_objective_the_last_class_is_shed() {
    let _alone = alone();
    let red = "nodes = 1\npriority = 1\n\
               admission = [{ name = \"gold\", header = \"X-Plan: gold\" }]\n";
    let blue = "nodes = 2\nadmission = [{ name = \"gold\", header = \"X-Plan: gold\" }]\n";
    let mut recipe = Recipe::new(&[("red", red), ("blue", blue)], 3).service(SERVICE);
    (recipe.edges, recipe.max_in_flight) = (1, 4);
    recipe.pool = "policy = \"slo\"".to_owned();
    let pool = recipe.start();
    let watch = pool.watch(&[1, 1]);
    let both = |objective| {
        for site in ["red", "blue"] {
            assert!(set(&pool, site, objective).holds);
        }
        std::thread::scope(|scope| {
            let red = scope.spawn(|| overload_site(&pool, "red", CROWD));
            let blue = overload_site(&pool, "blue", CROWD);
            [red.join().unwrap(), blue]
        })
    };

    // Who has the time is served in its turn.
    let loose = both(LOOSE);
    for (gold, others) in &loose {
        assert_eq!(gold.refused.len(), 0);
        assert!(others.refused.len() <= COLD, "{}", others.refused.len());
    }
    assert!(pool.status().sites.iter().all(|site| site.terms.slower == 0));

    let tight = both(TIGHT);
    let status = pool.status();
    let nodes: Vec<u32> = status.sites.iter().map(|site| site.nodes).collect();
    assert_eq!(nodes, [2, 1], "the important one has what may be taken");
    for (gold, _) in &tight {
        assert_eq!(gold.refused.len(), 0);
        assert!(gold.served.len() > 50, "{}", gold.served.len());
        assert!(gold.quantile(0.5) < SERVICE * 4, "{:?}", gold.quantile(0.5));
    }
    let [(_, red), (_, blue)] = &tight;
    assert_shed(&blue.refused);
    assert!(blue.refused.len() > COLD, "{}", blue.refused.len());
    // Shed is who would be late, not everybody; and more at the site that has to do with less.
    let served = (red.served.len(), blue.served.len());
    assert!(served.1 > 0 && served.0 > served.1, "{served:?}");
    for (place, site) in status.sites.iter().enumerate() {
        let shed: Vec<_> = site.classes.iter().map(|c| (c.name.as_str(), c.shed)).collect();
        let refused = loose[place].1.refused.len() + tight[place].1.refused.len();
        assert_eq!(shed, [("gold", 0), ("other", refused as u64)]);
    }
    watch.finish().assert_sound();
    pool.finish();
}

#[test]
fn under_twice_the_load_gold_is_served_as_always_and_the_others_are_shed() {
    let _alone = alone();
    let mut recipe = recipe(
        "nodes = 2\nqueue_max = 4\n\
         admission = [{ name = \"gold\", header = \"X-Plan: gold\" }]\n",
    );
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log");
    recipe.http = format!("[access_log]\npath = \"{}\"\nformat = \"json\"", log.display());
    let pool = recipe.start();
    let (gold, others) = overload(&pool);
    // A full queue never refuses it, and it waits for a server only, not for the queue.
    assert_eq!(gold.refused.len(), 0, "{:?}", gold.refused);
    assert!(gold.served.len() > 50, "{}", gold.served.len());
    assert!(gold.quantile(0.5) < SERVICE * 4, "{:?}", gold.quantile(0.5));
    assert_shed(&others.refused);
    assert!(others.served.len() > 50, "{}", others.served.len());

    let told = classes(&pool);
    let names: Vec<_> = told.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["gold", "other"]);
    assert_eq!((told[0].requests, told[0].shed), (gold.served.len() as u64, 0));
    let refused = others.refused.len() as u64;
    assert_eq!((told[1].requests, told[1].shed), (others.served.len() as u64 + refused, refused));
    assert_eq!(pool.status().sites[0].refused, refused);
    eventually("the log has them all", || {
        let text = std::fs::read_to_string(&log).unwrap();
        let count = |words: &str| text.lines().filter(|line| line.contains(words)).count();
        assert_eq!(count("\"reason\":\"shed\",\"class\":\"gold\""), 0);
        count("\"reason\":\"shed\",\"class\":\"other\"") as u64 == refused
            && count("\"class\":\"gold\"") == gold.served.len()
    });

    // Without classes the same queue refuses whoever comes.
    let done = set(&pool, "red", "admission=[]");
    assert!(done.holds && done.text.contains("sites.red.admission.gold: removed"), "{}", done.text);
    assert_eq!(classes(&pool), []);
    let (gold, _) = overload(&pool);
    let reasons: Vec<_> = gold.refused.iter().map(|a| a.header("x-polder-reason")).collect();
    assert!(!reasons.is_empty() && reasons.iter().all(|&reason| reason == "queue-full"));
    pool.finish();
}
