//! The helper beside the applications on a node: its record, its servers, their health.
//!
//! An agent holds the node's record in its memory, where edges read and change it without the
//! agent doing anything; it starts and watches the node's servers, and says how they are. It takes
//! no part in a request and none in a move. An idle agent sleeps; an edge wakes it through its
//! memory.
//!
//! - [`Agent::start`] with [`Options`] gives a [`Handle`]; [`run`] is an agent as a process.
//! - Servers outlive an agent that is killed. The next one finds them by its state file
//!   ([`AgentState`]), takes over the old region's assignment and gives that region up
//!   ([`hold_region`], [`Options::adopt`]). [`reap_leftovers`] ends them instead.
//! - The rules (`supervisor`, `lifecycle`, `pulse`) are pure: time and events in, actions out.

mod agent;
mod check;
mod command;
mod drain;
mod inbox;
mod leftovers;
mod lifecycle;
mod machine;
mod options;
mod process;
mod pulse;
mod run;
mod shell;
mod snapshot;
mod state_file;
mod supervisor;
mod worker;

pub use agent::{Agent, Handle, StartError};
pub use command::BadCommand;
pub use leftovers::{ReapError, die_with_parent, hold_region, reap_leftovers};
pub use options::{
    Check, Health, Options, OptionsError, Program, RemoteService, ServerKind, ServerSpec, Start,
};
pub use run::{RunError, run};
pub use snapshot::{ServerStatus, Snapshot};
pub use state_file::{AgentState, ProcessState, ServerState, StateError};
