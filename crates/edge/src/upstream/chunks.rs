//! The chunked coding (RFC 9112, 7.1), decoded from a buffer. No socket, no clock.
//!
//! ```text
//! body    = *( size [ ext ] CRLF data CRLF ) 1*"0" [ ext ] CRLF *( field CRLF ) CRLF
//! ```
//!
//! As strict as hyper, and stricter in three places: a size has at most [`SIZE_DIGITS_MAX`]
//! digits, and lines of trailers end in CRLF and nothing else.

use super::head::{Malformed, find_end};
use super::{RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};
use bytes::{Buf, Bytes, BytesMut};

/// Digits of a size, leading zeros included: as many as 64 bits have.
const SIZE_DIGITS_MAX: u8 = 16;

/// Bytes of chunk extensions in one body. Nobody uses them; hyper's own limit.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// Blanks behind the size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// Field lines, and the empty line that ends all.
    Trailers,
    End,
}

/// What the bytes so far yield.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Some of the body, never empty.
    Data(Bytes),
    /// Nothing without more bytes.
    More,
    /// The body is complete; what is left in the buffer does not belong to it.
    End,
}

/// A decoder of one body.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// Of the size, while it is read; then of the chunk's data.
    left: u64,
    digits: u8,
    extension_bytes: usize,
    /// Bytes of the trailers in which their end was searched for in vain.
    scanned: usize,
}

impl Chunks {
    pub(crate) const fn new() -> Self {
        Self { state: State::Size, left: 0, digits: 0, extension_bytes: 0, scanned: 0 }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// Takes what it can from the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        self.skip(buffer)?;
        if self.state == State::End {
            return Ok(Piece::End);
        }
        if self.state != State::Data || buffer.is_empty() {
            return Ok(Piece::More);
        }
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let data = buffer.split_to(count).freeze();
        self.left -= count as u64;
        if self.left == 0 {
            self.state = State::DataCr;
            // The end may be here already, and so be known with the last piece. A fault found now
            // is found again by the next call, which has to report it: states do not move on.
            let _ = self.skip(buffer);
        }
        Ok(Piece::Data(data))
    }

    /// Skips what is no data.
    fn skip(&mut self, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let mut at = 0;
        let stepped = loop {
            if matches!(self.state, State::Data | State::Trailers | State::End) {
                break Ok(());
            }
            let Some(&byte) = buffer.get(at) else { break Ok(()) };
            if let Err(fault) = self.step(byte) {
                break Err(fault);
            }
            at += 1;
        };
        buffer.advance(at);
        stepped?;
        if self.state == State::Trailers { self.trailers(buffer) } else { Ok(()) }
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == SIZE_DIGITS_MAX {
                    return Err(Malformed);
                }
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                self.digits += 1;
                self.left = self.left << 4 | u64::from(digit);
                State::Size
            }
            (State::Size, _) if self.digits == 0 => return Err(Malformed),
            (State::Size | State::Blank, b' ' | b'\t') => State::Blank,
            (State::Size | State::Blank, b';') => State::Extension,
            (State::Size | State::Blank | State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\n') => return Err(Malformed),
            (State::Extension, _) if self.extension_bytes == EXTENSION_BYTES_MAX => {
                return Err(Malformed);
            }
            (State::Extension, _) => {
                self.extension_bytes += 1;
                State::Extension
            }
            (State::SizeLf, b'\n') => {
                self.digits = 0;
                if self.left == 0 { State::Trailers } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            _ => return Err(Malformed),
        };
        Ok(())
    }

    /// Checks the trailers and drops them, once they are complete.
    fn trailers(&mut self, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let end = match &buffer[..] {
            [] | b"\r" => return Ok(()),
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => return Err(Malformed),
            bytes => match find_end(bytes, self.scanned) {
                Some(end) if end <= RESPONSE_HEAD_BYTES_MAX => end,
                None if bytes.len() < RESPONSE_HEAD_BYTES_MAX => {
                    self.scanned = bytes.len();
                    return Ok(());
                }
                _ => return Err(Malformed),
            },
        };
        check_trailers(&buffer[..end])?;
        buffer.advance(end);
        self.state = State::End;
        Ok(())
    }
}

fn check_trailers(section: &[u8]) -> Result<(), Malformed> {
    for (at, _) in section.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        if at == 0 || section[at - 1] != b'\r' {
            return Err(Malformed);
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; RESPONSE_FIELDS_MAX];
    match httparse::parse_headers(section, &mut fields) {
        Ok(httparse::Status::Complete((length, _))) if length == section.len() => Ok(()),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
