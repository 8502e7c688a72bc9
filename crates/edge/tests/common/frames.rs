//! A client that writes HTTP/2 frames byte by byte, right and wrong ones (RFC 9113, 4.1).

use super::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const INITIAL_WINDOW: u16 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM and GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Fields as literals without a table and without Huffman's code (RFC 7541, 6.2.2).
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // A prefix of seven bits, then what is beyond it, seven bits at a time.
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push((length % 128) as u8 | 128);
                    length /= 128;
                }
                block.push(length as u8);
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A request's fields, the pseudo-fields first.
pub fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut all =
        vec![(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a.example")];
    all.extend(more);
    fields(&all)
}

pub struct FrameClient {
    pub stream: TcpStream,
    /// What came and was not asked for yet.
    pub log: Vec<Frame>,
}

impl FrameClient {
    /// Sends the preface and these settings.
    pub fn new(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self { stream, log: Vec::new() };
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(frame(SETTINGS, 0, 0, &settings));
        client
    }

    /// Whether it was taken: a peer that has closed is no fault of the test.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// The next frame; none at the end of the connection.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.read(&mut payload)?;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn read(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no frame in time"),
            Err(_) => None,
        }
    }

    /// The first frame that fits; none if the connection ends before.
    pub fn find(&mut self, fits: impl Fn(&Frame) -> bool) -> Option<Frame> {
        if let Some(place) = self.log.iter().position(&fits) {
            return Some(self.log.remove(place));
        }
        loop {
            let frame = self.next()?;
            if fits(&frame) {
                return Some(frame);
            }
            self.log.push(frame);
        }
    }

    /// How a stream ended: the code of its reset, or none if it was complete.
    pub fn end_of(&mut self, stream: u32) -> Option<u32> {
        let ends = |frame: &Frame| {
            let last = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
            frame.stream == stream && (last || frame.kind == RST_STREAM)
        };
        let frame = self.find(ends).expect("the connection ended before the stream");
        // Its payload may be the end of the body.
        self.log.push(frame.clone());
        (frame.kind == RST_STREAM).then(|| frame.code())
    }

    /// Whether the connection ends with GOAWAY, and with which code; reads to its end.
    pub fn goodbye(&mut self) -> Option<u32> {
        let mut last = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                last = Some(frame.code());
            }
        }
        last
    }

    /// Whether the connection still answers.
    pub fn is_alive(&mut self) -> bool {
        self.send(frame(PING, 0, 0, b"12345678"));
        self.find(|frame| frame.kind == PING && frame.flags & ACK != 0).is_some()
    }
}
