//! The version tables of a pool's sites as its edges have them.

use super::edge_process::Seat;
use super::options::tags_socket;
use super::tables::label;
use crate::settings::{Settings, Site, Tags, TagsRead};
use anyhow::Context as _;
use edge::{FarVersions, Versions};
use remote_memory::shm;
use remote_memory::tcp::RequesterSettings;
use shared_state::versions::VersionTable;
use std::sync::Arc;
use std::time::Duration;

/// How long the parent may take to hand a region over: it does so within milliseconds.
const ATTACH_WITHIN: Duration = Duration::from_secs(5);

/// How long a hit waits for the table before its server is asked instead. Of the order of what a
/// page takes there: an owner whose cores are all taken answers in some hundred milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// By site, in the order of the settings; also where no response is kept yet, for a reload may
/// change that and not the table.
pub(super) fn attach(settings: &Settings, seat: &Seat) -> anyhow::Result<Vec<Option<Versions>>> {
    let of = |site: &Site| {
        let tags = site.tags.as_ref()?;
        if tags.read == TagsRead::Tcp {
            return Some(far(settings, site, tags));
        }
        if seat.apart {
            let name = &site.name;
            tracing::warn!(
                "site {name}: this machine has no version table; with `tags_listen` and \
                 `tags_read = \"tcp\"` edges read that of another"
            );
            return None;
        }
        let attached = shm::attach(tags_socket(&seat.folder, &site.name), ATTACH_WITHIN);
        let table = attached.map_err(anyhow::Error::from).and_then(|attachment| {
            // The mapping outlives the attachment; that of a parent that has ended is of no use,
            // and this process ends with it.
            Ok(VersionTable::open(attachment.region())?)
        });
        let named = || format!("the version table of site {}", site.name);
        Some(table.map(Versions::Near).with_context(named))
    };
    settings.sites.iter().map(|site| of(site).transpose()).collect()
}

/// The table as it is read at the address where it is served.
fn far(settings: &Settings, site: &Site, tags: &Tags) -> anyhow::Result<Versions> {
    let address =
        tags.listen.with_context(|| format!("site {} has no `tags_listen`", site.name))?;
    let remote = &settings.remote;
    let security = remote.security(address).context("the pool's key cannot be used")?;
    Ok(Versions::Far(Arc::new(FarVersions {
        dial: RequesterSettings { address, security, connect_max: remote.connect_max() },
        label: label(&site.name),
        bits: tags.words,
        answer_within: ANSWER_WITHIN,
    })))
}
