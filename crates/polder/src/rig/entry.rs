//! The hidden sub-commands that the children of a rig are started with.

use super::stub_process::stub_process;
use crate::cli::exit;
use crate::entry;
use anyhow::Context as _;
use std::ffi::OsString;
use std::process::ExitCode;

/// Serves as a rig's stand-in servers.
pub(super) const STUB_PROCESS: &str = "stub-process";
/// `up`, but it stops when its parent dies.
pub(super) const POOL_PROCESS: &str = "pool-process";

/// Runs a hidden sub-command of a rig or of a pool, if the command line names one. Every program
/// that starts rigs calls this first with its command line.
pub fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    let outcome = match arguments.get(1)?.to_str()? {
        STUB_PROCESS => stub_process(&words(&arguments[2..])),
        POOL_PROCESS => match pool_process(arguments) {
            Ok(code) => return Some(code),
            Err(error) => Err(error),
        },
        _ => return entry::hidden(arguments),
    };
    let Err(error) = outcome else { return Some(ExitCode::from(exit::OK)) };
    eprintln!("error: {error:#}");
    Some(ExitCode::from(exit::FAILED))
}

fn words(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// `pool-process PARENT FILE [--set KEY=VALUE]...`
fn pool_process(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let parent = arguments.get(2).and_then(|number| number.to_str()?.parse().ok());
    let parent = parent.context("the number of the parent process is missing")?;
    agent::die_with_parent(parent).context("cannot be tied to the parent process")?;
    let mut up = vec![arguments[0].clone(), "up".into()];
    up.extend_from_slice(&arguments[3..]);
    Ok(entry::run(&up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_commands_are_left_alone_and_nonsense_fails() {
        let run = |words: &[&str]| hidden(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(run(&["bench", "burst"]), None);
        assert_eq!(run(&["bench"]), None);
        let failed = Some(ExitCode::from(exit::FAILED));
        assert_eq!(run(&["bench", POOL_PROCESS, "x"]), failed);
        assert_eq!(run(&["bench", STUB_PROCESS, "--node", "n1"]), failed);
    }
}
