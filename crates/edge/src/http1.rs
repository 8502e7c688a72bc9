//! A client's HTTP/1.1 connection, by hyper's server.
//!
//! A drain does not close a connection that waits for its next request: the client may just be
//! sending one. `serve` ends the connection with the answer instead. Only a stop that nobody
//! takes over from closes it.
//!
//! Where a response has switched to another protocol, `upgrade` goes on with the connection.

use crate::caller::Caller;
use crate::core::Core;
use crate::face::Dispatcher;
use crate::serve::serve;
use crate::stream::ClientStream;
use crate::wire::{Client, ClientWire};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use tokio::sync::OwnedSemaphorePermit;

/// Serves one client until either side closes the connection.
pub(crate) async fn serve_http1<D: Dispatcher>(
    core: Rc<Core<D>>,
    stream: ClientStream,
    caller: Caller,
    share: OwnedSemaphorePermit,
) -> hyper::Result<()> {
    let client = Rc::new(Client::new(Rc::new(caller), core.options()));
    let wire = ClientWire::new(stream, Rc::clone(&client), core.options().body_idle(), share);
    let service =
        hyper::service::service_fn(|request| serve(Rc::clone(&core), Rc::clone(&client), request));
    let mut told = false;
    let mut connection = core.server.serve_connection(TokioIo::new(wire), service);
    let mut close = pin!(core.close.notified());
    let mut listens = false;
    let served = poll_fn(|cx| {
        // The waker is the task's, so that once is enough; the flag says the rest.
        if !listens {
            listens = true;
            let _ = close.as_mut().poll(cx);
        }
        if core.closing.get() && !told {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        Pin::new(&mut connection).poll(cx)
    });
    served.await?;
    if let Some(tunnel) = client.tunnel.take() {
        let http1::Parts { io, read_buf, .. } = connection.into_parts();
        let mut wire = io.into_inner();
        wire.upgrade(tunnel.idle);
        // Boxed, so that other connections' tasks do not keep room for it.
        Box::pin(tunnel.run(&mut wire, &read_buf)).await;
    }
    Ok(())
}
