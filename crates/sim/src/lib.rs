//! A whole pool under virtual time.
//!
//! What runs is real: the policies of crate `policy`, and the looks, the decision core and the
//! machines of the move protocol of crate `moves`. What is made up is what they stand on: memory,
//! a transport that delays and loses, nodes and edges that die, clients. Time is a number that
//! events carry; every draw comes from one seed. So a run of a minute takes as long as its events
//! take, and the same seed gives the same history, which is hashed ([`Outcome::history_hash`]).
//!
//! ```text
//! Options, Traffic, faults, policy -> Simulation -> events by time -> Outcome
//!   edges    look, judge, decide, one operation at a time         stepping, edge
//!   words    arrays; only a compare-and-swap that lands changes   memory, transport
//!   traffic  single requests, or rates as a fluid                 serving, requests, rates
//!   faults   crash, pause, losses, lateness, wiped home, ...      fault, faulting
//!   monitor  the properties, while history is made                monitor
//! ```
//!
//! Nothing here reads a clock or asks the system for random numbers; only [`traces`] reads files.
//! [`scenario`] holds the pools that figures and tests are made of. [`coherence`] is another world,
//! of strict caches and those who change what they hold.

mod agenda;
pub mod coherence;
mod edge;
mod engine;
mod fault;
mod faulting;
mod history;
mod memory;
mod monitor;
mod options;
mod outcome;
mod random;
mod rates;
mod requests;
pub mod scenario;
mod serving;
mod stepping;
pub mod traces;
mod traffic;
mod transport;

pub use engine::{EDGES_MAX, NODES_MAX, OptionsError, SITES_MAX, Simulation};
pub use fault::{Fault, Kind, PAUSE_MAX_NS, Step, plan};
pub use monitor::Violation;
pub use options::{NodeSpec, Options, ServiceTimes, SiteSpec, Transport, spread};
pub use outcome::{FaultCounts, MOVES_KEPT_MAX, Moved, Outcome, SiteTotals, Window};
pub use traffic::{Arrival, RateStep, Traffic};
