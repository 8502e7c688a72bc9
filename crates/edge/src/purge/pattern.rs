//! Tags out of the regular expressions that applications write for Varnish.
//!
//! ```text
//! alternatives = sequence { "|" sequence }
//! sequence     = { edge } ( tags | "(" alternatives ")" | "(?:" alternatives ")" ) { edge }
//! edge         = one of EDGES
//! tags         = bytes of tags, `\` before a sign that is no letter or digit; "," and blanks
//!                stand between tags
//! ```
//!
//! An expression without anchors, `node:1`, would match `node:17` too at Varnish; here it is the
//! tag, which is what was meant. A dot is a dot, since tags have dots and applications do not
//! always escape them. What is neither is refused: nobody is told that something is invalid now
//! which is not.

/// Groups within groups. Applications write two.
const DEPTH_MAX: usize = 8;

/// Where a tag begins or ends in a list of tags. The longer come first.
const EDGES: [&[u8]; 16] = [
    b"(,.+)?$", b"(^|,)", b"(,|$)", b"($|,)", b"(^|\\,)", b"(\\,|$)", b"($|\\,)", b"(^|\\s)",
    b"(\\s|$)", b"($|\\s)", b"(^| )", b"( |$)", b"($| )", b"\\b", b"^", b"$",
];

/// What a pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Everything,
    /// One at least, none of them empty.
    Tags(Vec<Vec<u8>>),
}

/// Reads a pattern; none if it means more than a list of tags.
pub(super) fn read(pattern: &[u8]) -> Option<Pattern> {
    if pattern == b".*" {
        return Some(Pattern::Everything);
    }
    let mut reader = Reader { rest: pattern, tags: Vec::new() };
    reader.alternatives(0)?;
    reader.rest.is_empty().then_some(Pattern::Tags(reader.tags))
}

struct Reader<'p> {
    rest: &'p [u8],
    tags: Vec<Vec<u8>>,
}

impl Reader<'_> {
    fn eat(&mut self, text: &[u8]) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn edges(&mut self) {
        while EDGES.iter().any(|edge| self.eat(edge)) {}
    }

    fn alternatives(&mut self, depth: usize) -> Option<()> {
        loop {
            self.sequence(depth)?;
            if !self.eat(b"|") {
                return Some(());
            }
        }
    }

    fn sequence(&mut self, depth: usize) -> Option<()> {
        self.edges();
        if self.eat(b"(?:") || self.eat(b"(") {
            (depth < DEPTH_MAX).then_some(())?;
            self.alternatives(depth + 1)?;
            self.eat(b")").then_some(())?;
        } else {
            self.tags()?;
        }
        self.edges();
        matches!(self.rest.first(), None | Some(b'|' | b')')).then_some(())
    }

    fn tags(&mut self) -> Option<()> {
        let before = self.tags.len();
        let mut tag = Vec::new();
        loop {
            match *self.rest {
                [] | [b'|' | b'(' | b')' | b'$', ..] => break,
                [b'\\', b'b' | b's', ..] => break,
                [b'\\', byte, ..] if !byte.is_ascii_alphanumeric() => {
                    tag.push(byte);
                    self.rest = &self.rest[2..];
                    continue;
                }
                [b'.', b'*' | b'+' | b'?' | b'{', ..] => return None,
                [b'*' | b'+' | b'?' | b'[' | b']' | b'{' | b'}' | b'^' | b'\\', ..] => return None,
                [b',' | b' ' | b'\t', ..] => self.end_tag(&mut tag),
                [byte, ..] => tag.push(byte),
            }
            self.rest = &self.rest[1..];
        }
        self.end_tag(&mut tag);
        (self.tags.len() > before).then_some(())
    }

    fn end_tag(&mut self, tag: &mut Vec<u8>) {
        if !tag.is_empty() {
            self.tags.push(std::mem::take(tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn tags(pattern: &str, expected: &[&str]) {
        let Some(Pattern::Tags(tags)) = read(pattern.as_bytes()) else {
            panic!("{pattern}: no tags");
        };
        let tags: Vec<_> = tags.iter().map(|tag| String::from_utf8_lossy(tag)).collect();
        assert_eq!(tags, expected, "{pattern}");
    }

    #[test]
    fn what_applications_write_is_read() {
        // Magento.
        tags("((^|,)cat_p_1(,|$))|((^|,)cat_p_2(,|$))", &["cat_p_1", "cat_p_2"]);
        tags("((^|,)cat_p(,|$))", &["cat_p"]);
        assert_eq!(read(b".*"), Some(Pattern::Everything));
        // FOSHttpCache, of two versions.
        tags(r"(^|,)(post\-12|app\.menu)(,|$)", &["post-12", "app.menu"]);
        tags(r"(post\-12|menu)(,.+)?$", &["post-12", "menu"]);
        // API Platform, of two versions.
        tags(r"(^|\,)/books/1($|\,)|(^|\,)/books\?page\=2($|\,)", &["/books/1", "/books?page=2"]);
        tags(r"(/books/1|/books)($|\,)", &["/books/1", "/books"]);
        // Drupal.
        tags("node:1", &["node:1"]);
        tags(
            "node:1|config:system.site|4xx-response",
            &["node:1", "config:system.site", "4xx-response"],
        );
        tags(r"(^|\s)node:1(\s|$)", &["node:1"]);
        tags("node:1 node_list", &["node:1", "node_list"]);
        // TYPO3.
        tags("^(?:pageId_1|tt_content_2)$", &["pageId_1", "tt_content_2"]);
        tags("tt_content_2,pageId_1", &["tt_content_2", "pageId_1"]);
        tags(r"\bpageId_1\b", &["pageId_1"]);
    }

    #[test]
    fn what_is_no_list_of_tags_is_refused() {
        for pattern in [
            "",
            "*",
            ".+",
            "a.*",
            "a.+b",
            "cat_[0-9]",
            "a{2}",
            "a?",
            "a+",
            "(a",
            "a)",
            "a|",
            "|a",
            "()",
            "a(b|c)",
            "(a|b)c",
            "((^|,)a(,|$)",
            "(^|,)",
            ",",
            r"\d",
            r"a\",
            r"a\wb",
            "a^b",
            "a$b",
            "(?i)a",
            "(?!a)",
        ] {
            assert_eq!(read(pattern.as_bytes()), None, "{pattern}");
        }
        let deep = |depth: usize| [vec![b'('; depth], b"a".to_vec(), vec![b')'; depth]].concat();
        assert!(read(&deep(DEPTH_MAX)).is_some());
        assert!(read(&deep(DEPTH_MAX + 1)).is_none());
        assert!(read(&deep(100_000)).is_none());
    }
}
