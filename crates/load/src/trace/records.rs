//! A trace as a stream of records, with what could not be read counted and named.

use super::format::Format;
use super::lines::{BINARY_BYTES, LineReader};
use super::source::{Cut, Got, Source, TraceError};
use super::whole::Whole;
use std::path::Path;

/// Bad lines that are kept with their text.
const BAD_LINES_KEPT: usize = 5;
/// So much of a bad line is shown.
const BAD_LINE_SHOWN_CHARS: usize = 60;

/// What happened at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When; nanoseconds since 1970, or since the trace's own zero.
    pub at_ns: i64,
    /// What.
    pub what: What,
}

/// A request, or how many there were.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// One request.
    Request {
        /// Path and query, where the trace has them.
        url: Option<String>,
        /// Length of the response, where the trace has it.
        size_bytes: Option<u64>,
        /// How exact its time is.
        resolution_ns: u64,
    },
    /// Requests of an interval that begins at the record's time.
    Rates {
        /// Its length.
        width_ns: u64,
        /// Requests of each column.
        counts: Vec<f64>,
        /// Mean length of a response, where the trace has it.
        size_bytes: Option<u64>,
    },
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1; for counts and binary records the number of the count or record.
    pub number: u64,
    /// What is wrong.
    pub why: &'static str,
    /// Its beginning.
    pub text: String,
}

/// The records of a file, in the file's order.
pub struct Records {
    source: Source,
    format: Format,
    lines: LineReader,
    bad_lines_max: u64,
    number: u64,
    bad_count: u64,
    bad: Vec<BadLine>,
    piece: Vec<u8>,
    /// Of formats that are held whole, once they were read.
    whole: Option<Whole>,
}

impl Records {
    /// Opens a trace; the format is found out unless it is named. `interval_ns` is that of formats
    /// which do not have one.
    ///
    /// # Errors
    ///
    /// [`TraceError`] when it cannot be opened or its format is not recognised.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        interval_ns: u64,
        bad_lines_max: u64,
    ) -> Result<Self, TraceError> {
        Self::of(Source::open(path)?, format, interval_ns, bad_lines_max)
    }

    pub(super) fn of(
        mut source: Source,
        format: Option<Format>,
        interval_ns: u64,
        bad_lines_max: u64,
    ) -> Result<Self, TraceError> {
        let head = source.head()?;
        let found = format.or_else(|| Format::detect(source.path(), &head));
        let known = || Format::ALL.map(Format::name).join(", ");
        let format = found
            .ok_or_else(|| TraceError::Format { path: source.path().to_owned(), known: known() })?;
        let (number, bad_count, bad, piece) = (0, 0, Vec::new(), Vec::new());
        let lines = LineReader::new(format, interval_ns);
        let whole = None;
        let mut records =
            Self { source, format, lines, bad_lines_max, number, bad_count, bad, piece, whole };
        if format.has_header() {
            records.read_header()?;
        }
        Ok(records)
    }

    fn read_header(&mut self) -> Result<(), TraceError> {
        self.number += 1;
        self.source.next(Cut::Lines, &mut self.piece)?;
        if let Err(why) = self.lines.read_header(&self.piece) {
            self.add_bad(why)?;
        }
        Ok(())
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    ///
    /// [`TraceError`] when reading fails, or too many lines were bad.
    pub fn read(&mut self) -> Result<Option<Record>, TraceError> {
        if let Some(whole) = &mut self.whole {
            return Ok(whole.next());
        }
        if let Some(empty) = Whole::of(self.format) {
            let mut whole = self.read_whole(empty)?;
            let first = whole.next();
            self.whole = Some(whole);
            return Ok(first);
        }
        let cut = match self.format {
            Format::Counts => Cut::Words,
            Format::Binary => Cut::Records(BINARY_BYTES),
            _ => Cut::Lines,
        };
        loop {
            let got = self.source.next(cut, &mut self.piece)?;
            if got == Got::End {
                return Ok(None);
            }
            self.number += 1;
            let parsed = match got {
                Got::TooLong => Err("longer than 64 KiB"),
                _ => self.lines.read(&self.piece, self.number - 1),
            };
            match parsed {
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) => {}
                Err(why) => self.add_bad(why)?,
            }
        }
    }

    fn read_whole(&mut self, mut whole: Whole) -> Result<Whole, TraceError> {
        loop {
            let got = self.source.next(Cut::Lines, &mut self.piece)?;
            if got == Got::End {
                whole.sort();
                return Ok(whole);
            }
            self.number += 1;
            let added = match got {
                Got::TooLong => Err("longer than 64 KiB"),
                _ => whole.add(&self.piece),
            };
            if let Err(why) = added {
                self.add_bad(why)?;
            }
        }
    }

    fn add_bad(&mut self, why: &'static str) -> Result<(), TraceError> {
        self.bad_count += 1;
        if self.bad.len() < BAD_LINES_KEPT {
            let text = String::from_utf8_lossy(&self.piece);
            let shown = text.chars().take(BAD_LINE_SHOWN_CHARS);
            let text = shown.flat_map(char::escape_debug).collect();
            self.bad.push(BadLine { number: self.number, why, text });
        }
        if self.bad_count <= self.bad_lines_max {
            return Ok(());
        }
        let line = |bad: &BadLine| format!("  line {}: {}: {}", bad.number, bad.why, bad.text);
        let first: Vec<String> = self.bad.iter().map(line).collect();
        let path = self.source.path().to_owned();
        Err(TraceError::BadLines { path, most: self.bad_lines_max, first: first.join("\n") })
    }

    /// How it is written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Lines (or counts, or records) so far, the header included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.number
    }

    /// Those that could not be read, and the first few of them.
    #[must_use]
    pub fn bad_lines(&self) -> (u64, &[BadLine]) {
        (self.bad_count, &self.bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &'static str, most: u64) -> Result<Records, TraceError> {
        Records::of(Source::plain(Path::new("x"), text.as_bytes()), None, 500_000_000, most)
    }

    fn all(records: &mut Records) -> Result<Vec<Record>, TraceError> {
        std::iter::from_fn(|| records.read().transpose()).collect()
    }

    #[test]
    fn bad_lines_are_counted_and_named_by_number() {
        let text = "timestamp,num_request,size\n1998-04-30 21:30,2,9\n\nnonsense\r\n\
                    1998-04-30 21:31,3,9";
        let mut some = records(text, 1).unwrap();
        assert_eq!(all(&mut some).unwrap().len(), 2);
        let (count, bad) = some.bad_lines();
        assert_eq!((count, bad[0].number, bad[0].text.as_str()), (1, 4, "nonsense\\r"));
        assert_eq!((some.lines(), some.format()), (5, Format::Minutes));
        let error = all(&mut records(text, 0).unwrap()).unwrap_err().to_string();
        assert!(error.contains("more than 0 bad lines") && error.contains("line 4"), "{error}");
    }

    #[test]
    fn counts_have_the_interval_that_was_said() {
        let mut counts = records("5 0 7", 0).unwrap();
        let times: Vec<i64> = all(&mut counts).unwrap().iter().map(|record| record.at_ns).collect();
        assert_eq!(times, [0, 500_000_000, 1_000_000_000]);
    }

    #[test]
    fn an_unknown_format_is_an_error_that_names_the_known_ones() {
        let error = records("a,b\n1,2\n", 0).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("counts, requests"), "{error}");
        let cut = Source::plain(Path::new("x"), &[0_u8; 30][..]);
        let mut binary = Records::of(cut, Some(Format::Binary), 1, 9).unwrap();
        assert_eq!(all(&mut binary).unwrap().len(), 1);
        assert_eq!(binary.bad_lines().1[0].why, "cut off within a record");
    }
}
