//! Stand-ins for the tests: a dispatcher over fixed servers, an origin that tells what it saw,
//! and clients on raw sockets.

#![allow(dead_code, unreachable_pub, clippy::print_stdout)]

pub mod client;
pub mod daemon;
pub mod dispatcher;
pub mod frames;
pub mod origin;
pub mod pool;
pub mod tls;
pub mod versions;

use dispatcher::Fixed;
use edge::{Edge, Options, SiteOptions, Upstream};
use pool_model::SiteId;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine; a hang fails the test by it.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn site() -> SiteId {
    SiteId::MIN
}

/// The sibling that speaks with the servers. Every test runs twice: in its own program with the
/// default, and once more within `by_hyper`, which includes all of them.
pub fn upstream() -> Upstream {
    match module_path!().starts_with("by_hyper::") {
        true => Upstream::Hyper,
        false => Upstream::Own,
    }
}

/// Options with one site, `a.example`.
pub fn options() -> Options {
    let sites = vec![SiteOptions::new(site(), "one", &["a.example"])];
    Options { sites, upstream: upstream(), ..Options::default() }
}

/// An edge of one site before these servers, each with room for 64 requests.
pub fn edge(options: Options, servers: &[SocketAddr]) -> (Edge, Fixed) {
    let fixed = Fixed::new(servers, 64);
    let edge = Edge::start(options, &fixed).unwrap();
    (edge, fixed)
}

/// Waits for something that must become true.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
