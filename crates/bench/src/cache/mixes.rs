//! What is asked for: pages, files by Zipf's law, a day of NASA's server. Pure, but for the trace.

use crate::qos::traces::folder;
use crate::qos::zipf::{Uniform, ranks};
use anyhow::Context as _;
use load::trace::{BAD_LINES_MAX, Format, Records, What};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

/// Pages, each with a row of its own.
pub(crate) const PAGES: usize = 1_000;
/// Requests that are drawn; a longer run asks for them again.
const DRAWN: usize = 16_384;
/// Files by Zipf's law, and the lengths of the shortest and the longest.
const ZIPF_FILES: usize = 20;
const ZIPF_BYTES: (f64, f64) = (200.0, 1_000_000.0);
/// For traces that say nothing of their intervals; this one has requests.
const INTERVAL_NS: u64 = 1_000_000_000;
/// NASA's requests of the first of August 1995.
const NASA: &str = "nasa-http-1995-08-01-requests.tsv.gz";
const SEED: u64 = 6;

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mix {
    /// 1,000 pages of 8 KB, each as often.
    Pages,
    /// 20 files of 200 B to 1 MB by Zipf's law.
    Zipf,
    /// URLs and lengths of NASA's day, in their order.
    Nasa,
}

impl Mix {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pages => "1,000 pages of 8 KB",
            Self::Zipf => "20 files of 200 B to 1 MB, Zipf",
            Self::Nasa => "NASA, 1 August 1995",
        }
    }
}

/// Requests of a mix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    /// In the order in which they are asked for, over and over.
    pub(crate) asked: Vec<String>,
    /// Each of them once.
    pub(crate) all: Vec<String>,
}

/// The page of a row.
pub(crate) fn page(id: usize) -> String {
    format!("/page.php?id={id}")
}

fn file(number: usize, bytes: u64) -> String {
    format!("{}&bytes={bytes}&file={number}", page(1 + number % PAGES))
}

/// The paths of a mix.
pub(crate) fn paths(mix: Mix) -> anyhow::Result<Paths> {
    match mix {
        Mix::Pages => Ok(pages()),
        Mix::Zipf => Ok(zipf()),
        Mix::Nasa => nasa(&folder().join(NASA)),
    }
}

fn pages() -> Paths {
    let mut uniform = Uniform(SEED);
    let asked = (0..DRAWN).map(|_| page(1 + (uniform.next() * PAGES as f64) as usize)).collect();
    Paths { asked, all: (1..=PAGES).map(page).collect() }
}

/// The most popular file has no special length: lengths of a geometric row take turns.
fn zipf() -> Paths {
    let (least, most) = ZIPF_BYTES;
    let length = |rank: usize| {
        let place = (rank * 7 % ZIPF_FILES) as f64 / (ZIPF_FILES - 1) as f64;
        (least * (most / least).powf(place)).round() as u64
    };
    let all: Vec<String> = (0..ZIPF_FILES).map(|rank| file(rank, length(rank))).collect();
    let drawn = ranks(SEED, ZIPF_FILES, DRAWN);
    let asked = drawn.into_iter().map(|rank| all[rank].clone()).collect();
    Paths { asked, all }
}

/// Each URL with the longest length that it had: a 304 has none.
fn nasa(path: &Path) -> anyhow::Result<Paths> {
    let mut records = Records::open(path, Some(Format::Requests), INTERVAL_NS, BAD_LINES_MAX)
        .with_context(|| format!("{NASA} (POLDER_TRACES names the folder of traces)"))?;
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let (mut lengths, mut order): (Vec<u64>, Vec<usize>) = (Vec::new(), Vec::new());
    while let Some(record) = records.read()? {
        let What::Request { url: Some(url), size_bytes, .. } = record.what else { continue };
        let next = lengths.len();
        let number = *numbers.entry(url).or_insert(next);
        if number == next {
            lengths.push(1);
        }
        lengths[number] = lengths[number].max(size_bytes.unwrap_or(1));
        order.push(number);
    }
    let all: Vec<String> =
        lengths.iter().enumerate().map(|(number, &bytes)| file(number, bytes)).collect();
    Ok(Paths { asked: order.into_iter().map(|number| all[number].clone()).collect(), all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_even_and_files_follow_the_law() {
        let pages = pages();
        assert_eq!((pages.all.len(), pages.asked.len()), (PAGES, DRAWN));
        let count = |paths: &Paths, path: &String| {
            paths.asked.iter().filter(|asked| *asked == path).count() as f64
        };
        assert!(pages.all.iter().filter(|path| count(&pages, path) > 0.0).count() == PAGES);
        assert!(pages.asked.iter().all(|path| pages.all.contains(path)));
        let zipf = zipf();
        assert_eq!(zipf.all.len(), ZIPF_FILES);
        let share = count(&zipf, &zipf.all[3]) / count(&zipf, &zipf.all[0]);
        assert!((share / 4_f64.powf(-crate::qos::zipf::EXPONENT) - 1.0).abs() < 0.15, "{share}");
        for bytes in ["bytes=200&", "bytes=1000000&"] {
            assert_eq!(zipf.all.iter().filter(|path| path.contains(bytes)).count(), 1, "{bytes}");
        }
    }

    #[test]
    fn nasas_day_has_its_urls_and_lengths() {
        let path = folder().join(NASA);
        if !path.is_file() {
            println!("skipped: no {NASA}; POLDER_TRACES names the folder of traces");
            return;
        }
        let paths = nasa(&path).unwrap();
        assert_eq!((paths.asked.len(), paths.all.len()), (30_969, 2_088));
        assert!(paths.all[0].contains("bytes=1713&"), "{}", paths.all[0]);
        assert!(nasa(Path::new("/nowhere")).is_err());
    }
}
