//! The cache by its public face, with a server that says what a test makes it say.
#![allow(clippy::unwrap_used)]

mod disk;
mod life;
mod noise;
mod race;
mod shared;
mod soft;
mod suite;
mod world;
