//! Closed loops: a set number of clients, each sending its next request when the last one ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::client::{Client, Plan};
use super::options::Cancel;
use super::recorder::Recorder;
use super::report::Failure;
use crate::clock::now_ns;

/// Pause of a client that could not connect anywhere: long enough not to flood an address that
/// refuses, short against the restart of a server.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Names the site of the next request, given the time; `None` ends the loop.
pub(super) type NextSite = Box<dyn FnMut(u64) -> Option<usize>>;

/// A closed run, shared by its clients.
pub(super) struct ClosedRun {
    pub(super) plan: Rc<Plan>,
    pub(super) next_site: RefCell<NextSite>,
    pub(super) recorder: Rc<Recorder>,
    pub(super) cancel: Cancel,
}

impl ClosedRun {
    /// One client's loop; returns the client with its connection.
    pub(super) async fn work(self: Rc<Self>, mut client: Client) -> Client {
        let mut now = now_ns();
        while let Some(site) = self.next(now) {
            let sent_ns = now;
            let outcome = client.exchange(&self.plan, site, self.plan.next_uri()).await;
            now = now_ns();
            self.recorder.record(site, sent_ns, now, outcome);
            if outcome == Err(Failure::Connect) {
                tokio::time::sleep(CONNECT_PAUSE).await;
                now = now_ns();
            }
        }
        client
    }

    fn next(&self, now: u64) -> Option<usize> {
        if self.cancel.is_cancelled() {
            return None;
        }
        (self.next_site.borrow_mut())(now)
    }
}
