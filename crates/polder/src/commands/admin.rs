//! Commands that change a running pool: `move`, `drain`, `undrain`, `pause`, `resume`.

use super::{CommandError, Output, control_socket, find_pool};
use crate::cli;
use crate::control::{self, Done, Request, Response};
use std::time::Duration;

/// How long a pool may take to answer. Its own limit for a request is below.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(25);

pub(super) fn move_node(arguments: &cli::MoveArguments) -> Result<Output, CommandError> {
    let (node, site) = (arguments.node.clone(), arguments.site.clone());
    order(&arguments.pool, &Request::Move(control::MoveArguments { node, site }))
}

pub(super) fn drain(arguments: &cli::NodeArguments) -> Result<Output, CommandError> {
    let node = control::NodeArguments { node: arguments.node.clone() };
    order(&arguments.pool, &Request::Drain(node))
}

pub(super) fn undrain(arguments: &cli::NodeArguments) -> Result<Output, CommandError> {
    let node = control::NodeArguments { node: arguments.node.clone() };
    order(&arguments.pool, &Request::Undrain(node))
}

pub(super) fn pause(pool: &cli::PoolArguments) -> Result<Output, CommandError> {
    order(pool, &Request::Pause)
}

pub(super) fn resume(pool: &cli::PoolArguments) -> Result<Output, CommandError> {
    order(pool, &Request::Resume)
}

pub(super) fn order(pool: &cli::PoolArguments, request: &Request) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(pool)?);
    match control::ask(&socket, request, ANSWER_TIMEOUT)? {
        Response::Done(Done { text }) => Ok(Output::from(format!("{text}\n"))),
        _ => Err(CommandError::WrongAnswer),
    }
}
