//! The agent of one node.

use super::{options, places};
use crate::settings::Settings;
use agent::{Agent, Handle};
use anyhow::Context as _;
use pool_model::NodeId;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Runs the agent in this process until it is told to stop. `adopt` is the memory of an agent of
/// this node that died. Blocks.
pub(super) fn run(
    settings: &Settings,
    node: NodeId,
    (folder, apart): (&Path, bool),
    adopt: Option<OwnedFd>,
    parent: u32,
) -> anyhow::Result<()> {
    let mut options = options::agent(settings, node, folder)?;
    options.adopt = adopt;
    if apart {
        options.remote = Some(places::service(settings, node)?);
    }
    let name = options.name.clone();
    agent::run(options, Some(parent)).with_context(|| format!("the agent of node {name}"))
}

/// Starts an agent beside others in this process: for a node whose servers are only addresses.
/// `adopt` is the memory of the one before it.
pub(super) fn start(
    settings: &Settings,
    node: NodeId,
    folder: &Path,
    adopt: Option<OwnedFd>,
) -> anyhow::Result<Handle> {
    let mut options = options::agent(settings, node, folder)?;
    options.adopt = adopt;
    let name = options.name.clone();
    Agent::start(options).with_context(|| format!("the record of node {name} is not served"))
}
