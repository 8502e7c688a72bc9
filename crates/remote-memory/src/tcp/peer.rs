//! One peer of a responder: greeting, requests, and a clean end.

use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use super::channel::{Channel, Handshake};
use super::error::{Refusal, WireError};
use super::message::{self, Message, encode_welcome};
use super::record::{PREAMBLE_BYTES, Preamble, RECORD_HEADER_BYTES, first_record};
use super::security::Security;
use super::served::Regions;
use super::stream::{End, Stream};

/// Most time from accepting a peer to its first sealed record: three round trips of a far network
/// and much patience. Until then it takes a place of [`super::GREETING_PEERS_MAX`].
pub(super) const GREETING_MAX: Duration = Duration::from_secs(3);
/// How long a peer that was told an error may take to hang up. Closing at once could destroy the
/// answer under way, because the peer's further requests would be answered by a reset.
const LEAVING_MAX: Duration = Duration::from_secs(1);
/// Answers that wait for a peer to take them, in bytes; beyond, its requests wait. With one more
/// record at most, 128 peers that read nothing hold 40 MiB.
const ANSWERS_MAX_BYTES: usize = 256 * 1024;

enum Stage {
    /// Its preamble has not come.
    Preamble,
    /// Its first message of the handshake has not come.
    Handshake(Handshake),
    /// Its greeting, the first sealed record, has not come.
    Hello(Channel),
    /// It is known and may send requests.
    Up(Channel),
    /// It was told why it must go; what it still sends is thrown away.
    Leaving,
}

/// A peer, and what it is doing.
pub(super) struct Peer {
    pub(super) stream: Stream,
    pub(super) address: IpAddr,
    stage: Stage,
    /// When it must have greeted or gone.
    pub(super) until: Option<Instant>,
    /// Whether it does not hold the key, as far as seen.
    is_stranger: bool,
}

/// What all peers of a responder share.
pub(super) struct Shared {
    pub(super) security: Security,
    pub(super) regions: Regions,
    /// Where a received piece and an answer are put together.
    pub(super) scratch: Vec<u8>,
    pub(super) reply: Vec<u8>,
}

impl Peer {
    /// A peer that just came. With a refusal it is only told that.
    pub(super) fn new(
        socket: TcpStream,
        address: IpAddr,
        refusal: Option<Refusal>,
        shared: &Shared,
        now: Instant,
    ) -> std::io::Result<Self> {
        let stream = Stream::new(socket)?;
        let until = Some(now + GREETING_MAX);
        let mut peer = Self { stream, address, stage: Stage::Preamble, until, is_stranger: false };
        if let Some(refusal) = refusal {
            peer.refuse(refusal, shared, now);
        }
        Ok(peer)
    }

    /// Whether it has shown that it holds the key.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Whether its end, now, is that of a failed handshake.
    pub(super) fn has_failed(&self) -> bool {
        let greeting =
            matches!(self.stage, Stage::Preamble | Stage::Handshake(_) | Stage::Hello(_));
        greeting || self.is_stranger
    }

    /// Whether to wait for bytes from it.
    pub(super) fn wants_bytes(&self) -> bool {
        self.stream.has_room() && self.stream.waiting_bytes() < ANSWERS_MAX_BYTES
    }

    /// Takes what there is, answers it, and sends the answers, as far as they go.
    pub(super) fn drive(
        &mut self,
        readable: bool,
        shared: &mut Shared,
        now: Instant,
    ) -> Result<(), End> {
        if readable && self.wants_bytes() {
            self.stream.receive(&mut shared.scratch)?;
        }
        // Requests may wait for the space of their answers, so this is tried after sending too;
        // each further turn has sent at least a full buffer of answers.
        loop {
            let paused = self.answer(shared, now)?;
            if !self.stream.flush()? || !paused {
                break;
            }
        }
        if matches!(self.stage, Stage::Leaving) && self.stream.waiting_bytes() == 0 {
            // Says that nothing more comes; the peer hangs up, or `until` comes.
            let _ = self.stream.socket.shutdown(std::net::Shutdown::Write);
        }
        Ok(())
    }

    /// Answers what was received. True if it stopped because too many answers wait.
    fn answer(&mut self, shared: &mut Shared, now: Instant) -> Result<bool, End> {
        // Each turn takes bytes or ends.
        loop {
            if self.stream.waiting_bytes() >= ANSWERS_MAX_BYTES {
                return Ok(true);
            }
            let went_on = match &mut self.stage {
                Stage::Preamble => self.meet(shared, now)?,
                Stage::Handshake(_) => self.shake_hands(shared, now)?,
                Stage::Hello(_) => self.greet(shared)?,
                Stage::Up(_) => self.serve(shared, now)?,
                Stage::Leaving => {
                    self.stream.take(self.stream.received().len());
                    false
                }
            };
            if !went_on {
                return Ok(false);
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, shared: &Shared, now: Instant) {
        let preamble = Preamble { security: shared.security.code(), refusal: Some(refusal) };
        self.stream.out.extend_from_slice(&preamble.encode());
        self.leave(now);
    }

    fn leave(&mut self, now: Instant) {
        self.stage = Stage::Leaving;
        self.until = Some(now + LEAVING_MAX);
    }

    fn meet(&mut self, shared: &Shared, now: Instant) -> Result<bool, End> {
        let preamble = match Preamble::decode(self.stream.received()) {
            Ok(Some(preamble)) => preamble,
            Ok(None) => return Ok(false),
            Err(WireError::Version { .. }) => {
                self.refuse(Refusal::OtherVersion, shared, now);
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        if preamble.refusal.is_some() {
            return Err(WireError::Order { what: "a requester that refuses" }.into());
        }
        if preamble.security != shared.security.code() {
            self.refuse(Refusal::OtherSecurity, shared, now);
            return Ok(true);
        }
        self.stream.take(PREAMBLE_BYTES);
        self.stage = match &shared.security {
            Security::PlainLoopback => {
                self.stream.out.extend_from_slice(&preamble.encode());
                Stage::Hello(Channel::Plain)
            }
            Security::Noise(key) => {
                Stage::Handshake(Handshake::responder(key, &preamble.encode())?)
            }
        };
        Ok(true)
    }

    fn shake_hands(&mut self, shared: &Shared, now: Instant) -> Result<bool, End> {
        let received = self.stream.received();
        let Some(length) = first_record(received)? else { return Ok(false) };
        let Stage::Handshake(mut handshake) = std::mem::replace(&mut self.stage, Stage::Leaving)
        else {
            return Ok(false);
        };
        let body = &received[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length];
        if handshake.read(body).is_err() {
            self.is_stranger = true;
            self.refuse(Refusal::OtherKey, shared, now);
            return Ok(true);
        }
        self.stream.take(RECORD_HEADER_BYTES + length);
        let proceed = Preamble { security: shared.security.code(), refusal: None };
        self.stream.out.extend_from_slice(&proceed.encode());
        handshake.write(&mut self.stream.out)?;
        self.stage = Stage::Hello(handshake.finish()?);
        Ok(true)
    }

    fn greet(&mut self, shared: &mut Shared) -> Result<bool, End> {
        let Stage::Hello(channel) = &mut self.stage else { return Ok(false) };
        let Some((length, message)) = self.stream.next(channel)? else { return Ok(false) };
        if message::decode(message)? != Message::Hello {
            return Err(WireError::Order { what: "a message before the greeting" }.into());
        }
        self.stream.take(length);
        encode_welcome(shared.regions.descriptors(), &mut shared.reply);
        channel.seal(&shared.reply, &mut self.stream.out)?;
        self.until = None;
        if let Stage::Hello(channel) = std::mem::replace(&mut self.stage, Stage::Leaving) {
            self.stage = Stage::Up(channel);
        }
        Ok(true)
    }

    fn serve(&mut self, shared: &mut Shared, now: Instant) -> Result<bool, End> {
        let Stage::Up(channel) = &mut self.stage else { return Ok(false) };
        let Some((length, message)) = self.stream.next(channel)? else { return Ok(false) };
        let Message::Request(request) = message::decode(message)? else {
            return Err(WireError::Order { what: "something else than a request" }.into());
        };
        let well = shared.regions.execute(&request, &mut shared.reply);
        self.stream.take(length);
        channel.seal(&shared.reply, &mut self.stream.out)?;
        if !well {
            // As a queue pair does: behind a failed operation nothing of this connection is run.
            self.leave(now);
        }
        Ok(true)
    }
}
