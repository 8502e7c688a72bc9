//! What the origin has: rows that writers change, pages that are made of them, and who checks them.

use super::table::slot_of;
use crate::random::Random;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, VARY};
use shared_state::versions::Slot;
use std::fmt::Write as _;

/// Languages of pages that have more than one.
pub(super) const LANGUAGES: [&str; 2] = ["en", "nl"];

/// How long a page says that it is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    Minute,
    /// So short that its end comes within a run.
    Second,
    /// It is kept, and asked about at each use.
    NoCache,
}

/// One page: it shows its first row, and others that the first names or that are always the same.
#[derive(Clone, Debug)]
pub(super) struct Page {
    first: usize,
    /// Shown besides: all of one list, which the version of the first row chooses.
    others: Vec<Vec<usize>>,
    says: Says,
    has_validator: bool,
    pub(super) has_languages: bool,
    /// The field that carries its tags; none: it has no tags.
    tags_in: Option<&'static HeaderName>,
}

impl Page {
    fn draw(random: &mut Random, rows: usize, rank: usize) -> Self {
        let row = |random: &mut Random| random.below(rows as u64) as usize;
        let first = row(random);
        let lists = if random.below(3) == 0 { 2 } else { 1 };
        let mut others = Vec::new();
        for _ in 0..lists {
            let count = random.below(3);
            let mut list: Vec<_> = (0..count).map(|_| row(random)).collect();
            list.sort_unstable();
            list.dedup();
            list.retain(|&other| other != first);
            others.push(list);
        }
        // What is no hit by its nature is seldom asked for.
        let says = match random.below(4) {
            0 => Says::Nothing,
            1 => Says::Second,
            _ if rank == UNKEPT.0 => Says::NoCache,
            _ => Says::Minute,
        };
        let field = &cache::tags::FIELDS[random.below(4) as usize];
        Self {
            first,
            others,
            says,
            has_validator: says == Says::NoCache || random.below(2) == 0,
            has_languages: random.below(4) == 0,
            tags_in: (rank != UNKEPT.1).then_some(field),
        }
    }

    /// The rows that it shows behind the first, if that has this version.
    fn others(&self, version: u32) -> &[usize] {
        &self.others[version as usize % self.others.len()]
    }

    /// The row that is to be read next, after these.
    pub(super) fn next_row(&self, shown: &[(usize, u32)]) -> Option<usize> {
        let Some(((_, version), others)) = shown.split_first() else { return Some(self.first) };
        self.others(*version).get(others.len()).copied()
    }

    /// Whether it is a hit once it is stored and nothing changes.
    pub(super) fn is_kept(&self) -> bool {
        self.tags_in.is_some() && self.says != Says::NoCache
    }

    /// The body that shows these rows.
    pub(super) fn body(&self, shown: &[(usize, u32)], language: usize) -> Bytes {
        let mut text = LANGUAGES[language].to_owned();
        for (row, version) in shown {
            // Writing to memory does not fail.
            let _ = write!(text, " {row}={version}");
        }
        Bytes::from(text)
    }

    /// The fields of a response with this body.
    pub(super) fn headers(&self, shown: &[(usize, u32)], body: &Bytes) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).expect("only digits and letters");
        let says = match self.says {
            Says::Nothing => None,
            Says::Minute => Some("max-age=60"),
            Says::Second => Some("max-age=1"),
            Says::NoCache => Some("no-cache"),
        };
        if let Some(says) = says {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(says));
        }
        if self.has_validator {
            let text = String::from_utf8_lossy(body).replace(' ', ",");
            headers.insert(ETAG, value(&format!("\"{text}\"")));
        }
        if self.has_languages {
            headers.insert(VARY, HeaderValue::from_static("accept-language"));
        }
        if let Some(field) = self.tags_in {
            let between = if *field == "cache-tag" { "," } else { " " };
            let tags: Vec<_> = shown.iter().map(|&(row, _)| tag_of(row)).collect();
            headers.insert(field, value(&tags.join(between)));
        }
        headers
    }

    /// Why a body is no answer to a request for which this much was committed.
    pub(super) fn fault(&self, body: &[u8], language: usize, arrived: &[u32]) -> Option<String> {
        let text = String::from_utf8_lossy(body);
        let mut words = text.split(' ');
        if words.next() != Some(LANGUAGES[language]) {
            return Some(format!("{text:?} is for somebody else"));
        }
        let pair = |word: &str| {
            let (row, version) = word.split_once('=')?;
            Some((row.parse().ok()?, version.parse().ok()?))
        };
        let shown: Option<Vec<(usize, u32)>> = words.map(pair).collect();
        let Some(shown) = shown else { return Some(format!("{text:?} is no page")) };
        let mut whole = Vec::new();
        while let Some(row) = self.next_row(&whole) {
            let Some(&(found, version)) = shown.get(whole.len()).filter(|(found, _)| *found == row)
            else {
                return Some(format!("{text:?} lacks row {row}"));
            };
            whole.push((found, version));
        }
        let old = whole.iter().find(|(row, version)| *version < arrived[*row])?;
        let (row, committed) = (old.0, arrived[old.0]);
        Some(format!("{text:?} is older than what was committed, {row}={committed}"))
    }
}

/// Ranks of a page that may say `no-cache`, and of one without tags.
const UNKEPT: (usize, usize) = (4, 5);

/// The tag of a row.
pub(super) fn tag_of(row: usize) -> String {
    format!("row:{row}")
}

/// The words of these tags, each once.
pub(super) fn slot_of_tags<'a>(tags: impl Iterator<Item = &'a [u8]>) -> Vec<Slot> {
    let mut slots: Vec<_> = tags.map(slot_of).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// The rows as they are committed, and the pages, the most popular first.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) committed: Vec<u32>,
    pub(super) pages: Vec<Page>,
}

impl Site {
    pub(super) fn draw(random: &mut Random) -> Self {
        let rows = random.between(4, 8) as usize;
        let pages = random.between(6, 9) as usize;
        let pages = (0..pages).map(|rank| Page::draw(random, rows, rank)).collect();
        Self { committed: vec![0; rows], pages }
    }

    /// A page by its popularity: each is asked for twice as often as the one two ranks below.
    pub(super) fn popular(&self, random: &mut Random) -> usize {
        let rank = random.exponential() * 2.5;
        (rank as usize).min(self.pages.len() - 1)
    }

    pub(super) fn commit(&mut self, rows: &[usize]) {
        for &row in rows {
            self.committed[row] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn a_page_is_checked_row_by_row() {
        let page = Page {
            first: 1,
            others: vec![vec![2], vec![]],
            says: Says::Nothing,
            has_validator: true,
            has_languages: true,
            tags_in: Some(&cache::tags::FIELDS[1]),
        };
        let shown = [(1, 4), (2, 9)];
        let body = page.body(&shown, 1);
        assert_eq!(body, "nl 1=4 2=9");
        assert_eq!(page.headers(&shown, &body)["cache-tag"], "row:1,row:2");
        let fault = |arrived: &[u32]| page.fault(&body, 1, arrived);
        assert_eq!(fault(&[99, 4, 9]), None);
        assert!(fault(&[0, 5, 9]).unwrap().contains("older"));
        assert!(fault(&[0, 4, 10]).unwrap().contains("older"));
        assert!(page.fault(&body, 0, &[0; 3]).unwrap().contains("somebody else"));
        assert!(page.fault(b"nl 1=4", 1, &[0; 3]).unwrap().contains("lacks row 2"));
        assert_eq!(page.fault(b"nl 1=5", 1, &[0; 3]), None, "the odd version names no other row");
    }

    #[test]
    fn sites_have_pages_of_all_kinds() {
        let draw = |seed| Site::draw(&mut Random::of(seed, Stream::Scenario));
        let pages: Vec<_> = (0..50).flat_map(|seed| draw(seed).pages).collect();
        let any = |is: fn(&Page) -> bool| pages.iter().any(is);
        assert!(any(|page| page.says == Says::NoCache) && any(|page| page.says == Says::Second));
        assert!(any(|page| page.others.len() > 1) && any(|page| page.tags_in.is_none()));
        assert!(any(|page| page.has_languages && page.has_validator && page.is_kept()));
    }
}
