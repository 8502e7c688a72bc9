//! An origin on plain threads: each connection runs a closure, which sees raw bytes.

use super::PATIENCE;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One request as it came over the wire.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and fields, with the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// All values of a field, in order.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).collect()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let values = self.fields(name);
        assert!(values.len() <= 1, "{name} came {} times: {}", values.len(), self.head);
        values.first().copied()
    }
}

/// One connection from the edge.
pub struct Conn {
    pub stream: TcpStream,
    buffer: Vec<u8>,
    log: Arc<Mutex<Vec<Seen>>>,
}

impl Conn {
    /// Reads more; whether there was something.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
        }
    }

    /// The next head; none at the end of the connection.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.buffer.split_off(at + 4);
                let head = std::mem::replace(&mut self.buffer, rest);
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.fill() {
                // The edge was cut off, or gave the request up.
                return None;
            }
        }
    }

    /// What was read beyond the last head, and what lies in the socket.
    pub fn buffered(&mut self) -> &[u8] {
        self.stream.set_nonblocking(true).unwrap();
        self.fill();
        self.stream.set_nonblocking(false).unwrap();
        &self.buffer
    }

    /// At least one byte of the body, or of anything that follows; empty at the end.
    pub fn some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() {
            self.fill();
        }
        std::mem::take(&mut self.buffer)
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.fill() {
                return None;
            }
        }
        let rest = self.buffer.split_off(count);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = self.exactly(at + 2)?;
                return Some(String::from_utf8(line[..at].to_vec()).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The body that a head announces, read to the letter; none if it breaks off.
    pub fn body(&mut self, head: &str) -> Option<Vec<u8>> {
        let seen = Seen { head: head.to_owned(), body: Vec::new() };
        let length = seen.field("content-length");
        match seen.field("transfer-encoding") {
            Some(coding) => {
                assert_eq!((coding, length), ("chunked", None), "{head}");
                self.chunks()
            }
            None => self.exactly(length.map_or(0, |digits| digits.parse().unwrap())),
        }
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).unwrap();
            body.extend(self.exactly(size)?);
            assert_eq!(self.line()?, "", "a chunk ends with a line end, there are no trailers");
            if size == 0 {
                return Some(body);
            }
        }
    }

    /// Sends; whether it was taken.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next whole request, logged; none at the end, or if it breaks off.
    pub fn request(&mut self) -> Option<Seen> {
        let head = self.head()?;
        let body = self.body(&head)?;
        let seen = Seen { head, body };
        self.log.lock().unwrap().push(seen.clone());
        Some(seen)
    }

    /// Logs a request whose body was not read.
    pub fn saw(&self, head: &str) {
        let (head, body) = (head.to_owned(), Vec::new());
        self.log.lock().unwrap().push(Seen { head, body });
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// A response with a length.
    pub fn answer(&mut self, status: &str, body: &[u8]) {
        let length = body.len();
        let mut bytes =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send(bytes);
    }

    /// Closes with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Waits for the edge to close or reset the connection.
    pub fn wait_closed(&mut self) {
        while self.fill() {}
    }
}

pub struct Origin {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    open: Arc<Mutex<HashMap<usize, TcpStream>>>,
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
}

impl Origin {
    /// Runs `serve` for each connection, with the connection's number from 0 on.
    pub fn new(serve: impl Fn(Conn, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let origin = Self {
            address,
            log: Arc::default(),
            connections: Arc::default(),
            open: Arc::default(),
            stop: Arc::default(),
            failed: Arc::default(),
        };
        let (log, connections) = (Arc::clone(&origin.log), Arc::clone(&origin.connections));
        let (open, stop) = (Arc::clone(&origin.open), Arc::clone(&origin.stop));
        let (serve, failed) = (Arc::new(serve), Arc::clone(&origin.failed));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let number = connections.fetch_add(1, Ordering::SeqCst);
                open.lock().unwrap().insert(number, stream.try_clone().unwrap());
                let (log, serve, open) = (Arc::clone(&log), Arc::clone(&serve), Arc::clone(&open));
                let conn = Conn { stream, buffer: Vec::new(), log };
                let failed = Arc::clone(&failed);
                std::thread::spawn(move || {
                    let run = AssertUnwindSafe(|| serve(conn, number));
                    if catch_unwind(run).is_err() {
                        failed.store(true, Ordering::SeqCst);
                    }
                    open.lock().unwrap().remove(&number);
                });
            }
        });
        origin
    }

    /// Serves each request of each connection.
    pub fn serving(serve: impl Fn(&mut Conn, Seen) + Send + Sync + 'static) -> Self {
        Self::new(move |mut conn, _| {
            while let Some(seen) = conn.request() {
                serve(&mut conn, seen);
            }
        })
    }

    /// Answers every request with its own body.
    pub fn echo() -> Self {
        Self::serving(|conn, seen| conn.answer("200 OK", &seen.body))
    }

    /// An address that refuses connections.
    pub fn refusing() -> SocketAddr {
        TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
    }

    /// All requests seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Closes all connections, as a server that ends does.
    pub fn close_connections(&self) {
        for (_, stream) in self.open.lock().unwrap().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.close_connections();
        if !std::thread::panicking() {
            assert!(!self.failed.load(Ordering::SeqCst), "the origin saw something it must not");
        }
    }
}
