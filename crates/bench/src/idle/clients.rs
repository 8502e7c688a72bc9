//! The clients' process: opens connections, asks once on each, and keeps them.

use crate::children::{say, told};
use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::JoinSet;

/// The hidden sub-command: `idle-clients-process EDGE HOST`.
pub(crate) const CLIENTS_PROCESS: &str = "idle-clients-process";
/// Connections that are opened, or asked on, at the same time.
const AT_ONCE: usize = 64;
/// Connections from one address: it has about 28,000 ports.
const PER_ADDRESS: usize = 10_000;
/// The longest answer: a kilobyte and its head.
const ANSWER_MAX_BYTES: usize = 16_384;

/// How it went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Connections that are open.
    pub(crate) open: usize,
    /// Requests without a good answer, connections that could not be made or did not last.
    pub(crate) failed: usize,
    /// Why the last one failed.
    pub(crate) why: Option<String>,
}

/// Opens what it is told (`open N`), asks again on all (`again`), closes them (`close`), until its
/// input ends.
pub(crate) fn process(arguments: &[String]) -> anyhow::Result<()> {
    let [edge, host] = arguments else { bail!("{CLIENTS_PROCESS} needs an edge and a host") };
    let edge: SocketAddr = edge.parse().context("the edge's address")?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let mut clients = Clients { runtime, edge, host: host.clone(), open: Vec::new() };
    say(&Asked::default())?;
    while let Some(line) = told()? {
        let asked = match line.split_once(' ') {
            Some(("open", number)) => clients.open(number.parse()?),
            None if line == "again" => clients.again(),
            None if line == "close" => clients.close(),
            _ => bail!("{line}: cannot do that"),
        };
        say(&asked)?;
    }
    Ok(())
}

struct Clients {
    // Dropped first: they are watched by the runtime.
    open: Vec<TcpStream>,
    runtime: LocalRuntime,
    edge: SocketAddr,
    host: String,
}

impl Clients {
    fn open(&mut self, number: usize) -> Asked {
        let edge = self.edge;
        let streams: Vec<_> = (0..number).map(|place| connect(edge, place)).collect();
        self.ask(streams)
    }

    fn again(&mut self) -> Asked {
        let open = std::mem::take(&mut self.open);
        let streams = open.into_iter().map(|stream| async move { Ok(stream) });
        self.ask(streams.collect())
    }

    fn close(&mut self) -> Asked {
        self.open.clear();
        Asked::default()
    }

    /// One request on each.
    fn ask<F>(&mut self, streams: Vec<F>) -> Asked
    where
        F: Future<Output = io::Result<TcpStream>> + 'static,
    {
        let request = format!("GET /1k HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        let mut asked = Asked::default();
        let mut streams = streams.into_iter();
        let run = async {
            let mut tasks = JoinSet::new();
            loop {
                while tasks.len() < AT_ONCE
                    && let Some(stream) = streams.next()
                {
                    let request = request.clone();
                    tasks.spawn_local(async move { exchange(stream.await?, &request).await });
                }
                match tasks.join_next().await {
                    Some(Ok(Ok(stream))) => self.open.push(stream),
                    Some(Ok(Err(error))) => {
                        (asked.failed, asked.why) = (asked.failed + 1, Some(error.to_string()));
                    }
                    Some(Err(error)) => {
                        (asked.failed, asked.why) = (asked.failed + 1, Some(error.to_string()));
                    }
                    None => break,
                }
            }
        };
        self.runtime.block_on(run);
        asked.open = self.open.len();
        asked
    }
}

async fn connect(edge: SocketAddr, place: usize) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(2 + place / PER_ADDRESS).map_err(io::Error::other)?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    socket.connect(edge).await
}

/// Sends a request and reads its answer to the end.
async fn exchange(mut stream: TcpStream, request: &str) -> io::Result<TcpStream> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(2_048);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match is_whole(&answer) {
            Some(true) => return Ok(stream),
            Some(false) if answer.len() < ANSWER_MAX_BYTES => {}
            _ => return Err(io::Error::other("the answer is not as it should be")),
        }
    }
}

/// Whether a good answer is there to its end; nothing where it is no good answer.
fn is_whole(answer: &[u8]) -> Option<bool> {
    let good = b"HTTP/1.1 200";
    if !answer.starts_with(&good[..good.len().min(answer.len())]) {
        return None;
    }
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Some(false);
    };
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let length: usize = length.trim().parse().ok()?;
    Some(answer.len() >= end + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(is_whole(whole), Some(true));
        for length in 0..whole.len() {
            assert_eq!(is_whole(&whole[..length]), Some(false), "{length}");
        }
        assert_eq!(is_whole(b"HTTP/1.1 503 Busy\r\n"), None);
        assert_eq!(is_whole(b"HTTP/1.1 200 OK\r\n\r\n"), None, "without a length");
    }
}
