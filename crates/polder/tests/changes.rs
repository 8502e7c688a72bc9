//! Settings and programs change under load, and no request is lost.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Clients, Connection, Sends};
use common::pool::{PROGRAM, Pool, Port, Recipe};
use common::wave::Wave;
use common::{eventually, process};
use polder::control::{AskError, Code, ReloadArguments, Request, Response, UpgradeArguments};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clients that are there all the time.
const CLIENTS: usize = 16;

fn clients(pool: &Pool) -> Clients {
    Sends::gets(CLIENTS, &pool.edges, &Wave::still("red")).start()
}

/// Writes the pool's settings file anew.
fn rewrite(pool: &Pool, change: impl FnOnce(&mut Recipe)) {
    let mut recipe = pool.recipe.clone();
    change(&mut recipe);
    let text = recipe.text(&pool.folder, &pool.edges, pool.stubs.as_ref());
    std::fs::write(&pool.file, text).unwrap();
}

fn reload(pool: &Pool) -> String {
    told(pool.ask(&Request::Reload(ReloadArguments::default())))
}

fn told(response: Response) -> String {
    match response {
        Response::Done(done) => done.text,
        other => panic!("{other:?}"),
    }
}

fn refused(pool: &Pool, request: &Request) -> (Code, String) {
    match pool.try_ask(request) {
        Err(AskError::Refused(refusal)) => (refusal.code, refusal.text),
        other => panic!("not refused: {other:?}"),
    }
}

/// Upgrades and waits for the end; whether it succeeded, and what is told of it.
fn upgrade(pool: &Pool, program: &Path) -> (bool, String) {
    let before = pool.status().pool.upgrades;
    let arguments = UpgradeArguments { program: Some(program.to_owned()) };
    let broken = pool.try_ask(&Request::Upgrade(arguments));
    assert!(matches!(broken, Err(AskError::Broken { .. })), "{broken:?}; {}", pool.log());
    let mut end = None;
    eventually("the upgrade ends", || {
        let Ok(status) = pool.try_status() else { return false };
        let change = status.pool.change.filter(|_| status.pool.upgrades == before + 1);
        end = change.and_then(|change| Some((change.succeeded?, change.text)));
        end.is_some()
    });
    end.unwrap()
}

fn edge_pids(pool: &Pool) -> Vec<u32> {
    let edges = pool.status().edges;
    edges.iter().filter(|edge| !edge.leaving).map(|edge| edge.pid).collect()
}

#[test]
fn fifty_reloads_under_load_lose_nothing_and_moves_go_on() {
    let pool = Recipe::new(&[("red", "nodes = 2\n"), ("blue", "nodes = 2\n")], 4).start();
    let clients = clients(&pool);
    let before = (pool.pid(), edge_pids(&pool));
    for turn in 0..50_u32 {
        rewrite(&pool, |recipe| {
            write!(recipe.http, "retries_max = {}", turn % 3).unwrap();
            write!(recipe.pool, "hold_ms = {}", 2 + turn % 5).unwrap();
            recipe.sites[1].1 = ["nodes = 2\n", "nodes = 2\nqueue_max = 7\n"][turn as usize % 2];
        });
        let told = reload(&pool);
        assert!(turn == 0 || told.contains("pool.hold_ms: "), "{told}");
    }
    clients.wait_served(500);
    let status = pool.status();
    assert_eq!((status.pool.reloads, status.pool.hold_ms), (50, 6));
    assert_eq!((pool.pid(), edge_pids(&pool)), before, "all of it in place");
    assert!(status.edges.iter().all(|edge| edge.settings_hash == status.pool.settings_hash));
    assert_eq!(status.warnings, []);
    // Nodes still move: settings agree.
    pool.ask_move("n3", "red");
    eventually("it serves there", || pool.is_serving());
    clients.finish().assert_all_served("clients under reloads");
    pool.finish();
}

#[test]
fn what_is_wrong_or_fixed_is_refused_whole_and_told() {
    let pool = Recipe::new(&[("red", "")], 1).start();
    let text = std::fs::read_to_string(&pool.file).unwrap();
    let request = Request::Reload(ReloadArguments::default());
    let hash = pool.status().pool.settings_hash;
    std::fs::write(&pool.file, format!("{text}\nwrong = 1\n[pool")).unwrap();
    let (code, told) = refused(&pool, &request);
    assert_eq!(code, Code::Settings);
    assert!(told.contains("polder.toml") && told.contains("nothing has changed"), "{told}");
    let other = text.replace("name = \"faults\"", "name = \"other\"\nhold_ms = 77");
    std::fs::write(&pool.file, other).unwrap();
    let (code, told) = refused(&pool, &request);
    assert_eq!(code, Code::Refused);
    assert!(told.contains("`name` in [pool]"), "{told}");
    // An address that somebody else has: no edge is touched.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = taken.local_addr().unwrap().to_string();
    let mine = pool.edges[1].to_string();
    std::fs::write(&pool.file, text.replace(&mine, &elsewhere)).unwrap();
    let (_, told) = refused(&pool, &request);
    assert!(told.contains(&elsewhere), "{told}");
    // A dry run says what it would do, and does not.
    std::fs::write(&pool.file, text.replace("runtime_dir", "hold_ms = 9\nruntime_dir")).unwrap();
    let dry = Request::Reload(ReloadArguments { dry_run: true, file: None });
    let would = told_lines(pool.ask(&dry));
    assert_eq!(would, ["1 setting differs:", "  pool.hold_ms: 2 -> 9"]);
    let status = pool.status();
    assert_eq!((status.pool.settings_hash, status.pool.hold_ms), (hash, 2));
    let last = status.pool.change.unwrap();
    assert_eq!((last.what.as_str(), last.succeeded), ("reload", Some(false)));
    // SIGHUP does what the command does.
    process::signal(pool.pid(), Signal::HUP);
    eventually("it is reloaded", || pool.status().pool.hold_ms == 9);
    assert_eq!(told_lines(pool.ask(&request)), ["the settings are the same"]);
    pool.finish();
}

fn told_lines(response: Response) -> Vec<String> {
    told(response).lines().map(str::to_owned).collect()
}

#[test]
fn an_edge_that_is_to_listen_elsewhere_is_replaced_and_its_clients_are_served() {
    let pool = Recipe::new(&[("red", "")], 2).start();
    let before = edge_pids(&pool);
    let clients = Sends::gets(CLIENTS, &pool.edges[..1], &Wave::still("red")).start();
    let mut stays = Connection::open(pool.edges[1]).unwrap();
    assert_eq!(stays.request("GET", "red.test", "/").unwrap().status, 200);
    let port = Port::take();
    let text = std::fs::read_to_string(&pool.file).unwrap();
    let both = format!("{}\", \"{}", pool.edges[1], port.address);
    std::fs::write(&pool.file, text.replace(&pool.edges[1].to_string(), &both)).unwrap();
    let told = reload(&pool);
    assert!(told.contains("edges.1.listen") && told.contains("1 edge replaced"), "{told}");
    for address in [pool.edges[0], pool.edges[1], port.address] {
        let mut new = Connection::open(address).unwrap();
        assert_eq!(new.request("GET", "red.test", "/").unwrap().status, 200, "{address}");
    }
    let after = edge_pids(&pool);
    assert_eq!((after.len(), after.iter().filter(|pid| before.contains(pid)).count()), (2, 1));
    clients.wait_served(100);
    clients.finish().assert_all_served("clients of the other edge");
    pool.finish();
}

#[test]
fn nodes_come_and_go_under_load() {
    let mut recipe = Recipe::new(&[("red", "nodes = 2\n")], 2).agents(Duration::from_millis(5));
    recipe.edges = 1;
    let pool = recipe.start();
    let clients = clients(&pool);
    rewrite(&pool, |recipe| recipe.nodes = 3);
    let told = reload(&pool);
    assert!(told.contains("nodes.n3: added"), "{told}");
    eventually("the node serves", || pool.is_ready() && pool.status().nodes.len() == 3);
    pool.ask_move("n3", "red");
    clients.wait_served(200);
    rewrite(&pool, |recipe| recipe.nodes = 2);
    reload(&pool);
    eventually("the node is gone", || pool.agent(2).is_none());
    eventually("the others serve", || pool.is_serving() && pool.status().nodes.len() == 2);
    clients.wait_served(200);
    clients.finish().assert_all_served("clients while nodes came and went");
    pool.finish();
}

#[test]
fn three_upgrades_under_load_lose_nothing_and_stop_no_server() {
    let recipe = Recipe::new(&[("red", "nodes = 1\n"), ("blue", "")], 2);
    let pool = recipe.agents(Duration::from_millis(5)).start();
    let clients = clients(&pool);
    let server = pool.server("n1", "red").unwrap();
    for turn in 1..=3 {
        let before = edge_pids(&pool);
        let (succeeded, told) = upgrade(&pool, Path::new(PROGRAM));
        assert!(succeeded, "{told}");
        let after = edge_pids(&pool);
        assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
        let status = pool.status();
        assert_eq!((status.pool.upgrades, status.pool.pid), (turn, pool.pid()));
    }
    assert_eq!(pool.server("n1", "red"), Some(server), "servers run on");
    clients.wait_served(200);
    clients.finish().assert_all_served("clients under upgrades");
    // What a pool can do, it still can.
    rewrite(&pool, |recipe| recipe.pool = "hold_ms = 5".to_owned());
    assert!(reload(&pool).contains("pool.hold_ms: 2 -> 5"));
    pool.wait_ready();
    pool.finish();
}

/// A script in place of a program.
fn script(pool: &Pool, name: &str, text: &str) -> PathBuf {
    let path = pool.home().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_that_cannot_go_on_never_gets_the_pool() {
    let pool = Recipe::new(&[("red", "")], 1).start();
    let clients = clients(&pool);
    let before = edge_pids(&pool);
    let crashes = script(&pool, "crashes", "echo it is broken >&2; kill -SEGV $$");
    let hangs = script(&pool, "other", "echo something else");
    let cases: [(&Path, &str); 4] = [
        (&crashes, "it is broken"),
        (&hangs, "could not go on"),
        (Path::new("/nowhere/polder"), "can't be run"),
        (&pool.file, "can't be run"),
    ];
    for (program, words) in cases {
        let arguments = UpgradeArguments { program: Some(program.to_owned()) };
        let (code, told) = refused(&pool, &Request::Upgrade(arguments));
        assert_eq!(code, Code::Refused);
        assert!(told.contains(words) && told.contains("the old program goes on"), "{told}");
    }
    assert_eq!((edge_pids(&pool), pool.status().pool.upgrades), (before.clone(), 0));
    // One whose edges crash has the parent's place, but its edges get nobody's.
    let no_edge = format!("[ \"$1\" = edge-process ] && exit 1\nexec {PROGRAM} \"$@\"");
    let no_edge = script(&pool, "no-edge", &no_edge);
    let (succeeded, told) = upgrade(&pool, &no_edge);
    assert!(!succeeded && told.contains("goes on instead"), "{told}");
    assert_eq!(edge_pids(&pool), before);
    clients.wait_served(100);
    // The next one mends it.
    let (succeeded, told) = upgrade(&pool, Path::new(PROGRAM));
    assert!(succeeded, "{told}");
    clients.wait_served(100);
    clients.finish().assert_all_served("clients under bad programs");
    pool.finish();
}

#[test]
fn one_change_at_a_time_and_a_parent_killed_within_leaves_nothing() {
    let mut pool = Recipe::new(&[("red", "")], 1).agents(Duration::from_millis(1)).start();
    // Its edges take their time: the upgrade stays under way.
    let slow = format!("[ \"$1\" = edge-process ] && sleep 2\nexec {PROGRAM} \"$@\"");
    let slow = script(&pool, "slow", &slow);
    let arguments = UpgradeArguments { program: Some(slow) };
    let broken = pool.try_ask(&Request::Upgrade(arguments));
    assert!(matches!(broken, Err(AskError::Broken { .. })), "{broken:?}");
    eventually("the new program answers", || {
        pool.try_status().is_ok_and(|status| status.pool.upgrades == 1)
    });
    let (_, told) = refused(&pool, &Request::Reload(ReloadArguments::default()));
    assert!(told.contains("one upgrade is under way"), "{told}");
    process::signal(pool.pid(), Signal::KILL);
    pool.wait_end();
    eventually("its children end", || pool.processes().iter().all(|pid| !is_child(*pid)));
    pool.restart();
    pool.wait_ready();
    pool.finish();
}

/// An edge or an agent; servers of dead agents are ended by the next start.
fn is_child(pid: u32) -> bool {
    let line = process::command_line(pid);
    line.contains("edge-process") || line.contains("agent-process")
}
