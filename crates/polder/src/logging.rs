//! Logging: plain lines to standard error, for a person or a journal.

use crate::settings::{did_you_mean, one_of};
use crate::terminal::Style;
use tracing_subscriber::EnvFilter;

/// The environment variable that sets the level when `--log-level` does not.
pub const LEVEL_VARIABLE: &str = "POLDER_LOG";

/// The level without either.
const LEVEL_DEFAULT: &str = "info";

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A level that is none.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct LevelError {
    text: String,
}

/// Starts logging. Later calls change nothing: a test may call it many times.
///
/// `level` is `error`, `warn`, `info`, `debug`, `trace` or `off`, or a filter of several such
/// parts (`info,moves=debug`).
pub fn start(level: Option<&str>, style: Style) -> Result<(), LevelError> {
    let from_environment = std::env::var(LEVEL_VARIABLE).ok().filter(|text| !text.is_empty());
    let level = level.or(from_environment.as_deref()).unwrap_or(LEVEL_DEFAULT);
    check(level)?;
    let filter = EnvFilter::builder().parse(level);
    let filter = filter.map_err(|error| LevelError { text: error.to_string() })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(style.colour)
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging had been started before");
    }
    Ok(())
}

/// The filter's own parser takes a misspelt level for a module's name, and logs nothing.
fn check(text: &str) -> Result<(), LevelError> {
    for part in text.split(',') {
        let level = part.rsplit('=').next().unwrap_or(part).trim();
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            let help = did_you_mean(level, LEVELS)
                .unwrap_or_else(|| format!("levels are {}", one_of(LEVELS)));
            return Err(LevelError { text: format!("unknown level {level:?}; {help}") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused() {
        let refused = start(Some("moves=dbug"), Style::PLAIN).unwrap_err().to_string();
        assert_eq!(refused, "unknown level \"dbug\"; did you mean `debug`?");
        assert!(start(Some("loud"), Style::PLAIN).is_err());
        assert!(start(Some("warn,moves=debug"), Style::PLAIN).is_ok());
    }
}
