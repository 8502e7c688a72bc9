//! `polder invalidate`, `cache pending` and `cache settle`: telling of changes by hand, and writers
//! that went.

use super::{CommandError, Output, find_pool};
use crate::cli_cache::{InvalidateArguments, PendingArguments, SettleArguments, TableArguments};
use crate::pool::tell_socket;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writers::line::Whose;
use writers::{Client, ClientError, PendingWriter};

/// How long the writers' process may take to answer; settling counts words, which takes
/// milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why a site's writers' socket did not do it.
#[derive(Debug, thiserror::Error)]
pub enum TellError {
    /// There is none, or several.
    #[error("{0}")]
    NoTable(String),
    /// It was refused, or nobody answers.
    #[error("site {site}: {cause}")]
    Client {
        /// The site.
        site: String,
        /// Why.
        cause: ClientError,
    },
}

/// A connection to one site's writers' socket.
struct Site {
    name: String,
    client: Client,
}

impl Site {
    fn find(arguments: &TableArguments) -> Result<Self, CommandError> {
        let folder = find_pool(&arguments.pool)?;
        let (name, socket) = socket_of(&folder, arguments.site.as_deref())?;
        match Client::connect(&socket, ANSWER_WITHIN) {
            Ok(client) => Ok(Self { name, client }),
            Err(cause) => Err(TellError::Client { site: name, cause }.into()),
        }
    }

    fn failed(&self, cause: ClientError) -> CommandError {
        TellError::Client { site: self.name.clone(), cause }.into()
    }
}

/// The socket of the named site, or the only one.
fn socket_of(folder: &Path, site: Option<&str>) -> Result<(String, PathBuf), TellError> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("tell-")?.strip_suffix(".sock")?.to_owned())
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort_unstable();
    let known = names.join(", ");
    let found = match (site, &names[..]) {
        (Some(site), _) if names.iter().any(|name| name == site) => site,
        (Some(site), _) => {
            let text = format!("site {site} has no version table here; sites that have: {known}");
            return Err(TellError::NoTable(text));
        }
        (None, [only]) => only,
        (None, []) => {
            let text = "no site of the pool has a version table: set `tags` in [[sites]]";
            return Err(TellError::NoTable(text.to_owned()));
        }
        (None, _) => {
            let text = format!("several sites have a version table: {known}; name one by --site");
            return Err(TellError::NoTable(text));
        }
    };
    Ok((found.to_owned(), tell_socket(folder, found)))
}

pub(super) fn invalidate(arguments: &InvalidateArguments) -> Result<Output, CommandError> {
    let mut site = Site::find(&arguments.table)?;
    let done = site.client.invalidate(&arguments.tags);
    done.map_err(|cause| site.failed(cause))?;
    let count = arguments.tags.len();
    let tags = if count == 1 { "1 tag".to_owned() } else { format!("{count} tags") };
    Ok(Output::from(format!("{tags} of site {} invalidated\n", site.name)))
}

pub(super) fn pending(arguments: &PendingArguments) -> Result<Output, CommandError> {
    let mut site = Site::find(&arguments.table)?;
    let (pending, is_open) = site.client.pending().map_err(|cause| site.failed(cause))?;
    if !arguments.json {
        return Ok(Output::from(pending_text(&site.name, &pending, is_open)));
    }
    let one = |told: &PendingWriter| {
        json!({
            "writer": told.writer, "words": told.words, "age_s": told.age_s, "pid": told.pid,
            "uid": told.uid, "connected": told.is_connected,
        })
    };
    let writers: Vec<_> = pending.iter().map(one).collect();
    let all = json!({ "site": site.name, "serves_hits": is_open, "pending": writers });
    Ok(Output::from(format!("{all}\n")))
}

fn pending_text(site: &str, pending: &[PendingWriter], is_open: bool) -> String {
    let mut text = String::new();
    if !is_open {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "site {site} serves no hits: an earlier run left updates that may be undecided. Once \
             all its transactions are decided: polder cache settle --earlier --site {site}"
        );
    }
    if pending.is_empty() {
        let _ = writeln!(text, "no writer of site {site} is between begin and end");
        return text;
    }
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let _ =
        writeln!(text, "{:<8}  {:>5}  {:>6}  {:>7}  CONNECTION", "WRITER", "WORDS", "AGE", "PID");
    for told in pending {
        let age = told.age_s.map_or("-".to_owned(), |age| format!("{age} s"));
        let (writer, words, pid) = (&told.writer, told.words, number(told.pid.map(u64::from)));
        let connection = if told.is_connected { "open" } else { "ended" };
        let _ = writeln!(text, "{writer:<8}  {words:>5}  {age:>6}  {pid:>7}  {connection}");
    }
    text
}

pub(super) fn settle(arguments: &SettleArguments) -> Result<Output, CommandError> {
    let mut all = Vec::new();
    for writer in &arguments.writers {
        match Whose::parse(writer.as_bytes()) {
            Some(whose @ Whose::Writer(_)) => all.push(whose),
            _ => {
                let text = format!("{writer:?} is no writer; `polder cache pending` names them");
                return Err(CommandError::Argument(text));
            }
        }
    }
    all.extend(arguments.disconnected.then_some(Whose::Disconnected));
    all.extend(arguments.earlier.then_some(Whose::Earlier));
    let mut site = Site::find(&arguments.table)?;
    let mut settled = 0;
    for whose in all {
        settled += site.client.settle(whose).map_err(|cause| site.failed(cause))?;
    }
    let name = &site.name;
    Ok(Output::from(match (arguments.earlier, settled) {
        (true, 0) => format!("site {name} serves hits already\n"),
        (true, _) => format!("site {name} serves hits from now on\n"),
        (false, 0) => format!("nothing of theirs is pending at site {name}\n"),
        (false, 1) => format!("1 writer of site {name} settled\n"),
        (false, _) => format!("{settled} writers of site {name} settled\n"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_table_is_found_and_several_must_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let found = |site| socket_of(folder.path(), site).map(|(name, _)| name);
        let told = |site| found(site).unwrap_err().to_string();
        assert!(told(None).contains("set `tags`"));
        std::fs::write(tell_socket(folder.path(), "shop"), "").unwrap();
        assert_eq!(found(None).unwrap(), "shop");
        std::fs::write(tell_socket(folder.path(), "blog"), "").unwrap();
        assert!(told(None).contains("blog, shop"));
        assert_eq!(found(Some("blog")).unwrap(), "blog");
        assert!(told(Some("x")).contains("blog, shop"));
    }

    #[test]
    fn pending_writers_are_shown_as_a_table() {
        let told = PendingWriter {
            writer: "000000a0".to_owned(),
            words: 3,
            age_s: Some(12),
            pid: Some(70),
            uid: Some(1000),
            is_connected: false,
        };
        let text = pending_text("shop", &[told], true);
        assert_eq!(
            text,
            "WRITER    WORDS     AGE      PID  CONNECTION\n\
             000000a0      3    12 s       70  ended\n"
        );
        assert!(pending_text("shop", &[], false).contains("settle --earlier"));
    }
}
