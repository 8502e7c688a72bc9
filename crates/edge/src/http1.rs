//! A client's HTTP/1.1 connection, by hyper's server.
//!
//! A drain does not close a connection that waits for its next request: the client may just be
//! sending one. `serve` ends the connection with the answer instead. Only a stop that nobody
//! takes over from closes it.
//!
//! A connection that has waited for [`PARK_AFTER`] is *parked*: hyper's part, with its buffers and
//! the room for a request's future, goes, and is made anew when the client sends something. Tens
//! of thousands of waiting clients so cost little more than their sockets.
//!
//! Where a response has switched to another protocol, `upgrade` goes on with the connection.

use crate::caller::Caller;
use crate::core::Core;
use crate::face::Dispatcher;
use crate::fast_path::FastPath;
use crate::live::Live;
use crate::serve::serve;
use crate::stream::ClientStream;
use crate::watchdog::Watchdog;
use crate::wire::{Client, ClientWire};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long a connection waits before it is parked: long against the pauses of busy clients, who
/// so never pay for it (some two microseconds for the next request); so short that clients who
/// come in thousands a second are not all awake at once.
const PARK_AFTER: Duration = Duration::from_millis(250);

/// Serves one client until either side closes the connection.
pub(crate) async fn serve_http1<D: Dispatcher>(
    live: Rc<Live<D>>,
    stream: ClientStream,
    caller: Caller,
    share: OwnedSemaphorePermit,
) -> hyper::Result<()> {
    let core = live.core();
    let client = Rc::new(Client::new(Rc::new(caller), core.options()));
    let is_plain = matches!(stream, ClientStream::Plain(_));
    let mut wire = ClientWire::new(stream, Rc::clone(&client), core.options().body_idle(), share);
    if is_plain {
        let (live, client) = (Rc::clone(&live), Rc::clone(&client));
        wire.answer_by(Rc::new(FastPath { live, client }));
    }
    // Boxed, so that a parked connection's task has no room for it.
    while let Some(parked) = Box::pin(serve_awake(&live, &client, wire)).await? {
        wire = parked;
        let wanted = tokio::select! {
            wanted = poll_fn(|cx| wire.poll_wanted(cx)) => wanted,
            () = closing(&core) => false,
        };
        if !wanted {
            break;
        }
    }
    Ok(())
}

/// Serves requests until the connection ends, or is to be parked.
async fn serve_awake<D: Dispatcher>(
    live: &Rc<Live<D>>,
    client: &Rc<Client>,
    wire: ClientWire,
) -> hyper::Result<Option<ClientWire>> {
    let core = live.core();
    let service =
        hyper::service::service_fn(|request| serve(live.core(), Rc::clone(client), request));
    let mut connection = core.server.serve_connection(TokioIo::new(wire), service);
    let mut close = pin!(core.close.notified());
    let (mut listens, mut told) = (false, false);
    let mut dog = Watchdog::default();
    let ended = poll_fn(|cx| {
        // The waker is the task's, so that once is enough; the flag says the rest.
        if !listens {
            listens = true;
            let _ = close.as_mut().poll(cx);
        }
        if core.closing.get() && !told {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Some(ended));
        }
        match client.idle_since() {
            Some(since) => dog.poll_until(cx, since + PARK_AFTER).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await;
    let is_over = ended.transpose()?.is_some();
    let tunnel = client.tunnel.take();
    if is_over && tunnel.is_none() {
        return Ok(None);
    }
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    let mut wire = io.into_inner();
    let Some(tunnel) = tunnel else {
        // The beginning of a request that came with the one before.
        wire.unread(read_buf);
        return Ok(Some(wire));
    };
    wire.upgrade(tunnel.idle);
    // Boxed, so that other connections' tasks do not keep room for it.
    Box::pin(tunnel.run(&mut wire, &read_buf)).await;
    Ok(None)
}

/// Ready once connections that wait are to be closed.
async fn closing<D: Dispatcher>(core: &Core<D>) {
    let close = core.close.notified();
    if !core.closing.get() {
        close.await;
    }
}
