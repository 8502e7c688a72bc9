//! Agents that die, and those that come after them.

#![allow(clippy::unwrap_used)]

mod support;

use agent::{Agent, AgentState, ReapError, Start, hold_region, reap_leftovers};
use rustix::process::Signal;
use shared_state::NodeRecord;
use shared_state::words::{Assign, Epoch};
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{
    Place, ask, assign, attach, child_options, eventually, phase, program, runs, signal, site, spec,
};

#[test]
fn plays_a_role() {
    support::play_role();
}

/// The pid and the address of the server of site 1 that another process' agent runs.
fn warm_server(place: &Place, record: &NodeRecord) -> (u32, std::net::SocketAddrV4) {
    eventually("a warm server", || record.is_warm(site(1)).then_some(()));
    let state = AgentState::read(&place.state_file()).unwrap().unwrap();
    let process = state.servers.iter().find(|s| s.site == 1).unwrap().process.unwrap();
    assert_eq!(process.address.port(), record.server(site(1)).port);
    (process.pid, process.address)
}

/// Holds the region that a process serves, as a parent does: it asks until there is one.
fn hold(pid: u32) -> std::os::fd::OwnedFd {
    eventually("a region to hold", || hold_region(pid, "n4").ok())
}

#[test]
fn a_killed_agent_leaves_its_servers_to_the_next_one() {
    let place = Place::new();
    let mut first = place.spawn("agent");
    let old = attach(&place);
    let (pid, address) = warm_server(&place, &old);
    let before = assign(&old, Some(1));
    let file = hold(first.0.id());
    first.kill();

    // Without an agent: the server answers, the memory is there, and edges can still move it.
    assert_eq!(ask(address), Ok(pid));
    assert_eq!(old.assign(), Some(before));
    assert!(old.takes(site(1), before));

    let mut options = child_options(place.path());
    options.adopt = Some(file);
    let handle = Agent::start(options).unwrap();
    assert_eq!(old.assign_word().load(Ordering::SeqCst), Assign::TOMBSTONE);
    let new = attach(&place);
    let incarnation = |record: &NodeRecord| record.region().descriptor().incarnation;
    assert_ne!(incarnation(&new), incarnation(&old));
    let after = Assign { site: Some(site(1)), stamp: Epoch::ZERO, version: before.version + 1 };
    assert_eq!(new.assign(), Some(after), "the same site, counted by nobody yet");
    assert!(new.is_warm(site(1)), "it answered before edges saw the region");
    let server = phase(&handle, 1, "ready").servers[0].clone();
    assert_eq!((server.pid, server.address), (Some(pid), Some(address)));
    assert_eq!(ask(address), Ok(pid));

    // It is looked after as if it were a child of its own.
    signal(pid, Signal::KILL);
    let again = eventually("a new process", || {
        let server = handle.snapshot().servers[0].clone();
        (server.phase == "ready" && server.pid != Some(pid)).then_some(server)
    });
    handle.stop();
    assert!(!runs(again.pid.unwrap()));
    assert!(!place.state_file().exists());
}

#[test]
fn an_agent_makes_room_for_the_next_one_and_stops_no_server() {
    let place = Place::new();
    let mut first = place.spawn("agent");
    let old = attach(&place);
    let (pid, address) = warm_server(&place, &old);
    let before = assign(&old, Some(1));
    let mut memory = hold(first.0.id());
    signal(first.0.id(), Signal::HUP);
    assert!(first.0.wait().unwrap().success());
    assert_eq!((ask(address), old.assign()), (Ok(pid), Some(before)), "nothing has changed");
    // The next ones leave as well, with what they were given.
    for turn in 1..=2 {
        let mut options = child_options(place.path());
        options.adopt = Some(memory);
        let handle = Agent::start(options).unwrap();
        let new = attach(&place);
        assert_eq!(new.assign().map(|assign| assign.version), Some(before.version + turn));
        assert_eq!(phase(&handle, 1, "ready").servers[0].pid, Some(pid));
        memory = handle.region_file().unwrap();
        handle.leave();
        assert_eq!(ask(address), Ok(pid));
    }
    assert_eq!(reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap(), 1);
}

#[test]
fn a_server_of_an_assignment_survives_the_agent_too() {
    let place = Place::new();
    let mut first = place.spawn("agent");
    let old = attach(&place);
    let before = assign(&old, Some(2));
    eventually("ready", || old.takes(site(2), before).then_some(()));
    let file = hold(first.0.id());
    let port = old.server(site(2)).port;
    first.kill();
    let handle = Agent::start({
        let mut options = child_options(place.path());
        options.adopt = Some(file);
        options
    })
    .unwrap();
    let new = attach(&place);
    let after = new.assign().unwrap();
    assert_eq!((after.site, after.version), (Some(site(2)), before.version + 1));
    eventually("ready for the new version", || new.takes(site(2), after).then_some(()));
    assert_eq!(new.server(site(2)).port, port, "the same process");
    handle.stop();
}

#[test]
fn memory_of_a_stopped_agent_is_read_and_changed() {
    let place = Place::new();
    let agent = place.spawn("agent");
    let record = attach(&place);
    let (pid, address) = warm_server(&place, &record);
    signal(agent.0.id(), Signal::STOP);
    let moved = assign(&record, Some(1));
    assert_eq!(record.assign(), Some(moved));
    assert!(record.takes(site(1), moved), "a warm server needs no agent");
    assert_eq!(ask(address), Ok(pid));
    let beat = record.beat();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(record.beat(), beat, "edges see that it does not live");
    let refused = Agent::start(child_options(place.path())).err().unwrap();
    assert!(refused.to_string().contains("has an agent already"), "{refused}");
    signal(agent.0.id(), Signal::CONT);
    eventually("beats", || (record.beat() != beat).then_some(()));
}

#[test]
fn leftovers_are_ended_by_identity() {
    let place = Place::new();
    let mut first = place.spawn("agent");
    let (pid, _) = warm_server(&place, &attach(&place));
    let alive = reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap_err();
    assert!(matches!(alive, ReapError::AgentRuns { .. }), "{alive}");
    assert!(runs(pid));
    first.kill();
    // A note about a process that has ended since, whose id belongs to somebody else: ourselves.
    let mut state = AgentState::read(&place.state_file()).unwrap().unwrap();
    let mut stale = state.servers[0].clone();
    stale.process.as_mut().unwrap().pid = std::process::id();
    state.servers.push(stale);
    std::fs::write(place.state_file(), serde_json::to_vec(&state).unwrap()).unwrap();
    assert_eq!(reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap(), 1);
    assert!(!runs(pid));
    assert!(!place.state_file().exists());
    assert_eq!(reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap(), 0);
}

#[test]
fn servers_that_nobody_asks_for_any_more_are_ended() {
    let place = Place::new();
    let mut first = place.spawn("agent");
    let (pid, _) = warm_server(&place, &attach(&place));
    first.kill();
    let handle = place.start(vec![spec(3, program("server", Start::Warm))]);
    assert!(!runs(pid));
    let record = attach(&place);
    assert_eq!(record.assign(), Some(Assign::FREE), "without the old region it starts free");
    phase(&handle, 3, "ready");
    handle.stop();
}

#[test]
fn an_agent_ends_with_its_parent_and_takes_its_servers_along() {
    let place = Place::new();
    let mut parent = place.spawn("parent");
    let record = attach(&place);
    let (pid, _) = warm_server(&place, &record);
    let agent = AgentState::read(&place.state_file()).unwrap().unwrap().pid;
    assert!(runs(agent));
    parent.kill();
    eventually("the end of agent and server", || (!runs(agent) && !runs(pid)).then_some(()));
    assert!(!place.state_file().exists() && !place.socket().exists());
    assert_eq!(record.assign(), None);
}

#[test]
fn garbage_left_by_an_earlier_agent_is_no_obstacle() {
    let place = Place::new();
    std::fs::write(place.state_file(), b"\x00{ not json").unwrap();
    let noise = std::fs::File::open("/dev/null").unwrap();
    let mut options = support::options(place.path(), Vec::new());
    options.adopt = Some(noise.into());
    let handle = Agent::start(options).unwrap();
    assert_eq!(handle.record().assign(), Some(Assign::FREE));
    assert!(AgentState::read(&place.state_file()).unwrap().is_some(), "it was replaced");
    handle.stop();

    // A memory file that is a region, but holds noise.
    let region = remote_memory::shm::OwnedRegion::create("noise", 16_384).unwrap();
    use remote_memory::Mapped;
    for word in region.words() {
        word.store(0x5eed_5eed_5eed_5eed, Ordering::Relaxed);
    }
    let mut options = support::options(place.path(), Vec::new());
    options.adopt = Some(std::os::fd::AsFd::as_fd(&region).try_clone_to_owned().unwrap());
    let handle = Agent::start(options).unwrap();
    assert_eq!(handle.record().assign(), Some(Assign::FREE));
    handle.stop();
}

#[test]
fn an_agent_whose_region_was_given_up_leaves_its_servers_alone() {
    let place = Place::new();
    let handle = place.start(vec![spec(1, program("server", Start::Warm))]);
    let pid = phase(&handle, 1, "ready").servers[0].pid.unwrap();
    NodeRecord::retire(&**handle.record().region()).unwrap();
    eventually("its end", || (!handle.is_running()).then_some(()));
    assert!(runs(pid) && place.state_file().exists());
    drop(handle);
    assert!(runs(pid));
    assert_eq!(reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap(), 1);
}

#[test]
fn what_a_server_left_running_is_found_by_its_mark() {
    let place = Place::new();
    // The helper leaves the server's process group, and then the server dies.
    let script = "setsid sleep 300 & echo $! >helper.new && mv helper.new helper && sleep 300";
    let run = format!("cd {}; {script}", place.path().display());
    let handle = place.start(vec![spec(1, support::command(&["sh", "-c", &run]))]);
    let helper = eventually("the helper", || {
        std::fs::read_to_string(place.path().join("helper")).ok()?.trim().parse::<u32>().ok()
    });
    let leader = eventually("the server", || handle.snapshot().servers[0].pid);
    NodeRecord::retire(&**handle.record().region()).unwrap();
    eventually("the agent's end", || (!handle.is_running()).then_some(()));
    assert!(runs(helper) && runs(leader));
    let ended = reap_leftovers(&place.state_file(), Duration::from_secs(5)).unwrap();
    assert!(ended >= 2, "{ended}");
    eventually("the helper's end", || (!runs(helper)).then_some(()));
    assert!(!runs(leader));
}

#[test]
fn an_assignment_survives_one_agent_after_the_other() {
    let place = Place::new();
    let mut agent = place.spawn("agent");
    let record = attach(&place);
    let (pid, address) = warm_server(&place, &record);
    let first = assign(&record, Some(1));
    for died in 1..=3 {
        let memory = hold(agent.0.id());
        agent.kill();
        // The next one inherits the old memory as its standard input, and keeps it open.
        agent = place.spawn_with("agent", memory);
        let record = eventually("the next region", || {
            let attached = remote_memory::shm::attach(place.socket(), Duration::from_secs(5));
            NodeRecord::open(attached.ok()?.region()).ok()
        });
        let assign = record.assign().unwrap();
        assert_eq!((assign.site, assign.version), (Some(site(1)), first.version + died));
        assert_eq!(ask(address), Ok(pid));
    }
    drop(agent);
}
