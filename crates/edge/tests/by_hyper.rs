//! All tests of the edge once more, with hyper's client towards the servers: both siblings must
//! pass the same ones. See `common::upstream`.

#![allow(clippy::duplicate_mod)]

#[path = "balance.rs"]
mod balance;
#[path = "clients.rs"]
mod clients;
#[path = "desync.rs"]
mod desync;
#[path = "proxy.rs"]
mod proxy;
#[path = "real.rs"]
mod real;
#[path = "responses.rs"]
mod responses;
#[path = "retries.rs"]
mod retries;
#[path = "strict.rs"]
mod strict;
