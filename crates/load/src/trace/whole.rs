//! Formats whose lines are not in the order of time: held whole, then given in it.
//!
//! A table of functions has a line for each function and a column for each minute; requests that
//! were written when they ended began in another order. Both are bounded: a line has less than
//! 64 KiB, so that a table has at most 33,000 minutes of [`COLUMNS_MAX`] columns, and of requests
//! [`HELD_MAX`] are held.

use super::format::Format;
use super::moment;
use super::records::{Record, What};

/// Requests held: 80 MB. The largest published file has two million.
const HELD_MAX: usize = 10_000_000;
/// Columns of a table of functions: what a line of any other format may have. Further functions
/// are added to them in turn.
const COLUMNS_MAX: usize = 256;
/// Fields before the first minute: owner, application, function, trigger.
const NAMES: usize = 4;
/// More requests than any minute has; keeps sums exact.
const COUNT_MAX: f64 = 1e12;

const MINUTE_NS: u64 = 60_000_000_000;
const SECOND_NS: f64 = 1e9;
/// A function runs no longer than a year.
const DURATION_S_MAX: f64 = 3.2e7;

/// What was read so far, and later what is left to give.
#[derive(Debug)]
pub(super) enum Whole {
    /// Requests of each minute by column.
    Functions { rows: usize, minutes: Vec<Vec<f64>>, given: usize },
    /// When each request began.
    Ends { starts_ns: Vec<i64>, given: usize },
}

impl Whole {
    /// For a format that must be held whole; none for others.
    pub(super) fn of(format: Format) -> Option<Self> {
        match format {
            Format::Functions => Some(Self::Functions { rows: 0, minutes: Vec::new(), given: 0 }),
            Format::Ends => Some(Self::Ends { starts_ns: Vec::new(), given: 0 }),
            _ => None,
        }
    }

    /// Takes a line; empty ones are passed over.
    pub(super) fn add(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        let line = String::from_utf8_lossy(piece);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            return Ok(());
        }
        match self {
            Self::Functions { rows, minutes, .. } => {
                let counts = function(line)?;
                let column = *rows % COLUMNS_MAX;
                for (minute, count) in counts.into_iter().enumerate() {
                    if minutes.len() <= minute {
                        minutes.push(Vec::new());
                    }
                    let columns = &mut minutes[minute];
                    columns.resize(columns.len().max(column + 1), 0.0);
                    columns[column] += count;
                }
                *rows += 1;
            }
            Self::Ends { starts_ns, .. } => {
                let start_ns = start_of(line)?;
                if starts_ns.len() >= HELD_MAX {
                    return Err("more requests than are held at once");
                }
                starts_ns.push(start_ns);
            }
        }
        Ok(())
    }

    /// To be called once all lines were taken.
    pub(super) fn sort(&mut self) {
        match self {
            Self::Functions { rows, minutes, .. } => {
                // Functions that were idle to the end have columns nevertheless.
                let columns = (*rows).min(COLUMNS_MAX);
                minutes.iter_mut().for_each(|counts| counts.resize(columns, 0.0));
            }
            Self::Ends { starts_ns, .. } => starts_ns.sort_unstable(),
        }
    }

    /// The next record in the order of time.
    pub(super) fn next(&mut self) -> Option<Record> {
        match self {
            Self::Functions { minutes, given, .. } => {
                let counts = std::mem::take(minutes.get_mut(*given)?);
                let at_ns = i64::try_from(*given as u64 * MINUTE_NS).ok()?;
                *given += 1;
                let what = What::Rates { width_ns: MINUTE_NS, counts, size_bytes: None };
                Some(Record { at_ns, what })
            }
            Self::Ends { starts_ns, given } => {
                let at_ns = *starts_ns.get(*given)?;
                *given += 1;
                let what = What::Request { url: None, size_bytes: None, resolution_ns: 1 };
                Some(Record { at_ns, what })
            }
        }
    }
}

/// `OWNER,APP,FUNCTION,TRIGGER,5,0,7...`: requests of each minute.
fn function(line: &str) -> Result<Vec<f64>, &'static str> {
    let mut counts = Vec::new();
    for field in line.split(',').skip(NAMES) {
        let count = field.trim().parse().ok();
        let count = count.filter(|count: &f64| (0.0..=COUNT_MAX).contains(count));
        counts.push(count.ok_or("no number of requests")?);
    }
    if counts.is_empty() { Err("no column with requests") } else { Ok(counts) }
}

/// `APP,FUNC,END,DURATION`, both in seconds; nanoseconds of its start.
fn start_of(line: &str) -> Result<i64, &'static str> {
    let mut fields = line.split(',').skip(2);
    let end_ns = fields.next().and_then(moment::plain_seconds).ok_or("no end in seconds")?;
    let duration = fields.next().and_then(|field| field.trim().parse().ok());
    let duration = duration.filter(|seconds: &f64| (0.0..=DURATION_S_MAX).contains(seconds));
    let duration = duration.ok_or("no duration in seconds")?;
    if fields.next().is_some() {
        return Err("more columns than there should be");
    }
    Ok(end_ns.saturating_sub((duration * SECOND_NS) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: Format, lines: &[&str]) -> (Vec<Record>, Vec<&'static str>) {
        let mut whole = Whole::of(format).unwrap();
        let bad = lines.iter().filter_map(|line| whole.add(line.as_bytes()).err()).collect();
        whole.sort();
        (std::iter::from_fn(|| whole.next()).collect(), bad)
    }

    #[test]
    fn a_table_of_functions_is_turned() {
        let lines = ["o,a,f,queue,1,2,3", "", "o,a,g,http,10,20", "o,a,h,http,0,0,0,7\r"];
        let (records, bad) = all(Format::Functions, &lines);
        assert!(bad.is_empty());
        let told: Vec<(i64, Vec<f64>)> = records
            .into_iter()
            .map(|record| match record.what {
                What::Rates { width_ns: MINUTE_NS, counts, .. } => (record.at_ns, counts),
                other => panic!("{other:?}"),
            })
            .collect();
        let minute_ns = MINUTE_NS as i64;
        let expected = [
            (0, vec![1.0, 10.0, 0.0]),
            (minute_ns, vec![2.0, 20.0, 0.0]),
            (2 * minute_ns, vec![3.0, 0.0, 0.0]),
            (3 * minute_ns, vec![0.0, 0.0, 7.0]),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn more_functions_than_columns_are_added_up() {
        let lines = vec!["o,a,f,queue,2"; 2 * COLUMNS_MAX + 1];
        let (records, _) = all(Format::Functions, &lines);
        let [Record { what: What::Rates { counts, .. }, .. }] = &records[..] else { panic!() };
        assert_eq!((counts.len(), counts[0], counts[1]), (COLUMNS_MAX, 6.0, 4.0));
    }

    #[test]
    fn requests_begin_before_they_end() {
        let lines = ["a,f,10.5,10", "a,g,3.25,0.25", "a,h,4,4.5"];
        let (records, bad) = all(Format::Ends, &lines);
        let at: Vec<i64> = records.iter().map(|record| record.at_ns).collect();
        assert_eq!((at, bad.len()), (vec![-500_000_000, 500_000_000, 3_000_000_000], 0));
    }

    #[test]
    fn bad_lines_say_why() {
        let cases = [
            (Format::Functions, "o,a,f,queue", "no column with requests"),
            (Format::Functions, "o,a,f,queue,1,x", "no number of requests"),
            (Format::Functions, "o,a,f,queue,-1", "no number of requests"),
            (Format::Ends, "a,f,x,1", "no end in seconds"),
            (Format::Ends, "a,f,1,inf", "no duration in seconds"),
            (Format::Ends, "a,f,1,2,3", "more columns than there should be"),
        ];
        for (format, line, why) in cases {
            assert_eq!(all(format, &[line]).1, [why], "{line}");
        }
        assert!(Whole::of(Format::Log).is_none());
    }
}
