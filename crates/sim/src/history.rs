//! What happened, as one number and as the last lines of a log.

use std::collections::VecDeque;
use std::fmt;

/// Lines that are kept: those before a violation tell how it came about.
const LINES_MAX: usize = 200;

/// What is recorded. Every record is part of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An edge looked.
    Look { edge: u8 },
    /// A compare-and-swap took place.
    Swap { word: (char, u16), old: u64, new: u64, edge: u8 },
    /// A late compare-and-swap missed.
    MissedLate { word: (char, u16), edge: u8 },
    /// A request ended: how, and how long it took.
    Ended { site: u16, how: u8, took_ns: u64 },
    /// The waiting requests of a site with rates.
    Waiting { site: u16, requests: u64 },
    /// A fault began or ended.
    Fault { kind: &'static str, target: u16, begins: bool },
}

/// The history of a run.
#[derive(Clone, Debug)]
pub(crate) struct History {
    hash: u64,
    records: u64,
    lines: VecDeque<(u64, Record)>,
}

impl Default for History {
    fn default() -> Self {
        Self { hash: 0x6a09_e667_f3bc_c908, records: 0, lines: VecDeque::new() }
    }
}

impl History {
    /// Adds a record.
    pub(crate) fn add(&mut self, at_ns: u64, record: Record) {
        self.records += 1;
        let (kind, a, b) = match record {
            Record::Look { edge } => (1, u64::from(edge), 0),
            Record::Swap { word, old, new, edge } => {
                self.mix(u64::from(u32::from(word.0)) << 16 | u64::from(word.1));
                self.mix(old);
                (2, new, u64::from(edge))
            }
            Record::MissedLate { word, edge } => (3, u64::from(word.1), u64::from(edge)),
            Record::Ended { site, how, took_ns } => {
                (4, u64::from(site) << 8 | u64::from(how), took_ns)
            }
            Record::Waiting { site, requests } => (5, u64::from(site), requests),
            Record::Fault { kind, target, begins } => {
                (6, kind.bytes().fold(u64::from(target), rolled), u64::from(begins))
            }
        };
        for word in [at_ns, kind, a, b] {
            self.mix(word);
        }
        if matches!(record, Record::Swap { .. } | Record::MissedLate { .. } | Record::Fault { .. })
        {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back((at_ns, record));
        }
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// One number for all of it: two runs that differ anywhere almost surely differ here.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How many records there were.
    pub(crate) fn len(&self) -> u64 {
        self.records
    }

    /// The last lines, oldest first.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.iter().map(|(at_ns, record)| line(*at_ns, record)).collect()
    }
}

fn rolled(hash: u64, byte: u8) -> u64 {
    hash.wrapping_mul(31).wrapping_add(u64::from(byte))
}

fn line(at_ns: u64, record: &Record) -> String {
    let at_s = at_ns as f64 / 1e9;
    format!("{at_s:12.6} s  {record}")
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |word: (char, u16)| match word.0 {
            'd' => format!("depart of site {}", word.1),
            'a' => format!("arrive of site {}", word.1),
            'f' => format!("floor of site {}", word.1),
            _ => format!("assign of node {}", word.1),
        };
        match *self {
            Self::Look { edge } => write!(f, "edge {edge} looked"),
            Self::Swap { word, old, new, edge } => {
                write!(f, "edge {edge}: {}: {old:#018x} -> {new:#018x}", name(word))
            }
            Self::MissedLate { word, edge } => {
                write!(f, "edge {edge}: {}: late, and missed", name(word))
            }
            Self::Ended { site, how, took_ns } => {
                write!(f, "a request of site {site} ended as {how} after {took_ns} ns")
            }
            Self::Waiting { site, requests } => write!(f, "site {site}: {requests} wait"),
            Self::Fault { kind, target, begins } => {
                write!(f, "{kind} ({target}) {}", if begins { "begins" } else { "ends" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_difference_changes_the_hash() {
        let of = |records: &[(u64, Record)]| {
            let mut history = History::default();
            records.iter().for_each(|&(at_ns, record)| history.add(at_ns, record));
            history.hash()
        };
        let look = Record::Look { edge: 1 };
        let swap = |old| Record::Swap { word: ('n', 3), old, new: 9, edge: 0 };
        assert_eq!(of(&[(1, look), (2, swap(4))]), of(&[(1, look), (2, swap(4))]));
        assert_ne!(of(&[(1, look), (2, swap(4))]), of(&[(1, look), (3, swap(4))]));
        assert_ne!(of(&[(1, look), (2, swap(4))]), of(&[(1, look), (2, swap(5))]));
        assert_ne!(of(&[(1, look), (2, swap(4))]), of(&[(2, swap(4)), (1, look)]));
    }

    #[test]
    fn the_tail_is_bounded_and_leaves_out_what_is_usual() {
        let mut history = History::default();
        for at_ns in 0..1_000 {
            history.add(at_ns, Record::Look { edge: 0 });
            history.add(at_ns, Record::Ended { site: 1, how: 1, took_ns: 5 });
            history.add(at_ns, Record::MissedLate { word: ('n', 3), edge: 1 });
        }
        assert_eq!((history.tail().len(), history.len()), (LINES_MAX, 3_000));
        assert!(history.tail()[0].contains("assign of node 3: late, and missed"));
    }
}
