//! The origin behind the proxies: answers each request with the same 1 KiB from memory. It is no
//! server for others: it reads heads only, and trusts its proxies.
//!
//! Back of the envelope: one read and one write for each request, about 6 us, most of it the
//! kernel's.

use crate::children::{say, told};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};

/// The hidden sub-command.
pub(crate) const ORIGIN_PROCESS: &str = "origin-process";
/// Length of a body.
const BODY_BYTES: usize = 1_024;
/// Pause after an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Serves on a free port, which it says, until its input ends.
pub(crate) fn process() -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address: SocketAddr = listener.local_addr()?;
    let serve = move || -> io::Result<()> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async { serve(TcpListener::from_std(listener)?).await })
    };
    std::thread::Builder::new().name("origin".into()).spawn(serve)?;
    say(&address)?;
    // It is told nothing; the end of its input says that its parent is done.
    while told()?.is_some() {}
    Ok(())
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    let response = Rc::new(response());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::task::spawn_local(answer(stream, Rc::clone(&response)));
    }
}

/// The head is as long as those of usual servers.
fn response() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\n\
         Content-Type: text/html\r\nContent-Length: {BODY_BYTES}\r\n\
         Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"6560a0e0-400\"\r\nAccept-Ranges: bytes\r\n\r\n"
    );
    [head.as_bytes(), &[b'x'; BODY_BYTES]].concat()
}

/// Answers each head that ends a read; proxies send the next one only after the answer.
async fn answer(mut stream: TcpStream, response: Rc<Vec<u8>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(8_192);
    while stream.read_buf(&mut buffer).await? > 0 {
        if buffer.ends_with(b"\r\n\r\n") {
            buffer.clear();
            stream.write_all(&response).await?;
        }
    }
    Ok(())
}
