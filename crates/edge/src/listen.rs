//! Listening sockets: one for each thread and address, so that the kernel spreads connections.

use crate::edge::StartError;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that wait to be accepted: Linux's own bound (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

/// The real addresses, and for each thread a socket of each.
pub(crate) fn listen(
    wanted: &[SocketAddr],
    threads: usize,
) -> Result<(Vec<SocketAddr>, Vec<Vec<TcpListener>>), StartError> {
    let mut addresses = Vec::with_capacity(wanted.len());
    let mut of_threads: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    for &wanted in wanted {
        let (address, sockets) = group(wanted, threads)
            .map_err(|source| StartError::Listen { address: wanted, source })?;
        addresses.push(address);
        for (thread, socket) in of_threads.iter_mut().zip(sockets) {
            thread.push(socket);
        }
    }
    Ok((addresses, of_threads))
}

/// Takes the sockets of one more thread.
pub(crate) fn sockets_of_thread(sockets: &mut Vec<Vec<TcpListener>>) -> Vec<TcpListener> {
    sockets.pop().unwrap_or_default()
}

/// Sockets that share one address. The first is bound without SO_REUSEPORT, so that an address
/// in use is an error even where its owner allows sharing; only then it is opened to the others.
fn group(wanted: SocketAddr, threads: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let first = bind(wanted, false)?;
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
        let (addresses, sockets) = listen(&[loopback(0)], 3).unwrap();
        assert_eq!(sockets.len(), 3);
        for of_thread in &sockets {
            assert_eq!(of_thread[0].local_addr().unwrap(), addresses[0]);
        }
        for threads in [1, 2] {
            let error = listen(&[addresses[0]], threads).unwrap_err();
            assert!(error.to_string().contains(&addresses[0].to_string()), "{error}");
        }
    }
}
