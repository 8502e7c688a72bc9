//! How the processes of a pool are put together.
//!
//! `polder up` is the parent ([`up`]): it holds the site record, starts one process for each edge
//! and for each agent, starts those again that die, and answers commands. The children are this
//! same program with a hidden sub-command ([`child`]). Nodes whose servers are only addresses have
//! no agent of their own: the parent holds their records ([`parent`]), the sockets that clients
//! reach ([`sockets`]), and the version tables ([`tables`]) that one more child answers writers
//! over ([`writers_process`]). What edges are told over HTTP [`purging`] carries out. Settings
//! change in place ([`reload`]; for one site [`site_set`]), and so does the program ([`upgrade`]).
//! [`apart`] runs one role alone, where the others are on other machines.

mod agent_process;
pub mod apart;
mod asking;
mod cache;
pub mod child;
mod children;
mod descriptors;
mod edge_process;
mod files;
mod guarantee;
mod options;
mod parcel;
mod parent;
mod places;
mod process;
mod purging;
mod reload;
mod report;
mod save;
mod site_set;
mod sockets;
mod sticky;
mod tables;
pub mod up;
mod upgrade;
mod versions;
mod writers_process;

pub(crate) use options::{policy, tell_socket};
