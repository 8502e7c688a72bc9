//! Listening sockets: one for each thread and address, so that the kernel spreads connections.

use crate::admit::Door;
use crate::edge::StartError;
use crate::options::Options;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that wait to be accepted: Linux's own bound (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

/// The real addresses, and for each thread a socket of each.
fn listen(
    wanted: &[SocketAddr],
    threads: usize,
    shared: bool,
) -> Result<(Vec<SocketAddr>, Vec<Vec<TcpListener>>), StartError> {
    let mut addresses = Vec::with_capacity(wanted.len());
    let mut of_threads: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    for &wanted in wanted {
        let (address, sockets) = group(wanted, threads, shared)
            .map_err(|source| StartError::Listen { address: wanted, source })?;
        addresses.push(address);
        for (thread, socket) in of_threads.iter_mut().zip(sockets) {
            thread.push(socket);
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
) -> Result<(Vec<SocketAddr>, Vec<Vec<Listener>>), StartError> {
    let mut addresses = Vec::new();
    let mut of_threads: Vec<Vec<Listener>> = (0..options.threads).map(|_| Vec::new()).collect();
    for (wanted, door) in [(&options.listen, Door::Plain), (&options.tls_listen, Door::Tls)] {
        let (found, sockets) = listen(wanted, options.threads, options.listen_shared)?;
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
fn group(
    wanted: SocketAddr,
    threads: usize,
    shared: bool,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let first = bind(wanted, shared)?;
    let address = first
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the socket has no address"))?;
    if threads > 1 {
        first.set_reuse_port(true)?;
    }
    let mut sockets = vec![first];
    for _ in 1..threads {
        sockets.push(bind(address, true)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok((address, sockets.into_iter().map(TcpListener::from).collect()))
}

/// An address that is kept for edges that come and go: nobody else can take it meanwhile.
#[derive(Debug)]
pub struct Reservation {
    _socket: Socket,
}

/// Takes an address for the edges of one owner, which then listen there with
/// [`Options::listen_shared`](crate::Options::listen_shared). Does not block.
///
/// # Errors
/// Another process has the address, whether it allows sharing or not, or it is none of ours.
pub fn reserve(address: SocketAddr) -> Result<Reservation, StartError> {
    let take = || {
        let socket = bind(address, false)?;
        socket.set_reuse_port(true)?;
        // Two sockets that both allow reuse, and do not listen, would share it without a word.
        socket.set_reuse_address(false)?;
        Ok(Reservation { _socket: socket })
    };
    take().map_err(|source| StartError::Listen { address, source })
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

    #[test]
    fn threads_share_a_port_but_another_edge_does_not() {
        let (addresses, sockets) = listen(&[loopback(0)], 3, false).unwrap();
        assert_eq!(sockets.len(), 3);
        for of_thread in &sockets {
            assert_eq!(of_thread[0].local_addr().unwrap(), addresses[0]);
        }
        for threads in [1, 2] {
            let error = listen(&[addresses[0]], threads, false).unwrap_err();
            assert!(error.to_string().contains(&addresses[0].to_string()), "{error}");
        }
    }

    #[test]
    fn edges_share_a_reserved_address_and_strangers_do_not() {
        let free = TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap();
        let reservation = reserve(free).unwrap();
        let first = listen(&[free], 1, true).unwrap();
        let second = listen(&[free], 2, true).unwrap();
        assert_eq!(first.0, second.0);
        assert!(reserve(free).is_err() && listen(&[free], 1, false).is_err());
        drop((first, second));
        assert!(reserve(free).is_err(), "it stays reserved while no edge listens");
        assert!(listen(&[free], 1, true).is_ok());
        drop(reservation);
        assert!(reserve(free).is_ok());
    }
}
