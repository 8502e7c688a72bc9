//! Upgrades of HTTP/1.1 (RFC 9110, 7.8): WebSocket and whatever else a client and a server agree
//! on. The offer is passed on, and when the server takes it up with a 101, the edge passes bytes.
//!
//! The request's room at the server is given back with the 101: an upgraded connection may last
//! for days, and is counted apart. When its node has left the site for `drain_max_ms`, or the edge
//! has drained for so long, it is closed.
//!
//! What the client sends before it has the 101 waits in the edge: should the server decline, it
//! is the client's next request, and never reaches the server as part of this one.

mod frames;
mod groups;
mod offer;
mod splice;
mod switch;

pub(crate) use groups::{Tunnels, watch_nodes};
pub(crate) use offer::{agreed, offered};
pub(crate) use splice::{CLOSE_TIME, Tunnel};
pub(crate) use switch::switch;
