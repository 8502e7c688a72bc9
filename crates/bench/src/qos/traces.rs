//! Recorded load of two sites, live: each site has a trace and a generator of its own.

use super::pools::{HIGH, LOW, SITES};
use super::streams::{Done, Shape, Stream, wait};
use anyhow::{Context as _, ensure};
use load::clock::now_ns;
use load::generate::Cancel;
use load::trace::{BAD_LINES_MAX, Record, Records, ReplayOptions, SiteRule, TraceWindow, What};
use polder::rig::{NodeHistory, Rig, RigOptions};
use serde::Serialize;
use sim::scenario::azure::{COMPRESS, FILES};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests in flight of one site: enough that a loaded site is seen as one, few enough for the
/// generator's open files.
const OUTSTANDING_MAX: usize = 500;
/// Requests slower than this count as slow; milliseconds.
pub(crate) const SLOW_MS: u32 = 50;
const SECOND_NS: u64 = 1_000_000_000;
/// How often moves are fetched: an edge keeps its last thousand.
pub(crate) const FETCH_EVERY: Duration = Duration::from_millis(500);

/// The site that is counted twice.
const WORLD_CUP: &str = "worldcup98-per-minute.csv.gz";

/// Two days around the busiest minute, in half a minute.
const WORLD_CUP_MINUTES: usize = 2 * 24 * 60;
const WORLD_CUP_SECONDS: f64 = 30.0;
/// The second site lives so many minutes later.
const WORLD_CUP_SHIFT_MINUTES: usize = 12 * 60;

/// Where traces are that are not shipped: `POLDER_TRACES` names it, else it is beside the checkout.
pub(crate) fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/web-traces");
    std::env::var_os("POLDER_TRACES").map_or(beside, PathBuf::from)
}

fn whole(name: &str) -> anyhow::Result<PathBuf> {
    let path = folder().join(name);
    ensure!(path.is_file(), "no {name} (POLDER_TRACES names the folder of traces)");
    Ok(path)
}

/// Load of two sites.
pub(crate) struct Feed {
    pub(crate) name: &'static str,
    paths: [PathBuf; 2],
    windows: [TraceWindow; 2],
    interval_ns: u64,
}

impl Feed {
    /// The Azure pair, from the moment on at which both are recorded.
    pub(crate) fn azure() -> anyhow::Result<Self> {
        let paths = [whole(FILES[0])?, whole(FILES[1])?];
        let (code, conv) = (bounds(&paths[0])?, bounds(&paths[1])?);
        let (from_ns, to_ns) = (conv.0.max(code.0), conv.1.min(code.1));
        let window = |(first_ns, _): (i64, i64)| TraceWindow {
            start_s: (from_ns - first_ns) as f64 / 1e9,
            duration_s: Some((to_ns - from_ns) as f64 / 1e9),
            compress: COMPRESS,
            ..TraceWindow::default()
        };
        let windows = [window(code), window(conv)];
        Ok(Self { name: "Azure code and conv", paths, windows, interval_ns: SECOND_NS })
    }

    /// The World Cup by minute, and the same half a day later, written into `folder`; the busiest
    /// minute becomes `peak_per_second`.
    pub(crate) fn world_cup(folder: &Path, peak_per_second: f64) -> anyhow::Result<Self> {
        let counts = minutes(&whole(WORLD_CUP)?)?;
        let busiest = (0..counts.len()).max_by(|&a, &b| counts[a].total_cmp(&counts[b]));
        let busiest = busiest.context("a trace without a minute")?;
        let from = busiest.saturating_sub(WORLD_CUP_MINUTES / 2);
        let compress = WORLD_CUP_MINUTES as f64 * 60.0 / WORLD_CUP_SECONDS;
        let scale = peak_per_second / (counts[busiest] / 60.0 * compress);
        let window = TraceWindow { compress, scale, ..TraceWindow::default() };
        let write = |place: usize, shift: usize| {
            let mut text = format!("time_s,{}\n", SITES[place]);
            for (minute, count) in
                counts.iter().skip(from + shift).take(WORLD_CUP_MINUTES).enumerate()
            {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{},{count}", minute * 60);
            }
            let path = folder.join(format!("{}.csv", SITES[place]));
            std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
            anyhow::Ok(path)
        };
        let paths = [write(HIGH, 0)?, write(LOW, WORLD_CUP_SHIFT_MINUTES)?];
        let windows = [window, TraceWindow { seed: 2, ..window }];
        Ok(Self { name: "World Cup", paths, windows, interval_ns: 60 * SECOND_NS })
    }

    /// How long it lasts; seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let window = self.windows[0];
        window.duration_s.map_or(WORLD_CUP_SECONDS, |seconds| seconds / window.compress)
    }

    fn shape(&self, site: usize) -> Shape {
        let options = ReplayOptions {
            traces: vec![self.paths[site].clone()],
            format: None,
            interval_ns: self.interval_ns,
            bad_lines_max: BAD_LINES_MAX,
            rules: vec![SiteRule::default()],
            path: Some("/".to_owned()),
            window: self.windows[site],
        };
        Shape::Replay(Box::new(options), OUTSTANDING_MAX)
    }
}

/// The first and the last moment of a trace.
fn bounds(path: &Path) -> anyhow::Result<(i64, i64)> {
    let mut records = Records::open(path, None, SECOND_NS, BAD_LINES_MAX)?;
    let (mut first_ns, mut last_ns) = (None, 0);
    while let Some(Record { at_ns, .. }) = records.read()? {
        first_ns.get_or_insert(at_ns);
        last_ns = at_ns;
    }
    Ok((first_ns.context("a trace without a record")?, last_ns))
}

/// Requests of each minute.
fn minutes(path: &Path) -> anyhow::Result<Vec<f64>> {
    let mut records = Records::open(path, None, SECOND_NS, BAD_LINES_MAX)?;
    let mut counts = Vec::new();
    while let Some(Record { what, .. }) = records.read()? {
        if let What::Rates { counts: columns, .. } = what {
            counts.push(columns.iter().sum());
        }
    }
    Ok(counts)
}

/// What became of one site.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteReplay {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// Slower than [`SLOW_MS`], or failed.
    pub(crate) slow: u64,
    pub(crate) per_second: f64,
    pub(crate) p99_ms: f64,
    /// From so many seconds on so many nodes.
    pub(crate) nodes: Vec<(f64, u32)>,
}

/// What became of a replay under one scheme.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Replayed {
    pub(crate) trace: &'static str,
    pub(crate) scheme: String,
    pub(crate) sites: [SiteReplay; 2],
    pub(crate) moves: usize,
    /// The longest that a generator's thread waited for a CPU; percent of the time.
    pub(crate) wait_pct: f64,
}

impl Replayed {
    /// Slow requests of both sites.
    pub(crate) fn slow(&self) -> u64 {
        self.sites.iter().map(|site| site.slow).sum()
    }

    /// Their share of all requests.
    pub(crate) fn slow_share(&self) -> f64 {
        let requests: u64 = self.sites.iter().map(|site| site.requests).sum();
        self.slow() as f64 / requests.max(1) as f64
    }
}

/// Replays to pools of all these options at the same time. Blocks until the last response.
pub(crate) fn replay(
    feed: &Feed,
    pools: Vec<(String, RigOptions)>,
    cancel: &Cancel,
) -> anyhow::Result<Vec<Replayed>> {
    let mut rigs = Vec::new();
    for (scheme, mut options) in pools {
        options.cancel = cancel.clone();
        let rig = Rig::start(&options)?;
        let watcher = rig.watch_moves(FETCH_EVERY)?;
        rigs.push((scheme, rig.status()?, watcher, rig));
    }
    let start_ns = now_ns();
    let stream = |rig: &Rig, site: usize| {
        let mut load = rig.load();
        load.sites = vec![load.sites.swap_remove(site)];
        Stream::start(load, 0, feed.shape(site))
    };
    let streams: Vec<[Stream; 2]> =
        rigs.iter().map(|(.., rig)| [HIGH, LOW].map(|site| stream(rig, site))).collect();
    wait(&streams.iter().flatten().collect::<Vec<_>>(), None, cancel)?;
    let mut replayed = Vec::new();
    for ((scheme, before, watcher, rig), streams) in rigs.into_iter().zip(streams) {
        let [high, low] = streams;
        let done = [high.finish()?, low.finish()?];
        let after = rig.status()?;
        let history = NodeHistory::replay(&before, &watcher.finish()?, &after)
            .context("the history of moves")?;
        let names = rig.options().sites.iter().map(|site| site.name.as_str());
        let site = |(name, done): (&str, &Done)| site_replay(done, &history, name, start_ns);
        let mut sites = names.zip(&done).map(site);
        let (Some(first), Some(second)) = (sites.next(), sites.next()) else { continue };
        let wait_pct = |done: &Done| {
            100.0 * done.cpu.wait_ns as f64
                / done.end_ns.saturating_sub(done.start_ns).max(1) as f64
        };
        replayed.push(Replayed {
            trace: feed.name,
            scheme,
            sites: [first, second],
            moves: history.moves(),
            wait_pct: done.iter().map(wait_pct).fold(0.0, f64::max),
        });
    }
    Ok(replayed)
}

fn site_replay(done: &Done, history: &NodeHistory, name: &str, start_ns: u64) -> SiteReplay {
    let (tally, failed) = (&done.tally, done.tally.failures.total());
    let seconds = done.end_ns.saturating_sub(done.start_ns) as f64 / 1e9;
    let since = |at_ns: u64| at_ns.saturating_sub(start_ns) as f64 / 1e9;
    SiteReplay {
        requests: tally.requests,
        failed,
        slow: failed + tally.latency.slower_than(u64::from(SLOW_MS) * 1_000),
        per_second: if seconds > 0.0 { tally.ok as f64 / seconds } else { 0.0 },
        p99_ms: tally.latency.p99_us() as f64 / 1e3,
        nodes: history.nodes_of(name).into_iter().map(|(at, count)| (since(at), count)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A feed, or why there is none.
    fn found(feed: anyhow::Result<Feed>) -> Option<Feed> {
        feed.inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    #[test]
    fn the_azure_pair_begins_and_ends_together() {
        let Some(feed) = found(Feed::azure()) else { return };
        assert!((50.0..60.0).contains(&feed.seconds()), "{}", feed.seconds());
        // One of them begins later: at its own first record.
        let starts = feed.windows.map(|window| window.start_s);
        assert!(starts.contains(&0.0) && starts.iter().any(|&start_s| start_s > 10.0));
        assert_eq!(feed.windows[0].duration_s, feed.windows[1].duration_s);
    }

    #[test]
    fn the_world_cup_is_two_sites_half_a_day_apart() {
        let folder = tempfile::tempdir().unwrap();
        let Some(feed) = found(Feed::world_cup(folder.path(), 9_000.0)) else { return };
        let [high, low] = feed.paths.clone().map(|path| minutes(&path).unwrap());
        assert_eq!((high.len(), low.len()), (WORLD_CUP_MINUTES, WORLD_CUP_MINUTES));
        assert_eq!(
            high[WORLD_CUP_SHIFT_MINUTES..],
            low[..WORLD_CUP_MINUTES - WORLD_CUP_SHIFT_MINUTES]
        );
        let peak = high.iter().copied().fold(0.0, f64::max);
        let window = feed.windows[0];
        let rate = peak / 60.0 * window.compress * window.scale;
        assert!((rate / 9_000.0 - 1.0).abs() < 1e-6, "{rate}");
    }
}
