//! Pools and traffic that figures and tests are made of; each is one function of a seed.

pub mod azure;
pub mod equal;
pub mod faults;
pub mod large;
pub mod stall;
pub mod unlike;
