//! Shared memory on one machine: sealed memory files passed over a private Unix socket.
//!
//! The owner makes an [`OwnedRegion`] and serves it with a [`RegionServer`]; a peer calls
//! [`attach`] and gets an [`Attachment`] with its own [`MappedRegion`]. From then on neither
//! asks the other for anything: operations run inline on the mapping, and the open connection
//! only tells the peer whether the owner's process lives.
//!
//! Who may attach: the socket lies in a directory of mode 0700, has mode 0600, and both sides
//! check the other's user with `SO_PEERCRED` (the same user, or root). A peer that has the file
//! may write any word of it: there is no protection between peers of one pool.

mod attach;
mod error;
mod owned;
mod server;
mod socket;

pub use attach::{Attachment, MappedRegion, attach};
pub use error::ShmError;
pub use owned::OwnedRegion;
pub use server::{MAX_PEERS, RegionServer};
