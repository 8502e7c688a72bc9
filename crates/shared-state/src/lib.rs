//! What lies where in shared memory, byte for byte, and how each word is read and written.
//!
//! `docs/layout.md` draws the kinds of region: the node record ([`NodeRecord`], in the memory of a
//! node's agent), the site record ([`SiteRecord`], in the memory of the home) and the version table
//! ([`versions`], one for each site). All are views over a [`remote_memory::Mapped`] region; every
//! access is checked against the bounds and against the header, and no content of memory makes it
//! panic.
//!
//! - [`words`]: the 64-bit words and how they are packed.
//! - [`seqlock`]: records of several words with one writer.
//! - [`slot`]: one edge's counts of requests in flight at one node, which together keep
//!   `max_in_flight` over all edges.
//! - [`lease`]: who is alive, judged by the reader's own clock.
//! - [`versions`]: by which a cache knows at each hit that nothing has changed.

#[cfg(test)]
#[cfg(not(loom))]
mod fuzz_tests;
mod header;
pub mod lease;
mod node_record;
pub mod seqlock;
mod site_record;
pub mod slot;
pub mod versions;
pub mod words;

pub use header::{LAYOUT_VERSION, LayoutError};
pub use node_record::{AgentStatus, NODE_REGION_BYTES, NodeHeader, NodeRecord, Ready, Service};
pub use site_record::{
    EdgeDemand, EdgeRow, EdgeService, SiteHeader, SiteRecord, site_region_bytes,
};

/// Edges that one pool can have: the slots in each record.
pub const EDGES_MAX: usize = 64;
/// Sites that one pool can have: ten bits, zero stands for none.
pub const SITES_MAX: usize = 1_023;
/// Nodes that one pool can have: fourteen bits, two values reserved.
pub const NODES_MAX: usize = 16_382;
/// Words on one cache line: what different writers change lies on different lines.
pub(crate) const LINE_WORDS: usize = 8;
