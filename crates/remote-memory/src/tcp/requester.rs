//! The peer's side: the face [`Remote`] over one connection.
//!
//! **This is a hot path.** A batch of one costs a `send`, and a `recv` for its answer, plus
//! whatever the caller waits by. Batches that are submitted before a poll leave together.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::alarm::Alarm;
use super::error::{ConnectError, WireError};
use super::link::{self, Link};
use super::message::{self, BATCH_OPS_MAX, Message, OP_WORDS_MAX, encode_request};
use super::security::Security;
use super::stream::{End, RECEIVE_BYTES};
use super::window::{Answer, Window};
use crate::batch::OpenRegions;
use crate::region::{RegionDescriptor, RemoteKey, WORD_BYTES};
use crate::remote::{
    Atomics, Capabilities, Completion, ConnectionState, Op, OpError, OpenError, Remote,
    SubmitError, Ticket,
};

/// Operations under way: a look at some hundred nodes, some times over.
const OUTSTANDING_OPS_MAX: usize = 4096;

/// Operations that may be left without an answer beyond their deadlines; then the owner is taken
/// for gone and the connection breaks. As many as may be under way: a stopped owner that goes on
/// answers what one full queue left behind.
const ABANDONED_OPS_MAX: usize = OUTSTANDING_OPS_MAX;

/// Sealed bytes that wait for the socket; further batches stay unsealed, so that those whose
/// deadlines pass can be taken back.
const SEALED_MAX_BYTES: usize = 64 * 1024;

/// Received pieces in one poll, so that a flood of answers does not keep the caller.
const RECEIVES_PER_POLL_MAX: usize = 16;

/// Longest deadline; a longer one is cut. Nobody waits for a year.
const DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Shortest sleep inside the receiving call, whose clock ticks in some milliseconds; shorter ones
/// go by a call with a finer clock.
const COARSE_SLEEP_MIN: Duration = Duration::from_millis(20);

const CAPABILITIES: Capabilities = Capabilities {
    transport: "tcp",
    atomics: Atomics::AgreeWithOwner,
    needs_owner_cpu: true,
    lands_late: true,
    adds_wake: true,
    batch_ops_max: BATCH_OPS_MAX,
    outstanding_ops_max: OUTSTANDING_OPS_MAX,
    outstanding_fetches_max: OUTSTANDING_OPS_MAX,
    op_words_max: OP_WORDS_MAX,
    inline_bytes: OP_WORDS_MAX * WORD_BYTES as usize,
};

/// Where an owner is, and how to speak to it.
#[derive(Debug, Clone)]
pub struct RequesterSettings {
    /// The address of its service.
    pub address: SocketAddr,
    /// As it is set there.
    pub security: Security,
    /// Most time for connecting and greeting, each time.
    pub connect_max: Duration,
}

/// A connection to the regions of one owner.
///
/// A deadline does not break it: the batch is reported, its late answers are dropped. All
/// batches of a connection land in the order of submitting.
pub struct Requester {
    settings: RequesterSettings,
    state: ConnectionState,
    link: Option<Link>,
    why_broken: Option<ConnectError>,
    served: Vec<RegionDescriptor>,
    open: OpenRegions,
    window: Window,
    alarm: Option<Alarm>,
    /// What a sleep brought, for the next poll.
    woken_by: Option<Result<Option<usize>, End>>,
    scratch: Vec<u8>,
    message: Vec<u8>,
}

impl Requester {
    /// Begins to connect; [`Remote::poll`] goes on with it. Does not block.
    ///
    /// # Errors
    /// Plain text beyond the machine is asked for. All else is found while connecting.
    pub fn begin(settings: RequesterSettings) -> Result<Self, ConnectError> {
        let address = settings.address;
        if !settings.security.allows(address) {
            return Err(ConnectError::PlainBeyondLoopback { address });
        }
        let mut requester = Self {
            settings,
            state: ConnectionState::Broken,
            link: None,
            why_broken: None,
            served: Vec::new(),
            open: OpenRegions::default(),
            window: Window::default(),
            alarm: None,
            woken_by: None,
            scratch: vec![0; RECEIVE_BYTES],
            message: Vec::new(),
        };
        requester.reconnect();
        Ok(requester)
    }

    /// Connects. Blocks until the connection is up, at most `connect_max`.
    ///
    /// # Errors
    /// It did not come up.
    pub fn connect(settings: RequesterSettings) -> Result<Self, ConnectError> {
        let mut requester = Self::begin(settings)?;
        requester.finish_connecting()?;
        Ok(requester)
    }

    /// Waits until a connection that was begun, or begun again, is up, at most `connect_max`.
    ///
    /// # Errors
    /// It is broken; why is told here instead of by [`Requester::why_broken`].
    pub fn finish_connecting(&mut self) -> Result<(), ConnectError> {
        // Ends when the connection is up, or at its time-out.
        while self.state == ConnectionState::Connecting {
            self.drive();
            if self.state == ConnectionState::Connecting {
                self.wait(self.settings.connect_max);
            }
        }
        match self.state {
            ConnectionState::Up => Ok(()),
            _ => {
                let address = self.settings.address;
                Err(self.why_broken.take().unwrap_or(ConnectError::Closed { address }))
            }
        }
    }

    /// What the owner served when the connection came up, or nothing while it was never up.
    pub fn served(&self) -> &[RegionDescriptor] {
        &self.served
    }

    /// Why the connection is broken.
    pub fn why_broken(&self) -> Option<&ConnectError> {
        self.why_broken.as_ref()
    }

    /// Sends what is submitted, then sleeps until a poll may bring something, at most `timeout`. It
    /// may wake up earlier, and does not sleep on a broken connection.
    pub fn wait(&mut self, timeout: Duration) {
        self.flush();
        if self.window.has_done() {
            return;
        }
        let now = Instant::now();
        let until = self.next_time().map(|at| at.saturating_duration_since(now));
        let sleep = until.unwrap_or(timeout).min(timeout);
        let Some(link) = &mut self.link else {
            std::thread::sleep(until.unwrap_or_default().min(timeout));
            return;
        };
        let wants_space = link.wants_space();
        if link.is_up() && !wants_space && sleep >= COARSE_SLEEP_MIN {
            if self.woken_by.is_none() {
                let woken_by = link.stream.receive_asleep(&mut self.scratch, sleep);
                // Nothing so far says nothing about the moment of the poll.
                self.woken_by = Some(woken_by).filter(|received| !matches!(received, Ok(None)));
            }
            return;
        }
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, wants_space);
        let sleep = crate::time::timespec(sleep);
        // An error is found by the next poll.
        let mut fds = [PollFd::new(&link.stream.socket, events)];
        let _ = rustix::event::poll(&mut fds, Some(&sleep));
    }

    /// When something happens by itself.
    fn next_time(&self) -> Option<Instant> {
        let connecting = self.link.as_ref().filter(|link| !link.is_up()).map(|link| link.until);
        self.window.first_deadline().into_iter().chain(connecting).min()
    }

    fn drive(&mut self) {
        self.flush();
        let received = self.receive();
        self.settle(received);
        let now = Instant::now();
        self.window.expire(now);
        if self.window.abandoned_ops() > ABANDONED_OPS_MAX {
            let (address, operations) = (self.settings.address, self.window.abandoned_ops());
            self.break_off(ConnectError::Silent { address, operations }, &OpError::Disconnected);
        }
        if self.state == ConnectionState::Connecting {
            self.go_on_connecting(now);
        }
    }

    fn go_on_connecting(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        match link.connect(&self.settings.security, &mut self.scratch, now) {
            Ok(None) => {}
            Ok(Some(served)) => {
                self.served = served;
                self.state = ConnectionState::Up;
            }
            Err(error) => self.break_off(error, &OpError::Disconnected),
        }
    }

    /// Seals and sends what was submitted, as far as the socket takes it.
    fn flush(&mut self) {
        let sent = self.try_flush();
        self.settle(sent.map(|()| Answer::Well));
    }

    fn try_flush(&mut self) -> Result<(), End> {
        let Some((stream, channel)) = self.link.as_mut().and_then(Link::parts) else {
            return Ok(());
        };
        if self.window.has_unsent() {
            self.window.expire_unsent(Instant::now());
        }
        // Each turn sends a batch, and the queue is bounded.
        loop {
            while stream.waiting_bytes() < SEALED_MAX_BYTES {
                let Some(batch) = self.window.next_unsent() else { break };
                let mut first = 0;
                while first < batch.ops.len() {
                    let ops = &batch.ops[first..];
                    first += encode_request(batch.ticket, batch.key, ops, &mut self.message);
                    channel.seal(&self.message, &mut stream.out)?;
                }
                self.window.sent();
            }
            if !stream.flush()? || !self.window.has_unsent() {
                return Ok(());
            }
        }
    }

    /// Takes the answers that came.
    fn receive(&mut self) -> Result<Answer, End> {
        let Some((stream, channel)) = self.link.as_mut().and_then(Link::parts) else {
            return Ok(Answer::Well);
        };
        for _ in 0..RECEIVES_PER_POLL_MAX {
            let received = match self.woken_by.take() {
                Some(received) => received,
                None => stream.receive(&mut self.scratch),
            };
            // Answers in front of an end count.
            while let Some((length, message)) = stream.next(channel)? {
                let Message::Reply(reply) = message::decode(message)? else {
                    return Err(WireError::Order { what: "something else than an answer" }.into());
                };
                let answer = self.window.answered(&reply)?;
                stream.take(length);
                if answer == Answer::Refused {
                    return Ok(answer);
                }
            }
            // Less than was asked for is all that there was.
            match received? {
                Some(length) if length == self.scratch.len() => {}
                _ => break,
            }
        }
        Ok(Answer::Well)
    }

    /// Breaks the connection, if what was done says so.
    fn settle(&mut self, done: Result<Answer, End>) {
        let Some(link) = &self.link else { return };
        match done {
            Ok(Answer::Well) => {}
            Ok(Answer::Refused) => {
                let address = self.settings.address;
                self.break_off(ConnectError::OperationRefused { address }, &OpError::Flushed);
            }
            Err(end) => {
                let error = link.error_of(end);
                self.break_off(error, &OpError::Disconnected);
            }
        }
    }

    fn break_off(&mut self, why: ConnectError, first: &OpError) {
        self.link = None;
        self.woken_by = None;
        self.state = ConnectionState::Broken;
        self.why_broken = Some(why);
        self.window.break_off(first);
        if let Some(alarm) = &mut self.alarm {
            alarm.forget_socket();
        }
    }
}

impl Remote for Requester {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn open(&mut self, descriptor: &RegionDescriptor) -> Result<(), OpenError> {
        self.open.open(descriptor, &CAPABILITIES)
    }

    fn close(&mut self, key: RemoteKey) {
        self.open.close(key);
    }

    fn submit(
        &mut self,
        key: RemoteKey,
        batch: Vec<Op>,
        deadline: Duration,
    ) -> Result<Ticket, SubmitError> {
        self.open.check_batch(key, &batch, &CAPABILITIES, self.window.outstanding_ops())?;
        if self.state != ConnectionState::Up {
            return Err(SubmitError::NotConnected { state: self.state });
        }
        let now = Instant::now();
        let deadline = now.checked_add(deadline.min(DEADLINE_MAX)).unwrap_or(now);
        Ok(self.window.submit(key, batch, deadline))
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        self.drive();
        self.window.poll(out)
    }

    fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        self.flush();
        if self.alarm.is_none() {
            match Alarm::new() {
                Ok(alarm) => self.alarm = Some(alarm),
                Err(errno) => {
                    let address = self.settings.address;
                    self.break_off(link::local(address, errno), &OpError::Disconnected);
                    return None;
                }
            }
        }
        let ready = self.window.has_done() || self.woken_by.is_some();
        let now = ready.then(Instant::now);
        let at = now.or_else(|| self.next_time());
        let link = self.link.as_ref();
        let wants_space = link.is_some_and(Link::wants_space);
        let socket = link.map(|link| &link.stream.socket);
        self.alarm.as_mut()?.set(socket, wants_space, at).ok()
    }

    fn connection(&self) -> ConnectionState {
        self.state
    }

    fn reconnect(&mut self) {
        if self.state != ConnectionState::Broken {
            return;
        }
        let now = Instant::now();
        let until = now.checked_add(self.settings.connect_max.min(DEADLINE_MAX)).unwrap_or(now);
        match Link::begin(self.settings.address, until) {
            Ok(link) => {
                self.link = Some(link);
                self.state = ConnectionState::Connecting;
                self.why_broken = None;
            }
            Err(error) => self.why_broken = Some(error),
        }
    }
}
