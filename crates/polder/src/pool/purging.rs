//! What is told to an edge over HTTP, carried out: in a site's version table, and in the caches of
//! all edges.
//!
//! ```text
//! edge ── Invalidation ──► this thread ─┬─► tell-SITE.sock     the tags are updated
//!                                       └─► control socket ──► the parent asks all edges
//! ```
//!
//! Both are told whatever the site's mode is here: another edge may serve under settings that this
//! one has yet to hear of.

use super::options::tell_socket;
use crate::control::{self, CacheForgetArguments, Request};
use crate::runtime_dir::CONTROL_SOCKET;
use crate::settings::{Purge, Settings};
use anyhow::{Context as _, bail};
use cache::KeyRef;
use edge::{Invalidated, Invalidation, Invalidations, Invalidator, PurgeOptions, PurgeToken};
use edge::{SITE_TAG, invalidations, url_tag};
use pool_model::SiteId;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writers::{Client, ClientError};

/// The least that a token may have: what nobody guesses.
const TOKEN_BYTES_MIN: usize = 16;
/// The most: a field of a request has room for it.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Permission bits of everyone who is neither the owner nor of the file's group.
const EVERYONE: u32 = 0o007;
/// How long a version table may take to answer; it does so within a millisecond.
const TABLE_PATIENCE: Duration = Duration::from_secs(3);
/// How long the parent may take: an edge has 7 s, and they are asked at the same time.
const EDGES_PATIENCE: Duration = Duration::from_secs(10);

/// What the data plane needs of it.
#[derive(Debug, Default)]
pub(super) struct Purging {
    /// Who may, by site.
    pub(super) sites: Vec<Option<PurgeOptions>>,
    /// Who carries it out.
    pub(super) invalidator: Option<Invalidator>,
}

/// Carries out what an edge is told; its thread starts with the first site that lets it be told.
#[derive(Debug)]
pub(super) struct Purger {
    folder: PathBuf,
    started: OnceCell<Invalidator>,
}

impl Purger {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), started: OnceCell::new() }
    }

    /// For these settings.
    pub(super) fn purging(&self, settings: &Settings) -> anyhow::Result<Purging> {
        let mut sites = Vec::new();
        for site in &settings.sites {
            let options = site.purge.as_ref().map(purge_options).transpose();
            sites.push(options.with_context(|| format!("`purge` of site {}", site.name))?);
        }
        let is_wanted = sites.iter().any(Option::is_some);
        if is_wanted && self.started.get().is_none() {
            // Nobody else starts it: this is called by one thread.
            let _ = self.started.set(self.start(settings)?);
        }
        let invalidator = self.started.get().filter(|_| is_wanted).cloned();
        Ok(Purging { sites, invalidator })
    }

    /// Sites, their names and whether they have a table stay as they are for a pool's life.
    fn start(&self, settings: &Settings) -> anyhow::Result<Invalidator> {
        let (invalidator, all) = invalidations();
        let ways = settings.sites.iter().map(|site| Way {
            name: site.name.clone(),
            table: site.tags.as_ref().map(|_| tell_socket(&self.folder, &site.name)),
        });
        let control = self.folder.join(CONTROL_SOCKET);
        let carrier = Carrier { ways: ways.collect(), control, clients: HashMap::new() };
        let thread = std::thread::Builder::new().name("purges".to_owned());
        thread.spawn(move || carrier.run(all)).context("no thread for purges")?;
        Ok(invalidator)
    }
}

fn purge_options(purge: &Purge) -> anyhow::Result<PurgeOptions> {
    let token = purge.token_file.as_deref().map(token).transpose()?;
    Ok(PurgeOptions { from: purge.from.clone(), token })
}

fn token(path: &Path) -> anyhow::Result<PurgeToken> {
    let what = || format!("the token in {}", path.display());
    let file = File::open(path).with_context(what)?;
    if file.metadata().with_context(what)?.mode() & EVERYONE != 0 {
        bail!("{}: everyone may read or change it: chmod o= {}", what(), path.display());
    }
    let mut bytes = Vec::new();
    file.take(2 * TOKEN_BYTES_MAX as u64).read_to_end(&mut bytes).with_context(what)?;
    let bytes = bytes.trim_ascii();
    let is_long_enough = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes.len());
    if !is_long_enough || !bytes.iter().all(u8::is_ascii_graphic) {
        bail!("{} must be {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable characters", what());
    }
    Ok(PurgeToken::new(bytes))
}

/// How a site is told.
#[derive(Clone, Debug)]
struct Way {
    name: String,
    /// Where its version table is told, if it has one.
    table: Option<PathBuf>,
}

#[derive(Debug)]
struct Carrier {
    ways: Vec<Way>,
    control: PathBuf,
    /// Connections that are kept, by site.
    clients: HashMap<SiteId, Client>,
}

impl Carrier {
    fn run(mut self, mut all: Invalidations) {
        while let Some(invalidation) = all.wait() {
            let how = self.carry_out(&invalidation);
            invalidation.done(how);
        }
    }

    fn carry_out(&mut self, told: &Invalidation) -> Result<(), &'static str> {
        let Way { name, table } = self.ways[told.site.index()].clone();
        if let Some(socket) = table
            && let Err(error) = self.tell_table(told.site, &socket, &tags_of(told.site, &told.what))
        {
            tracing::warn!(site = name, %error, "a purge is not carried out");
            return Err("the site's version table can't be told; try again soon");
        }
        let request = request(&name, &told.what, told.is_soft);
        match control::ask(&self.control, &request, EDGES_PATIENCE) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(site = name, %error, "a purge is not carried out");
                Err("not all edges have confirmed; try again soon")
            }
        }
    }

    /// Over the kept connection, and should its other end be gone, over a new one: an update that
    /// is made twice does no harm.
    fn tell_table<T: AsRef<[u8]>>(
        &mut self,
        site: SiteId,
        socket: &Path,
        tags: &[T],
    ) -> Result<(), ClientError> {
        if let Some(mut kept) = self.clients.remove(&site)
            && kept.invalidate(tags).is_ok()
        {
            self.clients.insert(site, kept);
            return Ok(());
        }
        let mut client = Client::connect(socket, TABLE_PATIENCE)?;
        client.invalidate(tags)?;
        self.clients.insert(site, client);
        Ok(())
    }
}

/// What is updated in the version table.
fn tags_of(site: SiteId, what: &Invalidated) -> Vec<Vec<u8>> {
    match what {
        Invalidated::Everything => vec![SITE_TAG.to_vec()],
        Invalidated::Url { authority, path_and_query } => {
            let urls = urls_of(authority, path_and_query);
            let keys = urls.iter().filter_map(|url| KeyRef::of_url(site, url));
            let mut tags: Vec<_> = keys.map(|key| url_tag(&key.to_key())).collect();
            tags.dedup();
            tags
        }
        Invalidated::Tags(tags) => tags.iter().map(|tag| tag.clone().into_bytes()).collect(),
    }
}

/// A URL over TLS and without. The port that one of them leaves out says nothing of how visitors
/// come: whoever tells may come otherwise.
fn urls_of(authority: &str, path_and_query: &str) -> [String; 2] {
    let usual = [":80", ":443"].iter().find_map(|port| authority.strip_suffix(port));
    let authority = usual.unwrap_or(authority);
    ["http", "https"].map(|scheme| format!("{scheme}://{authority}{path_and_query}"))
}

/// What the parent is asked for.
fn request(site: &str, what: &Invalidated, soft: bool) -> Request {
    let site = site.to_owned();
    let mut arguments = CacheForgetArguments { site, soft, ..Default::default() };
    match what {
        Invalidated::Everything => arguments.all = true,
        Invalidated::Url { authority, path_and_query } => {
            arguments.urls = urls_of(authority, path_and_query).into();
        }
        Invalidated::Tags(tags) => arguments.tags.clone_from(tags),
    }
    Request::CacheForget(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::REQUEST_MAX_BYTES;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn tokens_are_read_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let write = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            token(&file).map_err(|error| format!("{error:#}"))
        };
        assert!(write("0123456789abcdef\n", 0o640).is_ok());
        assert!(write("0123456789abcdef\n", 0o644).unwrap_err().contains("chmod o="));
        for bad in ["short", "0123456789 abcdef", "", &"x".repeat(1_025), "0123456789abcdef\u{e9}"]
        {
            let error = write(bad, 0o600).unwrap_err();
            assert!(error.contains("16 to 1024 printable"), "{bad}: {error}");
        }
        fs::remove_file(&file).unwrap();
        assert!(token(&file).is_err());
    }

    #[test]
    fn whatever_is_told_fits_one_request() {
        let name = "a-site-with-a-name-of-32-letters";
        let length =
            |what: &Invalidated| serde_json::to_string(&request(name, what, true)).unwrap().len();
        let tag = "\\".repeat((32 << 10) / 1_000);
        let tags = Invalidated::Tags(vec![tag; 1_000]);
        let path_and_query = "\"".repeat(60_000);
        let url = Invalidated::Url { authority: "a".repeat(255), path_and_query };
        for what in [tags, url] {
            assert!(length(&what) + 100 < REQUEST_MAX_BYTES, "{}", length(&what));
        }
    }

    #[test]
    fn a_url_is_one_tag_and_two_keys() {
        let url = Invalidated::Url {
            authority: "Shop.test:80".to_owned(),
            path_and_query: "/a?b".to_owned(),
        };
        assert_eq!(tags_of(SiteId::MIN, &url), [b"polder:url:shop.test/a?b"]);
        let Request::CacheForget(arguments) = request("shop", &url, false) else {
            panic!("{url:?}")
        };
        assert_eq!(arguments.urls, ["http://Shop.test/a?b", "https://Shop.test/a?b"]);
        assert_eq!(tags_of(SiteId::MIN, &Invalidated::Everything), [SITE_TAG]);
        let path_and_query = "/".to_owned();
        let other = Invalidated::Url { authority: "shop.test:8080".to_owned(), path_and_query };
        assert_eq!(tags_of(SiteId::MIN, &other), [b"polder:url:shop.test:8080/"]);
    }
}
