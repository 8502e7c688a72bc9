//! What edges do with a site's requests besides passing them on.

use serde::{Deserialize, Serialize};

/// One site's traffic, over the edges of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficStatus {
    /// Requests refused with 429 because their client asked too often.
    pub client_limited: u64,
    /// Requests refused with 429 because all clients together asked too often.
    pub site_limited: u64,
    /// Ejections of servers that failed requests in a row.
    pub ejections: u64,
    /// Requests that were spread over all servers because too many of them failed.
    pub spread: u64,
    /// Sticky requests that went to the server that they belong to.
    pub sticky_kept: u64,
    /// Sticky requests that went elsewhere.
    pub sticky_anew: u64,
    /// Servers that fail requests at present, at the edge that sees most.
    pub failing: u32,
    /// Those of them that get no requests because of it, at the edge that has most.
    pub ejected: u32,
    /// Servers that start slowly at present.
    pub slow: u32,
}

impl TrafficStatus {
    /// Requests refused with 429.
    #[must_use]
    pub fn limited(&self) -> u64 {
        self.client_limited + self.site_limited
    }

    /// Adds what another edge counts; of what each sees for itself the most counts.
    pub(super) fn add(&mut self, other: &Self) {
        self.client_limited += other.client_limited;
        self.site_limited += other.site_limited;
        self.ejections += other.ejections;
        self.spread += other.spread;
        self.sticky_kept += other.sticky_kept;
        self.sticky_anew += other.sticky_anew;
        self.failing = self.failing.max(other.failing);
        self.ejected = self.ejected.max(other.ejected);
        self.slow = self.slow.max(other.slow);
    }
}

/// One admission class of a site, over the edges of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its name; `other` for requests that match no class.
    pub name: String,
    /// Requests of the class.
    pub requests: u64,
    /// Of these, those refused for want of room.
    pub shed: u64,
    /// Those that wait at present.
    pub queued: u64,
}

impl ClassStatus {
    /// Adds what another edge counts for the same classes.
    pub(super) fn add_all(classes: &mut [Self], others: &[Self]) {
        for class in classes {
            let Some(other) = others.iter().find(|other| other.name == class.name) else {
                continue;
            };
            class.requests += other.requests;
            class.shed += other.shed;
            class.queued += other.queued;
        }
    }
}
