//! `polder demo`.

use super::interrupt::Interrupt;
use super::{CommandError, Output};
use crate::demo::{self, DemoArguments};
use crate::terminal::Style;
use ::load::generate::Cancel;
use std::io::Write as _;

/// Runs the demo; Ctrl-C ends it in order.
pub(super) fn run(arguments: &DemoArguments, style: Style) -> Result<Output, CommandError> {
    let cancel = Cancel::default();
    let told = cancel.clone();
    let restores = style.is_terminal;
    Interrupt::new()?.on_signal(move || {
        told.cancel();
        if restores {
            // A second signal ends the program before the demo could do it.
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(demo::RESTORE_TERMINAL.as_bytes()).and_then(|()| out.flush());
        }
    })?;
    let ended = demo::run(arguments, style, &cancel)?;
    if ended.is_interrupted {
        return Err(CommandError::Interrupted);
    }
    Ok(Output { has_failed: ended.failed > 0, ..Output::default() })
}
