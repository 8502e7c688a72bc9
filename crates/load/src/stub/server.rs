//! A running stub as its owner sees it: start, change, read, stop.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http::HeaderValue;
use thiserror::Error;
use tokio::sync::mpsc;

use super::node::{NodeOptions, StubNode};
use super::record::StubRecord;
use super::thread::{Command, Server, run};
use crate::clock::ThreadTask;

/// Connections waiting to be accepted: above the connections that a burst over several edges
/// opens at once, since a full list costs the client a second.
const BACKLOG: i32 = 1_024;

/// Commands on their way to the thread; callers wait for each, so a few suffice.
const COMMANDS_MAX: usize = 16;

/// How long a caller waits for the thread to carry out a command: it works within microseconds
/// unless the machine is badly overloaded.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a stub could not start or change.
#[derive(Debug, Error)]
pub enum StubError {
    /// The address could not be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Thread, runtime or timer could not be made.
    #[error("cannot start the stub: {0}")]
    Start(#[from] io::Error),
    /// Node and site names are sent as header values.
    #[error("name {0:?} cannot be sent in a header: use visible ASCII")]
    Name(String),
    /// A listener names a node that was not given.
    #[error("no node is named {0:?}")]
    UnknownNode(String),
    /// There is no listener of that node for that site.
    #[error("node {node:?} has no listener for site {site:?}")]
    UnknownListener {
        /// The node asked for.
        node: String,
        /// The site asked for.
        site: String,
    },
    /// The stub's thread has ended or does not answer.
    #[error("the stub has stopped")]
    Stopped,
}

/// One listener to open.
#[derive(Clone, Debug)]
pub struct ListenOn {
    /// Name of one of the nodes.
    pub node: String,
    /// Site that this listener serves, sent as `X-Site`.
    pub site: String,
    /// Address; port 0 takes a free one.
    pub address: SocketAddr,
}

/// Nodes and listeners of one stub server.
#[derive(Clone, Debug, Default)]
pub struct StubOptions {
    /// The nodes, each with a name of its own.
    pub nodes: Vec<NodeOptions>,
    /// The listeners: any number per node.
    pub listeners: Vec<ListenOn>,
    /// Where `GET /stats` and `POST /reset` are answered; nowhere when `None`.
    pub control: Option<SocketAddr>,
}

impl StubOptions {
    /// Every node serves every site, on free ports of the loopback interface.
    #[must_use]
    pub fn every_site_on_every_node(nodes: Vec<NodeOptions>, sites: &[&str]) -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = nodes
            .iter()
            .flat_map(|node| {
                sites.iter().map(|site| ListenOn {
                    node: node.name.clone(),
                    site: (*site).to_owned(),
                    address: loopback,
                })
            })
            .collect();
        Self { nodes, listeners, control: None }
    }
}

/// An open listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Name of the node.
    pub node: String,
    /// Site that it serves.
    pub site: String,
    /// The address it listens on, with the port that was taken.
    pub address: SocketAddr,
}

/// A running stub: all nodes in one thread. Stops when dropped.
pub struct StubServer {
    nodes: Vec<Arc<StubNode>>,
    listeners: Mutex<Vec<ListenerInfo>>,
    control: Option<SocketAddr>,
    task: ThreadTask,
    commands: mpsc::Sender<(Command, SyncSender<bool>)>,
    thread: Option<JoinHandle<()>>,
}

impl StubServer {
    /// Opens all listeners and starts the thread; returns when it is ready to accept.
    ///
    /// # Errors
    ///
    /// [`StubError`] for an address that cannot be had, a name that cannot be sent, an unknown
    /// node, or a thread or timer that cannot be made.
    pub fn start(options: &StubOptions) -> Result<Self, StubError> {
        let nodes: Vec<_> = options.nodes.iter().cloned().map(StubNode::new).collect();
        let mut servers = Vec::new();
        for wanted in &options.listeners {
            servers.push(Server::open(&nodes, wanted)?);
        }
        let listeners = servers.iter().map(|server| server.info.clone()).collect();
        let control = options.control.map(listen).transpose()?;
        let control_address = control.as_ref().map(StdListener::local_addr).transpose()?;
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (ready, started) = sync_channel(1);
        let shown = nodes.clone();
        let thread = std::thread::Builder::new()
            .name("stub".to_owned())
            .spawn(move || run(servers, control, shown, inbox, &ready))?;
        let task = started.recv().map_err(|_| StubError::Stopped)??;
        let thread = Some(thread);
        let listeners = Mutex::new(listeners);
        Ok(Self { nodes, listeners, control: control_address, task, commands, thread })
    }

    /// A node by name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<StubNode>> {
        self.nodes.iter().find(|node| node.options().name == name)
    }

    /// All nodes, in the order given.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<StubNode>] {
        &self.nodes
    }

    /// The open listeners.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerInfo> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Address of a node's listener for a site.
    #[must_use]
    pub fn address(&self, node: &str, site: &str) -> Option<SocketAddr> {
        let open = self.listeners();
        open.iter().find(|at| at.node == node && at.site == site).map(|at| at.address)
    }

    /// Address of the control endpoint, when one was asked for.
    #[must_use]
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Records of all nodes, with the finished windows from number `since_window` on.
    #[must_use]
    pub fn record_since(&self, since_window: u64) -> StubRecord {
        StubRecord::of(&self.nodes, self.task, since_window)
    }

    /// Forgets counters, peaks and windows of all nodes.
    pub fn reset(&self) {
        self.nodes.iter().for_each(|node| node.reset());
    }

    /// The stub's thread, for its CPU time.
    #[must_use]
    pub fn thread_task(&self) -> ThreadTask {
        self.task
    }

    /// Opens one more listener; blocks until it accepts.
    ///
    /// # Errors
    ///
    /// As [`StubServer::start`].
    pub fn listen(&self, wanted: &ListenOn) -> Result<SocketAddr, StubError> {
        let server = Server::open(&self.nodes, wanted)?;
        let info = server.info.clone();
        let address = info.address;
        self.command(Command::Listen(server))?;
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(info);
        Ok(address)
    }

    /// Closes a listener and all its connections at once, as the death of that server would;
    /// requests in flight there are abandoned. Blocks until it is done.
    ///
    /// # Errors
    ///
    /// [`StubError::UnknownListener`], [`StubError::Stopped`].
    pub fn kill(&self, node: &str, site: &str) -> Result<(), StubError> {
        let (node, site) = (node.to_owned(), site.to_owned());
        let known = self.command(Command::Kill { node: node.clone(), site: site.clone() })?;
        if !known {
            return Err(StubError::UnknownListener { node, site });
        }
        let mut open = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|at| at.node != node || at.site != site);
        Ok(())
    }

    fn command(&self, command: Command) -> Result<bool, StubError> {
        let (done, wait) = sync_channel(1);
        self.commands.try_send((command, done)).map_err(|_| StubError::Stopped)?;
        wait.recv_timeout(COMMAND_TIMEOUT).map_err(|_| StubError::Stopped)
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        // Without the sender the thread stops too, should the list of commands be full.
        let (done, _wait) = sync_channel(1);
        let _ = self.commands.try_send((Command::Stop, done));
        let (closed, _) = mpsc::channel(1);
        self.commands = closed;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; there is nobody to hand it to.
            let _ = thread.join();
        }
    }
}

impl Server {
    fn open(nodes: &[Arc<StubNode>], wanted: &ListenOn) -> Result<Self, StubError> {
        let header =
            |name: &str| HeaderValue::from_str(name).map_err(|_| StubError::Name(name.to_owned()));
        let node = nodes
            .iter()
            .find(|node| node.options().name == wanted.node)
            .ok_or_else(|| StubError::UnknownNode(wanted.node.clone()))?;
        let listener = listen(wanted.address)?;
        let address = listener.local_addr()?;
        Ok(Self {
            info: ListenerInfo { node: wanted.node.clone(), site: wanted.site.clone(), address },
            listener,
            node: Arc::clone(node),
            node_name: header(&wanted.node)?,
            site_name: header(&wanted.site)?,
        })
    }
}

fn listen(address: SocketAddr) -> Result<StdListener, StubError> {
    let open = || -> io::Result<StdListener> {
        let listener = StdListener::bind(address)?;
        // The standard library listens with a short list; listening again lengthens it.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|cause| StubError::Listen { address, cause })
}
