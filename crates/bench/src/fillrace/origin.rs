//! The origin: pages by their paths, each with a version that is its data. It reads the version
//! when it is asked, renders, and answers with what it had read, fresh for an hour and tagged.

use super::plan::RENDER;
use anyhow::Context as _;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// The longest head of a request; more than any cache sends.
const HEAD_BYTES_MAX: usize = 16_384;
/// Pause after an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// One page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Its data.
    pub(super) version: u64,
    /// How often it was read and answered.
    pub(super) read: u64,
    pub(super) answered: u64,
}

/// All pages; a page is there with its first mention.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages(Arc<Mutex<HashMap<String, Page>>>);

impl Pages {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        self.0.lock().expect("nobody panics while holding the pages")
    }

    pub(super) fn page(&self, path: &str) -> Page {
        self.all().get(path).copied().unwrap_or_default()
    }

    /// Changes its data; the new version.
    pub(super) fn commit(&self, path: &str) -> u64 {
        let mut all = self.all();
        let page = all.entry(path.to_owned()).or_default();
        page.version += 1;
        page.version
    }

    fn read(&self, path: &str) -> u64 {
        let mut all = self.all();
        let page = all.entry(path.to_owned()).or_default();
        page.read += 1;
        page.version
    }

    fn answered(&self, path: &str) {
        self.all().entry(path.to_owned()).or_default().answered += 1;
    }
}

/// The tag of a page: its path without the slashes.
pub(super) fn tag(path: &str) -> String {
    path.trim_matches('/').replace('/', "-")
}

/// Serves on a free port of the loopback interface, in a thread that ends with this process.
pub(super) fn serve(pages: Pages) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no port")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let run = move || -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                tokio::spawn(connection(stream, pages.clone()));
            }
        })
    };
    std::thread::Builder::new().name("origin".into()).spawn(run)?;
    Ok(address)
}

/// Answers requests without bodies, one after the other; proxies send no more.
async fn connection(mut stream: TcpStream, pages: Pages) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await? > 0 {
        if buffer.ends_with(b"\r\n\r\n") {
            let path = path_of(&buffer).map(str::to_owned);
            buffer.clear();
            let Some(path) = path else { return Ok(()) };
            let version = pages.read(&path);
            tokio::time::sleep(RENDER).await;
            pages.answered(&path);
            stream.write_all(response(&path, version).as_bytes()).await?;
        } else if buffer.len() > HEAD_BYTES_MAX {
            return Ok(());
        }
    }
    Ok(())
}

fn path_of(head: &[u8]) -> Option<&str> {
    std::str::from_utf8(head).ok()?.split(' ').nth(1)
}

/// Tagged in the words of both caches.
fn response(path: &str, version: u64) -> String {
    let (body, tag) = (version.to_string(), tag(path));
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Cache-Control: max-age=3600\r\nxkey: {tag}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_answers_with_what_was_read_and_its_tag() {
        let pages = Pages::default();
        assert_eq!(pages.commit("/ours/7"), 1);
        assert_eq!((pages.read("/ours/7"), pages.read("/ours/8")), (1, 0));
        pages.answered("/ours/7");
        assert_eq!(pages.page("/ours/7"), Page { version: 1, read: 1, answered: 1 });
        let text = response("/ours/7", 1);
        assert!(text.contains("\r\nxkey: ours-7\r\n") && text.ends_with("\r\n\r\n1"), "{text}");
        assert_eq!(path_of(b"GET /ours/7 HTTP/1.1\r\n\r\n"), Some("/ours/7"));
        assert_eq!(path_of(b"\xff /"), None);
    }
}
