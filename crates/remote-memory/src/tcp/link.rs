//! The requester's connection: connecting, greeting, then records.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::channel::{Channel, Handshake};
use super::error::{ConnectError, WireError};
use super::message::{self, Message, encode_hello};
use super::record::{PREAMBLE_BYTES, Preamble, RECORD_HEADER_BYTES, first_record};
use super::security::Security;
use super::stream::{End, Stream};
use crate::region::RegionDescriptor;

enum Stage {
    /// The kernel connects.
    Connecting,
    /// The preamble has not come.
    Preamble(Option<Handshake>),
    /// The answer of the handshake has not come.
    Handshake(Handshake),
    /// The welcome has not come.
    Welcome(Channel),
    /// Batches can go.
    Up(Channel),
    /// It ended in the middle of a change.
    Over,
}

/// One connection. Nothing blocks.
pub(super) struct Link {
    pub(super) stream: Stream,
    address: SocketAddr,
    stage: Stage,
    /// When it must be up.
    pub(super) until: Instant,
}

impl Link {
    pub(super) fn begin(address: SocketAddr, until: Instant) -> Result<Self, ConnectError> {
        let system = |cause| ConnectError::System { action: "connect to", address, cause };
        let socket = start_connecting(address).map_err(|errno| system(errno.into()))?;
        let stream = Stream::new(TcpStream::from(socket)).map_err(system)?;
        Ok(Self { stream, address, stage: Stage::Connecting, until })
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Whether the socket's getting ready to send means something.
    pub(super) fn wants_space(&self) -> bool {
        matches!(self.stage, Stage::Connecting) || self.stream.waiting_bytes() > 0
    }

    /// The channel of a connection that is up, and the stream.
    pub(super) fn parts(&mut self) -> Option<(&mut Stream, &mut Channel)> {
        match &mut self.stage {
            Stage::Up(channel) => Some((&mut self.stream, channel)),
            _ => None,
        }
    }

    pub(super) fn error_of(&self, end: End) -> ConnectError {
        let address = self.address;
        match end {
            End::Closed => ConnectError::Closed { address },
            End::System(cause) => ConnectError::System { action: "talk to", address, cause },
            End::Wire(cause) => ConnectError::Wire { address, cause },
        }
    }

    /// Goes on with connecting. The regions are returned once it is up.
    pub(super) fn connect(
        &mut self,
        security: &Security,
        scratch: &mut [u8],
        now: Instant,
    ) -> Result<Option<Vec<RegionDescriptor>>, ConnectError> {
        if matches!(self.stage, Stage::Connecting) {
            if !self.is_connected()? {
                return self.pause(now);
            }
            self.greet_first(security).map_err(|end| self.error_of(end))?;
        }
        // An owner that refuses closes behind its reason: what came is read before the end counts.
        let received = self.stream.receive(scratch);
        if let Some(regions) = self.read_greetings()? {
            return Ok(Some(regions));
        }
        received.and_then(|_| self.stream.flush()).map_err(|end| self.error_of(end))?;
        self.pause(now)
    }

    fn pause<T>(&self, now: Instant) -> Result<Option<T>, ConnectError> {
        if now >= self.until {
            return Err(ConnectError::TimedOut { address: self.address });
        }
        Ok(None)
    }

    fn is_connected(&self) -> Result<bool, ConnectError> {
        let address = self.address;
        let system = |cause| ConnectError::System { action: "connect to", address, cause };
        let socket = &self.stream.socket;
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        let now = crate::time::timespec(std::time::Duration::ZERO);
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(system(errno.into())),
        }
        match socket.take_error() {
            Ok(None) => Ok(true),
            Ok(Some(cause)) | Err(cause) => Err(system(cause)),
        }
    }

    /// Sends the preamble, and with Noise the first message of the handshake behind it.
    fn greet_first(&mut self, security: &Security) -> Result<(), End> {
        let preamble = Preamble { security: security.code(), refusal: None }.encode();
        self.stream.out.extend_from_slice(&preamble);
        let mut handshake = None;
        if let Security::Noise(key) = security {
            let mut begun = Handshake::initiator(key, &preamble)?;
            begun.write(&mut self.stream.out)?;
            handshake = Some(begun);
        }
        self.stage = Stage::Preamble(handshake);
        // From here on each call says itself whether it may sleep.
        self.stream.socket.set_nonblocking(false).map_err(End::System)?;
        self.stream.flush().map(drop)
    }

    /// Takes what came of the responder's greetings.
    fn read_greetings(&mut self) -> Result<Option<Vec<RegionDescriptor>>, ConnectError> {
        let address = self.address;
        let wire = |cause| ConnectError::Wire { address, cause };
        // Each turn goes to the next stage; there are four.
        loop {
            let went_on = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Preamble(handshake) => self.read_preamble(handshake)?,
                Stage::Handshake(handshake) => self.read_handshake(handshake).map_err(wire)?,
                Stage::Welcome(channel) => {
                    return self.read_welcome(channel).map_err(wire);
                }
                stage @ (Stage::Connecting | Stage::Up(_) | Stage::Over) => {
                    self.stage = stage;
                    false
                }
            };
            if !went_on {
                return Ok(None);
            }
        }
    }

    fn read_preamble(&mut self, handshake: Option<Handshake>) -> Result<bool, ConnectError> {
        let address = self.address;
        let wire = |cause| ConnectError::Wire { address, cause };
        let Some(preamble) = Preamble::decode(self.stream.received()).map_err(wire)? else {
            self.stage = Stage::Preamble(handshake);
            return Ok(false);
        };
        if let Some(refusal) = preamble.refusal {
            return Err(ConnectError::Refused { address, refusal });
        }
        if preamble.security != u8::from(handshake.is_some()) {
            let what = "another security than asked for";
            return Err(wire(WireError::Order { what }));
        }
        self.stream.take(PREAMBLE_BYTES);
        match handshake {
            Some(handshake) => self.stage = Stage::Handshake(handshake),
            None => self.say_hello(Channel::Plain).map_err(wire)?,
        }
        Ok(true)
    }

    fn read_handshake(&mut self, mut handshake: Handshake) -> Result<bool, WireError> {
        let received = self.stream.received();
        let Some(length) = first_record(received)? else {
            self.stage = Stage::Handshake(handshake);
            return Ok(false);
        };
        let end = RECORD_HEADER_BYTES + length;
        handshake.read(&received[RECORD_HEADER_BYTES..end])?;
        self.stream.take(end);
        self.say_hello(handshake.finish()?)?;
        Ok(true)
    }

    fn say_hello(&mut self, mut channel: Channel) -> Result<(), WireError> {
        channel.seal(&encode_hello(), &mut self.stream.out)?;
        self.stage = Stage::Welcome(channel);
        Ok(())
    }

    fn read_welcome(
        &mut self,
        mut channel: Channel,
    ) -> Result<Option<Vec<RegionDescriptor>>, WireError> {
        let Some((length, message)) = self.stream.next(&mut channel)? else {
            self.stage = Stage::Welcome(channel);
            return Ok(None);
        };
        let Message::Welcome(regions) = message::decode(message)? else {
            return Err(WireError::Order { what: "something else than a welcome" });
        };
        self.stream.take(length);
        self.stage = Stage::Up(channel);
        Ok(Some(regions))
    }
}

/// A socket that the kernel is connecting.
fn start_connecting(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Why the kernel could not be asked for something local.
pub(super) fn local(address: SocketAddr, errno: Errno) -> ConnectError {
    let cause = io::Error::from(errno);
    ConnectError::System { action: "wait for", address, cause }
}
