//! One HTTP/1.1 request on a connection of its own, blocking: to ask for something, not for load.

use anyhow::{Context as _, bail};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest answer that is read: far above the largest document of a figure.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// Further header lines, `Name: value`.
    pub(crate) headers: &'a [String],
    /// How long any step may take.
    pub(crate) patience: Duration,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// All fields, their names in lower case.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The first field of that name, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Asks and waits for the whole answer.
pub(crate) fn ask(question: &Question<'_>) -> anyhow::Result<Answer> {
    let Question { address, method, host, path, headers, patience } = *question;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for line in headers {
        text.extend([line.as_str(), "\r\n"]);
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    let answer = parse(&bytes).with_context(|| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        format!("{method} {path} at {address}: no answer of HTTP/1.1: {shown:?}")
    })?;
    let length = answer.header("content-length").and_then(|text| text.parse::<usize>().ok());
    if length.is_some_and(|length| length != answer.body.len()) && method != "HEAD" {
        bail!("{method} {path} at {address}: only {} bytes of the body", answer.body.len());
    }
    Ok(answer)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers = lines.map(field).collect::<Option<_>>()?;
    Some(Answer { status, headers, body: bytes[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_are_read() {
        let answer =
            parse(b"HTTP/1.1 203 Fine\r\nX-A: 1\r\nCache-Status: p; hit\r\n\r\nab").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (203, &b"ab"[..]));
        assert_eq!(answer.header("cache-status"), Some("p; hit"));
        assert_eq!(answer.header("x-b"), None);
        for wrong in [&b"HTTP/1.1 200 OK\r\n"[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.1 2\r\n\r\n", b""] {
            assert_eq!(parse(wrong), None);
        }
    }

    #[test]
    fn an_answer_that_breaks_off_is_none() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 1_024];
            let length = stream.read(&mut bytes).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab").unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        });
        let question = Question {
            address,
            method: "PURGE",
            host: "a.test",
            path: "/p",
            headers: &["xkey: t1".to_owned()],
            patience: Duration::from_secs(20),
        };
        let error = ask(&question).unwrap_err().to_string();
        assert!(error.contains("only 2 bytes"), "{error}");
        let text = server.join().unwrap();
        assert!(text.starts_with("PURGE /p HTTP/1.1\r\nHost: a.test\r\n"), "{text}");
        assert!(text.contains("\r\nxkey: t1\r\n"), "{text}");
    }
}
