//! Real Apache processes in real groups.

#![allow(clippy::unwrap_used)]

use lab::{Apache, ApacheOptions, ApacheProgram, ApacheServer, DOCUMENTS, Groups, Mpm, Quota};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far above what a start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when a test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "Apache does not end");
            sleep(Duration::from_millis(10));
        }
    }
}

fn program() -> Option<ApacheProgram> {
    ApacheProgram::find().map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(apache: &Apache, join_path: &str, server: &ApacheServer) -> Running {
    let words = apache.command_for(join_path, server).unwrap();
    let mut command = Command::new(&words[0]);
    // Apache ends all of its process group when it ends: it must not be the tests'.
    let child = command.args(&words[1..]).stdin(Stdio::null()).process_group(0).spawn().unwrap();
    let running = Running(child);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
        assert!(Instant::now() < deadline, "Apache does not listen");
        sleep(Duration::from_millis(20));
    }
    running
}

/// One GET on a new connection: the response's head and body.
fn get(port: u16, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = all.split_off(end);
    (String::from_utf8(all).unwrap(), body)
}

#[test]
fn both_kinds_serve_documents_under_their_sites_name() {
    let Some(program) = program() else { return };
    for mpm in [Mpm::Prefork, Mpm::Event] {
        let options = ApacheOptions { mpm, workers: 4, burn_us: 0 };
        let apache = Apache::prepare(&program, &options).unwrap();
        let server = ApacheServer { node: "n1".into(), site: "shop".into(), port: free_port() };
        // Any file that takes a line stands in for a group.
        let running = start(&apache, "/dev/null", &server);
        assert_eq!(apache.servers().unwrap(), std::slice::from_ref(&server));
        for document in DOCUMENTS {
            let (head, body) = get(server.port, document.path);
            assert!(head.starts_with("HTTP/1.1 200"), "{mpm:?}: {head}");
            assert!(head.contains("X-Site: shop\r\n"), "{head}");
            assert_eq!(body.len(), document.bytes);
        }
        assert!(get(server.port, "/../apache.conf").0.starts_with("HTTP/1.1 40"));
        drop(running);
        assert_eq!(apache.servers().unwrap(), [], "it took its file with it");
        let folder = apache.folder().to_owned();
        drop(apache);
        assert!(!folder.exists());
    }
}

#[test]
fn two_servers_of_a_node_share_its_quota() {
    let Some(program) = program() else { return };
    let mut groups = match Groups::make() {
        Ok(groups) => groups,
        Err(error) => {
            assert!(error.is_lack(), "{error}");
            eprintln!("skipped: {error}");
            return;
        }
    };
    let group = groups.add("n1", Quota::of_core(0.4).unwrap()).unwrap();
    let options = ApacheOptions { burn_us: 2_000, workers: 2, ..ApacheOptions::default() };
    let apache = Apache::prepare(&program, &options).unwrap();
    let join_path = groups.join_path("{node}");
    let server =
        |site: &str| ApacheServer { node: "n1".into(), site: site.into(), port: free_port() };
    let servers = [server("red"), server("blue")];
    let running = servers.each_ref().map(|server| start(&apache, &join_path, server));
    assert_eq!(apache.servers().unwrap().len(), 2);
    assert!(running.iter().all(|one| group.processes().contains(&one.0.id())));
    // Both busy for a while: 2 ms for each request, 40 % of a core for both.
    let before = (group.cpu_ns(), group.throttling());
    let from = Instant::now();
    let clients: Vec<_> = servers
        .iter()
        .map(|server| {
            let port = server.port;
            std::thread::spawn(move || {
                let mut served = 0_u32;
                while from.elapsed() < Duration::from_millis(800) {
                    assert!(get(port, "/1k.html").0.starts_with("HTTP/1.1 200"));
                    served += 1;
                }
                served
            })
        })
        .collect();
    let served: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let elapsed_ns = from.elapsed().as_nanos() as f64;
    let cpu_ns = (group.cpu_ns() - before.0) as f64;
    assert!(served >= 10, "{served} requests");
    assert!(cpu_ns >= 2e6 * f64::from(served), "each burns 2 ms: {cpu_ns} ns, {served}");
    assert!(cpu_ns / elapsed_ns < 0.48, "{} of a core", cpu_ns / elapsed_ns);
    assert!(group.throttling().since(before.1).throttled > 0);
}
