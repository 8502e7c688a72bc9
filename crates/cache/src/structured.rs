//! The dictionaries of RFC 9651, as far as `CDN-Cache-Control` needs them: a field that is not one
//! is ignored as a whole.

use http::{HeaderMap, HeaderName};

use crate::directives::Directives;

/// The value of one member.
#[derive(Debug, PartialEq, Eq)]
enum Item<'a> {
    True,
    Integer(&'a [u8]),
    Text(Vec<u8>),
    /// Of a type that no directive has.
    Other,
}

/// The directives of a targeted field; `None` if there is none, it is no dictionary, or it names no
/// directive that is known here, with a value of the type it should have.
pub(crate) fn targeted(headers: &HeaderMap, field: &HeaderName) -> Option<Directives> {
    let mut lines = headers.get_all(field).iter();
    let mut text = lines.next()?.as_bytes().to_vec();
    for line in lines {
        text.extend_from_slice(b", ");
        text.extend_from_slice(line.as_bytes());
    }
    let mut all = Directives { targeted: true, ..Directives::default() };
    let mut known = false;
    for (name, item) in dictionary(&text)? {
        known |= match item {
            Item::True => !takes_number(name) && all.add(name, None),
            Item::Integer(value) => takes_number(name) && all.add(name, Some(value)),
            Item::Text(value) => takes_fields(name) && all.add(name, Some(&value)),
            Item::Other => false,
        };
    }
    known.then_some(all)
}

fn takes_number(name: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b"max-age", b"s-maxage", b"stale-while-revalidate", b"stale-if-error"];
    names.contains(&name)
}

fn takes_fields(name: &[u8]) -> bool {
    name == b"no-cache" || name == b"private"
}

type Members<'a> = Vec<(&'a [u8], Item<'a>)>;

/// All members; a name's last value counts.
fn dictionary(text: &[u8]) -> Option<Members<'_>> {
    let mut left = Left(text);
    let mut members = Members::new();
    left.skip(b" ");
    while !left.0.is_empty() {
        let name = left.key()?;
        let item = if left.take(b'=') { left.item()? } else { Item::True };
        left.parameters()?;
        members.retain(|(other, _)| *other != name);
        members.push((name, item));
        left.skip(b" \t");
        if left.0.is_empty() {
            break;
        }
        if !left.take(b',') {
            return None;
        }
        left.skip(b" \t");
        // No comma may stand at the end.
        if left.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// What is left to read.
struct Left<'a>(&'a [u8]);

impl<'a> Left<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        self.0 = &self.0[self.count(|byte| bytes.contains(&byte))..];
    }

    fn take(&mut self, byte: u8) -> bool {
        let is = self.0.first() == Some(&byte);
        if is {
            self.0 = &self.0[1..];
        }
        is
    }

    /// How many bytes at the beginning are such.
    fn count(&self, is: impl Fn(u8) -> bool) -> usize {
        self.0.iter().take_while(|&&byte| is(byte)).count()
    }

    fn cut(&mut self, at: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(at);
        self.0 = rest;
        head
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        self.0.first().filter(|&&byte| byte.is_ascii_lowercase() || byte == b'*')?;
        let is = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        };
        Some(self.cut(self.count(is)))
    }

    fn item(&mut self) -> Option<Item<'a>> {
        match *self.0.first()? {
            b'"' => self.text().map(Item::Text),
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                let item = match self.0.get(1)? {
                    b'1' => Item::True,
                    b'0' => Item::Other,
                    _ => return None,
                };
                self.cut(2);
                Some(item)
            }
            b':' => {
                let end = self.0[1..].iter().position(|&byte| byte == b':')? + 2;
                let coded = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
                self.cut(end)[1..end - 1].iter().all(coded).then_some(Item::Other)
            }
            byte if byte.is_ascii_alphabetic() || byte == b'*' => {
                let is =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                self.cut(self.count(is));
                Some(Item::Other)
            }
            // Lists within lists, dates and display strings: no directive has such a value.
            _ => None,
        }
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut bytes = self.0[1..].iter();
        loop {
            match bytes.next()? {
                b'"' => break,
                b'\\' => text.push(*bytes.next().filter(|byte| b"\"\\".contains(byte))?),
                byte @ 0x20..=0x7e => text.push(*byte),
                _ => return None,
            }
        }
        self.0 = bytes.as_slice();
        Some(text)
    }

    fn number(&mut self) -> Option<Item<'a>> {
        let negative = self.take(b'-');
        let digits = self.cut(self.count(|byte| byte.is_ascii_digit()));
        let decimal = self.take(b'.');
        let after = if decimal { self.cut(self.count(|byte| byte.is_ascii_digit())) } else { &[] };
        // At most 15 digits, and 12 with 3 after the point (RFC 9651, 4.2.4).
        let fits = if decimal {
            (1..=12).contains(&digits.len()) && (1..=3).contains(&after.len())
        } else {
            (1..=15).contains(&digits.len())
        };
        fits.then_some(if negative || decimal { Item::Other } else { Item::Integer(digits) })
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::{CDN_CACHE_CONTROL, Scope};

    fn of(lines: &[&str]) -> Option<Directives> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CDN_CACHE_CONTROL, line.parse().unwrap());
        }
        targeted(&headers, &CDN_CACHE_CONTROL)
    }

    #[test]
    fn dictionaries_are_read_as_rfc_9651_writes_them() {
        let age = |lines: &[&str]| of(lines).map(|all| all.max_age);
        assert_eq!(age(&["max-age=3600"]), Some(Some(3600)));
        assert_eq!(age(&["foobar, max-age=3600"]), Some(Some(3600)));
        assert_eq!(age(&["max-age=1;a=b;c, x=:YQ==:, y=1.5, z=?0"]), Some(Some(1)));
        assert_eq!(age(&["max-age=1", "max-age=2"]), Some(Some(2)));
        assert_eq!(age(&["no-store"]), Some(None));
        let private = of(&["private=\"a\""]).unwrap().private;
        assert_eq!(private, Scope::Fields(vec![HeaderName::from_static("a")]));
        assert!(of(&["no-cache=?1"]).unwrap().no_cache.is_whole());
    }

    #[test]
    fn what_is_no_dictionary_is_ignored() {
        for line in [
            "",
            "foo",
            "max-age=10000, &&&&&",
            "max-age=\"10000\"",
            "max-age",
            "max-age =100",
            "max-age= 100",
            "MaX-aGe=3600",
            "max-age=1,",
            "max-age=-1",
            "max-age=1.5",
            "max-age=1234567890123456",
            "no-store=\"a",
            "no-store;",
            "no-store x",
            "no-store=(a)",
        ] {
            assert_eq!(of(&[line]), None, "{line}");
        }
    }
}
