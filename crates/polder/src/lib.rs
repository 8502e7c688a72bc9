//! The library part of the `polder` command: settings, commands, control.

pub mod settings;
