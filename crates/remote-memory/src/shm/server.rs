//! Serving a region: one thread that hands the file to peers and keeps their connections open.
//!
//! The thread sleeps in `poll` without a time-out; without peers coming or going it costs
//! nothing. It takes no part in operations on the region.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags};

use super::error::ShmError;
use super::owned::OwnedRegion;
use super::socket::{Listener, peer_uid, uid_is_trusted};
use crate::frame::{self, Refusal};
use crate::mapped::Mapped;

/// Most peers of one region: 64 edges can have a slot in a record, and as many commands and
/// agents may look at it meanwhile. Each costs one file descriptor.
pub const MAX_PEERS: usize = 128;

/// Pause of accepting after an error that will not go away by itself, such as no more file
/// descriptors: `poll` would report the listener again at once and spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one region until it is dropped; then the socket is unlinked, and peers see the end of
/// their connections. Their mappings stay.
pub struct RegionServer {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl RegionServer {
    /// Binds a socket of mode 0600 at `path`, whose directory must be ours with mode 0700, and
    /// starts the thread. The socket of a dead owner is replaced. Blocks at most a second.
    ///
    /// # Errors
    /// The directory is not private, another process serves there, the path is taken by
    /// something else or too long, the region is an adopted one, or the kernel refused.
    pub fn bind(path: impl AsRef<Path>, region: Arc<OwnedRegion>) -> Result<Self, ShmError> {
        if region.is_adopted() {
            return Err(ShmError::AdoptedRegion);
        }
        let path = path.as_ref();
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(ShmError::system("make an event descriptor"))?;
        let stop = Arc::new(stop);
        let serving = Serving {
            listener: Listener::bind(path)?,
            region,
            stop: Arc::clone(&stop),
            peers: Vec::new(),
            accept_paused: false,
        };
        let thread = std::thread::Builder::new()
            .name("region-server".to_owned())
            .spawn(move || serving.run())
            .map_err(ShmError::Spawn)?;
        Ok(Self { path: path.to_owned(), stop, thread: Some(thread) })
    }

    /// Where the socket lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RegionServer {
    fn drop(&mut self) {
        // The counter of a new eventfd is far from full, so the write succeeds.
        let written = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "write to an eventfd: {written:?}");
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it already.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Serving {
    listener: Listener,
    region: Arc<OwnedRegion>,
    stop: Arc<OwnedFd>,
    peers: Vec<OwnedFd>,
    accept_paused: bool,
}

/// What `poll` found.
struct Ready {
    stop: bool,
    listener: bool,
    /// One for each peer, in order.
    peers: Vec<bool>,
}

impl Serving {
    fn run(mut self) {
        // One turn for each arrival or departure of a peer; ends when told to.
        loop {
            let ready = match self.poll() {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                // Nothing else can be expected of valid descriptors but a lack of memory.
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            if ready.stop {
                return self.hang_up();
            }
            // A peer has nothing to say: bytes or an end both end its connection.
            let mut gone = ready.peers.into_iter();
            self.peers.retain(|_| !gone.next().unwrap_or(false));
            self.accept_paused = ready.listener && !self.accept();
        }
    }

    /// Ends all connections, also where a process that is just being started holds a copy.
    fn hang_up(&self) {
        for socket in self.peers.iter().chain([&self.listener.socket]) {
            // The other end may be gone already.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    fn poll(&self) -> Result<Ready, Errno> {
        let listener_events = if self.accept_paused { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = Vec::with_capacity(self.peers.len() + 2);
        fds.push(PollFd::new(&*self.stop, PollFlags::IN));
        fds.push(PollFd::new(&self.listener.socket, listener_events));
        fds.extend(self.peers.iter().map(|peer| PollFd::new(peer, PollFlags::IN)));
        let timeout = self.accept_paused.then(|| crate::time::timespec(ACCEPT_PAUSE));
        rustix::event::poll(&mut fds, timeout.as_ref())?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(Ready {
            stop: ready.next().unwrap_or(false),
            listener: ready.next().unwrap_or(false),
            peers: ready.collect(),
        })
    }

    /// Accepts one peer (more are found at the next turn); false if accepting should pause.
    fn accept(&mut self) -> bool {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let peer = match rustix::net::accept_with(&self.listener.socket, flags) {
            Ok(peer) => peer,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return true,
            Err(_) => return false,
        };
        // The frame fits into a new socket's buffer; a peer that does not take it is dropped.
        match self.refusal_of(&peer) {
            Some(refusal) => {
                let _ = self.send(&peer, Some(refusal));
            }
            None if self.send(&peer, None).is_ok() => self.peers.push(peer),
            None => {}
        }
        true
    }

    fn refusal_of(&self, peer: &OwnedFd) -> Option<Refusal> {
        if !peer_uid(peer).is_ok_and(uid_is_trusted) {
            return Some(Refusal::OtherUser);
        }
        (self.peers.len() >= MAX_PEERS).then_some(Refusal::TooManyPeers)
    }

    /// Sends the frame; the file goes with it unless the peer is refused.
    fn send(&self, peer: &OwnedFd, refusal: Option<Refusal>) -> Result<(), Errno> {
        let announcement = match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(self.region.descriptor().clone()),
        };
        let frame = frame::encode(&announcement);
        let files = [self.region.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if refusal.is_none() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(peer, &[IoSlice::new(&frame)], &mut control, flags)?;
        if sent == frame.len() { Ok(()) } else { Err(Errno::AGAIN) }
    }
}
