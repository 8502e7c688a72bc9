//! A relay between one edge and one owner that does what networks do: it delays, goes silent, and
//! loses connections. What it holds when a connection is lost still reaches the owner, late.

use crate::random::Random;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The state of the way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Each piece waits a drawn time up to this.
    pub(crate) late_max: Duration,
    /// One piece in so many waits ten times as long; zero for none.
    pub(crate) stray: usize,
    /// Nothing passes.
    pub(crate) silent: bool,
    /// New connections end at once.
    pub(crate) closed: bool,
}

pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    weather: Arc<Mutex<Weather>>,
    peers: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    /// Relays from a port of its own. Its threads end with the process.
    pub(crate) fn to(owner: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Self { address, weather: Arc::default(), peers: Arc::default() };
        let weather = Arc::clone(&way.weather);
        let peers = Arc::clone(&way.peers);
        std::thread::spawn(move || {
            for (count, peer) in listener.incoming().enumerate() {
                let Ok(peer) = peer else { continue };
                if weather.lock().unwrap().closed {
                    continue;
                }
                // An owner that has ended refuses, and so does this way.
                let Ok(owner) = TcpStream::connect(owner) else { continue };
                let _ = (peer.set_nodelay(true), owner.set_nodelay(true));
                let (Ok(kept), Ok(back), Ok(forth)) =
                    (peer.try_clone(), peer.try_clone(), owner.try_clone())
                else {
                    continue;
                };
                peers.lock().unwrap().push(kept);
                for (from, to, seed) in [(peer, forth, seed), (owner, back, !seed)] {
                    let weather = Arc::clone(&weather);
                    let random = Random(seed ^ (count as u64) << 32);
                    std::thread::spawn(move || relay(from, to, &weather, random));
                }
            }
        });
        way
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    /// Loses all connections, as the edge sees it.
    pub(crate) fn cut(&self) {
        for peer in self.peers.lock().unwrap().drain(..) {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, weather: &Mutex<Weather>, mut random: Random) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut bytes) {
        if length == 0 {
            break;
        }
        loop {
            let now = *weather.lock().unwrap_or_else(PoisonError::into_inner);
            if !now.silent {
                let factor = if random.one_in(now.stray) { 10 } else { 1 };
                let late_us = now.late_max.as_micros() as usize * factor;
                if late_us > 0 {
                    std::thread::sleep(Duration::from_micros(random.below(late_us) as u64));
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
