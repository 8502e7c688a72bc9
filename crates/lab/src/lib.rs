//! Real servers on nodes with a limited share of a core. Knows no Polder type.
//!
//! A machine stands in for several: each node is a group of processes with a CPU quota, and its
//! servers are real Apache httpd processes. What a node can serve then follows from what a request
//! costs, as on hardware of its own.
//!
//! - [`Quota`] and [`Groups`]: control groups with a share of a core, of version 1 or 2, found at
//!   run time; gone at the end, and what a killed run left goes at the next start.
//! - [`Apache`]: a folder with documents and one configuration for all servers, and the command
//!   that starts one of them in its node's group. The command has the placeholders of a site's
//!   `command` in Polder's settings, so that agents can start it.
//! - [`Shop`]: the same with three tiers: the shop of `examples/shop`, whose orders are counted.
//!
//! ```no_run
//! use lab::{Apache, ApacheOptions, ApacheProgram, Groups, Quota};
//!
//! # fn main() -> Result<(), lab::LabError> {
//! let mut groups = Groups::make()?;
//! let fifth = Quota::of_core(0.2)?;
//! groups.add("n1", fifth)?;
//! let apache = Apache::prepare(&ApacheProgram::find()?, &ApacheOptions::default())?;
//! // ["/bin/sh", "-c", "echo 0 > ...", ".../polder-lab-1-2/{node}/cgroup.procs", ...]
//! let command = apache.command(&groups.join_path("{node}"));
//! # drop(command);
//! # Ok(())
//! # }
//! ```

mod apache;
mod cgroup;
mod error;
mod group;
mod owner;
mod quota;
mod shop;
mod usage;

pub use apache::{Apache, ApacheOptions, ApacheProgram, ApacheServer, DOCUMENTS, Document, Mpm};
pub use cgroup::Version;
pub use error::LabError;
pub use group::{Group, Groups};
pub use quota::{PERIOD_US, QUOTA_US_MIN, Quota};
pub use shop::{Shop, ShopExtras, ShopOptions};
pub use usage::Throttling;
