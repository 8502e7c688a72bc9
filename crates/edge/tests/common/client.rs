//! A client on a raw socket.

use super::PATIENCE;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn reason(&self) -> Option<&str> {
        self.field("x-polder-reason")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// From this address of our own.
    pub fn from_ip(source: [u8; 4], address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Sends; a peer that has closed meanwhile is found out by reading.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn fill(&mut self) -> Result<(), End> {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(End::Closed),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(End::Reset),
            Err(error) => panic!("no answer in time: {error}; so far {:?}", self.text()),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    /// The next head; none where the connection ends instead.
    pub fn head(&mut self) -> Option<Reply> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.buffer.split_off(at + 4);
                // Field values may hold any byte beyond ASCII (RFC 9110, 5.5).
                let head = String::from_utf8_lossy(&std::mem::replace(&mut self.buffer, rest))
                    .into_owned();
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return Some(Reply { status, head, body: Vec::new() });
            }
            if self.fill().is_err() {
                assert!(self.buffer.is_empty(), "half a head: {:?}", self.text());
                return None;
            }
        }
    }

    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>, End> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        let rest = self.buffer.split_off(count);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = self.exactly(at + 2)?;
                return Ok(String::from_utf8(line[..at].to_vec()).unwrap());
            }
            self.fill()?;
        }
    }

    /// The body that a head announces, or how the connection ended within it.
    pub fn body(&mut self, reply: &Reply) -> Result<Vec<u8>, End> {
        if matches!(reply.status, 100..=199 | 204 | 304) {
            return Ok(Vec::new());
        }
        if let Some(length) = reply.field("content-length") {
            return self.exactly(length.parse().unwrap());
        }
        if reply.field("transfer-encoding").is_none() {
            return match self.until_end() {
                (bytes, End::Closed) => Ok(bytes),
                (_, end) => Err(end),
            };
        }
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).unwrap();
            body.extend(self.exactly(size)?);
            assert_eq!(self.line()?, "");
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// The next response; none where the connection ends instead.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut reply = self.head()?;
        reply.body = self.body(&reply).unwrap();
        Some(reply)
    }

    /// Sends, and reads the response.
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Reply {
        self.send(bytes);
        self.reply().expect("the edge closed without a response")
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"))
    }

    /// Everything up to the end of the connection.
    pub fn until_end(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.buffer), end);
            }
        }
    }

    /// Reads so many bytes of a body away.
    pub fn discard(&mut self, count: usize) -> Result<(), End> {
        let mut left = count;
        loop {
            left -= self.buffer.len().min(left);
            self.buffer.clear();
            if left == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Closes with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}
