//! One TOML file becomes typed settings, or a list of everything that is wrong with it.
//!
//! `schema` says which keys there are, `reader` reads a table by it, `read` makes typed settings
//! of the tables, `check` looks across them. Each finding knows its place; reading goes on after
//! it, so that one run of `polder check` shows all.

mod admission;
mod cache;
mod cache_table;
mod change;
mod check;
mod command;
mod difference;
mod fit;
mod hash;
mod live;
mod model;
mod names;
mod overlay;
mod problem;
mod purge;
mod read;
mod reader;
mod remote;
pub mod schema;
mod show;
mod site_tables;
mod source;
mod tables;
mod terms;
mod tls;
mod traffic;
mod writers;

pub use cache::cache_mode_name;
pub use change::{Change, apply, arranged, changes, concerns_agent};
pub use difference::differences;
pub use hash::SettingsHash;
pub use live::{KeyChange, Live, LiveError, site_changes, site_keys};
pub use model::{
    Check, ClientCertificate, Edge, Forwarded, Health, Http, Mode, Node, PolicyName, Pool, Purge,
    Reads, Remote, Servers, Settings, Site, SiteTls, Start, Sticky, StickyBy, Tags, TagsRead,
};
pub(crate) use names::RUNTIME_DIR_MAX_BYTES;
pub use problem::{PROBLEMS_SHOWN_MAX, Problem, Problems, Severity};
pub(crate) use problem::{did_you_mean, one_of};
pub use source::{Place, Source};

use check::Stage;
use problem::Findings;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use toml::de::DeTable;

/// The longest settings file. A pool of 16,382 nodes with an address for each of ten sites fits;
/// what is longer was hardly meant to be settings.
pub const FILE_MAX_BYTES: u64 = 16 << 20;

/// Settings that can be used, and what is odd about them.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The settings.
    pub settings: Settings,
    /// Warnings only.
    pub warnings: Problems,
}

/// Why a settings file gave no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It could not be read.
    #[error("cannot read {file}: {cause}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// It is longer than [`FILE_MAX_BYTES`].
    #[error("{file} is longer than {FILE_MAX_BYTES} bytes")]
    TooLong {
        /// The file.
        file: String,
    },
    /// What it says cannot be used.
    #[error("{problems}{} in {file}", count(.problems))]
    Wrong {
        /// The file.
        file: String,
        /// All that is wrong with it.
        problems: Problems,
    },
}

fn count(problems: &Problems) -> String {
    match problems.0.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    }
}

/// Reads a file and checks it. `overrides` are `KEY=VALUE` texts, which win over the file.
pub fn load(path: &Path, overrides: &[String]) -> Result<Checked, SettingsError> {
    check_text(path, &read_text(path)?, overrides)
}

/// Reads what a running pool goes by, as its parent wrote it down.
pub fn load_running(path: &Path) -> Result<Settings, SettingsError> {
    check_running(path, &read_text(path)?, &[])
}

/// Checks what a pool that runs is to go by. What its sites started with is past.
pub fn check_running(
    path: &Path,
    text: &str,
    overrides: &[String],
) -> Result<Settings, SettingsError> {
    let file = path.display().to_string();
    match parse_for(Stage::Runs, &file, text, overrides) {
        Ok(checked) => Ok(checked.settings),
        Err(problems) => Err(SettingsError::Wrong { file, problems }),
    }
}

/// Checks the text of a file that was read.
pub fn check_text(path: &Path, text: &str, overrides: &[String]) -> Result<Checked, SettingsError> {
    let file = path.display().to_string();
    parse(&file, text, overrides).map_err(|problems| SettingsError::Wrong { file, problems })
}

/// Reads a file as text.
pub fn read_text(path: &Path) -> Result<String, SettingsError> {
    let file = path.display().to_string();
    let unreadable = |cause| SettingsError::Unreadable { file: file.clone(), cause };
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(unreadable)?;
    opened.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(SettingsError::TooLong { file });
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let findings = Findings::default();
        findings.error(&(at..at + 1), "this is no text in UTF-8", "save the file as UTF-8");
        let problems = findings.locate(&Source::new(&file, &text));
        SettingsError::Wrong { file, problems }
    })
}

/// Checks the text of a settings file. All that is wrong comes back, in the order of the file.
pub fn parse(file: &str, text: &str, overrides: &[String]) -> Result<Checked, Problems> {
    parse_for(Stage::Starts, file, text, overrides)
}

fn parse_for(
    pool: Stage,
    file: &str,
    text: &str,
    overrides: &[String],
) -> Result<Checked, Problems> {
    let mut source = Source::new(file, text);
    let overlays: Vec<String> =
        overrides.iter().map(|argument| push_override(&mut source, argument)).collect();
    let findings = Findings::default();
    let settings = settings_of(pool, text, &overlays, &findings);
    let problems = findings.locate(&source);
    match settings {
        Some(settings) if !problems.any_error() => Ok(Checked { settings, warnings: problems }),
        _ => Err(problems),
    }
}

/// Adds an argument to the source. The text given back is padded in front, so that places in it
/// count from the source's start.
fn push_override(source: &mut Source, argument: &str) -> String {
    let toml = overlay::as_toml(argument);
    let padded = format!("{}{toml}", " ".repeat(source.next_start()));
    source.push(&format!("--set {}", reader::shown(argument)), &toml);
    padded
}

/// None if a text is not even TOML: then what it seems to say is not worth checking.
fn settings_of(
    pool: Stage,
    text: &str,
    overlays: &[String],
    findings: &Findings,
) -> Option<Settings> {
    let (mut root, errors) = DeTable::parse_recoverable(text);
    let mut is_toml = report_syntax(text, &errors, findings);
    for overlay in overlays {
        let (table, errors) = DeTable::parse_recoverable(overlay);
        is_toml &= report_syntax(overlay, &errors, findings);
        if is_toml {
            overlay::merge_root(root.get_mut(), table.into_inner(), findings);
        }
    }
    if !is_toml {
        return None;
    }
    let end = text.trim_end().len();
    let draft = read::read(root.get_ref(), findings);
    Some(check::complete(draft, pool, &(end..end + 1), findings))
}

/// Reports the first slip of each line: what follows it in the line makes no sense either. Whether
/// there was none.
fn report_syntax(text: &str, errors: &[toml::de::Error], findings: &Findings) -> bool {
    let mut line_before = None;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = text.as_bytes().iter().take(span.start).filter(|&&byte| byte == b'\n').count();
        if line_before.replace(line) != Some(line) {
            let message = format!("this is not TOML: {}", error.message());
            findings.error(&span, message, syntax_help(text));
        }
    }
    errors.is_empty()
}

fn syntax_help(text: &str) -> &'static str {
    if text.trim_start().starts_with('{') {
        return "this looks like JSON; Polder reads TOML";
    }
    "a line is `key = value`, `[table]`, `[[list of tables]]` or `# comment`; strings have quotes"
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;

#[cfg(test)]
mod across_tests;
#[cfg(test)]
mod any_text_tests;
#[cfg(test)]
mod connections_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod terms_tests;
