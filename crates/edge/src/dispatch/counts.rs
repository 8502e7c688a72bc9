//! What the dispatcher counts for each site, under the lock that it holds anyway.

/// One site at one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Ejections of servers that failed requests in a row, since the start.
    pub ejections: u64,
    /// Requests that were spread over all servers because too many of them failed at once.
    pub spread: u64,
    /// Sticky requests that went to the server that they belong to.
    pub sticky_kept: u64,
    /// Sticky requests that went elsewhere: their server was gone, or full for too long.
    pub sticky_anew: u64,
    /// Servers that fail requests at this moment.
    pub failing: u32,
    /// Those of them that take no requests because of it.
    pub ejected: u32,
    /// Servers that start slowly at this moment.
    pub slow: u32,
}

/// One admission class of a site at one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Requests of the class.
    pub requests: u64,
    /// Of these, those refused for want of room: the queue was full, they would have been answered
    /// too late, or a higher class took their place.
    pub shed: u64,
    /// Those that wait at this moment.
    pub queued: u64,
}
