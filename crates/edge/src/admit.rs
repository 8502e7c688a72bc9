//! From an accepted socket to a stream, and to what it speaks.

use crate::caller::Caller;
use crate::core::Core;
use crate::proxy_header::Ends;
use crate::proxy_in::{NoHeader, read_header};
use crate::stream::{ClientStream, Socket};
use crate::tls::is_http2;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// How a listening socket's connections begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Plain,
    Tls,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A client at the point where its first request is awaited.
pub(crate) struct Visitor {
    pub(crate) stream: ClientStream,
    pub(crate) caller: Caller,
    pub(crate) protocol: Protocol,
}

/// What an HTTP/2 connection begins with (RFC 9113, 3.4). No request of HTTP/1 does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Finds out who comes, in `header_timeout_ms` at most.
pub(crate) async fn admit<D>(
    core: &Core<D>,
    mut tcp: TcpStream,
    peer: SocketAddr,
    door: Door,
) -> io::Result<Visitor> {
    let caller = client_of(core, &mut tcp, peer).await?;
    tcp.set_nodelay(true)?;
    let socket = Socket::new(tcp);
    let options = &core.shared.options;
    if door == Door::Plain && !options.http2_plain {
        return Ok(plain(socket, caller, Protocol::Http1));
    }
    let entering = async {
        match door {
            Door::Plain => enter_plain(socket, caller).await,
            Door::Tls => enter_tls(core, socket, caller).await,
        }
    };
    // Few connections are in this state at once: it must not make the others' tasks large.
    let entered = tokio::time::timeout(options.header_timeout(), Box::pin(entering));
    entered.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no beginning in time"))?
}

/// Whom a connection is served for; an error where it must be closed.
async fn client_of<D>(
    core: &Core<D>,
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> io::Result<Caller> {
    let options = &core.shared.options;
    let announces = options.sites.iter().any(|site| site.proxy_protocol_out.is_some());
    let own = if announces { stream.local_addr().ok() } else { None };
    let own = own.map(|destination| Ends { source: peer, destination });
    if !options.proxy_protocol.iter().any(|network| network.contains(peer.ip())) {
        return Ok(Caller::new(peer, own));
    }
    // The box keeps what is needed here out of the connection's long life.
    let header = Box::pin(read_header(stream, options.header_timeout()));
    let read = tokio::select! {
        read = header => read,
        // As a connection without a request: nobody waits for it.
        () = core.drain.notified() => return Err(io::Error::other("the edge drains")),
    };
    match read {
        Ok(Some(ends)) => Ok(Caller::new(ends.source, Some(ends))),
        Ok(None) => Ok(Caller::new(peer, own)),
        Err(NoHeader::Ended) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => {
            core.metrics.proxy_headers_refused.add(1);
            Err(io::Error::other(error))
        }
    }
}

fn plain(socket: Socket, caller: Caller, protocol: Protocol) -> Visitor {
    Visitor { stream: ClientStream::Plain(socket), caller, protocol }
}

async fn enter_plain(mut socket: Socket, caller: Caller) -> io::Result<Visitor> {
    let differs = |bytes: &[u8]| !PREFACE.starts_with(bytes);
    let begun = socket.read_ahead(PREFACE.len(), differs).await?;
    let protocol = if begun == PREFACE { Protocol::Http2 } else { Protocol::Http1 };
    Ok(plain(socket, caller, protocol))
}

async fn enter_tls<D>(core: &Core<D>, socket: Socket, caller: Caller) -> io::Result<Visitor> {
    let shared = &core.shared;
    let (stream, secured) =
        shared.tls.accept(&shared.sites, &core.handshakes, socket).await.inspect_err(|_| {
            core.metrics.tls_failures.add(1);
        })?;
    core.metrics.tls_handshakes.add(1);
    let protocol = if is_http2(&stream) { Protocol::Http2 } else { Protocol::Http1 };
    Ok(Visitor { stream: ClientStream::Tls(stream), caller: caller.secured(secured), protocol })
}
