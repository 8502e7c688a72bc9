//! Control sockets: questions, garbage, slow and silent clients.

use super::*;
use crate::status::example;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot;

const LONG: Duration = Duration::from_secs(20);

/// Counts what it was asked; `drain` of `slow` takes for ever.
#[derive(Default)]
struct Counting {
    asked: Cell<usize>,
}

impl Handler for Counting {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        self.asked.set(self.asked.get() + 1);
        match request {
            Request::Status => Ok(Response::Status(Box::new(example()))),
            Request::Drain(NodeArguments { node }) if node == "slow" => {
                std::future::pending().await
            }
            Request::Drain(NodeArguments { node }) => {
                Err(Refusal::new(Code::NotFound, format!("no node {node}")))
            }
            _ => Ok(Response::done(self.asked.get().to_string())),
        }
    }
}

/// A server on a thread of its own, until it is dropped.
struct Running {
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let server = Server::bind(&path).unwrap();
                ready.send(()).unwrap();
                tokio::select! {
                    () = server.run(Counting::default()) => {}
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv_timeout(LONG).unwrap();
        Self { folder, stop: Some(stop), thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        BufReader::new(stream)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        assert!(!self.path().exists(), "the socket stays behind");
    }
}

fn line_of(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_question_gets_its_answer() {
    let running = Running::start();
    let status = ask(&running.path(), &Request::Status, LONG).unwrap();
    assert_eq!(status, Response::Status(Box::new(example())));
    let node = NodeArguments { node: "n9".into() };
    let refused = ask(&running.path(), &Request::Drain(node), LONG).unwrap_err();
    assert!(matches!(&refused, AskError::Refused(r) if r.code == Code::NotFound), "{refused}");
    assert_eq!(refused.to_string(), "no node n9");
}

#[test]
fn a_question_from_a_runtime_gets_its_answer_too() {
    let running = Running::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let path = running.path();
    let answer = runtime.block_on(ask_async(&path, &Request::Pause, LONG)).unwrap();
    assert_eq!(answer, Response::done("1"));
    let slow = Request::Drain(NodeArguments { node: "slow".into() });
    let short = Duration::from_millis(30);
    let late = runtime.block_on(ask_async(&path, &slow, short)).unwrap_err();
    assert!(matches!(late, AskError::Timeout { .. }), "{late}");
}

#[test]
fn only_the_user_may_use_the_socket() {
    let running = Running::start();
    let mode = std::fs::metadata(running.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn garbage_is_answered_and_the_connection_goes_on() {
    let running = Running::start();
    let mut stream = running.connect();
    for garbage in ["GET / HTTP/1.1\n", "\n", "\u{0}\u{1}\n", "{\"version\":1}\n"] {
        stream.get_mut().write_all(garbage.as_bytes()).unwrap();
        assert!(line_of(&mut stream).contains("\"code\":\"malformed\""), "{garbage}");
    }
    stream.get_mut().write_all(b"{\"version\":1,\"request\":\"reboot\"}\n").unwrap();
    let line = line_of(&mut stream);
    assert!(line.contains("unknown_request") && line.contains("reboot"), "{line}");
    stream.get_mut().write_all(b"{\"version\":1,\"request\":\"pause\"}\n").unwrap();
    // The handler saw none of it before.
    assert!(line_of(&mut stream).contains("\"text\":\"1\""));
}

#[test]
fn two_requests_in_one_write_get_two_answers() {
    let running = Running::start();
    let mut stream = running.connect();
    let line = "{\"version\":1,\"request\":\"resume\"}\n";
    stream.get_mut().write_all(line.repeat(2).as_bytes()).unwrap();
    assert!(line_of(&mut stream).contains("\"text\":\"1\""));
    assert!(line_of(&mut stream).contains("\"text\":\"2\""));
}

#[test]
fn a_request_without_end_is_cut_off() {
    let running = Running::start();
    let mut stream = running.connect();
    // The server may close before all is written; what counts is its answer.
    let _ = stream.get_mut().write_all(&vec![b'x'; REQUEST_MAX_BYTES + 1]);
    assert!(line_of(&mut stream).contains("too_long"));
    let mut rest = Vec::new();
    assert!(matches!(stream.read_to_end(&mut rest), Ok(0) | Err(_)));
}

#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    let running = Running::start();
    let mut slow = running.connect();
    slow.get_mut().write_all(b"{\"version\":1,").unwrap();
    let silent = running.connect();
    let slow_request = Request::Drain(NodeArguments { node: "slow".into() });
    let started = Instant::now();
    let late = ask(&running.path(), &slow_request, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(late, AskError::Timeout { .. }), "{late}");
    assert!(started.elapsed() < LONG);
    assert!(ask(&running.path(), &Request::Status, LONG).is_ok());
    slow.get_mut().write_all(b"\"request\":\"pause\"}\n").unwrap();
    assert!(line_of(&mut slow).contains("done"));
    drop(silent);
}

#[test]
fn two_clients_are_served_at_once() {
    let running = Running::start();
    let (mut one, mut other) = (running.connect(), running.connect());
    let line = b"{\"version\":1,\"request\":\"resume\"}\n";
    for _ in 0..10 {
        other.get_mut().write_all(line).unwrap();
        one.get_mut().write_all(line).unwrap();
        assert!(line_of(&mut one).contains("done") && line_of(&mut other).contains("done"));
    }
}

#[test]
fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let running = Running::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let refused = Server::bind(&running.path()).unwrap_err();
    assert!(matches!(refused, BindError::InUse { .. }), "{refused}");
    let stale = running.folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    drop(Server::bind(&stale).unwrap());
    assert!(!stale.exists());
}

#[test]
fn without_a_listener_the_path_is_named() {
    let error = ask(Path::new("/no/such.sock"), &Request::Status, LONG).unwrap_err();
    assert!(matches!(error, AskError::NotRunning { .. }));
    assert!(error.to_string().contains("/no/such.sock"), "{error}");
}

#[test]
fn a_listener_that_talks_nonsense_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        for answer in [&b"hello\n"[..], b"", b"{\"version\":9,\"response\":\"x\"}\n"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    let mut errors = (0..3).map(|_| ask(&path, &Request::Status, LONG).unwrap_err());
    assert!(matches!(errors.next(), Some(AskError::Nonsense { .. })));
    assert!(matches!(errors.next(), Some(AskError::Broken { .. })));
    assert!(matches!(errors.next(), Some(AskError::Nonsense { .. })));
    drop(errors);
    thread.join().unwrap();
}
