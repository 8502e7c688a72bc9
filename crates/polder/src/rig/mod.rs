//! A pool to measure: stand-in nodes and `polder up` as child processes, for the demo and for the
//! figures of `bench`.
//!
//! ```text
//! Rig::start:  private folder -> stub process (addresses come back) -> settings file
//!              -> `up` as a child of this program -> wait until status says that all nodes serve
//! while it runs: edge addresses, status, moves, records of the stubs, CPU time of each process
//! drop:        `up` drains and stops, the stub process ends, the folder goes
//! ```
//!
//! The children are this program again ([`std::env::current_exe`]), so whoever uses a rig must let
//! [`hidden`] see its command line first. A rig leaves no process, whatever way its owner
//! ends: `up` gets a signal when its parent dies, the stub process sees the end of its standard
//! input. Everything lies in a private folder and on free loopback ports, so that any number of
//! rigs runs at once.

mod child;
mod cpu;
mod entry;
mod folder;
mod history;
mod moves;
mod options;
mod pool;
mod ports;
mod settings_text;
mod stub_process;

pub use child::RigError;
pub use cpu::{CpuSnapshot, Part, PartTime};
pub use entry::hidden;
pub use history::{Below, HistoryError, NodeHistory};
pub use moves::{MoveLog, MoveWatcher};
pub use options::{RigFront, RigNode, RigOptions, RigServers, RigSite};
pub use pool::Rig;
pub use ports::HeldPort;
pub use stub_process::{StubAddresses, StubSpec};
