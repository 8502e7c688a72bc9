//! Servers that die, hang or never come, under a real agent.

#![allow(clippy::unwrap_used)]

mod support;

use agent::{Check, ServerKind, Start, StartError};
use rustix::process::Signal;
use shared_state::slot::{Enter, NodeSlot};
use shared_state::words::{Lease, Phase};
use std::time::Duration;
use support::{
    Place, ask, assign, attach, command, eventually, phase, program, runs, signal, site, spec,
};

#[test]
fn plays_a_role() {
    support::play_role();
}

#[test]
fn a_server_that_is_killed_starts_again_and_edges_learn_where() {
    let place = Place::new();
    let handle = place.start(vec![spec(1, program("server", Start::Warm))]);
    let record = attach(&place);
    let first = phase(&handle, 1, "ready").servers[0].clone();
    let word = record.server(site(1));
    assert!(word.is_ready() && record.is_warm(site(1)));
    assert_eq!(ask(first.address.unwrap()), Ok(first.pid.unwrap()));
    signal(first.pid.unwrap(), Signal::KILL);
    eventually("a cold record", || (!record.is_warm(site(1))).then_some(()));
    let second = eventually("a new process", || {
        let server = handle.snapshot().servers[0].clone();
        (server.phase == "ready" && server.pid != first.pid).then_some(server)
    });
    let word = record.server(site(1));
    assert_eq!((word.restarts, word.phase), (1, Phase::Ready));
    assert_eq!(Some(word.port), second.address.map(|address| address.port()));
    assert!(record.is_warm(site(1)));
    assert_eq!(second.last_error.as_deref(), Some("killed by signal 9"));
    assert_eq!(ask(second.address.unwrap()), Ok(second.pid.unwrap()));
    handle.stop();
}

#[test]
fn servers_that_never_come_are_failing_and_say_why() {
    let place = Place::new();
    let mut options = support::options(
        place.path(),
        vec![
            spec(1, program("mute", Start::Warm)),
            spec(2, command(&["false"])),
            spec(3, command(&["/no/such/program", "{port}"])),
        ],
    );
    options.health.unresponsive_max_ms = 200;
    let handle = agent::Agent::start(options).unwrap();
    let record = attach(&place);
    let error = |number: u16| {
        let snapshot = phase(&handle, number, "failing");
        snapshot.servers[usize::from(number) - 1].last_error.clone().unwrap()
    };
    assert!(error(1).contains("no answer for"), "{}", error(1));
    assert_eq!(error(2), "exited with status 1");
    assert!(error(3).contains("cannot start /no/such/program"), "{}", error(3));
    eventually("several tries", || (record.server(site(2)).restarts >= 2).then_some(()));
    for number in 1..=3 {
        assert!(!record.is_warm(site(number)), "site {number} is not warm");
    }
    assert_eq!(record.server(site(2)).phase, Phase::Failing);
    handle.stop();
}

#[test]
fn a_server_that_hangs_is_failing_until_it_goes_on() {
    let place = Place::new();
    let mut options = support::options(place.path(), vec![spec(1, program("server", Start::Warm))]);
    options.health.check_timeout_ms = 100;
    let handle = agent::Agent::start(options).unwrap();
    let record = attach(&place);
    let pid = phase(&handle, 1, "ready").servers[0].pid.unwrap();
    let beat = record.beat();
    signal(pid, Signal::STOP);
    let server = phase(&handle, 1, "failing").servers[0].clone();
    assert!(server.last_error.unwrap().contains("no response within 100 ms"));
    assert!(!record.is_warm(site(1)), "the phase says it");
    eventually("another beat", || (record.beat() != beat).then_some(()));
    signal(pid, Signal::CONT);
    let server = phase(&handle, 1, "ready").servers[0].clone();
    assert_eq!((server.pid, server.restarts), (Some(pid), 0), "the same process goes on");
    handle.stop();
}

#[test]
fn an_address_is_checked_and_never_started() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    let mut server = spec(7, ServerKind::Address(address));
    server.check = Check::Tcp;
    let handle = place.start(vec![server]);
    let record = attach(&place);
    phase(&handle, 7, "ready");
    let word = record.server(site(7));
    assert_eq!((word.address, word.port), (*address.ip(), address.port()));
    assert!(record.is_warm(site(7)));
    drop(listener);
    let server = phase(&handle, 7, "failing").servers[0].clone();
    assert!(server.last_error.unwrap().contains("no connection to 127.0.0.1"));
    handle.stop();
}

#[test]
fn a_server_on_assignment_starts_with_its_site_and_stops_when_drained() {
    let place = Place::new();
    let handle = place.start(vec![
        spec(1, program("server", Start::Warm)),
        spec(2, program("server", Start::OnAssignment)),
    ]);
    let record = attach(&place);
    phase(&handle, 1, "ready");
    assert_eq!(record.server(site(2)).phase, Phase::Absent);
    let first = assign(&record, Some(2));
    eventually("ready for this version", || record.takes(site(2), first).then_some(()));
    assert!(!record.is_warm(site(2)), "another move would have to wait again");
    let pid = phase(&handle, 2, "ready").servers[1].pid.unwrap();

    // An edge has a request there, the node moves, and the server must wait for the request.
    let edge = pool_model::EdgeId::new(5).unwrap();
    let lease = Lease { incarnation: 9, beat: 1 };
    let mut slot = NodeSlot::take(record.clone(), edge, 0, lease).unwrap();
    assert_eq!(slot.enter(first, 8), Enter::Entered);
    let second = assign(&record, Some(1));
    eventually("ready for the next version", || {
        slot.beat();
        (record.ready().version == second.version).then_some(())
    });
    for _ in 0..100 {
        slot.beat();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(runs(pid), "its last request is not answered yet");
    slot.leave(site(2), first.version);
    eventually("the end of the drained server", || {
        slot.beat();
        (!runs(pid)).then_some(())
    });
    phase(&handle, 2, "absent");
    assert!(record.is_warm(site(1)));
    handle.stop();
}

#[test]
fn a_stop_leaves_nothing_even_of_a_server_that_will_not_go() {
    let place = Place::new();
    let stubborn = command(&["sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; sleep 60"]);
    let mut options = support::options(
        place.path(),
        vec![spec(1, program("server", Start::Warm)), spec(2, stubborn)],
    );
    options.health.stop_timeout_ms = 300;
    let handle = agent::Agent::start(options).unwrap();
    let record = handle.record().clone();
    phase(&handle, 1, "ready");
    let log = place.path().join("n4-site-2.log");
    eventually("the trap", || std::fs::read(&log).is_ok_and(|t| t == b"ready\n").then_some(()));
    let pids: Vec<u32> = handle.snapshot().servers.iter().filter_map(|s| s.pid).collect();
    assert_eq!(pids.len(), 2);
    handle.stop();
    assert!(!pids.iter().any(|&pid| runs(pid)));
    assert!(!place.state_file().exists() && !place.socket().exists());
    assert_eq!(record.assign(), None, "late writes miss");
    assert!(!record.is_warm(site(1)));
}

#[test]
fn an_edge_that_rings_makes_the_agent_beat_often() {
    let place = Place::new();
    let mut options = support::options(place.path(), Vec::new());
    options.idle_beat_ms = 200;
    let handle = agent::Agent::start(options).unwrap();
    let record = attach(&place);
    let promises = |ms| {
        eventually("a beat", || (record.beat_period() == Duration::from_millis(ms)).then_some(()));
    };
    promises(200);
    assign(&record, Some(1));
    promises(10);
    assert_eq!(record.ready().phase, Phase::Absent, "a site that has no server here");
    promises(200);
    let status = record.status().unwrap();
    assert_eq!(status.pid, u64::from(std::process::id()));
    assert!(status.memory_total_kib > 0);
    handle.stop();
}

#[test]
fn what_cannot_run_is_refused_before_anything_starts() {
    let place = Place::new();
    let start = |servers| agent::Agent::start(support::options(place.path(), servers));
    let refused = start(vec![spec(1, command(&["serve", "{prot}"]))]).err().unwrap();
    assert!(refused.to_string().contains("unknown placeholder {prot}"), "{refused}");
    let twice = vec![spec(1, command(&["a"])), spec(1, command(&["b"]))];
    assert!(matches!(start(twice), Err(StartError::Options(_))));
    let mut bad = spec(1, command(&["serve"]));
    bad.check = Check::Http { path: "no slash".to_owned() };
    assert!(matches!(start(vec![bad]), Err(StartError::Options(_))));
    let handle = start(Vec::new()).unwrap();
    let second = start(Vec::new()).err().unwrap();
    assert!(second.to_string().contains("another process serves"), "{second}");
    handle.stop();
    start(Vec::new()).unwrap().stop();
}

#[test]
fn a_real_nginx_is_started_found_healthy_and_stopped() {
    let program = "/usr/sbin/nginx";
    if !std::path::Path::new(program).exists() {
        println!("skipped: {program} is not installed");
        return;
    }
    let place = Place::new();
    let directory = place.path().to_str().unwrap().to_owned();
    let settings = format!(
        "daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;\n\
         events {{ }} http {{ access_log off; client_body_temp_path {directory}/body;\n\
         proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;\n\
         uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;\n\
         server {{ listen @HOST@:@PORT@; return 200 '1'; }} }}"
    );
    std::fs::write(place.path().join("nginx.in"), settings).unwrap();
    // Its settings cannot read the environment, so a shell fills them in, and becomes it.
    let fill = "sed -e s/@HOST@/$HOST/ -e s/@PORT@/$PORT/ nginx.in >nginx.conf";
    let run = format!("cd {directory} && {fill} && exec {program} -p . -c nginx.conf");
    let nginx = command(&["sh", "-c", &run]);
    let handle = place.start(vec![spec(1, nginx)]);
    let server = phase(&handle, 1, "ready").servers[0].clone();
    assert_eq!(ask(server.address.unwrap()), Ok(1));
    let children = format!("/proc/{0}/task/{0}/children", server.pid.unwrap());
    let worker: u32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    handle.stop();
    assert!(!runs(server.pid.unwrap()) && !runs(worker), "master and worker are gone");
}
