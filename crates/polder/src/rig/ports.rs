//! Free ports of the loopback interface, kept free for whom they are meant.

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// A port of 127.0.0.1 that nobody else is given while this lives.
///
/// Its socket is bound and never listens, so it takes no connections; an edge can listen at the
/// same port because both say `SO_REUSEADDR`, and the kernel gives a port that is bound to nobody
/// who asks for any free one.
#[derive(Debug)]
pub struct HeldPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl HeldPort {
    /// Takes a free one.
    ///
    /// # Errors
    ///
    /// What the kernel says when it has none.
    pub fn take() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { address, _socket: socket })
    }

    /// The address with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_held_port_is_given_to_nobody_else_and_takes_no_connection() {
        let held: Vec<HeldPort> = (0..64).map(|_| HeldPort::take().unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|port| port.address().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), held.len());
        assert!(held[0].address().ip().is_loopback());
        assert!(TcpStream::connect(held[0].address()).is_err());
        // The standard library says `SO_REUSEADDR` too, as an edge does.
        let listener = TcpListener::bind(held[0].address()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), held[0].address());
        TcpStream::connect(held[0].address()).unwrap();
    }
}
