//! A client's HTTP/1.1 connection, by hyper's server.
//!
//! A drain does not close a connection that waits for its next request: the client may just be
//! sending one. `serve` ends the connection with the answer instead. Only a stop that nobody
//! takes over from closes it.

use crate::caller::Caller;
use crate::core::Core;
use crate::face::Dispatcher;
use crate::serve::serve;
use crate::stream::ClientStream;
use crate::wire::{Client, ClientWire};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::pin;
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
    let mut connection = pin!(core.server.serve_connection(TokioIo::new(wire), service));
    let mut close = pin!(core.close.notified());
    let mut listens = false;
    poll_fn(|cx| {
        // The waker is the task's, so that once is enough; the flag says the rest.
        if !listens {
            listens = true;
            let _ = close.as_mut().poll(cx);
        }
        if core.closing.get() && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await
}
