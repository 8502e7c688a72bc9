//! What the cache of an edge holds and has done.

use edge::CacheReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Counts since the cache was made, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheStatus {
    /// Requests answered without a question.
    pub hits: u64,
    /// Requests that went to a server, by the reason as in `Cache-Status`.
    pub forwards: BTreeMap<String, u64>,
    /// Responses stored.
    pub stored: u64,
    /// Responses to GET that were not.
    pub not_stored: u64,
    /// Stored responses that a server said still hold.
    pub renewed: u64,
    /// Stale responses that stood in for a failed server.
    pub stood_in: u64,
    /// Fresh responses that were no hit, because their tags had changed.
    pub refused: u64,
    /// Hits about which a server was asked too.
    pub audited: u64,
    /// Of these, those that were proved to be older than they may be.
    pub violations: u64,
    /// Purges.
    pub purges: u64,
    /// Responses that had to make room.
    pub evicted: u64,
    /// URLs that something is stored for.
    pub urls: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Responses that are fetched for whoever asks for them.
    pub flights: u64,
    /// Requests that wait for them.
    pub waiting: u64,
    /// The disk tier, where there is one.
    pub disk: Option<DiskStatus>,
}

/// What the disk tier of a cache holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskStatus {
    /// URLs that something is kept for.
    pub urls: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// URLs that wait to be written.
    pub waiting: u64,
    /// URLs whose responses came back to memory.
    pub recalled: u64,
    /// Files written.
    pub written: u64,
    /// URLs that had to make room.
    pub evicted: u64,
    /// URLs that memory gave up faster than they could be written.
    pub dropped: u64,
    /// Files that were damaged, or could not be read.
    pub damaged: u64,
    /// Files that could not be written.
    pub failed: u64,
}

impl DiskStatus {
    fn of(stats: &cache::DiskStats) -> Self {
        Self {
            urls: stats.urls,
            bytes: stats.bytes,
            waiting: stats.waiting,
            recalled: stats.recalled,
            written: stats.written,
            evicted: stats.evicted,
            dropped: stats.dropped,
            damaged: stats.damaged,
            failed: stats.failed,
        }
    }

    fn counts(&self) -> [(&'static str, u64); 9] {
        [
            ("URLs on the disk", self.urls),
            ("bytes on the disk", self.bytes),
            ("URLs to be written", self.waiting),
            ("URLs recalled", self.recalled),
            ("files written", self.written),
            ("files evicted", self.evicted),
            ("URLs not written in time", self.dropped),
            ("files damaged", self.damaged),
            ("files not written", self.failed),
        ]
    }
}

impl CacheStatus {
    /// As an edge reports it.
    #[must_use]
    pub fn of(report: &CacheReport) -> Self {
        let stats = &report.stats;
        let named = stats.forwarded.iter().map(|(why, count)| (why.token().to_owned(), *count));
        Self {
            hits: stats.hits,
            forwards: named.collect(),
            stored: stats.stored,
            not_stored: stats.not_stored,
            renewed: stats.renewed,
            stood_in: stats.stood_in,
            refused: stats.refused,
            audited: stats.audited,
            violations: stats.violations,
            purges: stats.purges,
            evicted: stats.evicted,
            urls: stats.urls,
            bytes: stats.bytes,
            flights: report.flights,
            waiting: report.waiting,
            disk: stats.disk.as_ref().map(DiskStatus::of),
        }
    }

    /// Requests that went to a server.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.forwards.values().sum()
    }

    /// Hits among all requests, in percent; none before the first request.
    #[must_use]
    pub fn hits_pct(&self) -> Option<f64> {
        let all = self.hits + self.forwarded();
        (all > 0).then(|| 100.0 * self.hits as f64 / all as f64)
    }

    /// One line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        let hits = self.hits_pct().map_or("-".to_owned(), |pct| format!("{pct:.1} %"));
        let mib = self.bytes as f64 / f64::from(1 << 20);
        format!("{hits} hits, {} URLs, {mib:.1} MiB, {} evicted", self.urls, self.evicted)
    }

    /// All of it, a line each, for `polder cache stats`.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let counts = [
            ("hits", self.hits),
            ("forwarded", self.forwarded()),
            ("stored", self.stored),
            ("not stored", self.not_stored),
            ("renewed by a 304", self.renewed),
            ("stood in for a failure", self.stood_in),
            ("refused by their tags", self.refused),
            ("audited", self.audited),
            ("violations found", self.violations),
            ("purges", self.purges),
            ("evicted", self.evicted),
            ("URLs held", self.urls),
            ("bytes held", self.bytes),
            ("fetches under way", self.flights),
            ("requests that wait", self.waiting),
        ];
        let disk = self.disk.iter().flat_map(DiskStatus::counts);
        for (name, count) in counts.into_iter().chain(disk) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:<24}{count:>16}");
            if name == "forwarded" {
                for (why, count) in self.forwards.iter().filter(|(_, count)| **count > 0) {
                    let _ = writeln!(text, "    {why:<22}{count:>16}");
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_a_share_of_all_requests() {
        let mut status = CacheStatus::default();
        assert_eq!(status.hits_pct(), None);
        assert!(status.line().starts_with("- hits, 0 URLs"), "{}", status.line());
        status.hits = 3;
        status.forwards = [("uri-miss".to_owned(), 1), ("stale".to_owned(), 0)].into();
        status.bytes = 3 << 20;
        assert_eq!(status.line(), "75.0 % hits, 0 URLs, 3.0 MiB, 0 evicted");
        let lines = status.lines();
        assert!(lines.contains("uri-miss") && !lines.contains("stale"), "{lines}");
        assert!(!lines.contains("disk"), "{lines}");
        status.disk = Some(DiskStatus { recalled: 7, ..DiskStatus::default() });
        let lines = status.lines();
        assert!(lines.contains("URLs recalled") && lines.contains("bytes on the disk"), "{lines}");
    }
}
