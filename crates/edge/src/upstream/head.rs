//! The head of a response, parsed from a buffer. No socket, no clock.
//!
//! httparse is the parser that hyper uses, so that both siblings split heads alike. Values are
//! slices of the buffer.

use super::body::Decoder;
use super::chunks::Chunks;
use super::{HeadFault, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};
use crate::forward::ResponseFields;
use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode, Version};
use std::mem::MaybeUninit;

/// The longest body: beyond it hyper's own numbers have another meaning.
const LENGTH_MAX: u64 = u64::MAX - 2;

/// What a peer sent makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub(crate) struct Malformed;

impl From<Malformed> for HeadFault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// What the bytes so far yield.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing without more bytes.
    More,
    /// An interim response (1xx).
    Interim(StatusCode),
    /// The response.
    Final(Answer),
}

/// A response's head.
#[derive(Debug)]
pub(crate) struct Answer {
    /// As the client gets it.
    pub(crate) parts: Parts,
    pub(crate) decoder: Decoder,
    /// Whether the connection can serve another request after it.
    pub(crate) keep_alive: bool,
}

/// A status line, and where the fields end.
struct Lines {
    length: usize,
    status: StatusCode,
    /// A reason phrase other than the usual one.
    reason: Option<Bytes>,
    version: Version,
}

/// The places of one field: its name, and the start and end of its value.
#[derive(Clone, Copy, Debug)]
struct Span {
    name: (u32, u32),
    value: (u32, u32),
}

/// Reads one head, and says how its body, if it has one, ends.
#[derive(Debug, Default)]
pub(crate) struct HeadParser {
    /// Bytes of a head that is known to be incomplete: it is not parsed again before its end is
    /// there, so that a head that trickles in costs no more than a whole one.
    scanned: usize,
    /// Where the fields lie. Kept from head to head, because most have as many.
    spans: Vec<Span>,
}

impl HeadParser {
    /// Takes a head from the buffer, if it is complete. `bodiless`: it answers a HEAD. `offered`:
    /// protocols that it may switch to.
    pub(crate) fn next(
        &mut self,
        buffer: &mut BytesMut,
        bodiless: bool,
        offered: Option<&HeaderValue>,
    ) -> Result<Step, HeadFault> {
        if buffer.is_empty() || (self.scanned > 0 && find_end(buffer, self.scanned).is_none()) {
            return self.wait(buffer.len());
        }
        let Some(lines) = parse(buffer, &mut self.spans)? else { return self.wait(buffer.len()) };
        if lines.length > RESPONSE_HEAD_BYTES_MAX {
            return Err(HeadFault::Malformed);
        }
        self.scanned = 0;
        let head = buffer.split_to(lines.length).freeze();
        if lines.status.is_informational() && lines.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Step::Interim(lines.status));
        }
        answer(&head, lines, &self.spans, bodiless, offered).map(Step::Final)
    }

    fn wait(&mut self, have_bytes: usize) -> Result<Step, HeadFault> {
        if have_bytes >= RESPONSE_HEAD_BYTES_MAX {
            return Err(HeadFault::Malformed);
        }
        self.scanned = have_bytes;
        Ok(Step::More)
    }
}

/// The place behind the first empty line, of which no part before `scanned` is the end.
pub(crate) fn find_end(bytes: &[u8], scanned: usize) -> Option<usize> {
    // The line end before the empty line may have been scanned already.
    let mut from = scanned.saturating_sub(2);
    loop {
        let at = from + bytes.get(from..)?.iter().position(|&byte| byte == b'\n')?;
        match &bytes[at + 1..] {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            _ => from = at + 1,
        }
    }
}

fn parse(buffer: &[u8], spans: &mut Vec<Span>) -> Result<Option<Lines>, Malformed> {
    let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; RESPONSE_FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        buffer,
        &mut slots,
    );
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed)?;
    let reason = response.reason.filter(|&reason| Some(reason) != status.canonical_reason());
    let reason = reason.map(|reason| Bytes::copy_from_slice(reason.as_bytes()));
    let version = if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let place = |part: &[u8]| {
        let start = part.as_ptr().addr() - buffer.as_ptr().addr();
        let offset = |at: usize| u32::try_from(at).map_err(|_| Malformed);
        Ok((offset(start)?, offset(start + part.len())?))
    };
    spans.clear();
    for field in response.headers.iter() {
        spans.push(Span { name: place(field.name.as_bytes())?, value: place(field.value)? });
    }
    Ok(Some(Lines { length, status, reason, version }))
}

fn answer(
    head: &Bytes,
    lines: Lines,
    spans: &[Span],
    bodiless: bool,
    offered: Option<&HeaderValue>,
) -> Result<Answer, HeadFault> {
    let Lines { status, reason, version, .. } = lines;
    let range = |(start, end): (u32, u32)| start as usize..end as usize;
    let mut fields = ResponseFields::new(spans.len());
    for span in spans {
        let name = HeaderName::from_bytes(&head[range(span.name)]).map_err(|_| Malformed)?;
        let value = head.slice(range(span.value));
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Malformed)?;
        fields.add(name, value)?;
    }
    let modern = version == Version::HTTP_11;
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let empty =
        bodiless || switches || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let decoder = match fields.length {
        _ if empty => Decoder::End,
        // HTTP/1.0 has no transfer codings.
        _ if fields.chunked && !modern => return Err(HeadFault::Malformed),
        _ if fields.chunked => Decoder::Chunked(Chunks::new()),
        Some(bytes) if bytes > LENGTH_MAX => return Err(HeadFault::Malformed),
        Some(bytes) => Decoder::of_length(bytes),
        None => Decoder::Close,
    };
    let keeps = if fields.closes { false } else { modern || fields.keeps };
    let keep_alive = keeps && !switches && !matches!(decoder, Decoder::Close);
    let mut parts = Response::new(()).into_parts().0;
    parts.status = status;
    parts.version = version;
    parts.headers = fields.finish(status, offered)?;
    if let Some(reason) = reason {
        let phrase = hyper::ext::ReasonPhrase::try_from(reason).map_err(|_| Malformed)?;
        parts.extensions.insert(phrase);
    }
    Ok(Answer { parts, decoder, keep_alive })
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
