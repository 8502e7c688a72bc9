//! Admission by class at a whole pool: twice as many requests as its servers can answer, and the
//! important ones notice nothing.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Answer, Connection};
use common::pool::{Pool, Recipe};
use common::{alone, eventually};
use polder::control::{Request, Response, SetSiteArguments};
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
/// How long they send.
const LENGTH: Duration = Duration::from_secs(4);

fn recipe(site: &'static str) -> Recipe {
    let mut recipe = Recipe::new(&[("red", site)], 2).service(SERVICE);
    recipe.edges = 1;
    recipe.max_in_flight = 4;
    recipe
}

fn ask(connection: &mut Connection, fields: &str) -> Answer {
    let head = format!("GET / HTTP/1.1\r\nHost: red.test\r\n{fields}\r\n");
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

fn send(edge: SocketAddr, clients: usize, fields: &str, ends: &AtomicBool) -> Got {
    let one = || {
        let mut connection = Connection::open(edge).unwrap();
        let mut got = Got::default();
        while !ends.load(Ordering::Relaxed) {
            let started = Instant::now();
            let answer = ask(&mut connection, fields);
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
    let (edge, ends) = (pool.edges[0], AtomicBool::new(false));
    std::thread::scope(|scope| {
        let gold = scope.spawn(|| send(edge, GOLDS, "X-Plan: gold\r\n", &ends));
        let others = scope.spawn(|| send(edge, OTHERS, "", &ends));
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
    assert!(gold.quantile(0.9) < SERVICE * 4, "{:?}", gold.quantile(0.9));
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
    let set = SetSiteArguments {
        site: "red".to_owned(),
        keys: vec!["admission=[]".to_owned()],
        ..SetSiteArguments::default()
    };
    let Response::SiteSet(done) = pool.ask(&Request::SetSite(set)) else { panic!("not set") };
    assert!(done.holds && done.text.contains("sites.red.admission.gold: removed"), "{}", done.text);
    assert_eq!(classes(&pool), []);
    let (gold, _) = overload(&pool);
    let reasons: Vec<_> = gold.refused.iter().map(|a| a.header("x-polder-reason")).collect();
    assert!(!reasons.is_empty() && reasons.iter().all(|&reason| reason == "queue-full"));
    pool.finish();
}
