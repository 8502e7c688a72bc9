//! Every rule of the protocol, of the events and of the decisions, one by one.

mod cost;
mod decide;
mod events;
mod memory;
mod noise;
mod protocol;
