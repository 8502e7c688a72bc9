//! From a server's 101 to an upgraded connection.

use super::groups::Tunnels;
use super::offer::is_websocket;
use super::splice::{Counted, Tunnel};
use crate::answer::Reason;
use crate::download::{Flight, Meter};
use crate::face::{Dispatcher, Permit, Verdict};
use crate::upstream::{Connection, Upgraded};
use http::header::{self, HeaderMap};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Takes the connection to the server over, and leaves it to the client's connection, which
/// becomes its other half when the response is written. The server's room is given back.
pub(crate) async fn switch<D: Dispatcher>(
    meter: &Meter<D>,
    share: Option<OwnedSemaphorePermit>,
    flight: Flight<D>,
    fields: &HeaderMap,
) -> Result<(), Reason> {
    let Flight { permit, lease, .. } = flight;
    permit.report(Verdict::Answered);
    let node = permit.node();
    drop(permit);
    let (core, slot) = (&meter.core, meter.slot());
    let site = slot.ok_or(Reason::UnknownSite)?;
    let share = share.ok_or(Reason::UpgradesFull)?;
    let upgraded = lease.link.into_upgraded().await;
    let Upgraded { stream, ahead } = upgraded.map_err(|_| Reason::ServerBroke)?;
    let tunnel = Tunnel {
        server: stream,
        ahead,
        is_websocket: fields.get(header::UPGRADE).is_some_and(is_websocket),
        member: Tunnels::join(&core.tunnels, core.options().sites[site.0].id, node),
        counts: Counted::new(&core.metrics, slot, node),
        idle: Duration::from_millis(core.options().upgrade_idle_ms),
        // The high half: any will do.
        mask: (core.chance.next() >> 32) as u32,
        share,
    };
    meter.client.tunnel.set(Some(Box::new(tunnel)));
    Ok(())
}
