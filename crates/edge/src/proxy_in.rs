//! Reading the header of the PROXY protocol from a connection that must begin with one.
//!
//! Bytes are looked at before they are taken, so that none of what follows the header is: TLS and
//! HTTP find the socket as if there had been no header.

use crate::proxy_header::{Ends, Fault, parse};
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What is looked at at once; headers without entries have 107 bytes at most.
const LOOK_BYTES: usize = 512;

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoHeader {
    /// The proxy has closed before its first byte, as checks do.
    #[error("the connection ended without a byte")]
    Ended,
    /// What came is no header.
    #[error("{0}")]
    Bad(&'static str),
    /// It did not come in time.
    #[error("no complete header came in time")]
    Late,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broke(#[from] io::Error),
}

/// Takes the header off; the ends of the connection that the proxy speaks for, if it does for one.
pub(crate) async fn read_header(
    stream: &mut TcpStream,
    limit: Duration,
) -> Result<Option<Ends>, NoHeader> {
    tokio::time::timeout(limit, take(stream)).await.map_err(|_| NoHeader::Late)?
}

async fn take(stream: &mut TcpStream) -> Result<Option<Ends>, NoHeader> {
    let mut header = Vec::new();
    loop {
        let mut chunk = [0; LOOK_BYTES];
        let count = stream.peek(&mut chunk).await?;
        if count == 0 && header.is_empty() {
            return Err(NoHeader::Ended);
        }
        if count == 0 {
            return Err(NoHeader::Bad("it is cut short"));
        }
        let before = header.len();
        header.extend_from_slice(&chunk[..count]);
        let parsed = match parse(&header) {
            Ok(parsed) => Some(parsed),
            // Then everything so far belongs to it.
            Err(Fault::Incomplete) => None,
            Err(Fault::Bad(why)) => return Err(NoHeader::Bad(why)),
        };
        let taken = parsed.map_or(header.len(), |parsed| parsed.length) - before;
        stream.read_exact(&mut chunk[..taken]).await?;
        if let Some(parsed) = parsed {
            return Ok(parsed.ends);
        }
    }
}
