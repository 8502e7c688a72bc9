//! An agent as a process of its own.

use crate::agent::{Agent, StartError};
use crate::leftovers::die_with_parent;
use crate::options::Options;
use std::io;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

/// Why an agent's process ended other than by being told to.
#[derive(Debug, Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Signals cannot be handled, or the parent is dead.
    #[error("cannot run: {0}")]
    System(#[from] io::Error),
    /// It ended by itself.
    #[error("the agent of node {node} ended: another one took its place, or it panicked")]
    Ended {
        /// The node's name.
        node: String,
    },
}

/// Runs an agent until SIGTERM, then stops it and its servers. **Blocks** until then. SIGHUP ends
/// the agent alone and leaves servers and region to the next one.
///
/// With a `parent` (its process id) the agent ends with it, and leaves Ctrl-C to it: a terminal
/// sends SIGINT to all of us, but the parent drains first. Without one, SIGINT stops the agent.
///
/// # Errors
/// See [`RunError`].
pub fn run(options: Options, parent: Option<u32>) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt, mut hang_up) = {
        let _context = runtime.enter();
        let int = signal(SignalKind::interrupt())?;
        (signal(SignalKind::terminate())?, int, signal(SignalKind::hangup())?)
    };
    if let Some(parent) = parent {
        die_with_parent(parent)?;
    }
    let node = options.name.clone();
    let (on_end, ended) = tokio::sync::oneshot::channel();
    let handle = Agent::start_with(options, move || {
        // Nobody listens any more when the process is about to end anyway.
        let _ = on_end.send(());
    })?;
    let end = runtime.block_on(async {
        let interrupted = async {
            match parent {
                None => drop(interrupt.recv().await),
                Some(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => End::Stop,
            () = interrupted => End::Stop,
            _ = hang_up.recv() => End::Leave,
            _ = ended => End::Itself,
        }
    });
    match end {
        End::Leave => handle.leave(),
        End::Stop | End::Itself => handle.stop(),
    }
    if end == End::Itself { Err(RunError::Ended { node }) } else { Ok(()) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Leave,
    Itself,
}
