//! Splits a Rust source into its code and its comments, line for line, without parsing it.
//!
//! Both halves keep the line structure of the source: everything that does not belong to a half is
//! blank there. Text inside string and character literals is blank in both, so that a check never
//! trips over a word in a message.

/// A source, split.
#[derive(Debug)]
pub(crate) struct Source {
    /// Code with comments and the insides of literals blanked.
    pub(crate) code: String,
    /// Comments with everything else blanked.
    pub(crate) comments: String,
}

/// What a character belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits `text`. What never ends reaches to the end of the text: the compiler will say so.
    pub(crate) fn split(text: &str) -> Source {
        let characters: Vec<char> = text.chars().collect();
        let mut halves = Source { code: String::new(), comments: String::new() };
        let mut at = 0;
        while at < characters.len() {
            let (kind, end) = token(&characters, at);
            for &character in &characters[at..end] {
                let blank = if character == '\n' { '\n' } else { ' ' };
                halves.code.push(if kind == Kind::Code { character } else { blank });
                halves.comments.push(if kind == Kind::Comment { character } else { blank });
            }
            at = end;
        }
        halves
    }

    /// The words (identifiers, keywords, numbers) of the code, each with its byte offset.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        words(&self.code)
    }

    /// The line, counted from 1, of a byte offset into the code.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        line_of(&self.code, offset)
    }
}

/// The line, counted from 1, of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Runs of letters, digits and `_`, each with its byte offset.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut rest_at = 0;
    std::iter::from_fn(move || {
        let rest = &text[rest_at..];
        let start = rest_at + rest.find(is_word)?;
        let end = text[start..].find(|c| !is_word(c)).map_or(text.len(), |length| start + length);
        rest_at = end;
        Some((start, &text[start..end]))
    })
}

/// The kind of what starts at `at`, and where it ends.
fn token(text: &[char], at: usize) -> (Kind, usize) {
    let next = |ahead: usize| text.get(at + ahead).copied().unwrap_or('\0');
    match (text[at], next(1)) {
        ('/', '/') => (Kind::Comment, find(text, at, '\n')),
        ('/', '*') => (Kind::Comment, block_comment_end(text, at)),
        ('"', _) => (Kind::Literal, string_end(text, at + 1)),
        ('\'', '\\') => (Kind::Literal, (find(text, at + 3, '\'') + 1).min(text.len())),
        ('\'', _) if next(2) == '\'' => (Kind::Literal, at + 3),
        (first, _) if first.is_alphabetic() || first == '_' => word(text, at),
        _ => (Kind::Code, at + 1),
    }
}

/// A word is code, but the prefix of a raw string (`r`, `br`, `cr`) takes the string with it.
fn word(text: &[char], at: usize) -> (Kind, usize) {
    let is_word = |character: &char| character.is_alphanumeric() || *character == '_';
    let end = at + text[at..].iter().take_while(|c| is_word(c)).count();
    let prefix: String = text[at..end].iter().collect();
    let hashes = text[end..].iter().take_while(|&&c| c == '#').count();
    let opens = text.get(end + hashes) == Some(&'"');
    if matches!(prefix.as_str(), "r" | "br" | "cr") && opens {
        return (Kind::Literal, raw_string_end(text, end + hashes + 1, hashes));
    }
    (Kind::Code, end)
}

/// The index of the next `wanted` at or after `from`, or the end.
fn find(text: &[char], from: usize, wanted: char) -> usize {
    let from = from.min(text.len());
    text[from..].iter().position(|&c| c == wanted).map_or(text.len(), |length| from + length)
}

fn string_end(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string_end(text: &[char], mut at: usize, hashes: usize) -> usize {
    while at < text.len() {
        let closes = text[at] == '"'
            && text[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    text.len()
}

/// Block comments nest.
fn block_comment_end(text: &[char], at: usize) -> usize {
    let (mut depth, mut at) = (1, at + 2);
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::split(text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_go_to_their_half() {
        let source = Source::split("let a = 1; // one\n/* two /* deep */ */ let b;\n");
        assert_eq!(source.code, "let a = 1;       \n                     let b;\n");
        assert!(source.comments.contains("// one") && source.comments.contains("deep"));
        assert_eq!(source.code.lines().count(), source.comments.lines().count());
    }

    #[test]
    fn literals_are_blank_in_both_halves() {
        assert_eq!(code(r#"f("unsafe \" // no", 'x', '"', '\'', b"todo")"#), "f( , , , , b )");
        assert_eq!(code("f(r#\"a \" unsafe\"#, br\"\\\")"), "f( , )");
        assert_eq!(code("f('\\u{1F600}', g)"), "f( , g)");
        let kept = "fn f<'a>(x: &'a str) -> &'static str { x }";
        assert_eq!(code(kept), kept);
    }

    #[test]
    fn what_never_ends_reaches_the_end() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "// abc", "r", "'"] {
            assert_eq!(Source::split(text).code.chars().count(), text.chars().count());
        }
    }

    #[test]
    fn words_have_their_places() {
        let source = Source::split("fn é_1() {\n  // not\n  run\n}");
        let found: Vec<_> = source.words().map(|(at, word)| (source.line_of(at), word)).collect();
        assert_eq!(found, [(1, "fn"), (1, "é_1"), (3, "run")]);
    }
}
