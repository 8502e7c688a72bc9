//! An origin that writes down what it sees. It reads to the letter of RFC 9112, and says so where
//! that cannot be done; each answer carries the number of the message that it answers.

use crate::common::PATIENCE;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One message as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) host: Option<String>,
    pub(crate) body: Vec<u8>,
    /// Why it can't be read to the letter.
    pub(crate) fault: Option<String>,
}

#[derive(Default)]
struct Shared {
    messages: Mutex<HashMap<usize, Message>>,
    next: AtomicUsize,
    /// Connections within a message.
    busy: AtomicUsize,
    stop: AtomicBool,
}

pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stop.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&accepting));
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// Whether no message is half read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.busy.load(Ordering::SeqCst) == 0
    }

    /// Takes what was written down since the last call, by number.
    pub(crate) fn take(&self) -> HashMap<usize, Message> {
        std::mem::take(&mut self.shared.messages.lock().unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Counts a connection as busy.
struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = Reader { stream, buffer: Vec::new() };
    loop {
        if reader.buffer.is_empty() && !reader.fill() {
            return;
        }
        let busy = Busy::new(&shared.busy);
        let Some((message, modern)) = reader.message() else { return };
        let number = shared.next.fetch_add(1, Ordering::SeqCst);
        let keeps = modern && message.fault.is_none();
        shared.messages.lock().unwrap().insert(number, message);
        drop(busy);
        let end = if keeps { "" } else { "Connection: close\r\n" };
        let answer =
            format!("HTTP/1.1 200 OK\r\nX-Seen: {number}\r\n{end}Content-Length: 0\r\n\r\n");
        if reader.stream.write_all(answer.as_bytes()).is_err() || !keeps {
            return;
        }
    }
}

struct Reader {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Reader {
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        let count = self.stream.read(&mut chunk).unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..count]);
        count > 0
    }

    /// What comes before the mark, and takes both away; none if the connection ends before.
    fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|w| w == mark) {
                let mut taken: Vec<u8> = self.buffer.drain(..at + mark.len()).collect();
                taken.truncate(at);
                return Some(taken);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.fill() {
                return None;
            }
        }
        Some(self.buffer.drain(..count).collect())
    }

    /// The next message, and whether another may follow; none if it breaks off.
    fn message(&mut self) -> Option<(Message, bool)> {
        let head = self.until(b"\r\n\r\n")?;
        // Each byte a letter: nothing is lost, whatever it is.
        let head: String = head.iter().map(|&byte| char::from(byte)).collect();
        let mut lines = head.split("\r\n");
        let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version] = line[..] else {
            let fault = Some(format!("no request line: {line:?}"));
            return Some((Message { fault, ..Message::default() }, false));
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut message = Message { method, target, ..Message::default() };
        let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                message.fault = Some(format!("no field: {line:?}"));
                return Some((message, false));
            };
            let value = value.trim_matches([' ', '\t']).to_owned();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => lengths.push(value),
                "transfer-encoding" => codings.push(value),
                "host" => hosts.push(value),
                _ if line.contains(['\r', '\n', '\0']) || name.ends_with([' ', '\t']) => {
                    message.fault = Some(format!("an odd field: {line:?}"));
                }
                _ => {}
            }
        }
        message.host = hosts.first().cloned();
        if hosts.len() > 1 {
            message.fault = Some(format!("hosts: {hosts:?}"));
        }
        match (&lengths[..], &codings[..]) {
            ([], []) => {}
            ([length], []) => match length.parse() {
                Ok(length) => message.body = self.exactly(length)?,
                Err(_) => message.fault = Some(format!("length {length:?}")),
            },
            ([], [coding]) if coding == "chunked" => self.chunks(&mut message)?,
            framing => message.fault = Some(format!("ambiguous: {framing:?}")),
        }
        Some((message, version == "HTTP/1.1"))
    }

    fn chunks(&mut self, message: &mut Message) -> Option<()> {
        loop {
            let line = String::from_utf8_lossy(&self.until(b"\r\n")?).into_owned();
            let Ok(size) = usize::from_str_radix(&line, 16) else {
                message.fault = Some(format!("chunk size {line:?}"));
                return Some(());
            };
            message.body.extend(self.exactly(size)?);
            let end = self.until(b"\r\n")?;
            if !end.is_empty() {
                message.fault = Some(format!("behind a chunk: {:?}", end.escape_ascii()));
                return Some(());
            }
            if size == 0 {
                return Some(());
            }
        }
    }
}
