//! Tells a site's version table of changes to the files of its static servers.
//!
//! ```text
//! writers::Watch ──► paths ──► cache::files ──► tags ──► the site's own writers' socket
//! ```
//!
//! A thread of the process that answers writers, and a writer like any other. When that process
//! begins all files are told once, so that nothing is missed while none runs.

use anyhow::Context as _;
use cache::files::tags_of_change;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use writers::line::{LINE_BYTES_MAX, TAGS_MAX};
use writers::{Client, ClientError, FOLDERS_MAX, Watch};

/// How long the process may take to answer itself: longer than any pause of a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Between two tries to tell.
const PAUSE: Duration = Duration::from_millis(50);

/// Watches until the process ends.
pub(super) fn watch(site: &str, root: &Path, socket: PathBuf) -> anyhow::Result<()> {
    let watch = Watch::new(root, FOLDERS_MAX);
    let site = site.to_owned();
    let run = move || run(&site, watch, &socket);
    let spawned = thread::Builder::new().name("files".to_owned()).spawn(run);
    spawned.map(drop).context("no thread to watch files")
}

fn run(site: &str, mut watch: Watch, socket: &Path) {
    let mut client = None;
    loop {
        let mut changed = BTreeSet::new();
        watch.changes(&mut changed);
        let tags = tags(&changed);
        let lines = lines(&tags);
        if let Some((first, rest)) = lines.split_first() {
            tracing::debug!(site, tags = tags.len(), "files have changed");
            tell(site, socket, &mut client, first);
            rest.iter().for_each(|line| tell(site, socket, &mut client, line));
        }
    }
}

/// The tags of what changed; those of the root stand for all.
fn tags(changed: &BTreeSet<Vec<u8>>) -> BTreeSet<String> {
    if changed.contains(&b""[..]) {
        return tags_of_change(b"").into_iter().collect();
    }
    changed.iter().flat_map(|path| tags_of_change(path)).collect()
}

/// As many tags at once as a line takes.
fn lines(tags: &BTreeSet<String>) -> Vec<Vec<&str>> {
    let mut lines: Vec<Vec<&str>> = Vec::new();
    let mut bytes = LINE_BYTES_MAX;
    for tag in tags {
        // With a separator, and behind the word.
        bytes += tag.len() + 1;
        let is_full = bytes + "invalidate".len() + 1 > LINE_BYTES_MAX;
        match lines.last_mut() {
            Some(line) if !is_full && line.len() < TAGS_MAX => line.push(tag),
            _ => {
                bytes = tag.len() + 1;
                lines.push(vec![tag]);
            }
        }
    }
    lines
}

/// Tells until it is heard: what is not told would stay in caches for good.
fn tell(site: &str, socket: &Path, client: &mut Option<Client>, tags: &[&str]) {
    let mut is_told = false;
    while let Err(error) = tell_once(socket, client, tags) {
        if !is_told {
            tracing::warn!(site, %error, "a change of files waits to be told");
            is_told = true;
        }
        *client = None;
        thread::sleep(PAUSE);
    }
}

fn tell_once(socket: &Path, client: &mut Option<Client>, tags: &[&str]) -> Result<(), ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(socket, ANSWER_WITHIN)?),
    };
    client.invalidate(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tags_fit_lines_that_writers_may_send() {
        let long = format!("/{}", "x".repeat(3_000));
        let paths = (0..3_000).map(|number| format!("/a/{number}"));
        let long = (0..100).map(|number| format!("{long}{number}"));
        let changed: BTreeSet<Vec<u8>> = paths.chain(long).map(String::into_bytes).collect();
        let tags = tags(&changed);
        let lines = lines(&tags);
        assert!(lines.len() > 6, "{}", lines.len());
        for line in &lines {
            writers::line::tag_line("invalidate", line).unwrap();
        }
        assert!(lines.concat().into_iter().eq(tags.iter().map(String::as_str)));
        let all = BTreeSet::from([b"/a".to_vec(), Vec::new()]);
        assert_eq!(super::tags(&all), BTreeSet::from(["files:/".to_owned()]));
    }
}
