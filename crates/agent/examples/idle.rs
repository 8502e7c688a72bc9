//! What idle agents cost: eight of them, three warm servers each, watched by nobody.
//!
//! `cargo run --release -p agent --example idle [SECONDS]` prints the CPU time of the agents'
//! threads, from the scheduler's counters, and fails above one percent of a core. The servers are
//! this program again; their own CPU time, which is for answering the checks, is printed apart.

use agent::{Agent, Check, Handle, Options, Program, ServerKind, ServerSpec, Start};
use pool_model::{NodeId, SiteId};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const AGENTS: u16 = 8;
const SERVERS: u16 = 3;
/// Of one core.
const IDLE_PERCENT_MAX: f64 = 1.0;
/// How long the servers may take to start.
const START_MAX: Duration = Duration::from_secs(30);
/// The time measured unless the command line says another.
const SECONDS: u64 = 10;

fn main() -> Result<(), Failure> {
    if let (Ok(host), Ok(port)) = (std::env::var("HOST"), std::env::var("IDLE_EXAMPLE_PORT")) {
        return serve(&format!("{host}:{port}"));
    }
    let seconds = std::env::args().nth(1).map_or(Ok(SECONDS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700))?;
    let agents: Vec<Handle> =
        (0..AGENTS).map(|node| start(node, directory.path())).collect::<Result<_, _>>()?;
    wait_until_ready(&agents)?;
    // What the start-up still has to do is not idling.
    std::thread::sleep(Duration::from_secs(2));
    let servers = agents.iter().flat_map(|agent| agent.snapshot().servers);
    let pids: Vec<u32> = servers.filter_map(|server| server.pid).collect();
    let server_ns = || pids.iter().map(|&pid| process_ns(pid)).sum::<u64>();
    let (before, servers_before, began) =
        (process_ns(std::process::id()), server_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let wall_ns = began.elapsed().as_nanos() as f64;
    let percent = |now: u64, before: u64| now.saturating_sub(before) as f64 / wall_ns * 100.0;
    let agents_percent = percent(process_ns(std::process::id()), before);
    let servers_percent = percent(server_ns(), servers_before);
    println!("{AGENTS} idle agents, {} servers, {seconds} s", pids.len());
    println!("agents   {agents_percent:.3} % of a core (at most {IDLE_PERCENT_MAX} %)");
    println!("servers  {servers_percent:.3} % of a core, for answering checks");
    agents.into_iter().for_each(Handle::stop);
    if agents_percent > IDLE_PERCENT_MAX {
        return Err("idle agents cost too much".into());
    }
    Ok(())
}

fn start(node: u16, directory: &Path) -> Result<Handle, Failure> {
    let mut options = Options::new(NodeId::new(node)?, &format!("n{node}"), directory);
    for number in 1..=SERVERS {
        let me = std::env::current_exe()?.to_string_lossy().into_owned();
        let env = vec![("IDLE_EXAMPLE_PORT".to_owned(), "{port}".to_owned())];
        let program = Program { argv: vec![me], env, start: Start::Warm };
        options.servers.push(ServerSpec {
            site: SiteId::new(number)?,
            name: format!("site-{number}"),
            kind: ServerKind::Command(program),
            check: Check::Http { path: "/".to_owned() },
        });
    }
    Ok(Agent::start(options)?)
}

fn wait_until_ready(agents: &[Handle]) -> Result<(), Failure> {
    let began = Instant::now();
    let ready = |agent: &Handle| agent.snapshot().servers.iter().all(|s| s.phase == "ready");
    while !agents.iter().all(ready) {
        if began.elapsed() > START_MAX {
            return Err("the servers do not come".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("all servers ready {} ms after the last agent's start", began.elapsed().as_millis());
    Ok(())
}

/// CPU time of all threads of a process in ns: the first field of each `schedstat`.
fn process_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let files = tasks.map(|task| std::fs::read_to_string(task.path().join("schedstat")));
    let first = |text: String| text.split(' ').next()?.parse::<u64>().ok();
    files.flatten().filter_map(first).sum::<u64>()
}

fn serve(address: &str) -> Result<(), Failure> {
    for stream in TcpListener::bind(address)?.incoming() {
        let mut stream = stream?;
        let mut request = [0; 1_024];
        if stream.read(&mut request)? > 0 {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
    }
    Ok(())
}
