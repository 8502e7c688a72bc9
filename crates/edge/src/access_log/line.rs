//! One request as a line of the log. Pure.
//!
//! Text is the combined log format, then our own fields as `name=value`:
//!
//! ```text
//! 192.0.2.7 - - [21/Nov/2026:13:55:36 +0000] "GET /x HTTP/1.1" 200 1024 "referer" "agent"
//!   host="a.example" site=one node=n1 retries=0 first_byte_us=812 duration_us=1004 bytes_in=0
//!   over=plain request_id=... trace_id=... reason=- class=- cache=-
//! ```
//!
//! JSON is one object with the same fields.
//!
//! Nothing that a client sends can end a line or leave its place in it: in quotes, whatever is
//! not a plain character, and `"` and `\`, is written as `\xHH`.

use http::{Method, Uri, Version};
use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format, and our own fields behind it.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A longer value from a client is cut here: it is as long as the longest target by default.
const VALUE_BYTES_MAX: usize = 8 * 1024;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What a line says.
pub(crate) struct Line<'a> {
    /// When the request's head was complete, since 1970.
    pub(crate) at: Duration,
    pub(crate) client: IpAddr,
    pub(crate) site: Option<&'a str>,
    /// Its admission class, where the site has some.
    pub(crate) class: Option<&'a str>,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a Uri,
    pub(crate) version: Version,
    pub(crate) status: u16,
    /// Bytes of the response's body.
    pub(crate) bytes: u64,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    pub(crate) duration: Duration,
    /// From the request's head to that of the response.
    pub(crate) first_byte: Option<Duration>,
    pub(crate) node: Option<&'a str>,
    pub(crate) retries: u32,
    /// What the cache did, where the site has one.
    pub(crate) cache: Option<&'static str>,
    pub(crate) request_id: Option<&'a [u8]>,
    pub(crate) trace_id: Option<&'a [u8]>,
    pub(crate) is_tls: bool,
    pub(crate) agent: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    /// Why the edge answered itself, or cut the response.
    pub(crate) reason: Option<&'static str>,
}

impl Line<'_> {
    /// Appends the line with its end.
    pub(crate) fn write(&self, format: LogFormat, to: &mut Vec<u8>) {
        match format {
            LogFormat::Text => self.text(to),
            LogFormat::Json => self.json(to),
        }
        to.push(b'\n');
    }

    fn text(&self, to: &mut Vec<u8>) {
        let Date { year, month, day, hour, minute, second } = Date::of(self.at);
        let month = MONTHS[month as usize - 1];
        // A Vec takes everything.
        let _ = write!(
            to,
            "{} - - [{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000] \"",
            self.client
        );
        plain(to, self.method.as_str().as_bytes());
        to.push(b' ');
        plain(to, target(self.target).as_bytes());
        let _ = write!(to, " {:?}\" {} {} ", self.version, self.status, self.bytes);
        for value in [self.referer, self.agent] {
            quoted(to, value);
            to.push(b' ');
        }
        to.extend_from_slice(b"host=");
        quoted(to, self.host);
        to.extend_from_slice(b" site=");
        plain(to, self.site.unwrap_or("-").as_bytes());
        to.extend_from_slice(b" node=");
        plain(to, self.node.unwrap_or("-").as_bytes());
        let _ = write!(to, " retries={} first_byte_us=", self.retries);
        match self.first_byte {
            Some(time) => drop(write!(to, "{}", time.as_micros())),
            None => to.push(b'-'),
        }
        let _ = write!(
            to,
            " duration_us={} bytes_in={} over={}",
            self.duration.as_micros(),
            self.bytes_in,
            self.over()
        );
        for (name, value) in [(" request_id=", self.request_id), (" trace_id=", self.trace_id)] {
            to.extend_from_slice(name.as_bytes());
            plain(to, value.unwrap_or(b"-"));
        }
        let _ = write!(to, " reason={} class=", self.reason.unwrap_or("-"));
        plain(to, self.class.unwrap_or("-").as_bytes());
        let _ = write!(to, " cache={}", self.cache.unwrap_or("-"));
    }

    fn json(&self, to: &mut Vec<u8>) {
        let Date { year, month, day, hour, minute, second } = Date::of(self.at);
        let ms = self.at.subsec_millis();
        let _ = write!(
            to,
            "{{\"time\":\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z\
             \",\"client\":\"{}\",\"site\":",
            self.client
        );
        json_text(to, self.site.map(str::as_bytes));
        let target = target(self.target);
        let texts = [
            ("host", self.host),
            ("method", Some(self.method.as_str().as_bytes())),
            ("target", Some(target.as_bytes())),
            ("referer", self.referer),
            ("agent", self.agent),
            ("node", self.node.map(str::as_bytes)),
            ("request_id", self.request_id),
            ("trace_id", self.trace_id),
            ("reason", self.reason.map(str::as_bytes)),
            ("class", self.class.map(str::as_bytes)),
            ("cache", self.cache.map(str::as_bytes)),
        ];
        for (name, value) in texts {
            let _ = write!(to, ",\"{name}\":");
            json_text(to, value);
        }
        let _ = write!(
            to,
            ",\"version\":\"{:?}\",\"over\":\"{}\",\"status\":{},\"bytes\":{},\"bytes_in\":{},\
             \"retries\":{},\"duration_us\":{},\"first_byte_us\":",
            self.version,
            self.over(),
            self.status,
            self.bytes,
            self.bytes_in,
            self.retries,
            self.duration.as_micros()
        );
        match self.first_byte {
            Some(time) => drop(write!(to, "{}", time.as_micros())),
            None => to.extend_from_slice(b"null"),
        }
        to.push(b'}');
    }

    fn over(&self) -> &'static str {
        if self.is_tls { "tls" } else { "plain" }
    }
}

/// The line that stands for lines which are missing.
pub(crate) fn gap(format: LogFormat, count: u64, to: &mut Vec<u8>) {
    // A Vec takes everything.
    let _ = match format {
        LogFormat::Text => writeln!(to, "# {count} lines were dropped: the log was too slow"),
        LogFormat::Json => writeln!(to, "{{\"dropped_lines\":{count}}}"),
    };
}

/// As the client sent it.
fn target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(origin) if uri.authority().is_none() => origin.as_str().into(),
        _ => uri.to_string().into(),
    }
}

/// A value in quotes, `-` for none.
fn quoted(to: &mut Vec<u8>, value: Option<&[u8]>) {
    to.push(b'"');
    match value {
        Some(value) => escaped(to, value, |byte| matches!(byte, b' '..=b'~')),
        None => to.push(b'-'),
    }
    to.push(b'"');
}

/// A value without quotes, in which a space would end it.
fn plain(to: &mut Vec<u8>, value: &[u8]) {
    escaped(to, value, |byte| byte.is_ascii_graphic());
}

fn escaped(to: &mut Vec<u8>, value: &[u8], keeps: fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let kept = &value[..value.len().min(VALUE_BYTES_MAX)];
    to.reserve(kept.len());
    for &byte in kept {
        if keeps(byte) && !matches!(byte, b'"' | b'\\') {
            to.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
            to.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
        }
    }
    if kept.len() < value.len() {
        to.extend_from_slice(b"...");
    }
}

/// A JSON string, `null` for none. What is not UTF-8 becomes U+FFFD.
fn json_text(to: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else { return to.extend_from_slice(b"null") };
    let kept = &value[..value.len().min(VALUE_BYTES_MAX)];
    to.push(b'"');
    for character in String::from_utf8_lossy(kept).chars() {
        match character {
            '"' => to.extend_from_slice(b"\\\""),
            '\\' => to.extend_from_slice(b"\\\\"),
            // Some readers take these two for line ends.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let _ = write!(to, "\\u{:04x}", u32::from(control));
            }
            other => to.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if kept.len() < value.len() {
        to.extend_from_slice(b"...");
    }
    to.push(b'"');
}

/// A moment in the calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Date {
    /// Days are counted in cycles of 400 years that begin on the first of March, so that leap
    /// days come last (Hinnant, "chrono-compatible low-level date algorithms").
    fn of(since_1970: Duration) -> Self {
        const DAYS_FROM_0000_03_01: u64 = 719_468;
        const DAYS_OF_CYCLE: u64 = 146_097;
        let seconds = since_1970.as_secs();
        let days = seconds / 86_400 + DAYS_FROM_0000_03_01;
        let (cycle, of_cycle) = (days / DAYS_OF_CYCLE, days % DAYS_OF_CYCLE);
        let year_of_cycle =
            (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
        let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: cycle * 400 + year_of_cycle + u64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            hour: seconds / 3_600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
