//! Where a response's body ends (RFC 9112, 6.3). No socket, no clock.

use super::chunks::{Chunks, Piece};
use super::head::Malformed;
use bytes::BytesMut;

/// A decoder of one body.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// Complete.
    End,
    /// So many bytes are missing; never 0.
    Length(u64),
    Chunked(Chunks),
    /// It ends with the connection.
    Close,
}

impl Decoder {
    pub(crate) fn of_length(bytes: u64) -> Self {
        if bytes == 0 { Self::End } else { Self::Length(bytes) }
    }

    /// Takes what it can from the buffer, and never a byte behind the body.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        let piece = match self {
            Self::End => Piece::End,
            Self::Length(_) | Self::Close if buffer.is_empty() => Piece::More,
            Self::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                let data = buffer.split_to(count).freeze();
                *self = Self::of_length(*left - count as u64);
                Piece::Data(data)
            }
            Self::Chunked(chunks) => {
                let piece = chunks.next(buffer)?;
                if chunks.is_end() {
                    *self = Self::End;
                }
                piece
            }
            Self::Close => Piece::Data(buffer.split().freeze()),
        };
        Ok(piece)
    }

    /// The connection ended; whether the body did, too.
    pub(crate) fn finish(&mut self) -> bool {
        let complete = matches!(self, Self::End | Self::Close);
        if complete {
            *self = Self::End;
        }
        complete
    }

    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::End)
    }
}
