//! One line of each format. Pure: any bytes give a record or say what is wrong.

use super::format::Format;
use super::moment;
use super::records::{Record, What};
use http::uri::PathAndQuery;

/// Longest URL that is sent: what servers take by default.
const URL_BYTES_MAX: usize = 4_096;
/// Most columns of a line: more sites than any pool has.
const COLUMNS_MAX: usize = 256;
/// More requests than any interval has; keeps sums exact.
const COUNT_MAX: f64 = 1e12;

const MINUTE_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

type Read = Result<Record, &'static str>;

/// Reads lines (or counts, or binary records) of one format. Pure: any bytes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineReader {
    format: Format,
    columns: Option<Columns>,
    interval_ns: u64,
}

impl LineReader {
    /// `interval_ns` is that of formats which do not have one.
    #[must_use]
    pub fn new(format: Format, interval_ns: u64) -> Self {
        Self { format, columns: None, interval_ns }
    }

    /// Learns the columns from the first line of a format that has a header.
    ///
    /// # Errors
    ///
    /// What is missing, in words.
    pub fn read_header(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if self.format == Format::Requests {
            let header = String::from_utf8_lossy(line);
            self.columns = Columns::of(header.trim_end_matches('\r'));
            self.columns.ok_or("the header has no columns time and url")?;
        }
        Ok(())
    }

    /// One piece, without what ends it; none for an empty line. `number` is its place, from 0, by
    /// which counts have their time.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub fn read(&self, piece: &[u8], number: u64) -> Result<Option<Record>, &'static str> {
        if self.format == Format::Binary {
            let record = piece.first_chunk().filter(|record| record.len() == piece.len());
            return binary(record.ok_or("cut off within a record")?).map(Some);
        }
        // Logs have agents in any encoding; what is read of a line is plain ASCII.
        let line = String::from_utf8_lossy(piece);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            return Ok(None);
        }
        let record = match self.format {
            Format::Minutes => minutes(line),
            Format::Rates => rates(line, self.interval_ns),
            Format::Counts => one_count(line, number, self.interval_ns),
            Format::Tokens => tokens(line),
            Format::Log => log(line),
            Format::Requests => match self.columns {
                Some(columns) => request(line, columns),
                None => Err("the header has no columns time and url"),
            },
            Format::Binary => Err("not a binary record"),
            Format::Functions | Format::Ends => Err("not in the order of time by lines"),
        };
        record.map(Some)
    }
}

/// `1998-04-30 21:30,2,49472`.
fn minutes(line: &str) -> Read {
    let mut fields = line.split(',');
    let at_ns = fields.next().and_then(moment::dashed).ok_or("no time as 1998-04-30 21:30")?;
    let count = fields.next().and_then(count).ok_or("no number of requests")?;
    let bytes = fields.next().and_then(count_of_bytes).ok_or("no number of bytes")?;
    none_left(fields.next())?;
    let size_bytes = if count > 0.0 { Some((bytes / count) as u64) } else { None };
    Ok(Record { at_ns, what: What::Rates { width_ns: MINUTE_NS, counts: vec![count], size_bytes } })
}

/// `12.5,3,4`: a time in seconds, and the requests of each column.
fn rates(line: &str, width_ns: u64) -> Read {
    let mut fields = line.split(',');
    let at_ns = fields.next().and_then(moment::plain_seconds).ok_or("no time in seconds")?;
    let mut counts = Vec::new();
    for field in fields.by_ref().take(COLUMNS_MAX) {
        counts.push(count(field).ok_or("no number of requests")?);
    }
    none_left(fields.next())?;
    if counts.is_empty() {
        return Err("no column with requests");
    }
    Ok(Record { at_ns, what: What::Rates { width_ns, counts, size_bytes: None } })
}

/// One count; `number` says which it is, from 0.
fn one_count(word: &str, number: u64, width_ns: u64) -> Read {
    let count = count(word).ok_or("no number of requests")?;
    let at_ns = number.checked_mul(width_ns).and_then(|at_ns| i64::try_from(at_ns).ok());
    let at_ns = at_ns.ok_or("beyond the end of time")?;
    Ok(Record { at_ns, what: What::Rates { width_ns, counts: vec![count], size_bytes: None } })
}

/// `2023-11-16 18:15:46.6805900,374,44`.
fn tokens(line: &str) -> Read {
    let mut fields = line.split(',');
    let time = fields.next().and_then(moment::dashed).ok_or("no time as 2023-11-16 18:15:46.68")?;
    let context = fields.next().and_then(|field| field.parse::<u32>().ok());
    context.ok_or("no number of context tokens")?;
    let generated = fields.next().and_then(|field| field.parse::<u32>().ok());
    let generated = generated.ok_or("no number of generated tokens")?;
    none_left(fields.next())?;
    let what =
        What::Request { url: None, size_bytes: Some(u64::from(generated)), resolution_ns: 1 };
    Ok(Record { at_ns: time, what })
}

/// Where the columns of a table of requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    time: usize,
    url: usize,
    bytes: Option<usize>,
}

impl Columns {
    /// From a header of tab-separated names.
    pub(super) fn of(header: &str) -> Option<Self> {
        let place = |name: &str| {
            header.split('\t').take(COLUMNS_MAX).position(|field| field.eq_ignore_ascii_case(name))
        };
        Some(Self { time: place("time")?, url: place("url")?, bytes: place("bytes") })
    }
}

/// A line of a table of requests.
fn request(line: &str, columns: Columns) -> Read {
    let fields: Vec<&str> = line.split('\t').take(COLUMNS_MAX).collect();
    let field = |place: usize| fields.get(place).copied();
    let at_ns = field(columns.time).and_then(moment::plain_seconds).ok_or("no time in seconds")?;
    let url = field(columns.url).and_then(url_of).ok_or("no URL")?;
    let size_bytes = columns.bytes.and_then(field).and_then(|bytes| bytes.parse().ok());
    let has_fraction = field(columns.time).is_some_and(|time| time.contains('.'));
    let resolution_ns = if has_fraction { 1 } else { SECOND_NS };
    Ok(Record { at_ns, what: What::Request { url: Some(url), size_bytes, resolution_ns } })
}

/// `HOST ID USER [TIME] "METHOD URL VERSION" STATUS BYTES` with or without what follows.
pub(super) fn log(line: &str) -> Read {
    let (_, rest) = line.split_once(" [").ok_or("no time in brackets")?;
    let (time, rest) = rest.split_once("] \"").ok_or("no request behind the time")?;
    let at_ns = moment::logged(time).ok_or("no time as 17/May/2015:10:05:03 +0000")?;
    // A quote within the request is written with a backslash before it.
    let (request, rest) = rest.split_once("\" ").ok_or("the request does not end")?;
    let url = request.split(' ').nth(1).and_then(url_of).ok_or("no URL in the request")?;
    let mut rest = rest.split(' ');
    let status: Option<u16> = rest.next().and_then(|status| status.parse().ok());
    status.ok_or("no status")?;
    // A dash stands for a response without a body.
    let size_bytes = rest.next().and_then(|bytes| bytes.parse().ok());
    let what = What::Request { url: Some(url), size_bytes, resolution_ns: SECOND_NS };
    Ok(Record { at_ns, what })
}

/// Big-endian: time, client, object, size (32 bits each); method, status, type, server (8 each).
fn binary(record: &[u8; BINARY_BYTES]) -> Read {
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
    let (time, object, size) = (word(0), word(8), word(12));
    // All ones stand for a size that was not logged.
    let size_bytes = (size != u32::MAX).then_some(u64::from(size));
    let url = Some(format!("/object/{object}"));
    let at_ns = i64::from(time) * SECOND_NS as i64;
    Ok(Record { at_ns, what: What::Request { url, size_bytes, resolution_ns: SECOND_NS } })
}

/// Length of a binary record.
pub(super) const BINARY_BYTES: usize = 20;

fn none_left(field: Option<&str>) -> Result<(), &'static str> {
    if field.is_some() { Err("more columns than there should be") } else { Ok(()) }
}

fn count(text: &str) -> Option<f64> {
    count_of_bytes(text).filter(|count| *count <= COUNT_MAX)
}

fn count_of_bytes(text: &str) -> Option<f64> {
    let count: f64 = text.trim().parse().ok()?;
    (count.is_finite() && count >= 0.0).then_some(count)
}

/// The path and query of a URL, if a client may send it.
fn url_of(text: &str) -> Option<String> {
    let path = match text.find("://") {
        // In absolute form, as proxies get it.
        Some(place) if !text.starts_with('/') => {
            let rest = &text[place + 3..];
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => text,
    };
    let fits = path.starts_with('/') && path.len() <= URL_BYTES_MAX;
    // A fragment never leaves a client.
    let path = path.split('#').next().unwrap_or(path);
    let is_sent = path.is_ascii() && PathAndQuery::try_from(path).is_ok();
    (fits && is_sent).then(|| path.to_owned())
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
