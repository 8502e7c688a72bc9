//! The process that answers writers: one for all sites that have a version table.
//!
//! It maps the tables, which are the parent's, and opens the sockets. Killed at any moment it loses
//! nothing: what had begun is pending in the tables, and its tokens hold at the next process.

use super::options::{tags_socket, tell_socket};
use super::tables::{Mark, own_regions};
use super::{child, files};
use crate::settings::{Settings, Tags};
use anyhow::{Context as _, bail};
use remote_memory::Access;
use remote_memory::shm::{self, Attachment};
use remote_memory::tcp::{Responder, ResponderSettings};
use shared_state::versions::VersionTable;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use writers::{Desk, Door, Who};

/// How long the parent may take to hand a region over: it does so within milliseconds.
const ATTACH_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks whether a lost region is still mapped, by edges that finish their requests.
const LOST_EVERY: Duration = Duration::from_millis(100);
/// How often that is logged.
const LOST_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Runs until SIGTERM, SIGINT or SIGHUP, which is how the parent puts another in its place. Blocks.
pub(super) fn run(settings: &Settings, folder: &Path, parent: u32) -> anyhow::Result<()> {
    agent::die_with_parent(parent).context("cannot be tied to the parent process")?;
    let sites: Vec<_> = settings
        .sites
        .iter()
        .filter_map(|site| Some((site.name.as_str(), site.tags.as_ref()?)))
        .collect();
    child::runtime()?.block_on(async {
        let mut ends = child::ends()?;
        let mut leaves = signal(SignalKind::hangup())?;
        let mut serving = tokio::task::JoinSet::new();
        for (site, tags) in sites {
            let tags = (tags.clone(), far(settings, tags)?);
            serving.spawn_local(site_desk(site.to_owned(), tags, folder.to_owned()));
        }
        tokio::select! {
            () = ends.wait() => Ok(()),
            _ = leaves.recv() => Ok(()),
            Some(ended) = serving.join_next() => match ended {
                Ok(outcome) => outcome,
                Err(panic) => bail!("a desk ended: {panic}"),
            },
        }
    })
}

/// One site's desk and its doors. Ends only with an error.
async fn site_desk(
    site: String,
    (tags, far): (Tags, Option<Far>),
    folder: PathBuf,
) -> anyhow::Result<()> {
    let attachment = shm::attach(tags_socket(&folder, &site), ATTACH_WITHIN)
        .with_context(|| format!("the version table of site {site}"))?;
    let table = VersionTable::open(attachment.region())?;
    until_lost_is_gone(&site, &folder, &attachment).await?;
    let _responder = serve_far(&site, far, &attachment)?;
    let mut doors = vec![Door::open(&tell_socket(&folder, &site), Who::Owner)?];
    if let Some(path) = &tags.socket {
        let group = tags.group.as_deref().map(group_number).transpose()?;
        doors.push(Door::open(path, group.map_or(Who::Owner, Who::Group))?);
    }
    if let Some(files) = &tags.files {
        files::watch(&site, &files.root, tell_socket(&folder, &site))?;
    }
    let name = getrandom::u32().context("no random number for names of updates")?;
    tracing::info!("site {site}: writers are answered");
    writers::serve(Desk::new(table, name), doors).await;
    Ok(())
}

/// Where edges on other machines read a table, and how that is protected.
type Far = (SocketAddr, ResponderSettings);

fn far(settings: &Settings, tags: &Tags) -> anyhow::Result<Option<Far>> {
    let Some(address) = tags.listen else { return Ok(None) };
    let remote = &settings.remote;
    let security = remote.security(address).context("the pool's key cannot be used")?;
    Ok(Some((address, ResponderSettings { security, real_time: remote.realtime })))
}

/// Serves the table, for reading alone, until what comes back is dropped.
fn serve_far(
    site: &str,
    far: Option<Far>,
    attachment: &Attachment,
) -> anyhow::Result<Option<Responder>> {
    let Some((address, settings)) = far else { return Ok(None) };
    let bound = Responder::bind(address, settings);
    let responder = bound.with_context(|| format!("`tags_listen` of site {site}"))?;
    responder.serve(attachment.region(), Access::ReadOnly)?;
    let scheduled = responder.priority();
    tracing::info!(site, %address, %scheduled, "version table served");
    Ok(Some(responder))
}

/// Waits until nobody reads the table of an earlier run any more: an update that began in the new
/// one would mark nothing there.
async fn until_lost_is_gone(
    site: &str,
    folder: &Path,
    attachment: &Attachment,
) -> anyhow::Result<()> {
    let Some(mark) = Mark::read(folder, site) else { return Ok(()) };
    let own = own_regions(site);
    let mut told: Option<Instant> = None;
    while attachment.owner_alive() {
        let lost = mark.still_mapped(site, &own);
        if lost.is_empty() {
            return Ok(());
        }
        if told.is_none_or(|told| told.elapsed() > LOST_TOLD_EVERY) {
            tracing::warn!(
                "site {site}: writers wait until edges of an earlier run have ended, which still \
                 read its version table"
            );
            told = Some(Instant::now());
        }
        tokio::time::sleep(LOST_EVERY).await;
    }
    bail!("the parent has ended")
}

/// A group's number: as it is written, or by its name in /etc/group.
fn group_number(group: &str) -> anyhow::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    let number = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == group).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.with_context(|| format!("/etc/group has no group {group}; write its number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_known_by_name_or_number() {
        assert_eq!(group_number("root").unwrap(), 0);
        assert_eq!(group_number("4711").unwrap(), 4711);
        assert!(group_number("no-such-group").is_err());
    }
}
