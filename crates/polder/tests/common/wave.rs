//! Load that goes from site to site, so that nodes move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Which site clients send to now.
#[derive(Debug)]
pub struct Wave {
    sites: Vec<String>,
    now: AtomicUsize,
    flips: AtomicBool,
    stop: AtomicBool,
}

/// The thread that drives a wave; ends when dropped.
pub struct Driver {
    wave: Arc<Wave>,
    thread: Option<JoinHandle<()>>,
}

impl Wave {
    /// One site for ever.
    pub fn still(site: &str) -> Arc<Self> {
        Self::new(&[site])
    }

    fn new(sites: &[&str]) -> Arc<Self> {
        let sites = sites.iter().map(|site| (*site).to_owned()).collect();
        Arc::new(Self {
            sites,
            now: AtomicUsize::new(0),
            flips: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        })
    }

    /// Each site in turn for `period`.
    pub fn over(sites: &[&str], period: Duration) -> (Arc<Self>, Driver) {
        let wave = Self::new(sites);
        let driven = Arc::clone(&wave);
        let drive = move || {
            while !driven.stop.load(Ordering::Relaxed) {
                std::thread::sleep(period);
                if driven.flips.load(Ordering::Relaxed) {
                    driven.now.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let driver = Driver { wave: Arc::clone(&wave), thread: Some(std::thread::spawn(drive)) };
        (wave, driver)
    }

    /// Stands still (false) or goes on.
    pub fn set_flips(&self, flips: bool) {
        self.flips.store(flips, Ordering::Relaxed);
    }

    /// The host that requests carry, and the site that must answer.
    pub fn now(&self) -> (String, &str) {
        let site = &self.sites[self.now.load(Ordering::Relaxed) % self.sites.len()];
        (format!("{site}.test"), site)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.wave.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
