//! Clients that count: each request is sent once, has one end, and stands in the tally once.

use super::PATIENCE;
use super::wave::Wave;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request without an answer for so long hangs: far above every time-out of a pool here.
const HANG: Duration = Duration::from_secs(30);
/// Pause before the next edge is tried when one takes no connection.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// A complete response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let found = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = found.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim())
    }

    /// Of each line of a header its value.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = fields.filter(move |(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// What `Cache-Status` says is a hit.
    pub fn is_hit(&self) -> bool {
        self.header("cache-status").contains("; hit")
    }
}

/// A request without a complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended first; bytes of the response that had come.
    Cut { received: usize, why: String },
    /// Nothing came for [`HANG`].
    Hung,
}

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    pub edge: SocketAddr,
}

impl Connection {
    pub fn open(edge: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&edge, HANG)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG))?;
        stream.set_write_timeout(Some(HANG))?;
        Ok(Self { stream, edge })
    }

    /// Over a stream that is connected, and that has time-outs.
    pub fn over(stream: TcpStream, edge: SocketAddr) -> Self {
        Self { stream, edge }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends one request with an empty body and waits for its response.
    pub fn request(&mut self, method: &str, host: &str, path: &str) -> Result<Answer, Broken> {
        self.send(method, host, path)?;
        self.receive()
    }

    pub fn send(&mut self, method: &str, host: &str, path: &str) -> Result<(), Broken> {
        let length = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n");
        self.stream.write_all(head.as_bytes()).map_err(|error| broken(&error, 0))
    }

    pub fn receive(&mut self) -> Result<Answer, Broken> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_some(&mut bytes)?;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut answer = Answer { status, head, body: Vec::new() };
        if answer.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
            answer.body = self.receive_chunks(bytes.split_off(end))?;
            return Ok(answer);
        }
        let length: usize = answer.header("content-length").parse().unwrap_or(0);
        while bytes.len() < end + length {
            self.read_some(&mut bytes)?;
        }
        answer.body = bytes.split_off(end);
        Ok(answer)
    }

    /// A body in chunks without trailers, of which these bytes have come.
    fn receive_chunks(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        loop {
            while !bytes.windows(2).any(|two| two == b"\r\n") {
                self.read_some(&mut bytes)?;
            }
            let line = bytes.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
            let digits = String::from_utf8_lossy(&bytes[..line]).into_owned();
            let length = usize::from_str_radix(&digits, 16);
            let length = length.unwrap_or_else(|_| panic!("{digits:?} is no length of a chunk"));
            let (start, end) = (line + 2, line + 2 + length);
            while bytes.len() < end + 2 {
                self.read_some(&mut bytes)?;
            }
            body.extend_from_slice(&bytes[start..end]);
            bytes.drain(..end + 2);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn read_some(&mut self, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Broken::Cut { received: bytes.len(), why: "closed".to_owned() }),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) => Err(broken(&error, bytes.len())),
        }
    }
}

fn broken(error: &io::Error, received: usize) -> Broken {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Broken::Hung,
        _ => Broken::Cut { received, why: error.to_string() },
    }
}

/// How a request that was not served ended.
#[derive(Clone, Debug)]
pub struct Failure {
    pub id: String,
    pub edge: SocketAddr,
    /// When it ended.
    pub at: Instant,
    pub took: Duration,
    pub how: How,
}

/// Why a request counts as failed.
#[derive(Clone, Debug)]
pub enum How {
    /// A complete response other than 200.
    Status {
        status: u16,
        reason: String,
    },
    /// A 200 from a server of another site.
    WrongSite(String),
    Broken(Broken),
}

/// What a set of clients did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub sent: u64,
    pub ok: u64,
    pub failures: Vec<Failure>,
    /// From sending to the whole response of each request that was served.
    pub took: Vec<Duration>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.ok += other.ok;
        self.failures.extend(other.failures);
        self.took.extend(other.took);
    }

    /// Every request was served; each was counted exactly once.
    #[track_caller]
    pub fn assert_all_served(&self, who: &str) {
        self.assert_counted();
        let first: Vec<_> = self.failures.iter().take(5).collect();
        let failed = self.failures.len();
        assert_eq!(failed, 0, "{who}: {failed} of {} failed, such as {first:#?}", self.sent);
        assert!(self.ok > 0, "{who}: no request was made");
    }

    /// Requests sent are requests that ended.
    #[track_caller]
    pub fn assert_counted(&self) {
        assert_eq!(self.sent, self.ok + self.failures.len() as u64, "a request has no end");
        let hung = |failure: &&Failure| matches!(failure.how, How::Broken(Broken::Hung));
        assert!(!self.failures.iter().any(|f| hung(&f)), "hung: {:?}", self.failures);
    }

    /// Those that ended with their connection, and those that ended otherwise.
    pub fn parted(&self) -> (Vec<&Failure>, Vec<&Failure>) {
        let cut = |how: &How| matches!(how, How::Broken(Broken::Cut { .. }));
        self.failures.iter().partition(|failure| cut(&failure.how))
    }

    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    pub fn quantile(&self, share: f64) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let place = (took.len().saturating_sub(1)) as f64 * share;
        took.get(place as usize).copied().unwrap_or_default()
    }
}

/// What a set of clients sends where.
#[derive(Clone, Debug)]
pub struct Sends {
    /// Connections, each with one request at a time.
    pub clients: usize,
    /// Each client stays with one edge until that fails it, then goes to the next. The first one
    /// is the same for all.
    pub edges: Vec<SocketAddr>,
    /// Which site's turn it is.
    pub wave: Arc<Wave>,
    pub method: &'static str,
}

impl Sends {
    pub fn gets(clients: usize, edges: &[SocketAddr], wave: &Arc<Wave>) -> Self {
        Self { clients, edges: edges.to_vec(), wave: Arc::clone(wave), method: "GET" }
    }

    pub fn start(self) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let run = |number: usize| {
            let client = Client {
                number,
                sends: self.clone(),
                at_edge: 0,
                tally: Tally::default(),
                served: Arc::clone(&served),
                stop: Arc::clone(&stop),
            };
            std::thread::spawn(move || client.run())
        };
        let threads = (0..self.clients).map(run).collect();
        Clients { stop, served, threads }
    }
}

/// A running set of clients. Dropped without a finish, it stops and tells nothing.
pub struct Clients {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Clients {
    /// Requests served so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Waits until so many more have been served.
    #[track_caller]
    pub fn wait_served(&self, more: u64) {
        let wanted = self.served() + more;
        super::eventually(&format!("{more} more requests are served"), || self.served() >= wanted);
    }

    /// Sends no more, waits for what is under way, and tells.
    pub fn finish(mut self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for thread in self.threads.drain(..) {
            all.add(thread.join().expect("a client does not panic"));
        }
        all
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Client {
    number: usize,
    sends: Sends,
    at_edge: usize,
    tally: Tally,
    served: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Client {
    fn run(mut self) -> Tally {
        let mut connection = None;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(mut open) = connection.take().or_else(|| self.connect()) else { break };
            if self.one(&mut open) {
                connection = Some(open);
            }
        }
        self.tally
    }

    /// A connection to the first edge that takes one, from the present one on.
    fn connect(&mut self) -> Option<Connection> {
        let started = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let edge = self.sends.edges[self.at_edge % self.sends.edges.len()];
            if let Ok(connection) = Connection::open(edge) {
                return Some(connection);
            }
            assert!(started.elapsed() < PATIENCE, "no edge of {:?} listens", self.sends.edges);
            self.at_edge += 1;
            std::thread::sleep(CONNECT_PAUSE);
        }
        None
    }

    /// One request; whether the connection can carry another.
    fn one(&mut self, connection: &mut Connection) -> bool {
        let (host, site) = self.sends.wave.now();
        let id = format!("/{}/{}", self.number, self.tally.sent);
        self.tally.sent += 1;
        let started = Instant::now();
        let ended = connection.request(self.sends.method, &host, &id);
        let took = started.elapsed();
        let how = match ended {
            Ok(answer) if answer.status == 200 && answer.header("x-site") == site => {
                self.tally.ok += 1;
                self.tally.took.push(took);
                self.served.fetch_add(1, Ordering::Relaxed);
                return !answer.header("connection").eq_ignore_ascii_case("close");
            }
            Ok(answer) if answer.status == 200 => {
                How::WrongSite(answer.header("x-site").to_owned())
            }
            Ok(answer) => {
                let (status, reason) = (answer.status, answer.header("x-polder-reason").to_owned());
                How::Status { status, reason }
            }
            Err(broken) => {
                self.at_edge += 1;
                How::Broken(broken)
            }
        };
        let stays = matches!(how, How::Status { .. });
        let (edge, at) = (connection.edge, Instant::now());
        self.tally.failures.push(Failure { id, edge, at, took, how });
        stays
    }
}
