//! How commands reach a running pool: JSON lines over a Unix socket that only the pool's own user
//! (and root) can use.
//!
//! The parent process of `polder up` listens at `control.sock` in the runtime folder; each of its
//! children listens at a socket of its own there, for the parent. [`Server`] is the listening
//! half, with a [`Handler`] for what requests do; [`ask`] and [`ask_async`] are the asking half.
//! Both bound the size of what they read and the time they wait.

mod cache;
mod client;
#[cfg(test)]
mod fuzz_tests;
mod server;
mod wire;

pub use cache::{
    CacheExplainArguments, CacheExplained, CacheForgetArguments, CachePurgeArguments, CacheStored,
};
pub use client::{AskError, ask, ask_async};
pub use server::{BindError, Handler, Server};
pub use wire::{
    Code, Done, FirstDispatch, MOVES_MAX, MoveArguments, MovesArguments, NodeArguments,
    PROTOCOL_VERSION, REQUEST_MAX_BYTES, RESPONSE_MAX_BYTES, Refusal, ReloadArguments, Request,
    Response, SetSiteArguments, SiteSet, SiteSettings, SitesArguments, UpdateArguments,
    UpgradeArguments,
};

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
