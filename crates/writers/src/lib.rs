//! How writers tell that data changes: lines over a Unix socket, and who answers them.
//!
//! A writer **begins** an update of some tags, commits, and **ends** it; between the two no cache
//! serves what carries one of the tags, and afterwards nothing that was made before. So no hit is
//! older than what was committed when its request arrived (`shared_state::versions` has the
//! proof). `docs/writers.md` has the lines; this crate has
//!
//! - [`line`](mod@line): the lines, as bytes and as requests; pure;
//! - [`gate`]: who may read and who may write a document, for applications that ask; pure;
//! - [`Desk`]: answers lines over one site's version table; knows no socket and no clock;
//! - [`Door`] and [`serve`]: the sockets, and who may come in;
//! - [`Client`]: the other side, for commands and tests. Applications have those of `clients/`;
//! - [`Watch`]: changes of files, for servers of files, whose writers tell nobody.
//!
//! The table lies in another process, so that nothing is lost with this one: what had begun stays
//! pending, and its token ends it also at the next process, by the [`Ticket`] that it carries.
//!
//! [`Ticket`]: shared_state::versions::Ticket

mod client;
mod desk;
#[cfg(test)]
mod fuzz_tests;
pub mod gate;
pub mod line;
mod serve;
mod watch;

pub use client::{Client, ClientError, Ended};
pub use desk::{Answered, Desk, Peer, PendingWriter};
pub use serve::{CONNECTIONS_MAX, Door, DoorError, Who, serve};
pub use watch::{FOLDERS_MAX, TICK, Watch};
