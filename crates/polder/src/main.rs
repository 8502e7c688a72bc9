//! The `polder` command.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    polder::rig::hidden(&arguments).unwrap_or_else(|| polder::entry::run(&arguments))
}
