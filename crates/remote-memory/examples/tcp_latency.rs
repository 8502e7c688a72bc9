//! How long an 8-byte read over TCP takes, against a plain ping-pong of the same shape: a service
//! and a peer in two threads, asleep while they wait, in turns so that both see the same machine.
//!
//! ```text
//! cargo run --release -p remote-memory --example tcp_latency [samples] [rounds]
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{
    PreSharedKey, Requester, RequesterSettings, Responder, ResponderSettings, Security,
};
use remote_memory::{Access, Mapped, Op, Remote, RemoteKey};

/// Far longer than any read takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes each way of the plain ping-pong: the question and answer of the read without encryption.
const PING_BYTES: usize = 44;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let samples: usize = arguments.next().map_or(Ok(2_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(15), |text| text.parse())?;
    let mut pong = pong()?;
    let (_plain_owner, mut plain, plain_key) = pair(Security::PlainLoopback)?;
    let (_sealed_owner, mut sealed, sealed_key) =
        pair(Security::Noise(PreSharedKey::from_bytes([7; 32])))?;
    let mut ways: [(&str, Vec<Vec<u64>>); 3] = Default::default();
    for _ in 0..rounds {
        ways[0].0 = "plain TCP ping-pong";
        ways[0].1.push(measure(samples, || ping(&mut pong))?);
        ways[1].0 = "read, plain";
        ways[1].1.push(measure(samples, || read(&mut plain, plain_key))?);
        ways[2].0 = "read, encrypted";
        ways[2].1.push(measure(samples, || read(&mut sealed, sealed_key))?);
    }
    println!("8-byte read over loopback, {rounds} rounds of {samples}, medians over rounds");
    println!("{:<22}{:>10}{:>10}{:>14}{:>14}", "", "p50 us", "p99 us", "p50 ratio", "p99 ratio");
    for (name, rounds) in &ways {
        let [p50, p99] =
            [50, 99].map(|p| median(rounds.iter().map(|round| at(round, p)).collect()));
        // Ratios are taken inside a round: what the machine did then is in both.
        let [r50, r99] = [50, 99].map(|p| {
            let pairs = rounds.iter().zip(&ways[0].1);
            median(pairs.map(|(way, base)| at(way, p) / at(base, p)).collect())
        });
        println!("{name:<22}{:>10.2}{:>10.2}{r50:>14.3}{r99:>14.3}", p50 / 1e3, p99 / 1e3);
    }
    Ok(())
}

/// The far end of the ping-pong, in a thread that ends with the connection.
fn pong() -> Outcome<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    std::thread::spawn(move || {
        let mut bytes = [0; PING_BYTES];
        while far.read_exact(&mut bytes).and_then(|()| far.write_all(&bytes)).is_ok() {}
    });
    Ok(near)
}

fn ping(near: &mut TcpStream) -> Outcome<()> {
    let mut bytes = [1; PING_BYTES];
    near.write_all(&bytes)?;
    near.read_exact(&mut bytes)?;
    Ok(())
}

fn pair(security: Security) -> Outcome<(Responder, Requester, RemoteKey)> {
    let region = Arc::new(OwnedRegion::create("latency", 4096)?);
    let settings = ResponderSettings { security: security.clone(), real_time: false };
    let responder = Responder::bind("127.0.0.1:0".parse()?, settings)?;
    responder.serve(Arc::clone(&region) as Arc<dyn Mapped>, Access::ReadWrite)?;
    let address = responder.address();
    let settings = RequesterSettings { address, security, connect_max: PATIENCE };
    let mut requester = Requester::connect(settings)?;
    requester.open(region.descriptor())?;
    Ok((responder, requester, region.descriptor().key))
}

fn read(requester: &mut Requester, key: RemoteKey) -> Outcome<()> {
    requester.submit(key, vec![Op::Read { offset_bytes: 8, length_words: 1 }], PATIENCE)?;
    let mut done = Vec::with_capacity(1);
    // Ends with the answer, or at the deadline.
    loop {
        requester.wait(PATIENCE);
        if requester.poll(&mut done) > 0 {
            break;
        }
    }
    done.remove(0).results.remove(0)?;
    Ok(())
}

/// Times in nanoseconds, sorted.
fn measure(samples: usize, mut call: impl FnMut() -> Outcome<()>) -> Outcome<Vec<u64>> {
    for _ in 0..samples / 10 {
        call()?;
    }
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        call()?;
        times.push(u64::try_from(start.elapsed().as_nanos())?);
    }
    times.sort_unstable();
    Ok(times)
}

fn at(sorted: &[u64], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100] as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
