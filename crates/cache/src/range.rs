//! Ranges of bytes, answered from a whole response (RFC 9110, 14).

use http::header::{DATE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};

use crate::conditional::is_strong;
use crate::date;
use crate::directives::number;

/// What of a body of `len` bytes a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All: it says nothing of ranges, or nothing that must be heeded.
    All,
    /// These bytes, at least one; the end is not among them.
    Part(u64, u64),
    /// Bytes behind the end.
    Nothing,
}

/// What the client wants of this response. Several ranges are answered by the whole, as RFC 9110
/// allows: hardly any client asks so, and many an attack does.
pub(crate) fn wanted(request: &HeaderMap, response: &HeaderMap, len: u64, now_s: u64) -> Wanted {
    let mut lines = request.get_all(RANGE).iter();
    let Some(range) = lines.next() else { return Wanted::All };
    if lines.next().is_some() || !applies(request, response, now_s) {
        return Wanted::All;
    }
    of_line(range.as_bytes(), len)
}

/// Whether the response is the one that `If-Range` wants the range of.
fn applies(request: &HeaderMap, response: &HeaderMap, now_s: u64) -> bool {
    let Some(wanted) = request.get(IF_RANGE) else { return true };
    if is_strong(wanted) {
        return response.get(ETAG) == Some(wanted);
    }
    // A date must be exactly that of the response, and old enough to tell two versions apart.
    let (modified, made) = (response.get(LAST_MODIFIED), response.get(DATE));
    let date = |value| date::parse(value, now_s);
    let Some(modified) = modified.filter(|modified| *modified == wanted).and_then(date) else {
        return false;
    };
    made.and_then(date).is_some_and(|made| made > modified)
}

fn of_line(line: &[u8], len: u64) -> Wanted {
    let line = line.trim_ascii();
    let unit = line.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes="));
    let Some(dash) = unit.and_then(|_| line.iter().position(|&byte| byte == b'-')) else {
        return Wanted::All;
    };
    let (first, last) = (line[6..dash].trim_ascii(), line[dash + 1..].trim_ascii());
    let (begin, end) = match (first, last) {
        ([], suffix) => match number(suffix) {
            Some(0) => return Wanted::Nothing,
            Some(suffix) => (len.saturating_sub(suffix), len),
            None => return Wanted::All,
        },
        (first, []) => match number(first) {
            Some(first) => (first, len),
            None => return Wanted::All,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(len)),
            _ => return Wanted::All,
        },
    };
    if begin < len { Wanted::Part(begin, end) } else { Wanted::Nothing }
}

/// Cuts a body that streams: of its chunks, what lies in one part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    skip: u64,
    take: u64,
}

impl Cut {
    pub(crate) const fn new(begin: u64, end: u64) -> Self {
        Self { skip: begin, take: end - begin }
    }

    /// How many bytes the part has, in all or that are still to come.
    #[must_use]
    pub const fn left_bytes(&self) -> u64 {
        self.take
    }

    /// What of the next chunk is in the part; empty if nothing is.
    pub fn cut(&mut self, chunk: &bytes::Bytes) -> bytes::Bytes {
        let len = chunk.len() as u64;
        let begin = self.skip.min(len);
        let end = begin + self.take.min(len - begin);
        self.skip -= begin;
        self.take -= end - begin;
        let at = |at| usize::try_from(at).expect("not behind the end of a chunk");
        chunk.slice(at(begin)..at(end))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn ranges_are_read_as_rfc_9110_writes_them() {
        for (line, expected) in [
            ("bytes=0-1", Wanted::Part(0, 2)),
            ("Bytes=1-", Wanted::Part(1, 10)),
            ("bytes=-1", Wanted::Part(9, 10)),
            ("bytes=-20", Wanted::Part(0, 10)),
            ("bytes=9-99", Wanted::Part(9, 10)),
            ("bytes=0-99999999999999999999999", Wanted::Part(0, 10)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=99999999999999999999-", Wanted::Nothing),
            ("bytes=2-1", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=", Wanted::All),
            ("bytes=-", Wanted::All),
            ("bytes=a-1", Wanted::All),
            ("bytes=1--2", Wanted::All),
            ("items=0-1", Wanted::All),
        ] {
            let wanted = wanted(&map(&[("range", line)]), &HeaderMap::new(), 10, 0);
            assert_eq!(wanted, expected, "{line}");
        }
    }

    #[test]
    fn if_range_wants_the_same_bytes() {
        let (old, new) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
        let is = |if_range: &str, response: &[(&'static str, &str)]| {
            let request = map(&[("range", "bytes=0-1"), ("if-range", if_range)]);
            wanted(&request, &map(response), 10, 0) == Wanted::Part(0, 2)
        };
        assert!(is("\"a\"", &[("etag", "\"a\"")]));
        assert!(!is("\"b\"", &[("etag", "\"a\"")]));
        assert!(!is("W/\"a\"", &[("etag", "W/\"a\"")]));
        assert!(is(old, &[("last-modified", old), ("date", new)]));
        assert!(!is(old, &[("last-modified", old), ("date", old)]));
        assert!(!is(new, &[("last-modified", old), ("date", new)]));
    }

    proptest! {
        #[test]
        fn a_cut_of_chunks_is_the_slice_of_the_whole(
            sizes in prop::collection::vec(0_usize..20, 0..8),
            begin in 0_usize..50,
            more in 1_usize..50,
        ) {
            let whole: Vec<u8> = (0..sizes.iter().sum()).map(|at: usize| at as u8).collect();
            let mut cut = Cut::new(begin as u64, (begin + more) as u64);
            let (mut got, mut at) = (Vec::new(), 0);
            for size in sizes {
                let chunk = Bytes::copy_from_slice(&whole[at..at + size]);
                got.extend_from_slice(&cut.cut(&chunk));
                at += size;
            }
            let end = (begin + more).min(whole.len());
            prop_assert_eq!(&got[..], &whole[begin.min(end)..end]);
        }

        #[test]
        fn no_line_asks_for_what_is_not_there(
            line in "(bytes=)?[0-9, -]{0,12}",
            len in 0_u64..40,
        ) {
            let wanted = wanted(&map(&[("range", line.trim())]), &HeaderMap::new(), len, 0);
            if let Wanted::Part(begin, end) = wanted {
                prop_assert!(begin < end && end <= len);
            }
        }
    }
}
