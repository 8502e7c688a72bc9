//! Recorded load as arrivals: the readers of crate `load`, several traces by one clock.

use crate::traffic::Arrival;
use load::trace::{
    Arrivals, BAD_LINES_MAX, Format, Record, Records, SiteRule, TraceError, TraceWindow,
};
use pool_model::SiteId;
use std::path::{Path, PathBuf};

/// Requests that are kept of all traces together: one of them takes 16 bytes, so 1.6 GB.
pub const REQUESTS_MAX: usize = 100_000_000;

/// A file, and whose requests it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// Where it is.
    pub path: PathBuf,
    /// How it is written, if it is not to be found out.
    pub format: Option<Format>,
    /// The interval of formats that do not say theirs.
    pub interval_ns: u64,
    /// The sites that its requests go to: the only one, or one for each column or each in turn.
    pub sites: Vec<SiteId>,
}

impl TraceFile {
    /// All of a file goes to one site.
    #[must_use]
    pub fn of_site(path: &Path, site: SiteId) -> Self {
        let (path, sites) = (path.to_owned(), vec![site]);
        Self { path, format: None, interval_ns: 1_000_000_000, sites }
    }
}

/// Reads all of these traces; their requests by time, from the first record of the earliest one
/// on.
///
/// # Errors
///
/// [`TraceError`] when a file cannot be read, is in no known format, or has too many requests.
pub fn read(files: &[TraceFile], window: TraceWindow) -> Result<Vec<Arrival>, TraceError> {
    window.check()?;
    let mut opened = Vec::new();
    for file in files {
        let mut records = Records::open(&file.path, file.format, file.interval_ns, BAD_LINES_MAX)?;
        let first = records.read()?;
        opened.push((records, first, file));
    }
    let firsts = opened.iter().filter_map(|(_, first, _)| first.as_ref());
    let origin_ns = firsts.map(|record| record.at_ns).min().unwrap_or(0);
    let mut all = Vec::new();
    for (place, (records, first, file)) in opened.into_iter().enumerate() {
        let seed = window.seed.wrapping_add(place as u64);
        let window = TraceWindow { seed, ..window };
        read_one(records, first, (&file.sites, window, origin_ns), &mut all)?;
    }
    // Stable: at one time the order of the files decides.
    all.sort_by_key(|arrival| arrival.at_ns);
    Ok(all)
}

fn read_one(
    mut records: Records,
    mut first: Option<Record>,
    (sites, window, origin_ns): (&[SiteId], TraceWindow, i64),
    all: &mut Vec<Arrival>,
) -> Result<(), TraceError> {
    let next = move || match first.take() {
        Some(first) => Ok(Some(first)),
        None => records.read(),
    };
    let rules = vec![SiteRule::default(); sites.len()];
    let mut arrivals = Arrivals::new(next, window, rules, None, origin_ns);
    while let Some(arrival) = arrivals.read()? {
        if all.len() >= REQUESTS_MAX {
            let why = format!("more than {REQUESTS_MAX} requests; take a part, or a smaller scale");
            return Err(TraceError::Options(why));
        }
        if let Some(&site) = sites.get(arrival.site) {
            all.push(Arrival { at_ns: arrival.at_ns, site });
        }
    }
    Ok(())
}
