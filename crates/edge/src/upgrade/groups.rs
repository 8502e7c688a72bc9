//! The upgraded connections of one thread, by site and node: what ends them when their node has
//! left the site, or the edge stops.

use crate::face::Dispatcher;
use crate::live::Live;
use pool_model::{NodeId, SiteId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often nodes are looked after, as long as there are upgraded connections: a small part of
/// any `drain_max_ms` that a person sets.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes that are read at once. One buffer of this size serves all upgraded connections of a
/// thread: idle ones hold none.
const SCRATCH_BYTES: usize = 32 * 1024;

/// Upgraded connections to one server.
#[derive(Debug, Default)]
pub(crate) struct Group {
    open: Cell<usize>,
    /// When its node was first seen without the site.
    left_at: Cell<Option<Instant>>,
    /// They are to end.
    pub(crate) closing: Cell<bool>,
    pub(crate) closes: Notify,
}

impl Group {
    fn close(&self) {
        self.closing.set(true);
        self.closes.notify_waiters();
    }
}

/// One connection's part in its group.
pub(crate) struct Member {
    pub(crate) group: Rc<Group>,
    all: Rc<Tunnels>,
}

impl Member {
    pub(crate) fn scratch(&self) -> &RefCell<Vec<u8>> {
        &self.all.scratch
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.group.open.update(|open| open - 1);
        self.all.open.update(|open| open - 1);
        self.all.changed.notify_one();
    }
}

/// The upgraded connections of one thread.
pub(crate) struct Tunnels {
    groups: RefCell<HashMap<(SiteId, NodeId), Rc<Group>>>,
    open: Cell<usize>,
    /// One was opened or has ended.
    changed: Notify,
    scratch: RefCell<Vec<u8>>,
}

impl Tunnels {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            groups: RefCell::default(),
            open: Cell::new(0),
            changed: Notify::new(),
            scratch: RefCell::default(),
        })
    }

    /// Counts a connection in.
    pub(crate) fn join(self: &Rc<Self>, site: SiteId, node: NodeId) -> Member {
        self.scratch.borrow_mut().resize(SCRATCH_BYTES, 0);
        let group = Rc::clone(self.groups.borrow_mut().entry((site, node)).or_default());
        group.open.update(|open| open + 1);
        self.open.update(|open| open + 1);
        self.changed.notify_one();
        Member { group, all: Rc::clone(self) }
    }

    /// Ends all of them properly; ready when they have ended, or after `limit`.
    pub(crate) async fn close(&self, limit: Duration) {
        for group in self.groups.borrow().values() {
            group.close();
        }
        let ended = async {
            while self.open.get() > 0 {
                self.changed.notified().await;
            }
        };
        let _ = tokio::time::timeout(limit, ended).await;
    }

    /// Ends those whose node left its site `drain_max` ago.
    fn look(&self, has_left: impl Fn(SiteId, NodeId) -> bool, drain_max: Duration) {
        let now = Instant::now();
        self.groups.borrow_mut().retain(|&(site, node), group| {
            if !has_left(site, node) {
                group.left_at.set(None);
            } else {
                let since = group.left_at.get().unwrap_or(now);
                group.left_at.set(Some(since));
                if now.duration_since(since) >= drain_max {
                    group.close();
                }
            }
            // A node that comes back gets a new group: the old one goes on closing.
            group.open.get() > 0 && !group.closing.get()
        });
        if self.open.get() == 0 {
            *self.scratch.borrow_mut() = Vec::new();
        }
    }
}

/// Looks after the nodes of upgraded connections, for ever.
pub(crate) async fn watch_nodes<D: Dispatcher>(live: Rc<Live<D>>) {
    loop {
        let core = live.core();
        if core.tunnels.open.get() == 0 {
            core.tunnels.changed.notified().await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let drain_max = Duration::from_millis(core.options().drain_max_ms);
        core.tunnels.look(|site, node| core.dispatcher.has_left(site, node), drain_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_when_their_node_has_left_for_long_enough() {
        let site = SiteId::MIN;
        let [stays, goes] = [0, 1].map(|number| NodeId::new(number).unwrap());
        let tunnels = Tunnels::new();
        let members = [stays, goes].map(|node| tunnels.join(site, node));
        let left = |_: SiteId, node: NodeId| node == goes;
        let closing = || members.each_ref().map(|member| member.group.closing.get());
        tunnels.look(left, Duration::from_secs(3_600));
        assert_eq!(closing(), [false, false]);
        // It came back: its time begins anew.
        tunnels.look(|_, _| false, Duration::ZERO);
        tunnels.look(left, Duration::from_secs(3_600));
        assert_eq!(closing(), [false, false]);
        tunnels.look(left, Duration::ZERO);
        assert_eq!(closing(), [false, true]);
        let again = tunnels.join(site, goes);
        assert!(!again.group.closing.get(), "the node serves the site once more");
        drop((members, again));
        tunnels.look(left, Duration::ZERO);
        assert_eq!((tunnels.open.get(), tunnels.groups.borrow().len()), (0, 0));
        assert_eq!(tunnels.scratch.borrow().capacity(), 0);
    }
}
