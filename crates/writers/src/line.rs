//! The lines that writers send, and what they get back.
//!
//! ```text
//! begin TAG...        ok TOKEN            the tags are pending; now the writer may commit
//! end TOKEN           ok | gone           committed
//! abort TOKEN         ok | gone           rolled back
//! invalidate TAG...   ok                  begin and end in one, after a commit
//! pending             ok N, N lines       updates that are not ended      \ the pool's own
//! settle WRITER       ok N                ends what a dead writer left    / user and root
//! read DOCUMENT       ok, when it may     with other readers; behind writers that came before
//! read-end DOCUMENT   ok | gone
//! write DOCUMENT      ok, when it may     alone
//! write-end DOCUMENT  ok | gone
//! (any of them)       error CODE WORDS    not done
//! ```
//!
//! A line ends with a line feed. The byte behind the first word, a blank or a tab, stands between
//! the tags too: with tabs, tags may hold blanks. A tag is any bytes but control characters.

use crate::gate::Use;
use remote_memory::Incarnation;
use shared_state::versions::{Ticket, UPDATE_SLOTS_MAX, WriterId};
use std::fmt;
use thiserror::Error;

/// Bytes of one line with its end: as many tags as one update can have, 128 bytes each.
pub const LINE_BYTES_MAX: usize = 128 << 10;
/// Bytes of one tag: a URL fits, and no page of text.
pub const TAG_BYTES_MAX: usize = 4_096;
/// Tags of one line. Whoever changes more begins several updates, or gives them a tag in common.
pub const TAGS_MAX: usize = UPDATE_SLOTS_MAX;

/// What finds an update again: `incarnation-writer-record-generation`, each in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub Ticket);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ticket { incarnation, writer, record, generation } = self.0;
        write!(f, "{:016x}-{:08x}-{record:04x}-{generation:08x}", incarnation.0, writer.0)
    }
}

impl Token {
    /// Of its text: lower case and of full length, so that each token has one text only.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.split(|&byte| byte == b'-');
        let ticket = Ticket {
            incarnation: Incarnation(hexadecimal(parts.next()?, 16)?),
            writer: WriterId(hexadecimal(parts.next()?, 8)?.try_into().ok()?),
            record: hexadecimal(parts.next()?, 4)?.try_into().ok()?,
            generation: hexadecimal(parts.next()?, 8)?.try_into().ok()?,
        };
        parts.next().is_none().then_some(Self(ticket))
    }
}

fn hexadecimal(digits: &[u8], count: usize) -> Option<u64> {
    let value = |byte: u8| match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
        _ => None,
    };
    (digits.len() == count).then_some(())?;
    digits.iter().try_fold(0, |sum, &byte| Some(sum << 4 | value(byte)?))
}

/// Whose updates are decided, says the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// One writer's, by the name that `pending` tells: eight hexadecimal digits.
    Writer(WriterId),
    /// All whose connections have ended: `disconnected`.
    Disconnected,
    /// All of an earlier run of the pool whose table was lost: `earlier`.
    Earlier,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writer(writer) => write!(f, "{:08x}", writer.0),
            Self::Disconnected => f.write_str("disconnected"),
            Self::Earlier => f.write_str("earlier"),
        }
    }
}

impl Whose {
    /// Of its text.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"disconnected" => Some(Self::Disconnected),
            b"earlier" => Some(Self::Earlier),
            _ => {
                let writer = hexadecimal(text, 8)?.try_into().ok()?;
                Some(Self::Writer(WriterId(writer)))
            }
        }
    }
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<'l> {
    /// Marks these tags as pending.
    Begin(Vec<&'l [u8]>),
    /// The update is committed.
    End(Token),
    /// The update is rolled back.
    Abort(Token),
    /// Voids what carries these tags.
    Invalidate(Vec<&'l [u8]>),
    /// Tells what is pending.
    Pending,
    /// Ends what dead writers left.
    Settle(Whose),
    /// Waits until a document may be used so.
    Enter(Use, &'l [u8]),
    /// Ends that.
    Leave(Use, &'l [u8]),
}

/// What is wrong with a line. The answer is `error CODE WORDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    /// Longer than [`LINE_BYTES_MAX`]; where the next begins is not known.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// No word of ours.
    #[error(
        "known are begin, end, abort, invalidate, pending, settle, read, read-end, write, write-end"
    )]
    UnknownWord,
    /// No tag, or an empty one.
    #[error("a tag is missing: write `begin TAG...`, one blank or one tab between tags")]
    NoTag,
    /// More than [`TAGS_MAX`].
    #[error("more than {TAGS_MAX} tags; begin several updates, or give them a tag in common")]
    TooManyTags,
    /// A tag that no response can carry.
    #[error("a tag has 1 to {TAG_BYTES_MAX} bytes, no control character, no blank at its ends")]
    BadTag,
    /// Not what `begin` answers.
    #[error("write the token that `begin` answered")]
    BadToken,
    /// Neither a writer nor one of the words.
    #[error("write a writer as `pending` names it, `disconnected` or `earlier`")]
    BadWriter,
    /// More words than the request takes.
    #[error("the request takes no more words")]
    Surplus,
}

/// Reads a line, without its line feed.
///
/// # Errors
/// See [`Malformed`]; nothing is done then.
pub fn parse(line: &[u8]) -> Result<Request<'_>, Malformed> {
    if line.len() >= LINE_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    // The separator, and what comes behind it.
    let rest = rest.split_first();
    let argument = || rest.map_or(&[][..], |(_, argument)| argument);
    match word {
        b"begin" => tags(rest).map(Request::Begin),
        b"invalidate" => tags(rest).map(Request::Invalidate),
        b"end" => Token::parse(argument()).map(Request::End).ok_or(Malformed::BadToken),
        b"abort" => Token::parse(argument()).map(Request::Abort).ok_or(Malformed::BadToken),
        b"settle" => Whose::parse(argument()).map(Request::Settle).ok_or(Malformed::BadWriter),
        b"read" => document(argument()).map(|document| Request::Enter(Use::Read, document)),
        b"read-end" => document(argument()).map(|document| Request::Leave(Use::Read, document)),
        b"write" => document(argument()).map(|document| Request::Enter(Use::Write, document)),
        b"write-end" => document(argument()).map(|document| Request::Leave(Use::Write, document)),
        b"pending" if rest.is_none() => Ok(Request::Pending),
        b"pending" => Err(Malformed::Surplus),
        _ => Err(Malformed::UnknownWord),
    }
}

/// A document has a name like a tag, blanks and all.
fn document(name: &[u8]) -> Result<&[u8], Malformed> {
    check_tag(name).map(|()| name)
}

fn tags<'l>(rest: Option<(&'l u8, &'l [u8])>) -> Result<Vec<&'l [u8]>, Malformed> {
    let (&separator, rest) = rest.ok_or(Malformed::NoTag)?;
    let mut tags = Vec::new();
    for tag in rest.split(|&byte| byte == separator) {
        if tags.len() == TAGS_MAX {
            return Err(Malformed::TooManyTags);
        }
        check_tag(tag)?;
        tags.push(tag);
    }
    Ok(tags)
}

/// Whether a response can carry a tag.
///
/// # Errors
/// It is empty, too long, or has bytes that no tag has.
pub fn check_tag(tag: &[u8]) -> Result<(), Malformed> {
    let (Some(first), Some(last)) = (tag.first(), tag.last()) else { return Err(Malformed::NoTag) };
    let is_control = |byte: &u8| byte.is_ascii_control();
    let is_bad = tag.iter().any(is_control) || *first == b' ' || *last == b' ';
    if is_bad || tag.len() > TAG_BYTES_MAX { Err(Malformed::BadTag) } else { Ok(()) }
}

/// The line for some tags, with its line feed.
///
/// # Errors
/// They cannot be sent so.
pub fn tag_line<T: AsRef<[u8]>>(word: &str, tags: &[T]) -> Result<Vec<u8>, Malformed> {
    if tags.is_empty() {
        return Err(Malformed::NoTag);
    }
    if tags.len() > TAGS_MAX {
        return Err(Malformed::TooManyTags);
    }
    let mut line = word.as_bytes().to_vec();
    for tag in tags {
        check_tag(tag.as_ref())?;
        line.push(b'\t');
        line.extend_from_slice(tag.as_ref());
    }
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX { Err(Malformed::TooLong) } else { Ok(line) }
}

/// Why something was not done: the word behind `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The line is wrong.
    Malformed,
    /// As many updates are pending as the table has room for; try again after some have ended.
    Busy,
    /// Only the pool's own user may ask for that.
    Denied,
    /// Too many connections.
    Full,
    /// The table does not do it; the words say why.
    Failed,
}

impl Code {
    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00000000000000ff-0000abcd-0010-00000007";

    #[test]
    fn requests_are_read() {
        let tags = |line: &'static [u8]| match parse(line) {
            Ok(Request::Begin(tags) | Request::Invalidate(tags)) => tags,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            tags(b"begin page:1 preis/\xe2\x82\xac"),
            [&b"page:1"[..], b"preis/\xe2\x82\xac"]
        );
        assert_eq!(tags(b"invalidate\ta b\tc"), [&b"a b"[..], b"c"]);
        let token = Token::parse(TOKEN.as_bytes()).unwrap();
        assert_eq!(token.0.writer, WriterId(0xabcd));
        assert_eq!(parse(format!("end {TOKEN}").as_bytes()), Ok(Request::End(token)));
        assert_eq!(parse(format!("abort {TOKEN}").as_bytes()), Ok(Request::Abort(token)));
        assert_eq!(parse(b"pending"), Ok(Request::Pending));
        let writer = Whose::Writer(WriterId(0x0a));
        assert_eq!(parse(b"settle 0000000a"), Ok(Request::Settle(writer)));
        assert_eq!(parse(b"read a b"), Ok(Request::Enter(Use::Read, b"a b")));
        assert_eq!(parse(b"write-end\ta"), Ok(Request::Leave(Use::Write, b"a")));
        assert_eq!(parse(b"settle earlier"), Ok(Request::Settle(Whose::Earlier)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let many = "begin".to_owned() + &" x".repeat(TAGS_MAX + 1);
        let long = format!("begin {}", "x".repeat(TAG_BYTES_MAX + 1));
        let endless = "x".repeat(LINE_BYTES_MAX);
        let cases: [(&str, Malformed); 20] = [
            ("", Malformed::UnknownWord),
            ("BEGIN a", Malformed::UnknownWord),
            ("begin", Malformed::NoTag),
            ("begin ", Malformed::NoTag),
            ("begin a  b", Malformed::NoTag),
            ("read", Malformed::NoTag),
            ("write-end a\tb", Malformed::BadTag),
            ("begin a ", Malformed::NoTag),
            ("begin a\tb", Malformed::BadTag),
            ("begin\t a", Malformed::BadTag),
            ("begin a\r", Malformed::BadTag),
            ("end", Malformed::BadToken),
            ("end 00ff-0000abcd-0010-00000007", Malformed::BadToken),
            ("end 00000000000000FF-0000abcd-0010-00000007", Malformed::BadToken),
            ("end 00000000000000ff-0000abcd-0010-00000007-", Malformed::BadToken),
            ("settle a", Malformed::BadWriter),
            ("pending now", Malformed::Surplus),
            (&many, Malformed::TooManyTags),
            (&long, Malformed::BadTag),
            (&endless, Malformed::TooLong),
        ];
        for (line, wanted) in cases {
            assert_eq!(parse(line.as_bytes()), Err(wanted), "{line:.60}");
        }
    }

    #[test]
    fn a_line_of_tags_is_read_as_it_was_written() {
        let line = tag_line("begin", &["a b", "c"]).unwrap();
        let (end, line) = line.split_last().unwrap();
        assert_eq!((*end, parse(line)), (b'\n', Ok(Request::Begin(vec![b"a b", b"c"]))));
        assert_eq!(tag_line::<&str>("begin", &[]), Err(Malformed::NoTag));
        assert_eq!(tag_line("begin", &["a\nend"]), Err(Malformed::BadTag));
        let large = vec!["x".repeat(TAG_BYTES_MAX); 40];
        assert_eq!(tag_line("begin", &large), Err(Malformed::TooLong));
    }
}
