//! A relay between peer and owner that does what networks do: delay, hold, cut, and change bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Random;

/// What happens to the bytes from the peer to the owner.
#[derive(Clone, Default)]
pub(crate) struct Ways {
    /// Each piece waits a drawn time up to this.
    pub(crate) late_max: Duration,
    /// Nothing goes on, in either direction.
    pub(crate) hold: bool,
    /// Nothing comes back.
    pub(crate) hold_answers: bool,
    /// The next piece of requests has this bit of its last byte but one turned.
    pub(crate) flip: Option<u8>,
    /// The next piece of requests goes twice.
    pub(crate) repeat: bool,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    ways: Arc<Mutex<Ways>>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Relays from a port of its own. Its threads end with the process.
    pub(crate) fn to(owner: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ways, sockets) = (Arc::new(Mutex::new(Ways::default())), Arc::default());
        let proxy = Self { address, ways, sockets };
        let (ways, sockets) = (Arc::clone(&proxy.ways), Arc::clone(&proxy.sockets));
        std::thread::spawn(move || {
            for peer in listener.incoming() {
                let (peer, owner) = (peer.unwrap(), TcpStream::connect(owner).unwrap());
                peer.set_nodelay(true).unwrap();
                owner.set_nodelay(true).unwrap();
                let copies = [peer.try_clone().unwrap(), owner.try_clone().unwrap()];
                sockets.lock().unwrap().extend(copies);
                for (from, to, requests) in [
                    (peer.try_clone().unwrap(), owner.try_clone().unwrap(), true),
                    (owner, peer, false),
                ] {
                    let ways = Arc::clone(&ways);
                    std::thread::spawn(move || relay(from, to, requests, &ways));
                }
            }
        });
        proxy
    }

    pub(crate) fn set(&self, ways: Ways) {
        *self.ways.lock().unwrap() = ways;
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, requests: bool, ways: &Mutex<Ways>) {
    let mut bytes = vec![0; 16 * 1024];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    while let Ok(length) = from.read(&mut bytes) {
        if length == 0 {
            break;
        }
        let piece = &mut bytes[..length];
        let mut repeat = false;
        if requests {
            let mut ways = ways.lock().unwrap();
            if let Some(bit) = ways.flip.take() {
                piece[length - 2] ^= 1 << bit;
            }
            repeat = std::mem::take(&mut ways.repeat);
        }
        loop {
            let ways = ways.lock().unwrap().clone();
            if !ways.hold && (requests || !ways.hold_answers) {
                let late_max_us = ways.late_max.as_micros() as usize;
                if requests && late_max_us > 0 {
                    let late_us = random.below(late_max_us) as u64;
                    std::thread::sleep(Duration::from_micros(late_us));
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let written = to.write_all(piece);
        if written.is_err() || (repeat && to.write_all(piece).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
