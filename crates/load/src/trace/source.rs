//! Where the bytes of a trace come from: a file or standard input, decompressed on the way by the
//! system's own programs, and cut into pieces of bounded length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The first bytes, which tell the format.
const HEAD_BYTES: u64 = 4_096;
/// A longer line is a bad one: log lines with long URLs and agents stay far below.
const PIECE_BYTES_MAX: usize = 65_536;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The program that decompresses it does not run or failed.
    #[error("{}: {program} could not decompress it: {why}", path.display())]
    Decompress {
        /// Which.
        path: PathBuf,
        /// The program.
        program: &'static str,
        /// Why.
        why: String,
    },
    /// The format is none that is known.
    #[error("{}: the format is not recognised; it can be named: {known}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// Names of the formats.
        known: String,
    },
    /// Too many lines could not be read.
    #[error("{}: more than {most} bad lines, the first of them:\n{first}", path.display())]
    BadLines {
        /// Which.
        path: PathBuf,
        /// The bound.
        most: u64,
        /// Some of them with their numbers.
        first: String,
    },
    /// Options that make no sense.
    #[error("{0}")]
    Options(String),
}

/// The bytes of a trace.
pub(super) struct Source {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    child: Option<(Child, &'static str)>,
}

impl Source {
    /// Opens a file; `-` is standard input, which is not decompressed.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let io_error = |cause| TraceError::Io { path: path.to_owned(), cause };
        if path == Path::new("-") {
            return Ok(Self::plain(path, io::stdin()));
        }
        let file = File::open(path).map_err(io_error)?;
        let Some(words) = decompressor(path) else { return Ok(Self::plain(path, file)) };
        let program = words[0];
        let spawned = Command::new(program)
            .args(&words[1..])
            .stdin(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let why = |why: String| TraceError::Decompress { path: path.to_owned(), program, why };
        let mut child = spawned.map_err(|error| why(error.to_string()))?;
        let output = child.stdout.take().ok_or_else(|| why("it has no output".to_owned()))?;
        let mut source = Self::plain(path, output);
        source.child = Some((child, program));
        Ok(source)
    }

    /// From anything that gives bytes.
    pub(super) fn plain(path: &Path, reader: impl Read + Send + 'static) -> Self {
        let reader = Box::new(BufReader::with_capacity(PIECE_BYTES_MAX, reader));
        Self { path: path.to_owned(), reader, child: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The first bytes, which are read again afterwards.
    pub(super) fn head(&mut self) -> Result<Vec<u8>, TraceError> {
        let mut head = Vec::new();
        let read = self.reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
        read.map_err(|cause| self.failed(cause))?;
        if head.is_empty() {
            // Nothing at all: if it could not be decompressed, that is what is to be told.
            self.finish()?;
        }
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }

    /// The next piece into `into`, without what ends it. False at the end; the end of a file is
    /// also where the program that decompresses it must have succeeded.
    pub(super) fn next(&mut self, cut: Cut, into: &mut Vec<u8>) -> Result<Got, TraceError> {
        into.clear();
        let got = match cut {
            Cut::Lines => self.until(|byte| byte == b'\n', into)?,
            Cut::Words => self.word(into)?,
            Cut::Records(bytes) => self.exactly(bytes, into)?,
        };
        if got == Got::End {
            self.finish()?;
        }
        Ok(got)
    }

    fn word(&mut self, into: &mut Vec<u8>) -> Result<Got, TraceError> {
        loop {
            match self.until(|byte| byte.is_ascii_whitespace(), into)? {
                Got::Piece if into.is_empty() => {}
                got => return Ok(got),
            }
        }
    }

    /// Up to the first byte that ends a piece, which is taken too.
    fn until(&mut self, ends: impl Fn(u8) -> bool, into: &mut Vec<u8>) -> Result<Got, TraceError> {
        let mut is_long = false;
        let mut is_begun = false;
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(self.failed(cause)),
            };
            if buffer.is_empty() {
                return Ok(if !is_begun {
                    Got::End
                } else if is_long {
                    Got::TooLong
                } else {
                    Got::Piece
                });
            }
            is_begun = true;
            let end = buffer.iter().position(|&byte| ends(byte));
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = PIECE_BYTES_MAX - into.len();
            is_long |= part.len() > room;
            into.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(if is_long { Got::TooLong } else { Got::Piece });
            }
        }
    }

    fn exactly(&mut self, bytes: usize, into: &mut Vec<u8>) -> Result<Got, TraceError> {
        let read = self.reader.by_ref().take(bytes as u64).read_to_end(into);
        read.map_err(|cause| self.failed(cause))?;
        Ok(if into.is_empty() { Got::End } else { Got::Piece })
    }

    fn failed(&self, cause: io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), cause }
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        let Some((mut child, program)) = self.child.take() else { return Ok(()) };
        let why = match child.wait() {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Err(TraceError::Decompress { path: self.path.clone(), program, why })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            // Its output is wanted no more; it may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where pieces end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// At line feeds.
    Lines,
    /// At white space of any length.
    Words,
    /// After so many bytes.
    Records(usize),
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Piece,
    /// A piece beyond the bound; its rest was passed over.
    TooLong,
    End,
}

/// The program for a file's ending, with its arguments; it reads standard input.
fn decompressor(path: &Path) -> Option<&'static [&'static str]> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".tbz2", ".tbz", ".tar.bz2"]) {
        // All files of the archive, one behind the other.
        Some(&["tar", "-xjO"])
    } else if ends(&[".tgz", ".tar.gz"]) {
        Some(&["tar", "-xzO"])
    } else if ends(&[".gz"]) {
        Some(&["gzip", "-dc"])
    } else if ends(&[".bz2"]) {
        Some(&["bzip2", "-dc"])
    } else if ends(&[".xz"]) {
        Some(&["xz", "-dc"])
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &'static [u8], cut: Cut) -> Vec<(Got, Vec<u8>)> {
        let mut source = Source::plain(Path::new("x"), text);
        let head = source.head().unwrap();
        assert!(text.starts_with(&head));
        let (mut all, mut piece) = (Vec::new(), Vec::new());
        loop {
            match source.next(cut, &mut piece).unwrap() {
                Got::End => return all,
                got => all.push((got, piece.clone())),
            }
        }
    }

    #[test]
    fn pieces_end_where_they_should() {
        let words: Vec<_> = pieces(b" 1 22\n\n3 ", Cut::Words).into_iter().map(|p| p.1).collect();
        assert_eq!(words, [&b"1"[..], b"22", b"3", b""][..3]);
        let lines: Vec<_> = pieces(b"a\n\nb", Cut::Lines).into_iter().map(|p| p.1).collect();
        assert_eq!(lines, [&b"a"[..], b"", b"b"]);
        let records: Vec<_> = pieces(b"abcde", Cut::Records(2)).into_iter().map(|p| p.1).collect();
        assert_eq!(records, [&b"ab"[..], b"cd", b"e"]);
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let reader = io::repeat(b'x').take(10 * PIECE_BYTES_MAX as u64).chain(&b"\nok\n"[..]);
        let mut source = Source::plain(Path::new("x"), reader);
        let mut piece = Vec::new();
        assert_eq!(source.next(Cut::Lines, &mut piece).unwrap(), Got::TooLong);
        assert_eq!(piece.len(), PIECE_BYTES_MAX);
        assert_eq!(source.next(Cut::Lines, &mut piece).unwrap(), Got::Piece);
        assert_eq!(piece, b"ok");
    }

    #[test]
    fn a_file_that_is_not_what_its_name_says_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gz");
        std::fs::write(&path, "this is not compressed").unwrap();
        let mut source = Source::open(&path).unwrap();
        let error = source.head().unwrap_err();
        assert!(matches!(error, TraceError::Decompress { program: "gzip", .. }), "{error}");
        let missing = Source::open(&folder.path().join("missing")).map(|_| ()).unwrap_err();
        assert!(missing.to_string().contains("missing"), "{missing}");
    }
}
