//! How the processes of a pool are put together.
//!
//! `polder up` is the parent ([`up`]): it holds the site record, starts one process for each edge
//! and for each agent, starts those again that die, and answers commands. The children are this
//! same program with a hidden sub-command ([`child`]). Nodes whose servers are only addresses have
//! no agent of their own: the parent holds their records. [`apart`] runs one role alone, where the
//! others are on other machines.

mod agent_process;
pub mod apart;
pub mod child;
mod children;
mod descriptors;
mod edge_process;
mod options;
mod places;
mod report;
mod sticky;
pub mod up;
