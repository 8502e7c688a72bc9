//! The owner's process: a node record, served by every transport, and work that keeps its core
//! busy. Its threads all stay on the core that it was started on.

use super::reader::PING_BYTES;
use crate::children::{say, told};
use anyhow::{Context as _, bail};
use pool_model::{NodeId, SiteId};
use remote_memory::shm::{OwnedRegion, RegionServer};
use remote_memory::tcp::{PreSharedKey, Priority, Responder, ResponderSettings, Security};
use remote_memory::{Access, Mapped};
use serde::{Deserialize, Serialize};
use shared_state::words::{Assign, Epoch};
use shared_state::{AgentStatus, NODE_REGION_BYTES, NodeHeader, NodeRecord};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The hidden sub-command; its argument is where the socket of `shm` goes.
pub(crate) const OWNER_PROCESS: &str = "memory-owner-process";
/// How often it tells of itself in its record, as an agent does that is watched.
const TELL_EVERY: Duration = Duration::from_millis(10);
/// Most threads of work.
const THREADS_MAX: usize = 1_000;
/// What threads that talk send each other: a small response.
const TALK_BYTES: usize = 1_024;

/// Where the record is, and how it is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) plain: SocketAddr,
    pub(crate) sealed: SocketAddr,
    pub(crate) pong: SocketAddr,
    /// Whether the threads that answer run before others, or why not.
    pub(crate) priority: String,
    /// The place of the assignment; bytes.
    pub(crate) assign_offset_bytes: u64,
}

/// The key of a record that holds nothing secret.
pub(crate) fn key() -> PreSharedKey {
    PreSharedKey::from_bytes([7; 32])
}

/// Serves until its input ends; each line is what it shall do beside: `compute N`, `talk N`.
pub(crate) fn process(arguments: &[String]) -> anyhow::Result<()> {
    let socket = arguments.first().map(PathBuf::from).context("the place of the socket")?;
    let region = Arc::new(OwnedRegion::create("node", NODE_REGION_BYTES)?);
    let header = NodeHeader { node: NodeId::MIN, max_in_flight: 8 };
    let assign = Assign { site: Some(SiteId::MIN), stamp: Epoch::ZERO, version: 1 };
    let record = NodeRecord::publish(Arc::clone(&region) as Arc<dyn Mapped>, header, assign)?;
    let _shm = RegionServer::bind(&socket, Arc::clone(&region))?;
    let plain = responder(&region, Security::PlainLoopback)?;
    let sealed = responder(&region, Security::Noise(key()))?;
    let served = Served {
        plain: plain.address(),
        sealed: sealed.address(),
        pong: pong()?,
        priority: match sealed.priority() {
            Priority::RealTime => "real-time".to_owned(),
            Priority::Normal { why } => format!("normal ({why})"),
        },
        assign_offset_bytes: offset_of_assignment(&record).context("the record has one")?,
    };
    tell_of_itself(record)?;
    say(&served)?;
    let mut work = Work::default();
    while let Some(line) = told()? {
        work.end();
        work = Work::start(&line)?;
        say(&work.threads())?;
    }
    work.end();
    Ok(())
}

fn responder(region: &Arc<OwnedRegion>, security: Security) -> anyhow::Result<Responder> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let responder = Responder::bind(address, ResponderSettings { security, real_time: true })?;
    responder.serve(Arc::clone(region) as Arc<dyn Mapped>, Access::ReadWrite)?;
    Ok(responder)
}

fn offset_of_assignment(record: &NodeRecord) -> Option<u64> {
    let words = record.region().words();
    let index = words.iter().position(|word| std::ptr::eq(word, record.assign_word()))?;
    Some(index as u64 * remote_memory::WORD_BYTES)
}

/// Beats and writes its status, as an agent does, in a thread that ends with the process.
fn tell_of_itself(record: NodeRecord) -> anyhow::Result<()> {
    let pid = u64::from(std::process::id());
    let tell = move || {
        for round in 0.. {
            record.set_status(&AgentStatus { run_queue_milli: round, pid, ..Default::default() });
            record.beat_once(TELL_EVERY);
            std::thread::sleep(TELL_EVERY);
        }
    };
    std::thread::Builder::new().name("beats".into()).spawn(tell)?;
    Ok(())
}

/// Sends back what it gets, each connection in a thread.
fn pong() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let answer = |mut stream: TcpStream| -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut bytes = [0; PING_BYTES];
        loop {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
    };
    let listen = move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    };
    std::thread::Builder::new().name("pong".into()).spawn(listen)?;
    Ok(address)
}

/// Threads that keep the core busy.
#[derive(Default)]
pub(crate) struct Work {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Work {
    /// By a line as a helper is told it: `compute N`, `talk N`.
    pub(crate) fn start(line: &str) -> anyhow::Result<Self> {
        let (what, number) = line.split_once(' ').context("what to do, and how many")?;
        let number: usize = number.parse()?;
        if number > THREADS_MAX {
            bail!("{number} threads are too many, at most {THREADS_MAX}");
        }
        let mut work = Self::default();
        match what {
            "compute" => (0..number).for_each(|_| work.add(compute)),
            "talk" => {
                for _ in 0..number / 2 {
                    let [one, other] = connected()?;
                    work.add(move |stop| talk(one, true, stop));
                    work.add(move |stop| talk(other, false, stop));
                }
            }
            _ => bail!("{what}: cannot do that"),
        }
        Ok(work)
    }

    fn add(&mut self, run: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || run(&stop)));
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A panic was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

fn compute(stop: &AtomicBool) {
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
        }
    }
}

fn connected() -> std::io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok([one, other])
}

/// Sends and receives in turn, until told to stop or the other one does.
fn talk(mut stream: TcpStream, begins: bool, stop: &AtomicBool) {
    let mut bytes = [1; TALK_BYTES];
    let mut sends = begins;
    while !stop.load(Ordering::Relaxed) {
        let done = if sends { stream.write_all(&bytes) } else { stream.read_exact(&mut bytes) };
        if done.is_err() {
            return;
        }
        sends = !sends;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_begins_and_ends() {
        for line in ["compute 2", "talk 4", "compute 0"] {
            let work = Work::start(line).unwrap();
            let wanted: usize = line.split_once(' ').unwrap().1.parse().unwrap();
            assert_eq!(work.threads(), wanted);
            work.end();
        }
        for line in ["dance 2", "compute", "compute x", "compute 100000"] {
            assert!(Work::start(line).is_err(), "{line}");
        }
    }
}
