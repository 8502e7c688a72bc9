//! Listening sockets: one for each thread and address, so that the kernel spreads connections.
//!
//! An edge makes its own, or is handed sockets that its owner keeps ([`Listening`]): then a client
//! that the kernel has let in waits for the next edge, should this one end.

use crate::admit::Door;
use crate::edge::StartError;
use crate::options::Options;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that wait to be accepted: Linux's own bound (`net.core.somaxconn`).
pub(crate) const BACKLOG: i32 = 4_096;

/// Sockets that listen on one address, for the threads of one edge. Where there are fewer than
/// threads, threads share them.
#[derive(Debug)]
pub struct Listening {
    /// The address as it is wanted; its port may be 0.
    pub wanted: SocketAddr,
    /// The sockets; at least one.
    pub sockets: Vec<TcpListener>,
}

impl Listening {
    /// Listens with `count` sockets. Unless other edges of the same owner listen on the address
    /// already (`is_shared`), an address that anybody uses is an error. Does not block.
    ///
    /// # Errors
    /// Another process has the address, whether it allows sharing or not, or it is none of ours.
    pub fn open(wanted: SocketAddr, count: usize, is_shared: bool) -> Result<Self, StartError> {
        let sockets = group(wanted, count, is_shared)
            .map_err(|source| StartError::Listen { address: wanted, source })?;
        Ok(Self { wanted, sockets })
    }

    /// The address with its real port.
    ///
    /// # Errors
    /// The socket is none, which its owner has to answer for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let none = || io::Error::other("no socket listens");
        self.sockets.first().ok_or_else(none)?.local_addr()
    }

    /// More descriptors of the same sockets.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<Result<_, _>>()?;
        Ok(Self { wanted: self.wanted, sockets })
    }

    /// One socket or more for each of the threads.
    fn of_threads(self, threads: usize) -> io::Result<Vec<Vec<TcpListener>>> {
        let mut of_threads: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
        let own = self.sockets.len();
        for (thread, sockets) in of_threads.iter_mut().enumerate().skip(own) {
            sockets.push(self.sockets[thread % own].try_clone()?);
        }
        for (place, socket) in self.sockets.into_iter().enumerate() {
            // Whoever handed it over may have taken it from somebody else.
            socket.set_nonblocking(true)?;
            of_threads[place % threads].push(socket);
        }
        Ok(of_threads)
    }
}

/// The real addresses, and for each thread a socket of each. What was not handed over is opened.
fn listen(
    wanted: &[SocketAddr],
    threads: usize,
    handed: &mut Vec<Listening>,
) -> Result<(Vec<SocketAddr>, Vec<Vec<TcpListener>>), StartError> {
    let mut addresses = Vec::with_capacity(wanted.len());
    let mut of_threads: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    for &wanted in wanted {
        let place = handed.iter().position(|one| one.wanted == wanted && !one.sockets.is_empty());
        let listening = match place {
            Some(place) => handed.swap_remove(place),
            None => Listening::open(wanted, threads, false)?,
        };
        let failed = |source| StartError::Listen { address: wanted, source };
        addresses.push(listening.address().map_err(failed)?);
        let shares = listening.of_threads(threads).map_err(failed)?;
        for (thread, sockets) in of_threads.iter_mut().zip(shares) {
            thread.extend(sockets);
        }
    }
    Ok((addresses, of_threads))
}

/// A socket that a thread accepts from.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) tcp: TcpListener,
    pub(crate) door: Door,
}

/// All sockets of one edge: first the plain ones, then those for TLS.
pub(crate) fn listen_all(
    options: &Options,
    handed: &mut Vec<Listening>,
) -> Result<(Vec<SocketAddr>, Vec<Vec<Listener>>), StartError> {
    let mut addresses = Vec::new();
    let mut of_threads: Vec<Vec<Listener>> = (0..options.threads).map(|_| Vec::new()).collect();
    for (wanted, door) in [(&options.listen, Door::Plain), (&options.tls_listen, Door::Tls)] {
        let (found, sockets) = listen(wanted, options.threads, handed)?;
        addresses.extend(found);
        for (thread, sockets) in of_threads.iter_mut().zip(sockets) {
            thread.extend(sockets.into_iter().map(|tcp| Listener { tcp, door }));
        }
    }
    Ok((addresses, of_threads))
}

/// Sockets that share one address. Unless other edges share it too, the first is bound without
/// SO_REUSEPORT, so that an address in use is an error even where its owner allows sharing; only
/// then it is opened to the others.
fn group(wanted: SocketAddr, count: usize, is_shared: bool) -> io::Result<Vec<TcpListener>> {
    let first = bind(wanted, is_shared)?;
    let address = first
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the socket has no address"))?;
    first.set_reuse_port(true)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(bind(address, true)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of an earlier edge that linger in TIME_WAIT must not block a restart.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn accepts(sockets: &[Vec<TcpListener>]) -> bool {
        sockets.iter().flatten().any(|socket| socket.accept().is_ok())
    }

    #[test]
    fn threads_share_a_port_but_another_edge_does_not() {
        let (addresses, sockets) = listen(&[loopback(0)], 3, &mut Vec::new()).unwrap();
        assert_eq!(sockets.len(), 3);
        for of_thread in &sockets {
            assert_eq!(of_thread[0].local_addr().unwrap(), addresses[0]);
        }
        for threads in [1, 2] {
            let error = listen(&[addresses[0]], threads, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains(&addresses[0].to_string()), "{error}");
        }
    }

    #[test]
    fn edges_of_one_owner_share_an_address_and_strangers_do_not() {
        let first = Listening::open(loopback(0), 1, false).unwrap();
        let address = first.address().unwrap();
        let second = Listening::open(address, 2, true).unwrap();
        assert_eq!(second.address().unwrap(), address);
        assert!(Listening::open(address, 1, false).is_err());
        drop((first, second));
        assert!(Listening::open(address, 1, false).is_ok());
    }

    #[test]
    fn who_waits_for_one_edge_is_served_by_the_next() {
        let kept = Listening::open(loopback(0), 2, false).unwrap();
        let address = kept.address().unwrap();
        let take = |threads| {
            let mut handed = vec![kept.try_clone().unwrap()];
            let (addresses, sockets) = listen(&[loopback(0)], threads, &mut handed).unwrap();
            assert_eq!((addresses, handed.len()), (vec![address], 0));
            sockets
        };
        let first = take(2);
        let _waits = std::net::TcpStream::connect(address).unwrap();
        drop(first);
        // Threads come and go; no socket is left out, and none is without.
        for threads in [1, 3] {
            let sockets = take(threads);
            assert!(sockets.iter().all(|of_thread| !of_thread.is_empty()), "{threads}");
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !accepts(&sockets) {
                assert!(std::time::Instant::now() < deadline, "nobody serves who waits");
            }
            drop(sockets);
            std::mem::forget(std::net::TcpStream::connect(address).unwrap());
        }
    }
}
