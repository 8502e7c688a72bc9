//! When a changed guarantee holds.
//!
//! ```text
//! written   an edge has put the new numbers into the site's word `floor`. All edges have answered
//!           that they go by the new settings before, so that none still decides by older numbers:
//!           from here on no move takes a node below the new guarantee
//! reached   the site has that many nodes
//! ```

use super::parent::Parent;
use crate::settings::{Mode, Settings, Site};
use pool_model::SiteId;
use shared_state::words::Floor;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long edges may take to write the words, beyond two looks: some milliseconds, on a busy
/// machine more.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// How long nodes may take to come: moves to a site below its guarantee wait for nothing, but
/// servers that are started on assignment do.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
/// Between two looks at either.
const POLL: Duration = Duration::from_millis(10);

/// What is known of changed guarantees.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// In words, a line for each site concerned.
    lines: Vec<String>,
    /// Whether one of them does not hold yet.
    pub(super) is_late: bool,
}

impl Kept {
    /// Lines to put behind others.
    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("\n{line}")).collect()
    }

    fn late(line: String) -> Self {
        Self { lines: vec![line], is_late: true }
    }
}

impl Parent {
    /// Waits until the guarantees that differ hold, for a while.
    pub(super) async fn guarantees_hold(&self, old: &Settings, new: &Settings) -> Kept {
        let bounds = |site: &Site| (site.terms.guarantee.hard, site.terms.guarantee.max);
        let pairs = old.sites.iter().zip(&new.sites);
        let changed = pairs.enumerate().filter(|(_, (old, new))| bounds(old) != bounds(new));
        let changed: Vec<_> = changed.map(|(index, (old, new))| (index, old, new)).collect();
        if changed.is_empty() {
            return Kept::default();
        }
        if new.pool.mode == Mode::Observe {
            let text = "no guarantee is kept: mode is observe, and no edge moves nodes";
            return Kept::late(text.to_owned());
        }
        let limit = WRITTEN_WITHIN + 2 * Duration::from_millis(new.pool.idle_look_every_ms.into());
        let is_written = || changed.iter().all(|&(index, _, site)| self.says(index, site));
        if !until(limit, is_written).await {
            let text = "no edge has written the new guarantee yet: the old one holds until then \
                        (`polder status` says why)";
            return Kept::late(text.to_owned());
        }
        let mut kept = Kept::default();
        for (index, old, new) in changed {
            if new.terms.guarantee.hard > old.terms.guarantee.hard {
                self.reached(index, new, &mut kept).await;
            }
        }
        kept
    }

    /// Whether the shared word of a site has its present guarantee.
    fn says(&self, index: usize, site: &Site) -> bool {
        let Ok(id) = SiteId::from_index(index) else { return true };
        let Some(word) = self.home.record.floor_word(id) else { return true };
        let guarantee = site.terms.guarantee;
        let settings_version = self.family.borrow().version;
        let wanted = Floor { settings_version, hard: guarantee.hard, max: guarantee.max };
        Floor::unpack(word.load(Ordering::SeqCst)) == wanted
    }

    /// Waits until the site has its nodes, and tells.
    async fn reached(&self, index: usize, site: &Site, kept: &mut Kept) {
        let hard = u32::from(site.terms.guarantee.hard);
        let name = &site.name;
        let started = Instant::now();
        let (nodes, is_paused) = loop {
            let report = self.status().await.ok();
            let nodes = report.as_ref().and_then(|report| Some(report.sites.get(index)?.nodes));
            let is_paused = report.is_some_and(|report| report.pool.paused);
            let nodes = nodes.unwrap_or(0);
            if nodes >= hard || is_paused || started.elapsed() > REACHED_WITHIN {
                break (nodes, is_paused);
            }
            tokio::time::sleep(POLL).await;
        };
        kept.is_late |= nodes < hard;
        kept.lines.push(if nodes >= hard {
            format!("{name} has {nodes} nodes: its guarantee of {hard} holds")
        } else {
            let why = if is_paused { "; moves are paused" } else { "" };
            format!(
                "{name} has {nodes} of {hard} nodes: the guarantee holds once it has them, and no \
                 move takes one of these{why}"
            )
        });
    }
}

async fn until(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}
