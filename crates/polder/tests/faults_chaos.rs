//! One fault after the other, of every kind, in an order that a seed gives.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Sends;
use common::pool::{Pool, Recipe};
use common::watch::{node_record, noted_everywhere};
use common::wave::Wave;
use common::{eventually, process, watch_for};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SITES: [&str; 2] = ["red", "blue"];
/// How long faults follow one another.
const LASTS: Duration = Duration::from_secs(15);
/// The variable that replays a run.
const SEED: &str = "POLDER_CHAOS_SEED";

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    // Each run is another one; the process id and the time are random enough for that.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    given.unwrap_or(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40).max(1)
}

/// Does something bad, unless there is nobody to do it to at the moment; tells what. Edge 0 is
/// never touched: its clients must notice nothing.
fn fault(pool: &Pool, random: &mut Random) -> Option<String> {
    let node = random.below(pool.recipe.nodes);
    let pause = Duration::from_millis(random.below(300) as u64);
    let stop = |what: &str, pid: u32| {
        process::signal(pid, Signal::STOP);
        watch_for(pause);
        process::signal(pid, Signal::CONT);
        format!("{what} {pid} stopped for {pause:?}")
    };
    let kill = |what: &str, pid: u32| {
        process::signal(pid, Signal::KILL);
        format!("{what} {pid} killed")
    };
    Some(match random.below(6) {
        0 => kill("edge", pool.edge_process(1)?),
        1 => stop("edge", pool.edge_process(1)?),
        2 => kill("agent", pool.agent(node)?),
        3 => stop("agent", pool.agent(node)?),
        4 => {
            let site = SITES[random.below(2)];
            kill("server", pool.server(&format!("n{}", node + 1), site)?)
        }
        _ => {
            watch_for(pause);
            return None;
        }
    })
}

#[test]
fn faults_of_every_kind_cost_nothing_but_what_was_on_the_killed_part() {
    let seed = seed();
    println!("{SEED}={seed}");
    let mut random = Random(seed);
    let sites = [("red", "nodes = 3\nhard = 1"), ("blue", "nodes = 3\nhard = 1")];
    let pool = Recipe::new(&sites, 6).agents(Duration::from_millis(10)).start();
    let watch = pool.watch(&[1, 1]);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(70));
    let spared = Sends::gets(32, &pool.edges[..1], &wave).start();
    let struck = Sends::gets(16, &pool.edges[1..], &wave).start();
    let (started, mut faults) = (Instant::now(), Vec::new());
    while started.elapsed() < LASTS {
        faults.extend(fault(&pool, &mut random));
        watch_for(Duration::from_millis(random.below(400) as u64));
    }
    println!("{} faults: {faults:#?}", faults.len());
    eventually("all is well again", || pool.is_ready());
    watch.wait_changes(10);
    let (spared, struck) = (spared.finish(), struck.finish());
    drop(driver);
    spared.assert_all_served("clients of the edge that was spared");
    struck.assert_counted();
    let (cut, otherwise) = struck.parted();
    let kills = faults.iter().filter(|f| f.starts_with("edge") && f.ends_with("killed")).count();
    assert!(otherwise.is_empty(), "{otherwise:#?}");
    // A dying process closes its clients' connections before the socket that listens: a client that
    // connects anew at once is cut once more.
    assert!(cut.len() <= 2 * 16 * kills, "{} cut by {kills} kills", cut.len());
    let noted = || {
        let names = pool.recipe.node_names();
        names.iter().map(|n| noted_everywhere(&node_record(&pool.folder, n))).sum::<u32>()
    };
    eventually("nothing is noted as in flight any more", || noted() == 0);
    let history = watch.finish();
    println!(
        "{} moves, {} requests served, {} cut by {kills} kills of edge 1; fewest nodes {:?}",
        history.moves(),
        spared.ok + struck.ok,
        cut.len(),
        history.fewest
    );
    pool.finish();
}
