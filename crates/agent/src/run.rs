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

/// Runs an agent until SIGTERM, then stops it and its servers. **Blocks** until then.
///
/// With a `parent` (its process id) the agent ends with it, and leaves Ctrl-C to it: a terminal
/// sends SIGINT to all of us, but the parent drains first. Without one, SIGINT stops the agent.
///
/// # Errors
/// See [`RunError`].
pub fn run(options: Options, parent: Option<u32>) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _context = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
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
    let asked = runtime.block_on(async {
        let interrupted = async {
            match parent {
                None => drop(interrupt.recv().await),
                Some(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => true,
            () = interrupted => true,
            _ = ended => false,
        }
    });
    handle.stop();
    if asked { Ok(()) } else { Err(RunError::Ended { node }) }
}
