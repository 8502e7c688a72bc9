//! The owner's side: a service with a thread of its own.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use super::error::{Priority, ServeError};
use super::peer::Shared;
use super::priority;
use super::security::Security;
use super::served::Regions;
use super::service::{Command, Counters, Service};
use super::stream::RECEIVE_BYTES;
use crate::mapped::Mapped;
use crate::region::{Access, RemoteKey};

/// How a service runs.
#[derive(Debug, Clone)]
pub struct ResponderSettings {
    /// Who may connect.
    pub security: Security,
    /// Whether its thread shall run before ordinary ones, if the system allows it.
    pub real_time: bool,
}

/// What happened so far, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Peers that are connected and have greeted.
    pub peers: u64,
    /// Connections that ended before their greeting: another key, another protocol, or silence.
    pub handshakes_failed: u64,
    /// Connections that were closed at once: too many at a time, or from an address that failed
    /// too often.
    pub turned_away: u64,
}

/// Serves regions until it is dropped; then all connections end.
pub struct Responder {
    address: SocketAddr,
    priority: Priority,
    counters: Arc<Counters>,
    wake: Arc<OwnedFd>,
    /// Nothing once the thread shall end.
    commands: Mutex<Option<Sender<Command>>>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Listens on `address` (port 0 for any) and starts the thread. Does not block.
    ///
    /// # Errors
    /// Plain text beyond the machine is asked for, or the kernel refused.
    pub fn bind(address: SocketAddr, settings: ResponderSettings) -> Result<Self, ServeError> {
        if !settings.security.allows(address) {
            return Err(ServeError::PlainBeyondLoopback { address });
        }
        let system = |action| move |cause| ServeError::System { action, cause };
        let listener = TcpListener::bind(address).map_err(system("listen"))?;
        listener.set_nonblocking(true).map_err(system("set up the listener"))?;
        let address = listener.local_addr().map_err(system("find the address"))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("make an event descriptor")(errno.into()))?;
        let wake = Arc::new(wake);
        let (commands, receiver) = channel();
        let counters = Arc::new(Counters::default());
        let shared = Shared {
            security: settings.security,
            regions: Regions::default(),
            scratch: vec![0; RECEIVE_BYTES],
            reply: Vec::new(),
        };
        let service =
            Service::new(listener, Arc::clone(&wake), receiver, Arc::clone(&counters), shared)
                .map_err(system("watch the listener"))?;
        let (tell, told) = sync_channel(1);
        let real_time = settings.real_time;
        let thread = std::thread::Builder::new()
            .name("region-tcp".to_owned())
            .spawn(move || {
                // The receiver waits for exactly this.
                let _ = tell.send(priority::apply(real_time));
                service.run();
            })
            .map_err(system("start a thread"))?;
        let priority = told.recv().map_err(|_| ServeError::ThreadEnded)?;
        let commands = Mutex::new(Some(commands));
        Ok(Self { address, priority, counters, wake, commands, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How its thread is scheduled.
    pub fn priority(&self) -> &Priority {
        &self.priority
    }

    /// What happened so far.
    pub fn counts(&self) -> ResponderCounts {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        ResponderCounts {
            peers: read(&self.counters.peers),
            handshakes_failed: read(&self.counters.handshakes_failed),
            turned_away: read(&self.counters.turned_away),
        }
    }

    /// Makes a region reachable. Peers that connect from then on are told of it. Blocks until the
    /// thread has done it.
    ///
    /// # Errors
    /// The region's atomics are an adapter's, its key is served, or as many as may be are.
    pub fn serve(&self, region: Arc<dyn Mapped>, access: Access) -> Result<(), ServeError> {
        let (answer, answered) = sync_channel(1);
        self.command(Command::Serve(region, access, answer))?;
        answered.recv().map_err(|_| ServeError::ThreadEnded)?
    }

    /// Takes a region away: once this returns, no operation reaches it any more, and its key is
    /// stale. False if it was not served.
    pub fn retire(&self, key: RemoteKey) -> bool {
        let (answer, answered) = sync_channel(1);
        self.command(Command::Retire(key, answer)).is_ok() && answered.recv().unwrap_or(false)
    }

    fn command(&self, command: Command) -> Result<(), ServeError> {
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = commands.as_ref().ok_or(ServeError::ThreadEnded)?;
        commands.send(command).map_err(|_| ServeError::ThreadEnded)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // The counter of an eventfd that is read at each wake-up is far from full.
        let written = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "write to an eventfd: {written:?}");
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it already.
            let _ = thread.join();
        }
    }
}
