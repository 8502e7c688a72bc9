//! Responses: what the clients of each of the three see of the same bytes of a hostile server, and
//! whether anything of them is ever taken for the answer to another request.

use crate::common::daemon::Daemon;
use crate::common::origin::{Conn, Origin};
use crate::common::{PATIENCE, edge, eventually};
use crate::peers;
use crate::{confirmed, edge_options};
use edge::{Edge, Options};
use fuzzing::{Random, Target};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GOOD: &str = "GET /good HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// What the server says to [`GOOD`]: correct, and like nothing else.
const GOOD_ANSWER: &[u8] = b"HTTP/1.1 226 Good\r\nContent-Length: 4\r\n\r\ngood";
const GOOD_STATUS: u16 = 226;

/// What the server says to the first request of a case.
#[derive(Clone, Debug, Default)]
struct Script {
    pieces: Vec<Vec<u8>>,
    closes: bool,
}

/// What a client sees of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// All of it, by the framing that the proxy gave it.
    Whole(u16, Vec<u8>),
    /// The proxy's own word that the server's made no sense, or did not come.
    Own(u16),
    /// It breaks off, or it can't be read.
    Cut,
    /// The connection ends instead.
    None,
}

/// A proxy and the hostile server behind it.
struct Side {
    name: &'static str,
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    /// How often the server has said all of its script.
    said: Arc<AtomicUsize>,
    _origin: Origin,
    _peer: Option<Daemon>,
}

fn hostile() -> (Origin, Arc<Mutex<Script>>, Arc<AtomicUsize>) {
    let (script, said) = (Arc::<Mutex<Script>>::default(), Arc::<AtomicUsize>::default());
    let (script_there, said_there) = (Arc::clone(&script), Arc::clone(&said));
    let serve = move |mut conn: Conn, _| {
        while let Some(head) = conn.head() {
            if head.contains(" /good ") {
                conn.send(GOOD_ANSWER);
                continue;
            }
            let script = script_there.lock().unwrap().clone();
            for (at, piece) in script.pieces.iter().enumerate() {
                if at > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                conn.send(piece);
            }
            if script.closes {
                let _ = conn.stream.shutdown(Shutdown::Write);
            }
            said_there.fetch_add(1, Ordering::SeqCst);
            if script.closes {
                conn.wait_closed();
                return;
            }
        }
    };
    (Origin::new(serve), script, said)
}

impl Side {
    fn ours() -> (Self, Edge) {
        let (origin, script, said) = hostile();
        let options = Options { retries_max: 2, response_header_timeout_ms: 300, ..edge_options() };
        let (edge, _) = edge(options, &[origin.address]);
        let address = edge.addresses()[0];
        let side = Self { name: "ours", address, script, said, _origin: origin, _peer: None };
        (side, edge)
    }

    fn peer(name: &'static str, start: fn(SocketAddr) -> Option<Daemon>) -> Option<Self> {
        let (origin, script, said) = hostile();
        let peer = start(origin.address)?;
        let address = peer.address;
        Some(Self { name, address, script, said, _origin: origin, _peer: Some(peer) })
    }

    /// The hostile response; then, on the same connection and on another, good ones.
    fn run(&self, script: &Script, method: &str) -> (Outcome, [Outcome; 2]) {
        self.script.lock().unwrap().clone_from(script);
        let said = self.said.load(Ordering::SeqCst);
        let mut client = Client::new(self.address);
        client.send(&format!("{method} /hostile HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        let hostile = client.response(method == "HEAD");
        // What a server sends behind its response, but late, nobody can tell from the answer to
        // the next request: it comes first here.
        eventually("the server has said all", || self.said.load(Ordering::SeqCst) > said);
        std::thread::sleep(Duration::from_millis(2));
        let same = match &hostile {
            Outcome::Whole(..) | Outcome::Own(_) => {
                client.send(GOOD);
                client.response(false)
            }
            _ => Outcome::None,
        };
        let mut client = Client::new(self.address);
        client.send(GOOD);
        (hostile, [same, client.response(false)])
    }
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// Reads more; none at an error, which is an end within something.
    fn fill(&mut self) -> Option<bool> {
        let mut chunk = [0; 16 * 1024];
        let count = self.stream.read(&mut chunk).ok()?;
        self.buffer.extend_from_slice(&chunk[..count]);
        Some(count > 0)
    }

    fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|w| w == mark) {
                return Some(self.buffer.drain(..at + mark.len()).collect());
            }
            if self.fill() != Some(true) {
                return None;
            }
        }
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if self.fill() != Some(true) {
                return None;
            }
        }
        Some(self.buffer.drain(..count).collect())
    }

    fn response(&mut self, bodiless: bool) -> Outcome {
        let head = loop {
            let Some(head) = self.until(b"\r\n\r\n") else {
                let nothing = self.buffer.is_empty();
                return if nothing { Outcome::None } else { Outcome::Cut };
            };
            let head = String::from_utf8_lossy(&head).into_owned();
            if !head.starts_with("HTTP/1.1 1") {
                break head;
            }
        };
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status.filter(|_| head.starts_with("HTTP/1.")) else {
            return Outcome::Cut;
        };
        let field = |name: &str| {
            let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_ascii_lowercase())
        };
        let body = match (field("transfer-encoding").as_deref(), field("content-length")) {
            _ if bodiless || matches!(status, 204 | 304) => Some(Vec::new()),
            (Some("chunked"), None) => self.chunks(),
            (None, Some(length)) => length.parse().ok().and_then(|length| self.exactly(length)),
            (None, None) => self.rest(),
            _ => None,
        };
        let own = field("x-polder-reason").is_some() || matches!(status, 502 | 504);
        match body {
            _ if own => Outcome::Own(status),
            Some(body) => Outcome::Whole(status, body),
            None => Outcome::Cut,
        }
    }

    fn rest(&mut self) -> Option<Vec<u8>> {
        while self.fill()? {}
        Some(std::mem::take(&mut self.buffer))
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).ok()?;
            let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
            if size == 0 {
                // Trailers, if the proxy sends some, and the empty line.
                while self.until(b"\r\n")? != b"\r\n" {}
                return Some(body);
            }
            body.extend(self.exactly(size)?);
            if self.exactly(2)? != b"\r\n" {
                return None;
            }
        }
    }
}

/// Interim responses lead both others astray: nginx 1.22 takes one for the final response, HAProxy
/// 2.6 may cut off a body without a length that comes after one.
fn is_interim(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["HTTP/1.1 1", "HTTP/1.0 1"].iter().any(|line| text.contains(line))
}

fn judge(ours: &Outcome, goods: &[Outcome; 2], others: &[(&str, Outcome)]) -> Result<(), String> {
    let good = Outcome::Whole(GOOD_STATUS, b"good".to_vec());
    if goods[0] != good && goods[0] != Outcome::None {
        return Err(format!("the next answer on the connection is {:?} after {ours:?}", goods[0]));
    }
    if goods[1] != good {
        return Err(format!("another client is answered by {:?} after {ours:?}", goods[1]));
    }
    if let Outcome::Whole(..) = ours {
        for (name, theirs) in others {
            if matches!(theirs, Outcome::Whole(..)) && ours != theirs {
                return Err(format!("we pass on {ours:?}, {name} {theirs:?}"));
            }
        }
        let refuse = |(_, outcome): &(&str, Outcome)| matches!(outcome, Outcome::Own(_));
        if !others.is_empty() && others.iter().all(refuse) {
            return Err(format!("all others refuse {ours:?}"));
        }
    }
    Ok(())
}

const LINES: [&str; 16] = [
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 404 Not Found",
    "HTTP/1.1 500 Oops",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 101 Switching Protocols",
    "HTTP/1.1 200",
    "HTTP/1.1  200 OK",
    "HTTP/2 200 OK",
    "HTTP/1.1 2000 OK",
    "\r\nHTTP/1.1 200 OK",
];

const FIELDS: [&str; 40] = [
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: 6",
    "Content-Length: 005",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length: 0x5",
    "Content-Length:",
    "Content-Length : 5",
    "Content-Length: 18446744073709551621",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "transfer-encoding:  CHUNKED ",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\r\n chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\nContent-Length: 3",
    "X: y\r\n folded",
    "X: y\0",
    "X Y: z",
    ": y",
    "nonsense",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: content-length",
    "Keep-Alive: timeout=5",
    "Trailer: T",
    "Upgrade: x",
    "Set-Cookie: a=b",
    "Server: x",
    "X-Accel-Buffering: no",
];

const BODIES: [&str; 22] = [
    "",
    "hello",
    "hello",
    "hello",
    "hello HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "helloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "5;x\r\nhello\r\n0;y\r\nT: u\r\n\r\n",
    "5;x\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\n0\n\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhelloo\r\n0\r\n\r\n",
    "0\r\n\n",
    "0\r\nX: y\n\r\n",
    "5\r\nhel",
    "hel",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
];

fn made(random: &mut Random) -> Vec<u8> {
    let end = if random.once_in(8) { "\n" } else { "\r\n" };
    let mut text = format!("{}{end}", random.pick(&LINES));
    for _ in 0..random.below(4) {
        text += *random.pick(&FIELDS);
        text += end;
    }
    text += end;
    text += *random.pick(&BODIES);
    text.into_bytes()
}

#[test]
fn fuzz_http_responses() {
    let (ours, _edge) = Side::ours();
    let others: Vec<Side> =
        [Side::peer("nginx", peers::nginx), Side::peer("haproxy", peers::haproxy)]
            .into_iter()
            .flatten()
            .collect();
    let check = |bytes: &[u8], random: &mut Random| {
        let cuts = if random.once_in(3) { 1 + random.below(3) } else { 1 };
        let pieces = bytes.chunks(bytes.len().div_ceil(cuts).max(1)).map(<[u8]>::to_vec).collect();
        let script = Script { pieces, closes: !random.once_in(8) };
        let method = if random.once_in(5) { "HEAD" } else { "GET" };
        let run = |side: &Side| (side.name, side.run(&script, method).0);
        let run = &run;
        confirmed(|| {
            std::thread::scope(|scope| {
                let waits: Vec<_> =
                    others.iter().map(|side| scope.spawn(move || run(side))).collect();
                let (mine, goods) = ours.run(&script, method);
                let theirs: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
                judge(&mine, &goods, if is_interim(bytes) { &[] } else { &theirs })?;
                let kind = |outcome: &Outcome| match outcome {
                    Outcome::Whole(status, body) => (*status, body.len()),
                    Outcome::Own(status) => (*status, usize::MAX),
                    Outcome::Cut => (1, 0),
                    Outcome::None => (2, 0),
                };
                let others: Vec<_> = theirs.iter().map(|(_, outcome)| kind(outcome)).collect();
                Ok((kind(&mine), kind(&goods[0]), others))
            })
        })
    };
    let target = Target::new("http_responses", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&LINES).tokens(&FIELDS).tokens(&BODIES).made_by(made).smoke_cases(60).run(check);
}
