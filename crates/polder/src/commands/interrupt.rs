//! Ctrl-C and SIGTERM for commands that run until they are told to stop.

use super::CommandError;
use std::io;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for signals. Made before the work starts, so that none is missed.
pub(super) struct Interrupt {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupt {
    pub(super) fn new() -> Result<Self, CommandError> {
        let make = || -> io::Result<Self> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let entered = runtime.enter();
            let interrupt = signal(SignalKind::interrupt())?;
            let terminate = signal(SignalKind::terminate())?;
            drop(entered);
            Ok(Self { runtime, interrupt, terminate })
        };
        make().map_err(|cause| CommandError::Io { doing: "waiting for signals", cause })
    }

    /// Blocks until a signal comes.
    pub(super) fn wait(&mut self) {
        let Self { runtime, interrupt, terminate } = self;
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
    }

    /// Calls `first` at the first signal, on a thread of its own; at the second one the process
    /// ends, as it would without all this. The thread ends with the process.
    pub(super) fn on_signal(
        mut self,
        first: impl FnOnce() + Send + 'static,
    ) -> Result<(), CommandError> {
        // What a shell reports for a process that SIGINT ended.
        const CODE_INTERRUPTED: i32 = 130;
        let wait_twice = move || {
            self.wait();
            first();
            self.wait();
            std::process::exit(CODE_INTERRUPTED);
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait_twice)
            .map(drop)
            .map_err(|cause| CommandError::Io { doing: "starting a thread", cause })
    }
}
