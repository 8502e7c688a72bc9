//! The library part of the `polder` command.
//!
//! - [`cli`]: the command line; [`commands`]: what each command does.
//! - [`settings`]: one TOML file becomes typed settings, or all that is wrong with it.
//! - [`runtime_dir`]: the private folder of a running pool.
//! - [`control`]: the socket that commands reach a running pool by.
//! - [`status`]: what a pool tells of itself, as tables and JSON; [`metrics`]: the same for
//!   Prometheus.
//! - [`rig`]: a pool with stand-in servers, for the demo and the figures.
//! - [`demo`]: what Polder does, shown in a minute.
//! - [`terminal`], [`logging`]: what goes to standard output and standard error.

pub mod cli;
pub mod cli_cache;
pub mod commands;
pub mod control;
pub mod demo;
pub mod entry;
mod handed;
pub mod logging;
pub mod metrics;
pub mod pool;
pub mod rig;
pub mod runtime_dir;
pub mod settings;
pub mod status;
mod sys;
pub mod terminal;
