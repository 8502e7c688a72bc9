//! What changes while pages are asked for: rows of the database, or a tag that no page carries.

use super::mixes::{PAGES, page};
use crate::ask::{Question, ask};
use crate::cores::pin_this_thread;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use writers::{Client, Ended};

/// A row is changed so often.
const UPDATE_EVERY: Duration = Duration::from_secs(1);
/// The tag that no page carries is advanced so often.
const TICK_EVERY: Duration = Duration::from_millis(1);
const TICK_TAG: &str = "nothing-carries-this";
/// With 200 threads on its core the application takes half a second for an update.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether it shall end.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// What changes meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// One of the pages each second: its row in the database, between begin and end.
    Updates,
    /// A tag of nothing, 1,000 times a second.
    Ticks,
}

/// A thread that changes something until it is ended.
pub(crate) struct Changes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<u64>>,
    began: Instant,
}

impl Changes {
    /// Begins. `tables` are the writers' sockets of all sites with a version table.
    pub(crate) fn begin(
        kind: Kind,
        core: usize,
        application: SocketAddr,
        tables: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let connect = |path: &PathBuf| {
            Client::connect(path, PATIENCE).with_context(|| format!("{}", path.display()))
        };
        let mut clients = tables.iter().map(connect).collect::<anyhow::Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let change = move || -> anyhow::Result<u64> {
            pin_this_thread(core)?;
            let every = if kind == Kind::Updates { UPDATE_EVERY } else { TICK_EVERY };
            let (mut count, mut next) = (0, Instant::now());
            while !told.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now < next {
                    sleep((next - now).min(STOP_LOOK));
                    continue;
                }
                // Behind a stall those that were missed follow one another.
                next += every;
                match kind {
                    Kind::Updates => update(application, &mut clients, count)?,
                    Kind::Ticks => {
                        for client in &mut clients {
                            client.invalidate(&[TICK_TAG])?;
                        }
                    }
                }
                count += 1;
            }
            Ok(count)
        };
        let thread = std::thread::Builder::new().name("changes".into()).spawn(change)?;
        Ok(Self { stop, thread, began: Instant::now() })
    }

    /// Ends; how often it changed something, per second.
    pub(crate) fn end(self) -> anyhow::Result<f64> {
        let seconds = self.began.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let count = match self.thread.join() {
            Ok(count) => count?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(count as f64 / seconds)
    }
}

/// Changes the next page: steps through all of them, each one far from the one before. The first
/// table is that of the row under measure: its page is pending no longer than its own update takes.
fn update(application: SocketAddr, clients: &mut [Client], count: u64) -> anyhow::Result<()> {
    let id = 1 + usize::try_from(count)? * 617 % PAGES;
    let tag = [format!("page-{id}")];
    let begin = |client: &mut Client| client.begin(&tag);
    let tokens: Result<Vec<_>, _> = clients.iter_mut().rev().map(begin).collect();
    let tokens = tokens?;
    let path = page(id).replace("page.php", "update.php");
    let question = Question {
        address: application,
        method: "POST",
        host: "localhost",
        path: &path,
        headers: &["Content-Length: 0".to_owned()],
        patience: PATIENCE,
    };
    let status = ask(&question)?.status;
    ensure!(status == 204, "an update of page {id} was answered {status}");
    for (client, token) in clients.iter_mut().zip(tokens.into_iter().rev()) {
        ensure!(client.end(token)? == Ended::Now, "a version table was lost");
    }
    Ok(())
}

/// Where a site's writers are heard, in the folder of its pool's control socket.
pub(crate) fn writers_socket(control: &Path, site: &str) -> PathBuf {
    control.with_file_name(format!("tell-{site}.sock"))
}
