//! Commands that change the settings or the program of a running pool: `reload`, `upgrade`.

use super::admin::ANSWER_TIMEOUT;
use super::{CommandError, Output, control_socket, find_pool};
use crate::cli;
use crate::control::{self, AskError, Done, Request, Response};
use crate::status::StatusReport;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an upgrade may take until its end is known: each edge and each agent has its time.
const UPGRADE_WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at an upgrade.
const UPGRADE_POLL: Duration = Duration::from_millis(50);

pub(super) fn reload(arguments: &cli::ReloadArguments) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(&arguments.pool)?);
    let (file, dry_run) = (absolute(arguments.file.as_deref())?, arguments.dry_run);
    let request = Request::Reload(control::ReloadArguments { file, dry_run });
    match control::ask(&socket, &request, ANSWER_TIMEOUT)? {
        Response::Done(Done { text }) => Ok(Output::from(format!("{text}\n"))),
        _ => Err(CommandError::WrongAnswer),
    }
}

/// Asks for it, and follows it over the change of programs: the connection breaks off there.
pub(super) fn upgrade(arguments: &cli::UpgradeArguments) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(&arguments.pool)?);
    let before = status(&socket)?.pool.upgrades;
    let program = absolute(arguments.program.as_deref())?;
    let request = Request::Upgrade(control::UpgradeArguments { program });
    match control::ask(&socket, &request, ANSWER_TIMEOUT) {
        Err(AskError::Broken { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(CommandError::WrongAnswer),
    }
    let deadline = Instant::now() + UPGRADE_WITHIN;
    while Instant::now() < deadline {
        sleep(UPGRADE_POLL);
        // Between two programs nobody answers.
        let Ok(report) = status(&socket) else { continue };
        let Some(change) = report.pool.change.filter(|_| report.pool.upgrades != before) else {
            continue;
        };
        match change.succeeded {
            Some(true) => return Ok(Output::from(format!("{}\n", change.text))),
            Some(false) => return Err(CommandError::Pool(change.text)),
            None => {}
        }
    }
    let text = "the upgrade is not done yet; `polder status` tells when it is";
    Err(CommandError::Pool(text.to_owned()))
}

fn status(socket: &Path) -> Result<StatusReport, CommandError> {
    match control::ask(socket, &Request::Status, ANSWER_TIMEOUT)? {
        Response::Status(report) => Ok(*report),
        _ => Err(CommandError::WrongAnswer),
    }
}

/// The pool's folder is not this one.
fn absolute(path: Option<&Path>) -> Result<Option<PathBuf>, CommandError> {
    let absolute = path.map(std::path::absolute).transpose();
    absolute.map_err(|cause| CommandError::Io { doing: "finding this folder", cause })
}
