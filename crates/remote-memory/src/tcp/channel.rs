//! The Noise handshake, and what it leaves: a channel that seals and opens records.
//!
//! Pattern `NNpsk0`, from the Noise protocol framework (revision 34, sections 7.5 and 9):
//! ```text
//! -> psk, e          the responder refuses a stranger here, before it computes anything big
//! <- e, ee           both ephemeral: what was recorded stays secret if the key leaks later
//! ```
//! Neither side has a key of its own (`KKpsk`): all holders of the pool's key are trusted alike,
//! as with the socket of shared memory, and there is one secret to deploy instead of two for each
//! pair. A recorded first message can be sent again, but who does so cannot open the answer:
//! therefore a peer counts as known only when its first sealed record has come.
//!
//! Each direction counts its records; the count is the nonce and never sent. A record that is
//! changed, repeated, left out or moved does not open, and the connection ends.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};

use super::error::WireError;
use super::record::{PREAMBLE_BYTES, RECORD_BYTES_MAX, record_header};
use super::security::PreSharedKey;

/// AES runs in hardware on all servers that we know of, and its pure Rust form is in constant
/// time elsewhere.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// What sealing adds to a message, in bytes.
const TAG_BYTES: usize = 16;
/// Longest message in bytes that fits a sealed record.
pub(super) const MESSAGE_BYTES_MAX: usize = RECORD_BYTES_MAX - TAG_BYTES;
/// Length in bytes of both messages of the handshake: an ephemeral key and a tag.
const HANDSHAKE_BYTES: usize = 48;

/// Records of one direction under one key. AES-GCM keeps its margin of 2^-60 for 2^24.5 full
/// records (RFC 8446, section 5.5); 2^20 stay far below, and are a minute at the highest rate,
/// so that a key that leaks from memory opens little of the past.
const REKEY_EVERY_RECORDS: u64 = 1 << 20;

/// The primitives of snow in pure Rust, with random bytes from the kernel through the `getrandom`
/// that we use anyway.
struct Resolver;

struct Kernel;

impl Random for Kernel {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        getrandom::fill(out).map_err(|_| snow::Error::Rng)
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Kernel))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// One side of a handshake under way.
pub(super) struct Handshake(Box<HandshakeState>);

impl Handshake {
    /// The requester's side. The prologue is the preamble that it sent.
    pub(super) fn initiator(
        key: &PreSharedKey,
        prologue: &[u8; PREAMBLE_BYTES],
    ) -> Result<Self, WireError> {
        Self::with(key, prologue, |builder| builder.build_initiator())
    }

    /// The responder's side. The prologue is the preamble that it received.
    pub(super) fn responder(
        key: &PreSharedKey,
        prologue: &[u8; PREAMBLE_BYTES],
    ) -> Result<Self, WireError> {
        Self::with(key, prologue, |builder| builder.build_responder())
    }

    fn with(
        key: &PreSharedKey,
        prologue: &[u8; PREAMBLE_BYTES],
        build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
    ) -> Result<Self, WireError> {
        let pattern = PATTERN.parse().map_err(fail)?;
        let builder = Builder::with_resolver(pattern, Box::new(Resolver))
            .prologue(prologue)
            .and_then(|builder| builder.psk(0, key.bytes()))
            .map_err(fail)?;
        build(builder).map(|state| Self(Box::new(state))).map_err(fail)
    }

    /// Appends the next message of this side, as a record.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut message = [0; HANDSHAKE_BYTES];
        let length = self.0.write_message(&[], &mut message).map_err(fail)?;
        out.extend_from_slice(&record_header(length));
        out.extend_from_slice(&message[..length]);
        Ok(())
    }

    /// Takes the next message of the other side: it holds the key.
    pub(super) fn read(&mut self, body: &[u8]) -> Result<(), WireError> {
        if body.len() != HANDSHAKE_BYTES {
            return Err(WireError::NotAuthentic);
        }
        self.0.read_message(body, &mut [0; HANDSHAKE_BYTES]).map(drop).map_err(fail)
    }

    /// The channel, once both messages went over.
    pub(super) fn finish(self) -> Result<Channel, WireError> {
        let state = self.0.into_transport_mode().map_err(fail)?;
        Ok(Channel::Noise(Box::new(Sealed::new(state, REKEY_EVERY_RECORDS))))
    }
}

/// Whatever is wrong with a sealed message says no more than that: details help an attacker.
fn fail(_: snow::Error) -> WireError {
    WireError::NotAuthentic
}

/// What messages go through.
pub(super) enum Channel {
    /// As they are.
    Plain,
    /// Sealed.
    Noise(Box<Sealed>),
}

pub(super) struct Sealed {
    state: TransportState,
    rekey_every: u64,
    sealed: u64,
    opened: u64,
    message: Vec<u8>,
}

impl Sealed {
    fn new(state: TransportState, rekey_every: u64) -> Self {
        Self { state, rekey_every, sealed: 0, opened: 0, message: Vec::new() }
    }
}

impl Channel {
    /// Appends a message of at most [`MESSAGE_BYTES_MAX`] as a record.
    pub(super) fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let Self::Noise(sealed) = self else {
            out.extend_from_slice(&record_header(message.len()));
            out.extend_from_slice(message);
            return Ok(());
        };
        out.extend_from_slice(&record_header(message.len() + TAG_BYTES));
        let start = out.len();
        out.resize(start + message.len() + TAG_BYTES, 0);
        sealed.state.write_message(message, &mut out[start..]).map_err(fail)?;
        sealed.sealed += 1;
        if sealed.sealed.is_multiple_of(sealed.rekey_every) {
            sealed.state.rekey_outgoing();
        }
        Ok(())
    }

    /// The message in a record's body.
    pub(super) fn open<'a>(&'a mut self, body: &'a [u8]) -> Result<&'a [u8], WireError> {
        let Self::Noise(sealed) = self else { return Ok(body) };
        if body.len() > sealed.message.len() {
            sealed.message.resize(body.len(), 0);
        }
        let length = sealed.state.read_message(body, &mut sealed.message).map_err(fail)?;
        sealed.opened += 1;
        if sealed.opened.is_multiple_of(sealed.rekey_every) {
            sealed.state.rekey_incoming();
        }
        Ok(&sealed.message[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::RECORD_HEADER_BYTES;
    use super::*;

    const PROLOGUE: [u8; PREAMBLE_BYTES] = [3; PREAMBLE_BYTES];

    fn body(record: &[u8]) -> &[u8] {
        &record[RECORD_HEADER_BYTES..]
    }

    /// Both ends of a channel that takes new keys after each `rekey_every` records.
    fn pair(rekey_every: u64) -> (Channel, Channel) {
        let key = PreSharedKey::from_bytes([9; 32]);
        let mut requester = Handshake::initiator(&key, &PROLOGUE).unwrap();
        let mut responder = Handshake::responder(&key, &PROLOGUE).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        requester.write(&mut first).unwrap();
        responder.read(body(&first)).unwrap();
        responder.write(&mut second).unwrap();
        requester.read(body(&second)).unwrap();
        let [one, two] = [requester, responder].map(|side| {
            let mut channel = side.finish().unwrap();
            let Channel::Noise(sealed) = &mut channel else { panic!("not sealed") };
            sealed.rekey_every = rekey_every;
            channel
        });
        (one, two)
    }

    #[test]
    fn messages_go_both_ways_across_changes_of_keys() {
        let (mut one, mut two) = pair(3);
        for round in 0..20_usize {
            let message = vec![round as u8; round * 100 + 1];
            let mut record = Vec::new();
            one.seal(&message, &mut record).unwrap();
            assert!(!record.windows(20).any(|part| message.starts_with(part)), "readable");
            assert_eq!(two.open(body(&record)).unwrap(), message);
            let mut record = Vec::new();
            two.seal(&message, &mut record).unwrap();
            assert_eq!(one.open(body(&record)).unwrap(), message);
        }
    }

    #[test]
    fn the_longest_message_fits() {
        for mut channel in [pair(1 << 20).0, Channel::Plain] {
            let mut record = Vec::new();
            channel.seal(&vec![1; MESSAGE_BYTES_MAX], &mut record).unwrap();
            assert!(body(&record).len() <= RECORD_BYTES_MAX);
        }
    }

    #[test]
    fn a_record_opens_once_in_its_turn_and_unchanged() {
        let (mut one, mut two) = pair(1 << 20);
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        one.seal(b"first", &mut first).unwrap();
        one.seal(b"second", &mut second).unwrap();
        assert_eq!(two.open(body(&second)), Err(WireError::NotAuthentic), "out of turn");
        for at in 0..body(&first).len() {
            let mut changed = body(&first).to_vec();
            changed[at] ^= 1;
            assert_eq!(two.open(&changed), Err(WireError::NotAuthentic), "byte {at}");
        }
        for length in 0..body(&first).len() {
            assert!(two.open(&body(&first)[..length]).is_err(), "cut to {length}");
        }
        assert_eq!(two.open(body(&first)).unwrap(), b"first");
        assert_eq!(two.open(body(&first)), Err(WireError::NotAuthentic), "again");
        assert_eq!(two.open(body(&second)).unwrap(), b"second");
        // What one side sent does not pass for an answer of the other.
        assert!(one.open(body(&second)).is_err(), "reflected");
    }

    #[test]
    fn who_has_another_key_or_saw_another_preamble_is_a_stranger() {
        let ours = PreSharedKey::from_bytes([1; 32]);
        let cases =
            [([1; 32], [4; 16], true), ([2; 32], [4; 16], false), ([1; 32], [5; 16], false)];
        for (theirs, prologue, known) in cases {
            let theirs = PreSharedKey::from_bytes(theirs);
            let mut first = Vec::new();
            Handshake::initiator(&theirs, &prologue).unwrap().write(&mut first).unwrap();
            let mut responder = Handshake::responder(&ours, &[4; 16]).unwrap();
            assert_eq!(responder.read(body(&first)).is_ok(), known);
        }
    }
}
