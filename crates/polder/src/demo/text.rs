//! Lines of text that know their width: coloured where colours are wanted, cut where the terminal
//! ends.

use crate::terminal::{Paint, Style};

/// A line in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Option<Paint>, String)>);

impl Line {
    /// A line of plain text.
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self::default().add(text)
    }

    /// A heading.
    pub(super) fn bold(text: impl Into<String>) -> Self {
        Self::default().paint(Paint::Bold, text)
    }

    /// Adds plain text.
    pub(super) fn add(mut self, text: impl Into<String>) -> Self {
        self.0.push((None, text.into()));
        self
    }

    /// Adds text in a colour.
    pub(super) fn paint(mut self, paint: Paint, text: impl Into<String>) -> Self {
        self.0.push((Some(paint), text.into()));
        self
    }

    /// The text, at most `width` characters of it. All characters that the demo writes take one
    /// column.
    pub(super) fn render(&self, style: Style, width: usize) -> String {
        let mut left = width;
        let mut text = String::new();
        for (paint, piece) in &self.0 {
            let cut: String = piece.chars().take(left).collect();
            left -= cut.chars().count();
            match paint {
                Some(paint) if !cut.is_empty() => text.push_str(&style.paint(*paint, &cut)),
                _ => text.push_str(&cut),
            }
        }
        let kept = text.trim_end().len();
        text.truncate(kept);
        text
    }
}

/// A whole number with its thousands parted.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate, rounded.
pub(super) fn rate(per_second: f64) -> String {
    count(per_second.round().max(0.0) as u64)
}

/// A latency; `-` where none was seen.
pub(super) fn latency(us: u64) -> String {
    match us {
        0 => "-".into(),
        1..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// A count and its noun.
pub(super) fn plural(count: u64, noun: &str) -> String {
    let number = self::count(count);
    if count == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_is_seen_and_not_by_escapes() {
        let line = Line::of("shop ").paint(Paint::Green, "██████").add(" 6   ");
        assert_eq!(line.render(Style::PLAIN, 80), "shop ██████ 6");
        assert_eq!(line.render(Style::PLAIN, 7), "shop ██");
        let colourful = Style { colour: true, is_terminal: true };
        assert_eq!(line.render(colourful, 7), "shop \u{1b}[32m██\u{1b}[0m");
        assert_eq!(line.render(colourful, 5), "shop");
        assert_eq!(Line::default().render(Style::PLAIN, 80), "");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1_000, 1_234_567].map(count)[..]);
        assert_eq!(rate(11_842.6), "11,843");
        let times = [0, 812, 5_312, 2_345_000].map(latency);
        assert_eq!(times, ["-", "812 us", "5.3 ms", "2.35 s"]);
        assert_eq!(
            (plural(1, "move"), plural(1_024, "move")),
            ("1 move".into(), "1,024 moves".into())
        );
    }
}
