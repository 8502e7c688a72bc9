//! Where the demo writes: a picture drawn again and again in place on a terminal, plain lines
//! elsewhere.

use super::text::Line;
use crate::terminal::Style;
use load::generate::Cancel;
use std::io::{self, Write};

/// The size that is taken where a terminal does not tell its own.
const SIZE_USUAL: (usize, usize) = (80, 24);
/// Escapes: do not show the cursor; show it; clear to the end of the line, of the screen.
const HIDE_CURSOR: &str = "\u{1b}[?25l";
pub(super) const SHOW_CURSOR: &str = "\u{1b}[?25h";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// Writes to standard output. The first write that fails cancels the demo; the later ones do
/// nothing.
#[derive(Debug)]
pub(super) struct Screen<W: Write> {
    out: W,
    style: Style,
    cancel: Cancel,
    /// Lines of the picture that stands above the cursor.
    drawn: usize,
    hides_cursor: bool,
    lost: Option<io::Error>,
}

impl<W: Write> Screen<W> {
    /// Draws pictures where the style has colours and somebody watches; else writes plain text
    /// alone.
    pub(super) fn new(out: W, style: Style, cancel: Cancel) -> Self {
        let style = if style.colour && style.is_terminal { style } else { Style::PLAIN };
        Self { out, style, cancel, drawn: 0, hides_cursor: false, lost: None }
    }

    /// Whether pictures are drawn.
    pub(super) fn draws(&self) -> bool {
        self.style.is_terminal
    }

    /// Draws a picture over the one before; nothing without a terminal. It is cut to the
    /// terminal's size, so that it can be drawn over.
    pub(super) fn draw(&mut self, picture: &[Line]) {
        if !self.draws() {
            return;
        }
        let (columns, rows) = size();
        let mut text = self.to_start();
        if !self.hides_cursor {
            self.hides_cursor = true;
            text.push_str(HIDE_CURSOR);
        }
        let shown = picture.len().min(rows.saturating_sub(1));
        for line in &picture[..shown] {
            // A line that fills the last column would leave the cursor where terminals differ.
            text.push_str(&line.render(self.style, columns.saturating_sub(1)));
            text.push_str(CLEAR_LINE);
            text.push('\n');
        }
        text.push_str(CLEAR_BELOW);
        self.drawn = shown;
        self.write(&text);
    }

    /// Writes lines that stay, in place of the picture.
    pub(super) fn say(&mut self, lines: &[Line]) {
        let mut text = self.to_start();
        if self.drawn > 0 {
            text.push_str(CLEAR_BELOW);
        }
        self.drawn = 0;
        for line in lines {
            text.push_str(&line.render(self.style, usize::MAX));
            text.push('\n');
        }
        self.write(&text);
    }

    /// The picture stays where it is; the next one comes below it.
    pub(super) fn keep(&mut self) {
        self.drawn = 0;
    }

    /// Shows the cursor again, and tells why nothing could be written, if so.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.restore();
        self.lost.take().map_or(Ok(()), Err)
    }

    fn to_start(&self) -> String {
        if self.drawn > 0 { format!("\r\u{1b}[{}A", self.drawn) } else { String::new() }
    }

    fn restore(&mut self) {
        if std::mem::take(&mut self.hides_cursor) {
            self.write(SHOW_CURSOR);
        }
    }

    fn write(&mut self, text: &str) {
        if self.lost.is_some() {
            return;
        }
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        if let Err(error) = written {
            self.cancel.cancel();
            self.lost = Some(error);
        }
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Columns and rows of the terminal at standard output.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => SIZE_USUAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Paint;

    const FANCY: Style = Style { colour: true, is_terminal: true };

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|&text| Line::of(text)).collect()
    }

    #[test]
    fn a_picture_is_drawn_over_the_one_before_and_the_cursor_comes_back() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, FANCY, Cancel::default());
        screen.draw(&lines(&["a", "b"]));
        screen.draw(&lines(&["c"]));
        screen.keep();
        screen.say(&[Line::default().paint(Paint::Green, "d")]);
        screen.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "\u{1b}[?25la\u{1b}[K\nb\u{1b}[K\n\u{1b}[J\
                        \r\u{1b}[2Ac\u{1b}[K\n\u{1b}[J\
                        \u{1b}[32md\u{1b}[0m\n\u{1b}[?25h";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_said_takes_the_place_of_the_picture() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, FANCY, Cancel::default());
        screen.draw(&lines(&["a"]));
        screen.say(&lines(&["b"]));
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\r\u{1b}[1A\u{1b}[Jb\n\u{1b}[?25h"), "{text:?}");
    }

    #[test]
    fn without_a_terminal_or_colours_there_is_no_escape_and_no_picture() {
        let only_terminal = Style { colour: false, is_terminal: true };
        let only_colour = Style { colour: true, is_terminal: false };
        for style in [Style::PLAIN, only_terminal, only_colour] {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, style, Cancel::default());
            assert!(!screen.draws());
            screen.draw(&lines(&["a"]));
            screen.say(&[Line::bold("b")]);
            screen.finish().unwrap();
            assert_eq!(out, b"b\n");
        }
    }

    #[test]
    fn a_large_picture_is_cut_to_the_terminal() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, FANCY, Cancel::default());
        let line = "x".repeat(2_000);
        screen.draw(&lines(&[line.as_str(); 2_000]));
        let (columns, rows) = size();
        assert_eq!(screen.drawn, rows - 1);
        drop(screen);
        let first = out.split(|&byte| byte == b'\n').next().unwrap();
        assert_eq!(first.iter().filter(|&&byte| byte == b'x').count(), columns - 1);
    }

    #[test]
    fn a_reader_that_goes_away_cancels_once() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let cancel = Cancel::default();
        let mut screen = Screen::new(Gone, FANCY, cancel.clone());
        screen.draw(&lines(&["a"]));
        assert!(cancel.is_cancelled());
        assert_eq!(screen.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
