//! What standard output and standard error are: a terminal, with colours or not.

use crate::cli::Colour;
use std::io::IsTerminal;

/// How to write to one of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether somebody watches: screens may be drawn anew, bars may move.
    pub is_terminal: bool,
}

impl Style {
    /// Plain text, as for a file.
    pub const PLAIN: Style = Style { colour: false, is_terminal: false };

    /// For standard output.
    #[must_use]
    pub fn of_stdout(wish: Colour) -> Self {
        Self::decide(wish, std::io::stdout().is_terminal(), Environment::read())
    }

    /// For standard error.
    #[must_use]
    pub fn of_stderr(wish: Colour) -> Self {
        Self::decide(wish, std::io::stderr().is_terminal(), Environment::read())
    }

    fn decide(wish: Colour, is_terminal: bool, environment: Environment) -> Self {
        let colour = match wish {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && !environment.refuses_colour && !environment.is_dumb,
        };
        Self { colour, is_terminal: is_terminal && !environment.is_dumb }
    }

    /// The text in a colour, or as it is.
    #[must_use]
    pub fn paint(self, paint: Paint, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Red => 31,
            Paint::Green => 32,
            Paint::Yellow => 33,
            Paint::Bold => 1,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// What the environment wishes.
#[derive(Clone, Copy, Debug)]
struct Environment {
    refuses_colour: bool,
    is_dumb: bool,
}

impl Environment {
    fn read() -> Self {
        // https://no-color.org: set and not empty.
        let refuses_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { refuses_colour, is_dumb }
    }
}

/// Colours that are used, by what they stand for on most terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Errors.
    Red,
    /// All is well.
    Green,
    /// Warnings.
    Yellow,
    /// Headings.
    Bold,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Environment = Environment { refuses_colour: false, is_dumb: false };

    #[test]
    fn colours_are_for_terminals() {
        let colour = |wish, is_terminal, env| Style::decide(wish, is_terminal, env).colour;
        assert!(colour(Colour::Auto, true, CALM));
        assert!(!colour(Colour::Auto, false, CALM));
        assert!(!colour(Colour::Auto, true, Environment { refuses_colour: true, ..CALM }));
        assert!(!colour(Colour::Auto, true, Environment { is_dumb: true, ..CALM }));
        assert!(colour(Colour::Always, false, CALM));
        assert!(!colour(Colour::Never, true, CALM));
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Style::PLAIN.paint(Paint::Red, "x"), "x");
        let colourful = Style { colour: true, is_terminal: true };
        assert_eq!(colourful.paint(Paint::Red, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
