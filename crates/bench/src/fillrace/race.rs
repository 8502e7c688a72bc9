//! One race, as its driver sees it.

use super::measure::Race;
use super::origin::{Pages, tag};
use super::plan::{ATTEMPTS_MAX, CHANGE_AFTER, Dialect};
use crate::ask::{Answer, Question, ask};
use anyhow::{Context as _, bail, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use writers::{Client, Ended};

/// Far longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether the origin has read.
const READ_POLL: Duration = Duration::from_millis(1);

/// A cache that is raced.
#[derive(Clone, Debug)]
pub(super) enum Contender {
    /// An edge, and the socket of its site's writers.
    Ours {
        edge: SocketAddr,
        host: String,
        writers: PathBuf,
    },
    Varnish {
        address: SocketAddr,
        dialect: Dialect,
    },
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "ours",
            Self::Varnish { .. } => "varnish",
        }
    }

    fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let (address, host) = match self {
            Self::Ours { edge, host, .. } => (*edge, host.as_str()),
            Self::Varnish { address, .. } => (*address, "race.test"),
        };
        let question =
            Question { address, method: "GET", host, path, headers: &[], patience: PATIENCE };
        let answer = ask(&question)?;
        ensure!(answer.status == 200, "{}: {path} answered {}", self.name(), answer.status);
        Ok(answer)
    }

    /// Changes a page's data and tells the cache. Behind this no answer may be older.
    fn change(&self, pages: &Pages, path: &str) -> anyhow::Result<u64> {
        match self {
            Self::Ours { writers, .. } => {
                let mut client = Client::connect(writers, PATIENCE)?;
                let token = client.begin(&[tag(path)])?;
                let version = pages.commit(path);
                ensure!(client.end(token)? == Ended::Now, "the table was lost");
                Ok(version)
            }
            Self::Varnish { address, dialect } => {
                let version = pages.commit(path);
                let headers = [format!("xkey: {}", tag(path))];
                let (address, method, host) = (*address, dialect.method(), "race.test");
                let question =
                    Question { address, method, host, path, headers: &headers, patience: PATIENCE };
                let status = ask(&question)?.status;
                ensure!(status == 200, "Varnish answered {status} to {method}");
                Ok(version)
            }
        }
    }

    /// Whether an answer came from the cache: as each says it.
    fn is_hit(&self, answer: &Answer) -> bool {
        match self {
            Self::Ours { .. } => {
                answer.header("cache-status").is_some_and(|status| status.contains("; hit"))
            }
            // The number of this request, and that of the one that fetched it.
            Self::Varnish { .. } => {
                answer.header("x-varnish").is_some_and(|ids| ids.split_whitespace().count() == 2)
            }
        }
    }

    /// Races until the change falls between the origin's read and its answer.
    pub(super) fn race(&self, pages: &Pages, number: usize) -> anyhow::Result<Race> {
        for attempt in 1..=ATTEMPTS_MAX {
            let path = format!("/{}/{number}/{attempt}", self.name());
            let raced = self.attempt(pages, &path, attempt);
            if let Some(race) = raced.with_context(|| format!("race of {path}"))? {
                return Ok(race);
            }
        }
        bail!("{ATTEMPTS_MAX} times the change came too late for a race: the machine stands still")
    }

    fn attempt(&self, pages: &Pages, path: &str, attempts: usize) -> anyhow::Result<Option<Race>> {
        let version = scope(|scope| -> anyhow::Result<_> {
            let first = scope.spawn(|| self.get(path));
            let deadline = Instant::now() + PATIENCE;
            while pages.page(path).read == 0 {
                ensure!(Instant::now() < deadline, "the origin was not asked");
                sleep(READ_POLL);
            }
            sleep(CHANGE_AFTER);
            let version = self.change(pages, path)?;
            let is_race = pages.page(path).answered == 0;
            first.join().ok().context("the first request panicked")??;
            Ok(is_race.then_some(version))
        })?;
        let Some(version) = version else { return Ok(None) };
        let last = [self.get(path)?, self.get(path)?, self.get(path)?];
        let is_hit = self.is_hit(&last[2]);
        let mut answers = [0; 3];
        for (answer, found) in answers.iter_mut().zip(&last) {
            let text = String::from_utf8_lossy(&found.body);
            *answer = text.parse().with_context(|| format!("{text:?} is no version"))?;
        }
        let dialect = match self {
            Self::Ours { .. } => None,
            Self::Varnish { dialect, .. } => Some(*dialect),
        };
        Ok(Some(Race { dialect, attempts, version, answers, is_hit }))
    }
}
