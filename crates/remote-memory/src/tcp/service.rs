//! The thread of a responder: it waits for peers, their requests, and commands of its handle.
//!
//! One thread for all peers, without locks: the table of regions belongs to it, and the handle
//! changes it by commands. A request costs three system calls: waiting, receiving, sending.

use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::error::{Refusal, ServeError};
use super::limiter::Limiter;
use super::peer::{Peer, Shared};
use crate::mapped::Mapped;
use crate::region::{Access, RemoteKey};

/// Most peers that have greeted: 64 edges can have a slot in a record, and as many commands and
/// agents may look at it meanwhile. Each costs a descriptor and some kilobytes. It is checked when
/// one comes, so those that greet just then may exceed it, by [`GREETING_PEERS_MAX`] at most.
pub const PEERS_MAX: usize = 128;
/// Most peers that have not greeted yet, or are about to go. They have places of their own, so
/// that strangers cannot take those of known peers; beyond, connections are closed at once.
pub const GREETING_PEERS_MAX: usize = 64;

/// Most events taken from the kernel at once; the rest comes with the next turn.
const EVENTS_MAX: usize = 64;
/// Connections accepted in one turn, so that a flood of them does not keep peers waiting.
const ACCEPTS_PER_TURN_MAX: usize = 4;
/// Pause of accepting after an error that will not go away by itself, such as no more file
/// descriptors: the listener would be reported again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LISTENER: u64 = 0;
const COMMANDS: u64 = 1;
/// Tokens of peers are their places plus this.
const FIRST_PEER: u64 = 2;

/// What the handle asks for.
pub(super) enum Command {
    Serve(Arc<dyn Mapped>, Access, SyncSender<Result<(), ServeError>>),
    Retire(RemoteKey, SyncSender<bool>),
}

/// Numbers for `status`, counted by the thread.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) peers: AtomicU64,
    pub(super) handshakes_failed: AtomicU64,
    pub(super) turned_away: AtomicU64,
}

pub(super) struct Service {
    epoll: OwnedFd,
    listener: TcpListener,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    counters: Arc<Counters>,
    shared: Shared,
    limiter: Limiter,
    peers: Vec<Option<Place>>,
    /// Peers that have a time to end at.
    timed: usize,
    accept_again: Option<Instant>,
}

/// A peer, and what the kernel was asked to report of it.
struct Place {
    peer: Peer,
    interest: EventFlags,
    is_timed: bool,
    is_known: bool,
}

impl Service {
    pub(super) fn new(
        listener: TcpListener,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
        counters: Arc<Counters>,
        shared: Shared,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            wake,
            commands,
            counters,
            shared,
            limiter: Limiter::default(),
            peers: Vec::new(),
            timed: 0,
            accept_again: None,
        })
    }

    /// Runs until the handle is dropped.
    pub(super) fn run(mut self) {
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        loop {
            let timeout = self.next_timeout().map(crate::time::timespec);
            let ready = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok((ready, _)) => &*ready,
                Err(Errno::INTR) => continue,
                // Valid descriptors bring no error but a lack of memory.
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            for event in ready {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    COMMANDS => {
                        if !self.obey() {
                            return self.hang_up();
                        }
                    }
                    token => self.drive(token, event.flags),
                }
            }
            self.meet_times();
        }
    }

    /// Ends all connections, also where a process that is just being started holds a copy.
    fn hang_up(&self) {
        let peers = self.places().map(|place| place.peer.stream.socket.as_fd());
        for socket in peers.chain([self.listener.as_fd()]) {
            // The other end may be gone already.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    /// Does what the handle asked. False if it is gone.
    fn obey(&mut self) -> bool {
        // Clears the event; it is there, or another wake-up took it.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        // The handle waits for each answer, so there is about one command at a time.
        loop {
            // Whoever asked may have given up waiting: then the answer goes nowhere.
            let _ = match self.commands.try_recv() {
                Ok(Command::Serve(region, access, answer)) => {
                    answer.try_send(self.shared.regions.add(region, access)).is_ok()
                }
                Ok(Command::Retire(key, answer)) => {
                    answer.try_send(self.shared.regions.remove(key)).is_ok()
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            };
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let (socket, address) = match self.listener.accept() {
                Ok((socket, address)) => (socket, address.ip().to_canonical()),
                Err(error) if is_passing(&error) => return,
                Err(_) => {
                    self.listen(false);
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            let now = Instant::now();
            let greeting = self.places().filter(|place| !place.is_known).count();
            if greeting >= GREETING_PEERS_MAX || !self.limiter.admits(address, now) {
                self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let refusal =
                (self.places().count() - greeting >= PEERS_MAX).then_some(Refusal::TooManyPeers);
            let peer = Peer::new(socket, address, refusal, &self.shared, now);
            // A socket that takes no options is gone already.
            if let Ok(peer) = peer {
                self.seat(peer);
            }
        }
    }

    /// Starts or stops to be told of new connections.
    fn listen(&self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        let data = EventData::new_u64(LISTENER);
        // The listener is registered, so that only a lack of memory is left; it is tried again.
        let _ = epoll::modify(&self.epoll, &self.listener, data, flags);
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        self.peers.iter().flatten()
    }

    fn seat(&mut self, peer: Peer) {
        let free = self.peers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        let token = index as u64 + FIRST_PEER;
        let interest = EventFlags::IN;
        let added = epoll::add(
            &self.epoll,
            peer.stream.socket.as_fd(),
            EventData::new_u64(token),
            interest,
        );
        if added.is_ok() {
            self.timed += 1;
            self.peers[index] = Some(Place { peer, interest, is_timed: true, is_known: false });
            self.drive(token, EventFlags::empty());
        }
    }

    fn drive(&mut self, token: u64, flags: EventFlags) {
        let index = (token - FIRST_PEER) as usize;
        // A peer that ended in this turn may have had another event.
        let Some(place) = self.peers.get_mut(index).and_then(Option::as_mut) else { return };
        let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        let now = Instant::now();
        if place.peer.drive(readable, &mut self.shared, now).is_err() {
            self.remove(index, now);
            return;
        }
        let wanted = wanted_of(&place.peer);
        if wanted != place.interest {
            let data = EventData::new_u64(token);
            if epoll::modify(&self.epoll, place.peer.stream.socket.as_fd(), data, wanted).is_err() {
                self.remove(index, now);
                return;
            }
            place.interest = wanted;
        }
        let (is_known, is_timed) = (place.peer.is_known(), place.peer.until.is_some());
        if is_known != place.is_known || is_timed != place.is_timed {
            self.note_change(index, is_known, is_timed);
        }
    }

    /// Notes that a peer greeted, or is leaving.
    fn note_change(&mut self, index: usize, is_known: bool, is_timed: bool) {
        let Some(place) = &mut self.peers[index] else { return };
        match (place.is_timed, is_timed) {
            (false, true) => self.timed += 1,
            (true, false) => self.timed -= 1,
            _ => {}
        }
        (place.is_known, place.is_timed) = (is_known, is_timed);
        self.count_peers();
    }

    fn count_peers(&self) {
        let known = self.places().filter(|place| place.is_known).count();
        self.counters.peers.store(known as u64, Ordering::Relaxed);
    }

    fn remove(&mut self, index: usize, now: Instant) {
        // Dropping the socket closes it and takes it out of the epoll.
        let Some(place) = self.peers[index].take() else { return };
        self.timed -= usize::from(place.is_timed);
        if place.peer.has_failed() {
            self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            self.limiter.failed(place.peer.address, now);
        }
        self.count_peers();
    }

    /// Until when to wait at most.
    fn next_timeout(&self) -> Option<Duration> {
        if self.timed == 0 && self.accept_again.is_none() {
            return None;
        }
        let times = self.places().filter_map(|place| place.peer.until);
        let next = times.chain(self.accept_again).min()?;
        // Rounded up to what `epoll_wait` takes everywhere.
        let wait_ms = next.saturating_duration_since(Instant::now()).as_millis() + 1;
        Some(Duration::from_millis(u64::try_from(wait_ms).unwrap_or(u64::MAX)))
    }

    fn meet_times(&mut self) {
        if self.timed == 0 && self.accept_again.is_none() {
            return;
        }
        let now = Instant::now();
        if self.accept_again.is_some_and(|again| again <= now) {
            self.accept_again = None;
            self.listen(true);
        }
        for index in 0..self.peers.len() {
            let until = self.peers[index].as_ref().and_then(|place| place.peer.until);
            if until.is_some_and(|until| until <= now) {
                self.remove(index, now);
            }
        }
    }
}

/// What the kernel should report of a peer.
fn wanted_of(peer: &Peer) -> EventFlags {
    let mut wanted = EventFlags::empty();
    wanted.set(EventFlags::IN, peer.wants_bytes());
    wanted.set(EventFlags::OUT, peer.stream.waiting_bytes() > 0);
    wanted
}

/// True for errors of accepting that concern one connection, or none.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted | ConnectionReset)
}
