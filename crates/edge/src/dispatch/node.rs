//! What the core remembers of one node.

use super::health::Health;
use moves::looper::{Link, NodeSeen};
use shared_state::slot::NodeSlot;
use shared_state::words::Assign;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A server: its address and how often it was started again.
type Process = (Ipv4Addr, u16, u16);

pub(crate) struct Node {
    pub(crate) slot: NodeSlot,
    /// Which region of the node this is: a restarted agent has a new one.
    pub(crate) life: u32,
    pub(crate) assign: Assign,
    pub(crate) open: bool,
    pub(crate) link: Link,
    /// What all edges together may have at its server, as far as this one takes part.
    pub(crate) limit: u32,
    pub(crate) health: Health,
    /// When its server came: it moved here, was started again, or passes its checks again. None
    /// for one that was there before this edge.
    pub(crate) came: Option<Duration>,
    /// The version whose first request has not been sent yet.
    pub(crate) awaited: Option<u32>,
    /// The server that `health` and `came` are about.
    process: Option<Process>,
    /// Whether a look has seen this region.
    seen: bool,
}

impl Node {
    /// A node whose region was found; of an earlier region is kept what is known of its server,
    /// which has outlived its agent.
    pub(crate) fn new(slot: NodeSlot, life: u32, before: Option<&Self>) -> Self {
        let assign = slot.record().assign().unwrap_or(Assign::FREE);
        Self {
            slot,
            life,
            assign,
            open: false,
            link: Link::Mapped,
            limit: 0,
            health: before.map(|before| before.health).unwrap_or_default(),
            came: before.and_then(|before| before.came),
            awaited: None,
            process: before.and_then(|before| before.process),
            seen: false,
        }
    }

    /// Whether its server passes its checks, as far as is known: nobody asks a node whose link is
    /// silent while another is there.
    pub(crate) fn is_asked(&self) -> bool {
        self.open && self.link != Link::Silent
    }

    /// Takes over what a look saw; true when the node serves another site or version.
    pub(crate) fn see(&mut self, seen: &NodeSeen, now: Duration) -> bool {
        let Some(assign) = seen.assign else {
            // The region was given up: nothing more is sent there until the new one is found.
            self.open = false;
            return false;
        };
        let opens = seen.open && !self.open && self.seen;
        (self.open, self.link, self.limit) = (seen.open, seen.link, seen.limit);
        let moved = assign.site != self.assign.site || assign.version != self.assign.version;
        self.assign = assign;
        self.slot.follow(assign);
        let server = assign.site.map(|site| self.slot.record().server(site));
        let process = server.map(|server| (server.address, server.port, server.restarts));
        let is_new = process != self.process;
        // What is open when an edge first sees it was there before.
        let comes = self.seen && (opens || moved) || is_new && self.process.is_some();
        if is_new {
            // What another server did, or one before it, says nothing about this one.
            (self.process, self.health) = (process, Health::default());
        } else if opens {
            self.health.came_back();
        }
        if comes {
            self.came = Some(now);
        }
        self.seen = true;
        if moved {
            self.awaited = Some(assign.version);
        }
        moved
    }
}
