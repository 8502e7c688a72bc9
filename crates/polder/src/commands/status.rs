//! `polder status`.

use super::admin::ANSWER_TIMEOUT;
use super::{CommandError, Output, control_socket, find_pool};
use crate::cli::StatusArguments;
use crate::control::{self, MovesArguments, Request, Response};
use crate::status::{MoveRecord, StatusReport, moves_table, status_text};
use crate::terminal::Style;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often `--watch` draws anew.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Moves shown: a screenful and a half. JSON has as many as the pool keeps.
const MOVES_SHOWN: usize = 30;
/// Moves shown below a watched table.
const MOVES_WATCHED: usize = 8;

pub(super) fn run(arguments: &StatusArguments, style: Style) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(&arguments.pool)?);
    if !arguments.watch {
        return picture(&socket, arguments, style).map(Output::from);
    }
    loop {
        let text = picture(&socket, arguments, style)?;
        draw(&text, style).map_err(|cause| CommandError::Io { doing: "writing", cause })?;
        std::thread::sleep(WATCH_EVERY);
    }
}

/// On a terminal over the picture before, without a flicker; else one after the other.
fn draw(text: &str, style: Style) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if style.is_terminal {
        // To the top left; each line cleared to its end; then what lies below.
        let lines = text.replace('\n', "\u{1b}[K\n");
        write!(out, "\u{1b}[H{lines}\u{1b}[J")?;
    } else {
        writeln!(out, "{text}")?;
    }
    out.flush()
}

fn picture(
    socket: &Path,
    arguments: &StatusArguments,
    style: Style,
) -> Result<String, CommandError> {
    match (arguments.json, arguments.moves, arguments.watch) {
        (true, true, _) => as_json(&moves(socket, control::MOVES_MAX)?),
        (true, false, _) => as_json(&report(socket)?),
        (false, true, false) => Ok(moves_table(&moves(socket, MOVES_SHOWN)?, now_unix_ms(), style)),
        (false, false, false) => Ok(status_text(&report(socket)?, style)),
        (false, with_moves, true) => {
            let mut text = status_text(&report(socket)?, style);
            if with_moves {
                text.push('\n');
                let moves = moves(socket, MOVES_WATCHED)?;
                text.push_str(&moves_table(&moves, now_unix_ms(), style));
            }
            Ok(text)
        }
    }
}

fn report(socket: &Path) -> Result<StatusReport, CommandError> {
    match control::ask(socket, &Request::Status, ANSWER_TIMEOUT)? {
        Response::Status(report) => Ok(*report),
        _ => Err(CommandError::WrongAnswer),
    }
}

fn moves(socket: &Path, limit: usize) -> Result<Vec<MoveRecord>, CommandError> {
    let request = Request::Moves(MovesArguments { limit });
    match control::ask(socket, &request, ANSWER_TIMEOUT)? {
        Response::Moves(moves) => Ok(moves),
        _ => Err(CommandError::WrongAnswer),
    }
}

fn as_json(value: &impl serde::Serialize) -> Result<String, CommandError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CommandError::Io { doing: "writing JSON", cause: error.into() })?;
    Ok(format!("{text}\n"))
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
