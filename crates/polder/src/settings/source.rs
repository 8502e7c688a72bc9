//! Where settings come from, and how a place in them is shown to a person.

use std::fmt::Write as _;
use std::ops::Range;

/// Characters of a line that a snippet shows: what a terminal of 100 columns holds beside the
/// line number. A longer line is shown around the place concerned.
const SNIPPET_MAX_CHARS: usize = 88;

/// The file and, after it, each `--set`, with one running offset over all of them, so that a
/// span tells by itself which text it lies in.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    name: String,
    start: usize,
    text: String,
}

/// A place as a person counts: lines and columns (in characters) from 1.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// The file, or the `--set` argument.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Source {
    /// The text of the settings file.
    #[must_use]
    pub fn new(name: &str, text: &str) -> Self {
        let piece = Piece { name: name.to_owned(), start: 0, text: text.to_owned() };
        Self { pieces: vec![piece] }
    }

    /// The offset that the next piece starts at. One is left free between two pieces, so that the
    /// end of one is not the start of the next.
    pub(super) fn next_start(&self) -> usize {
        self.pieces.last().map_or(0, |last| last.start + last.text.len() + 1)
    }

    pub(super) fn push(&mut self, name: &str, text: &str) {
        let start = self.next_start();
        self.pieces.push(Piece { name: name.to_owned(), start, text: text.to_owned() });
    }

    fn piece(&self, offset: usize) -> Option<&Piece> {
        self.pieces.iter().rev().find(|piece| piece.start <= offset)
    }

    /// The place of an offset; the end of the text for one beyond it.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        let Some(piece) = self.piece(offset) else {
            return Place { file: String::new(), line: 1, column: 1 };
        };
        let (line_start, at) = line_of(&piece.text, offset - piece.start);
        Place {
            file: piece.name.clone(),
            line: piece.text[..line_start].matches('\n').count() + 1,
            column: piece.text[line_start..at].chars().count() + 1,
        }
    }

    /// The line of a span with carets below it, as compilers show it. Control characters are
    /// shown as blanks: a settings file cannot paint the terminal.
    #[must_use]
    pub fn snippet(&self, span: &Range<usize>) -> String {
        let Some(piece) = self.piece(span.start) else { return String::new() };
        let (line_start, at) = line_of(&piece.text, span.start - piece.start);
        let line = piece.text[line_start..].lines().next().unwrap_or("");
        let before = piece.text[line_start..at].chars().count();
        let marked = span.end.saturating_sub(span.start).max(1);
        let end = floor_boundary(&piece.text, at.saturating_add(marked));
        let under = piece.text[at..end].lines().next().unwrap_or("").chars().count().max(1);
        let skipped = before.saturating_sub(SNIPPET_MAX_CHARS / 2);
        let shown: String = line
            .chars()
            .skip(skipped)
            .take(SNIPPET_MAX_CHARS)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let (gap, under) = (before - skipped, under.min(SNIPPET_MAX_CHARS / 2));
        let number = self.place(span.start).line.to_string();
        let margin = " ".repeat(number.len());
        let mut snippet = String::new();
        let _ = writeln!(snippet, "{margin} |");
        let _ = writeln!(snippet, "{number} | {shown}");
        let _ = write!(snippet, "{margin} | {}{}", " ".repeat(gap), "^".repeat(under));
        snippet
    }
}

/// The start of the line that holds an offset, and the offset itself on a character's boundary.
fn line_of(text: &str, offset: usize) -> (usize, usize) {
    let at = floor_boundary(text, offset);
    let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    (line_start, at)
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(source: &Source, offset: usize) -> (usize, usize) {
        let place = source.place(offset);
        (place.line, place.column)
    }

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let source = Source::new("x.toml", "ab\ncäd = 1\n");
        assert_eq!(at(&source, 0), (1, 1));
        assert_eq!(at(&source, 3), (2, 1));
        // `ä` takes two bytes and one column.
        assert_eq!(at(&source, 6), (2, 3));
        assert_eq!(at(&source, 5), (2, 2));
        assert_eq!(at(&source, 900), (3, 1));
    }

    #[test]
    fn a_second_piece_counts_for_itself() {
        let mut source = Source::new("x.toml", "a = 1");
        source.push("--set b", "b = 2");
        assert_eq!(source.place(5).file, "x.toml");
        assert_eq!(source.place(6).file, "--set b");
        assert_eq!(at(&source, 10), (1, 5));
    }

    #[test]
    fn carets_lie_under_the_span() {
        let source = Source::new("x.toml", "one = 1\ntwo = 22\n");
        assert_eq!(source.snippet(&(14..16)), "  |\n2 | two = 22\n  |       ^^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let snippet = Source::new("x", &text).snippet(&(500..501));
        let lines: Vec<&str> = snippet.lines().collect();
        assert_eq!(lines[1].find('X'), lines[2].find('^'));
        assert!(lines[1].len() < 100);
    }

    #[test]
    fn the_terminal_is_not_painted() {
        let snippet = Source::new("x", "a = \u{1b}[31m").snippet(&(0..1));
        assert!(!snippet.contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_is_shown(text: String, start in 0usize..80, len in 0usize..80) {
            let source = Source::new("x", &text);
            prop_assert!(source.place(start).line > 0);
            prop_assert!(source.snippet(&(start..start + len)).contains('^'));
        }
    }
}
