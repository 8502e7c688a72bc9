//! The version tables of a pool's sites: in whose memory they lie, and what is known of them after
//! a kill.
//!
//! The parent owns the regions and does nothing else with them, so that the process which answers
//! writers (`super::writers_process`) and the edges come and go without losing a word. They
//! outlive an upgrade; they end with the parent.
//!
//! ```text
//! start:  a mark of this boot lies in the folder?
//!         no: nothing was lost.  Hits are served at once
//!         yes: an earlier run was killed, or stopped with updates pending; its table is lost, and
//!         with it who was between begin and end.  The new table stays closed, without hits, until
//!         the owner says that all of it is decided (`polder cache settle --earlier`); and no
//!         update begins while a process still maps the lost region, where it would find old
//!         entries valid
//!         write a mark: this boot, and the lost regions that are still mapped, and our own
//! stop:   nothing is pending and the table is open: take the mark away
//! ```
//!
//! A mark of another boot says nothing: every writer of this machine ended with that boot.

use super::options::{tags_mark, tags_socket};
use crate::settings::Site;
use anyhow::Context as _;
use remote_memory::shm::{OwnedRegion, RegionServer};
use remote_memory::{Incarnation, Mapped as _, RemoteKey};
use serde::{Deserialize, Serialize};
use shared_state::versions::{Decided, TableLayout, VersionTable};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// Lost regions that one mark names: each is of a run that was killed while edges of the one
/// before it still served.
const LOST_MAX: usize = 64;

/// One site's table.
pub(super) struct Table {
    site: String,
    region: Arc<OwnedRegion>,
    table: VersionTable,
    _server: RegionServer,
}

/// What another program in this process needs to own it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TableState {
    site: String,
    key: u64,
    incarnation: u64,
}

/// What a run leaves for the next one while its table is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    boot: String,
    /// Inodes of the regions that are, or may still be, mapped.
    regions: BTreeSet<u64>,
}

impl Mark {
    /// The mark of a site, if one of this boot lies there. One that nobody can read is one.
    pub(super) fn read(folder: &Path, site: &str) -> Option<Self> {
        let text = match fs::read_to_string(tags_mark(folder, site)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return Some(Self::default()),
        };
        let Ok(mark) = serde_json::from_str::<Self>(&text) else { return Some(Self::default()) };
        (mark.boot == boot()).then_some(mark)
    }

    fn write(&self, folder: &Path, site: &str) -> anyhow::Result<()> {
        let text = serde_json::to_string(self).context("the mark of a version table")?;
        super::parent::write_private(&tags_mark(folder, site), &text)
    }

    /// Its regions that a process still maps, but for those of the present run.
    pub(super) fn still_mapped(&self, site: &str, own: &BTreeSet<u64>) -> BTreeSet<u64> {
        let lost: BTreeSet<u64> = self.regions.difference(own).copied().collect();
        if lost.is_empty() {
            return lost;
        }
        let mapped = mapped_regions(site);
        lost.intersection(&mapped).copied().take(LOST_MAX).collect()
    }
}

/// Which run of the machine this is; empty where the kernel does not say, which is no other.
fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// Inodes of the regions of a site that any process maps. Those of other users cannot be looked
/// into, and are given no region.
fn mapped_regions(site: &str) -> BTreeSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.flat_map(|process| mapped_by(&process.path(), site)).collect()
}

/// Inodes of the regions of a site that this process maps.
pub(super) fn own_regions(site: &str) -> BTreeSet<u64> {
    mapped_by(Path::new("/proc/self"), site)
}

fn mapped_by(process: &Path, site: &str) -> BTreeSet<u64> {
    let name = format!("/memfd:polder:{}", label(site));
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().filter_map(|line| mapped_inode(line, &name)).collect()
}

/// Of a line of `maps`: `address perms offset dev inode   path (deleted)`.
fn mapped_inode(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_ascii_whitespace().skip(4).take(2).collect::<Vec<_>>();
    let [inode, path] = rest[..] else { return None };
    (path == name).then(|| inode.parse().ok()).flatten()
}

impl Table {
    /// Makes a new table for a site, if it is to have one.
    pub(super) fn start(site: &Site, folder: &Path) -> anyhow::Result<Option<Self>> {
        // A mark stays where it is then: it concerns the next run that has a table.
        let Some(tags) = &site.tags else { return Ok(None) };
        let left = Mark::read(folder, &site.name);
        let layout = TableLayout::new(tags.words);
        let region = Arc::new(OwnedRegion::create(&label(&site.name), layout.region_bytes())?);
        let table = VersionTable::publish(Arc::<OwnedRegion>::clone(&region), tags.words)?;
        match &left {
            None => drop(table.admit_hits(Decided)),
            Some(_) => tracing::warn!(
                "site {}: an earlier run left updates that may be undecided; no hits are served \
                 until `polder cache settle --earlier --site {}`",
                site.name,
                site.name
            ),
        }
        let mut mark = Mark { boot: boot(), ..left.unwrap_or_default() };
        mark.regions = mark.still_mapped(&site.name, &BTreeSet::new());
        mark.regions.insert(inode(region.as_fd())?);
        // The mark lies there before anybody can begin an update.
        mark.write(folder, &site.name)?;
        let server = RegionServer::bind(tags_socket(folder, &site.name), Arc::clone(&region))?;
        Ok(Some(Self { site: site.name.clone(), region, table, _server: server }))
    }

    /// Whose it is.
    pub(super) fn site(&self) -> &str {
        &self.site
    }

    /// Whether nothing is known to be undecided; else the next run is told.
    fn is_settled(&self) -> bool {
        self.table.fill().is_some() && self.table.undecided().is_empty()
    }

    /// Gives the table up. Its mark stays unless all is decided.
    pub(super) fn stop(self, folder: &Path) {
        let is_settled = self.is_settled();
        self.table.retire();
        // An update that began before the end of the retiring is seen here.
        if is_settled && self.table.undecided().is_empty() {
            // If it stays, the next run serves no hits until it is told, which is safe.
            let _ = fs::remove_file(tags_mark(folder, &self.site));
            return;
        }
        tracing::warn!("site {}: updates are pending; the next run serves no hits", self.site);
    }

    /// For another program in this process.
    pub(super) fn state(&self) -> TableState {
        let described = self.region.descriptor();
        let (key, incarnation) = (described.key.0, described.incarnation.0);
        TableState { site: self.site.clone(), key, incarnation }
    }

    /// Its memory.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }

    /// The table of the program before this one.
    pub(super) fn resume(state: TableState, file: OwnedFd, folder: &Path) -> anyhow::Result<Self> {
        let names = (RemoteKey(state.key), Incarnation(state.incarnation));
        let region = OwnedRegion::resume(file, &label(&state.site), names.0, names.1)?;
        let region = Arc::new(region);
        let table = VersionTable::open(Arc::<OwnedRegion>::clone(&region))?;
        let server = RegionServer::bind(tags_socket(folder, &state.site), Arc::clone(&region))?;
        Ok(Self { site: state.site, region, table, _server: server })
    }
}

/// What the region of a site's table is called.
pub(super) fn label(site: &str) -> String {
    format!("tags-{site}")
}

fn inode(file: BorrowedFd<'_>) -> anyhow::Result<u64> {
    let file = fs::File::from(file.try_clone_to_owned()?);
    Ok(file.metadata().context("the region's file")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, parse};
    use shared_state::versions::WriterId;
    use std::os::unix::fs::PermissionsExt as _;

    fn settings() -> Settings {
        let text = "[[sites]]\nname = 'shop'\nhosts = ['x.localhost']\ntags = 256\n\
                    [[nodes]]\nname = 'n'\nservers = { shop = '127.0.0.1:9001' }\n";
        parse("x", text, &[]).unwrap().settings
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    fn start(folder: &Path) -> Table {
        Table::start(&settings().sites[0], folder).unwrap().unwrap()
    }

    #[test]
    fn a_run_that_was_stopped_with_nothing_pending_leaves_nothing_to_decide() {
        let folder = folder();
        let table = start(folder.path());
        assert!(table.table.fill().is_some());
        table.stop(folder.path());
        assert_eq!(Mark::read(folder.path(), "shop"), None);
        assert!(start(folder.path()).table.fill().is_some());
    }

    #[test]
    fn a_killed_run_leaves_the_next_table_closed_until_it_is_decided() {
        let folder = folder();
        let killed = start(folder.path());
        drop(killed);
        let next = start(folder.path());
        assert_eq!(next.table.fill(), None);
        // Nobody said that it is decided: the one after it does not know either.
        next.stop(folder.path());
        let third = start(folder.path());
        assert_eq!(third.table.fill(), None);
        third.table.admit_hits(Decided);
        third.stop(folder.path());
        assert_eq!(Mark::read(folder.path(), "shop"), None);
    }

    #[test]
    fn updates_that_are_pending_at_the_end_concern_the_next_run() {
        let folder = folder();
        let table = start(folder.path());
        let slots = table.table.slots_of(&["a"]);
        let _pending = table.table.begin(WriterId(3), &slots).unwrap();
        table.stop(folder.path());
        assert_eq!(start(folder.path()).table.fill(), None);
    }

    #[test]
    fn a_lost_region_is_known_while_a_process_maps_it() {
        let folder = folder();
        let table = start(folder.path());
        let own = inode(table.file()).unwrap();
        let mark = Mark::read(folder.path(), "shop").unwrap();
        assert_eq!(mark.regions, BTreeSet::from([own]));
        let nobody = BTreeSet::new();
        assert_eq!(mark.still_mapped("shop", &nobody), BTreeSet::from([own]));
        assert!(mark.still_mapped("shop", &BTreeSet::from([own])).is_empty());
        assert!(mark.still_mapped("sho", &nobody).is_empty(), "another site's");
        assert!(own_regions("shop").contains(&own));
        drop(table);
        assert!(mark.still_mapped("shop", &nobody).is_empty());
    }

    #[test]
    fn a_mark_of_another_boot_says_nothing_and_garbage_counts() {
        let folder = folder();
        let path = tags_mark(folder.path(), "shop");
        fs::write(&path, r#"{"boot":"another","regions":[7]}"#).unwrap();
        assert_eq!(Mark::read(folder.path(), "shop"), None);
        fs::write(&path, "{").unwrap();
        assert_eq!(Mark::read(folder.path(), "shop"), Some(Mark::default()));
    }
}
