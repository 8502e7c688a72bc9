//! WebSocket through the edge is the WebSocket that there would be without it.
//!
//! A client on a raw socket sends the classes of frames of Autobahn's list (framing, pings,
//! reserved bits and opcodes, fragments, UTF-8, closing, limits), whole and chopped, to a server
//! of tungstenite: once directly, once over the edge. What comes back must be the same to the
//! byte. Then Python's `websockets`, with compression, talks to itself in both ways.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::client::{Client, End};
use common::{edge, options, site};
use edge::Options;
use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(0x80 | short as u8),
        middle @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((middle as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

fn text(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(0x81, payload.as_ref())
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(0x88, &[&code.to_be_bytes(), reason].concat())
}

/// What a client sends, and how long its pieces are.
struct Case {
    name: String,
    bytes: Vec<u8>,
    piece_bytes: usize,
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: impl Into<String>, frames: &[Vec<u8>]) {
        self.chopped(name, frames, usize::MAX);
    }

    fn chopped(&mut self, name: impl Into<String>, frames: &[Vec<u8>], piece_bytes: usize) {
        let mut bytes = frames.concat();
        bytes.extend(close(1000, b"done"));
        self.0.push(Case { name: name.into(), bytes, piece_bytes });
    }

    fn framing(&mut self) {
        for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536] {
            let payload = vec![b'*'; length];
            for (kind, first) in [("text", 0x81), ("binary", 0x82)] {
                self.add(format!("1 {kind} {length}"), &[frame(first, &payload)]);
            }
            self.chopped(format!("1 chopped {length}"), &[text(&payload)], 997.max(length / 9));
        }
    }

    fn pings(&mut self) {
        for length in [0, 1, 125, 126] {
            self.add(format!("2 ping {length}"), &[frame(0x89, &vec![0xfe; length])]);
        }
        self.chopped("2 ping, an octet each", &[frame(0x89, &[7; 125])], 1);
        self.add("2 unsolicited pong, then ping", &[frame(0x8a, b"?"), frame(0x89, b"!")]);
        let many: Vec<_> = (0..10).map(|number| frame(0x89, &[number])).collect();
        self.add("2 ten pings", &many);
        self.chopped("2 ten pings, an octet each", &many, 1);
    }

    fn reserved(&mut self) {
        for bits in 1..8_u8 {
            for first in [0x81, 0x82, 0x89, 0x88] {
                let odd = frame(first | bits << 4, b"x");
                self.add(
                    format!("3 bits {bits} of {first:x}"),
                    &[text("before"), odd, text("after")],
                );
            }
        }
        for opcode in (3..8).chain(0xb..0x10) {
            let odd = frame(0x80 | opcode, b"x");
            self.add(format!("4 opcode {opcode}"), &[text("before"), odd, text("after")]);
        }
    }

    fn fragments(&mut self) {
        let (begin, go_on, end) = (frame(0x01, b"one"), frame(0x00, b"two"), frame(0x80, b"three"));
        let ping = frame(0x89, b"between");
        self.add("5 fragmented ping", &[frame(0x09, b"a"), frame(0x80, b"b")]);
        self.add("5 fragmented close", &[frame(0x08, b"a"), frame(0x80, b"b")]);
        self.add("5 three parts", &[begin.clone(), go_on.clone(), end.clone()]);
        let with_ping = [begin.clone(), ping.clone(), go_on.clone(), ping, end.clone()];
        self.add("5 pings between parts", &with_ping);
        self.chopped("5 pings between parts, an octet each", &with_ping, 1);
        self.add("5 nothing to go on with", &[end.clone(), text("after")]);
        self.add("5 nothing to go on with, not final", &[go_on, end.clone()]);
        self.add("5 text within fragments", &[begin, text("inner"), end]);
        let empty = [frame(0x01, b""), frame(0x00, b""), frame(0x80, b"")];
        self.add("5 empty parts", &empty);
    }

    fn utf8(&mut self) {
        let valid = "κόσμε \u{10ffff} \u{ffff} \u{0} 𝄞".as_bytes();
        self.add("6 valid", &[text(valid)]);
        self.chopped("6 valid, an octet each", &[text(valid)], 1);
        for cut in [1, 2, 3, valid.len() - 1] {
            let parts = [frame(0x01, &valid[..cut]), frame(0x80, &valid[cut..])];
            self.add(format!("6 valid, cut at {cut}"), &parts);
        }
        for (name, bad) in [
            ("lone continuation", &b"a\x80"[..]),
            ("overlong", b"\xc0\xaf"),
            ("surrogate", b"\xed\xa0\x80"),
            ("beyond", b"\xf4\x90\x80\x80"),
            ("cut short", b"\xce"),
            ("impossible", b"\xfe\xff"),
        ] {
            self.add(format!("6 {name}"), &[text("before"), text(bad), text("after")]);
            let parts = [frame(0x01, b"ok "), frame(0x80, bad)];
            self.add(format!("6 {name} in a part"), &parts);
        }
    }

    fn closing(&mut self) {
        self.add("7 message after close", &[close(1000, b""), text("late"), frame(0x89, b"late")]);
        self.add("7 empty close", &[frame(0x88, b"")]);
        self.add("7 close of one octet", &[frame(0x88, b"x")]);
        self.add("7 longest reason", &[close(1000, &[b'r'; 123])]);
        self.add("7 too long", &[frame(0x88, &[0x03; 126])]);
        self.add("7 reason that is no text", &[close(1000, b"\xff\xfe")]);
        for code in [0, 999, 1000, 1001, 1004, 1005, 1006, 1007, 1011, 1015, 2999, 3000, 4999, 5000]
        {
            self.add(format!("7 code {code}"), &[text("before"), close(code, b"why")]);
        }
        self.add("7 unmasked", &[vec![0x81, 0x02, b'h', b'i']]);
        self.add("7 length that cannot be", &[[&[0x82, 0xff][..], &[0xff; 12]].concat()]);
    }

    fn limits(&mut self) {
        for length in [256 << 10, 1 << 20, 4 << 20] {
            let payload: Vec<u8> = (0..length).map(|at| b'a' + (at % 23) as u8).collect();
            self.add(format!("9 one message of {length}"), &[text(&payload)]);
            let mut parts = vec![frame(0x02, b"")];
            parts.extend(payload.chunks(40_000).map(|part| frame(0x00, part)));
            parts.push(frame(0x80, b"end"));
            self.add(format!("9 {length} in parts"), &parts);
        }
        let small: Vec<_> = (0..1_000).map(|number| text(format!("message {number}"))).collect();
        self.add("9 a thousand small messages", &small);
        self.chopped("10 chopped at odd places", &small, 61);
    }

    fn all() -> Vec<Case> {
        let mut cases = Self::default();
        cases.framing();
        cases.pings();
        cases.reserved();
        cases.fragments();
        cases.utf8();
        cases.closing();
        cases.limits();
        cases.0
    }
}

/// Sends messages back; tells by its code what was wrong, then reads on to the end, so that no
/// reset overtakes its words.
fn echo(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let config = WebSocketConfig::default();
    let Ok(mut socket) = tungstenite::accept_with_config(stream, Some(config)) else { return };
    let code = loop {
        match socket.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                if socket.send(message).is_err() {
                    break None;
                }
            }
            Ok(_) => {}
            Err(Error::Utf8(_)) => break Some(CloseCode::Invalid),
            Err(Error::Capacity(_)) => break Some(CloseCode::Size),
            Err(Error::Protocol(_)) => break Some(CloseCode::Protocol),
            Err(_) => break None,
        }
    };
    finish(socket, code);
}

fn finish(mut socket: WebSocket<TcpStream>, code: Option<CloseCode>) {
    if let Some(code) = code {
        let _ = socket.close(Some(CloseFrame { code, reason: "wrong".into() }));
        let _ = socket.flush();
    }
    let stream = socket.get_mut();
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn server() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || echo(stream));
        }
    });
    address
}

/// What the server says of its handshake, and all its bytes after it.
fn exchange(address: SocketAddr, case: &Case) -> (Vec<Option<String>>, Vec<u8>, End) {
    let mut client = Client::new(address);
    client.send(
        "GET /echo HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = client.head().unwrap();
    assert_eq!(head.status, 101, "{}", case.name);
    let names = ["upgrade", "sec-websocket-accept", "sec-websocket-protocol"];
    let fields = names.map(|name| head.field(name).map(str::to_owned)).to_vec();
    let mut writer = Client::over(client.stream.try_clone().unwrap());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for piece in case.bytes.chunks(case.piece_bytes) {
                writer.send(piece);
            }
        });
        let (bytes, end) = client.until_end();
        // The server ended first; so that it does not wait for us.
        let _ = client.stream.shutdown(Shutdown::Both);
        (fields, bytes, end)
    })
}

#[test]
fn all_classes_of_frames_come_through_to_the_byte() {
    let server = server();
    let (edge, fixed) = edge(options(), &[server]);
    let cases = Cases::all();
    assert!(cases.len() > 100);
    for case in &cases {
        let direct = exchange(server, case);
        let proxied = exchange(edge.addresses()[0], case);
        assert!(!direct.1.is_empty(), "{}: the server said nothing", case.name);
        assert_eq!(proxied.0, direct.0, "{}", case.name);
        let (ours, theirs) = (proxied.1.len(), direct.1.len());
        assert!(proxied.1 == direct.1, "{}: {ours} bytes over the edge, {theirs}", case.name);
        assert_eq!((proxied.2, direct.2), (End::Closed, End::Closed), "{}", case.name);
    }
    let site = &edge.metrics().sites[0];
    assert_eq!((site.upgraded, fixed.in_flight()), (cases.len() as u64, 0));
}

/// `tests/websocket.py` in one of its parts; none, and a word about it, without `websockets`.
fn python(arguments: &[&str]) -> Option<Child> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/websocket.py");
    let mut command = Command::new("/usr/bin/python3");
    match command.arg(script).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            println!("skipped: no python3 ({error})");
            None
        }
    }
}

struct Stops(Child);

impl Drop for Stops {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn python_talks_to_itself_as_if_there_were_no_edge() {
    let Some(child) = python(&["serve"]) else { return };
    let mut serving = Stops(child);
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Ok(port) = line.trim().parse::<u16>() else {
        println!("skipped: no python3-websockets");
        return;
    };
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let (edge, _) = edge(Options { default_site: Some(site()), ..options() }, &[server]);
    let talks = [server, edge.addresses()[0]].map(|address| {
        let url = format!("ws://{address}/");
        let output = python(&["talk", &url]).unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    });
    assert!(talks[0].lines().count() > 50, "{}", talks[0]);
    assert_eq!(talks[0], talks[1]);
    assert!(edge.metrics().sites[0].upgraded > 5);
}
