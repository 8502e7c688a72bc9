//! Where regions are when roles run apart, and the services by which they are reached.

use crate::settings::Settings;
use agent::RemoteService;
use anyhow::{Context as _, bail};
use moves::looper::{LooperOptions, Place};
use pool_model::NodeId;
use remote_memory::Mapped;
use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{RequesterSettings, ResponderSettings};
use shared_state::{SiteHeader, SiteRecord, site_region_bytes};
use std::net::SocketAddr;
use std::sync::Arc;

/// The label of the home's region.
const HOME: &str = "home";

fn address(settings: &Settings, node: NodeId) -> anyhow::Result<SocketAddr> {
    let node = &settings.nodes[node.index()];
    match node.address {
        Some(address) => Ok(address),
        None => bail!("node {} has no `address` in the settings", node.name),
    }
}

fn place(settings: &Settings, label: String, address: SocketAddr) -> anyhow::Result<Place> {
    let remote = &settings.remote;
    let security = remote.security(address).context("the pool's key cannot be used")?;
    let dial = RequesterSettings { address, security, connect_max: remote.connect_max() };
    Ok(Place::Elsewhere { label, dial: Arc::new(dial) })
}

/// Points an edge's look loop to the addresses of the agents.
pub(super) fn elsewhere(settings: &Settings, looper: &mut LooperOptions) -> anyhow::Result<()> {
    let home = settings.home().context("no node has an `address` in the settings")?;
    looper.home = place(settings, HOME.to_owned(), address(settings, home)?)?;
    looper.nodes.clear();
    for (index, node) in settings.nodes.iter().enumerate() {
        let id = NodeId::new(u16::try_from(index)?)?;
        // As the agent names the region.
        let label = format!("node-{}", node.name);
        looper.nodes.push(place(settings, label, address(settings, id)?)?);
    }
    Ok(())
}

/// How the agent of a node serves edges on other machines.
pub(super) fn service(settings: &Settings, node: NodeId) -> anyhow::Result<RemoteService> {
    let address = address(settings, node)?;
    let remote = &settings.remote;
    let security = remote.security(address).context("the pool's key cannot be used")?;
    let mut also: Vec<Arc<dyn Mapped>> = Vec::new();
    if settings.home() == Some(node) {
        also.push(site_record(settings)?);
    }
    let real_time = remote.realtime;
    Ok(RemoteService { address, settings: ResponderSettings { security, real_time }, also })
}

/// A new home: empty, for all that it held is found again in the nodes and in the settings.
pub(super) fn site_record(settings: &Settings) -> anyhow::Result<Arc<OwnedRegion>> {
    let sites = settings.sites.len();
    let region = Arc::new(OwnedRegion::create(HOME, site_region_bytes(sites))?);
    let settings_hash = settings.pool_hash().0;
    let header = SiteHeader { sites: u16::try_from(sites)?, settings_hash };
    SiteRecord::publish(Arc::clone(&region) as Arc<_>, header)?;
    Ok(region)
}
