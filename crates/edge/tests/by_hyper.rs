//! All tests of the edge once more, with hyper's client towards the servers: both siblings must
//! pass the same ones. See `common::upstream`.

#![allow(clippy::duplicate_mod)]

#[path = "balance.rs"]
mod balance;
#[path = "cache.rs"]
mod cache;
#[path = "clients.rs"]
mod clients;
#[path = "desync.rs"]
mod desync;
#[path = "labels.rs"]
mod labels;
#[path = "proxy.rs"]
mod proxy;
#[path = "proxy_protocol.rs"]
mod proxy_protocol;
#[path = "real.rs"]
mod real;
#[path = "responses.rs"]
mod responses;
#[path = "retries.rs"]
mod retries;
#[path = "strict.rs"]
mod strict;
#[path = "tls_upgrades.rs"]
mod tls_upgrades;
#[path = "upgrades.rs"]
mod upgrades;
#[path = "websocket.rs"]
mod websocket;
