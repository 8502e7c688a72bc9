//! Ctrl-C: the run under way stops, its pools stop in order, nothing stays behind.

use anyhow::Context as _;
use load::generate::Cancel;
use std::process::exit;
use tokio::signal::unix::{SignalKind, signal};

/// The usual exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Starts to listen for SIGINT and SIGTERM: the first sets the flag, the second ends this process
/// at once (the children notice).
pub(crate) fn watch() -> anyhow::Result<Cancel> {
    let cancel = Cancel::default();
    let told = cancel.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime for signals")?;
    let (mut int, mut term) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let listen = move || {
        runtime.block_on(async {
            for _ in 0..2 {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                }
                if told.is_cancelled() {
                    break;
                }
                told.cancel();
                eprintln!("stopping; once more ends it at once");
            }
        });
        exit(EXIT_INTERRUPTED);
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen)?;
    Ok(cancel)
}
