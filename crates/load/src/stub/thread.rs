//! Inside the stub's thread: accepts connections, serves them, obeys commands.

use std::io;
use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::control;
use super::node::StubNode;
use super::reply::{Service, answer};
use super::server::ListenerInfo;
use crate::clock::ThreadTask;
use crate::timer::PreciseTimer;

/// Open connections of one listener; more are closed at once. Far above what an edge's pools hold.
const CONNECTIONS_MAX: usize = 4_096;

/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What the owner asks of the thread.
pub(super) enum Command {
    Listen(Server),
    Kill { node: String, site: String },
    Stop,
}

/// A listener on its way to the thread.
pub(super) struct Server {
    pub(super) info: ListenerInfo,
    pub(super) listener: StdListener,
    pub(super) node: Arc<StubNode>,
    pub(super) node_name: HeaderValue,
    pub(super) site_name: HeaderValue,
}

/// Commands, each with the way to tell that it is done, and whether it made sense.
type Inbox = mpsc::Receiver<(Command, SyncSender<bool>)>;

/// The thread's main function.
pub(super) fn run(
    servers: Vec<Server>,
    control: Option<StdListener>,
    nodes: Vec<Arc<StubNode>>,
    inbox: Inbox,
    ready: &SyncSender<io::Result<ThreadTask>>,
) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let _ = ready.send(Err(cause));
            return;
        }
    };
    runtime.block_on(async move {
        let task = ThreadTask::current();
        match Thread::start(servers, control, nodes, task) {
            Ok(thread) => {
                let _ = ready.send(Ok(task));
                thread.obey(inbox).await;
            }
            Err(cause) => {
                let _ = ready.send(Err(cause));
            }
        }
    });
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}

/// The open listeners, inside the thread.
struct Thread {
    timer: PreciseTimer,
    open: Vec<(ListenerInfo, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Thread {
    fn start(
        servers: Vec<Server>,
        control: Option<StdListener>,
        nodes: Vec<Arc<StubNode>>,
        task: ThreadTask,
    ) -> io::Result<Self> {
        let mut thread =
            Self { timer: PreciseTimer::new()?, open: Vec::new(), tasks: JoinSet::new() };
        for server in servers {
            thread.add(server)?;
        }
        if let Some(listener) = control {
            let listener = TcpListener::from_std(listener)?;
            thread.tasks.spawn_local(control::serve(listener, nodes.into(), task));
        }
        Ok(thread)
    }

    fn add(&mut self, server: Server) -> io::Result<()> {
        let listener = TcpListener::from_std(server.listener)?;
        let service = Rc::new(Service {
            place: server.node.site_place(&server.info.site),
            body: Bytes::from(vec![b'x'; server.node.options().body_bytes]),
            node: server.node,
            timer: self.timer.clone(),
            node_name: server.node_name,
            site_name: server.site_name,
        });
        let handle = self.tasks.spawn_local(accept(listener, service));
        self.open.push((server.info, handle));
        Ok(())
    }

    async fn obey(mut self, mut inbox: Inbox) {
        while let Some((command, done)) = inbox.recv().await {
            let result = match command {
                Command::Listen(server) => self.add(server).is_ok(),
                Command::Kill { node, site } => self.kill(&node, &site).await,
                Command::Stop => return,
            };
            let _ = done.send(result);
        }
    }

    async fn kill(&mut self, node: &str, site: &str) -> bool {
        let Some(place) = self.open.iter().position(|(at, _)| at.node == node && at.site == site)
        else {
            return false;
        };
        let (_, handle) = self.open.swap_remove(place);
        handle.abort();
        // Its sockets are closed once the task has ended.
        while !handle.is_finished() {
            tokio::task::yield_now().await;
        }
        while self.tasks.try_join_next().is_some() {}
        true
    }
}

/// Accepts connections; they end with this task.
async fn accept(listener: TcpListener, service: Rc<Service>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                connections.spawn_local(serve(stream, Rc::clone(&service)));
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, service: Rc<Service>) {
    // Without it, small replies could wait for an acknowledgement; if it fails, they do.
    let _ = stream.set_nodelay(true);
    let handler = service_fn(move |request| answer(Rc::clone(&service), request));
    // An error here is a client that went away or sent no HTTP: not the stub's concern.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await;
}
