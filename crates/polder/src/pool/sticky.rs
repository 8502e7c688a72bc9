//! Cookies that stand for servers: opaque, the same at all edges of a pool, and made with a key
//! that no client knows.
//!
//! ```text
//! token = the first 16 bytes of SHA-256(key length, key, and of each of "polder sticky 1", the
//!         site's name and the node's name its length and itself), in hex
//! ```
//!
//! The lengths keep two lists of names from being one text. Nobody sees a whole hash, so that none
//! can be continued; 128 bits are not guessed. The node's name does not change when nodes are
//! added before it, unlike its number.

use crate::settings::{Settings, Site, Sticky, StickyBy};
use anyhow::{Context as _, bail};
use edge::StickyCookie;
use pool_model::NodeId;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The least that a key file may hold: what nobody guesses.
const KEY_BYTES_MIN: usize = 16;
/// The most that is read of one.
const KEY_BYTES_MAX: usize = 4_096;
/// What a token is for, should the key serve for more one day.
const PURPOSE: &str = "polder sticky 1";
/// Bytes of a token.
const TOKEN_BYTES: usize = 16;
/// The file in the pool's folder with the key that was drawn when the pool started.
const KEY_FILE: &str = "sticky.key";

/// The stickiness of each site, in the order of the settings.
pub(super) fn stickiness(
    settings: &Settings,
    folder: &Path,
) -> anyhow::Result<Vec<Option<edge::Sticky>>> {
    settings.sites.iter().map(|site| of_site(site, settings, folder)).collect()
}

fn of_site(
    site: &Site,
    settings: &Settings,
    folder: &Path,
) -> anyhow::Result<Option<edge::Sticky>> {
    let Some(Sticky { by, .. }) = &site.sticky else { return Ok(None) };
    let (name, key) = match by {
        StickyBy::Hash(by) => return Ok(Some(edge::Sticky::Hash(by.clone()))),
        StickyBy::Cookie { name, key_file: Some(file) } => (name, read_key(file)?),
        StickyBy::Cookie { name, key_file: None } => (name, pool_key(folder)?),
    };
    let mut tokens = Vec::new();
    for (index, node) in settings.nodes.iter().enumerate() {
        tokens.push((NodeId::new(u16::try_from(index)?)?, token(&key, &site.name, &node.name)));
    }
    Ok(Some(edge::Sticky::Cookie(StickyCookie { name: name.clone(), tokens })))
}

fn token(key: &[u8], site: &str, node: &str) -> String {
    let mut hash = Sha256::new();
    for part in [key, PURPOSE.as_bytes(), site.as_bytes(), node.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..TOKEN_BYTES].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read_key(path: &Path) -> anyhow::Result<Vec<u8>> {
    let what = || format!("the key of sticky cookies in {}", path.display());
    let file = fs::File::open(path).with_context(what)?;
    let mut key = Vec::new();
    file.take(KEY_BYTES_MAX as u64 + 1).read_to_end(&mut key).with_context(what)?;
    if key.len() < KEY_BYTES_MIN || key.len() > KEY_BYTES_MAX {
        bail!("{} must have {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes", what());
    }
    Ok(key)
}

/// The pool's own key: whichever edge comes first draws it, and all read it. Its name appears
/// when it is whole.
fn pool_key(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let path = folder.join(KEY_FILE);
    if !path.exists() {
        let own = folder.join(format!("{KEY_FILE}.{}", std::process::id()));
        let mut key = [0; 2 * KEY_BYTES_MIN];
        getrandom::fill(&mut key).context("no random bytes for sticky cookies")?;
        let what = || format!("a key for sticky cookies in {}", folder.display());
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&own);
        file.and_then(|mut file| file.write_all(&key)).with_context(what)?;
        let linked = fs::hard_link(&own, &path);
        fs::remove_file(&own).with_context(what)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(what);
            }
            _ => {}
        }
    }
    read_key(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sticky: &str) -> Settings {
        let text = format!(
            "[[sites]]\nname = \"shop\"\nhosts = [\"a\"]\ncommand = [\"x\", \"{{port}}\"]\n\
             sticky = {sticky}\n[[sites]]\nname = \"blog\"\nhosts = [\"b\"]\n\
             command = [\"x\", \"{{port}}\"]\nsticky = {{ cookie = \"B\" }}\n\
             [[nodes]]\nname = \"n\"\ncount = 3\n"
        );
        crate::settings::parse("x", &text, &[]).unwrap().settings
    }

    fn tokens(settings: &Settings, folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for sticky in stickiness(settings, folder).unwrap().into_iter().flatten() {
            let edge::Sticky::Cookie(cookie) = sticky else { continue };
            all.extend(cookie.tokens.into_iter().map(|(_, token)| token));
        }
        all
    }

    #[test]
    fn tokens_are_opaque_and_the_same_at_all_edges() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings("{ cookie = \"S\" }");
        let first = tokens(&settings, folder.path());
        assert_eq!(first, tokens(&settings, folder.path()), "another edge of this pool");
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 6, "each node of each site has its own");
        assert!(first.iter().all(|token| token.len() == 32 && !token.contains("n1")));
        let other = tempfile::tempdir().unwrap();
        assert!(tokens(&settings, other.path()).iter().all(|token| !first.contains(token)));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_key_file_makes_them_outlive_the_pool() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "sixteen bytes and").unwrap();
        let line = format!("{{ cookie = \"S\", key_file = {:?} }}", file.to_str().unwrap());
        let settings = settings(&line);
        let of = |pool: &str| {
            let folder = folder.path().join(pool);
            fs::create_dir(&folder).unwrap();
            tokens(&settings, &folder)
        };
        let (one, two) = (of("one"), of("two"));
        assert_eq!(one[..3], two[..3]);
        assert_ne!(one[3..], two[3..], "the other site has no file");
        // Computed by another program from the description above.
        assert_eq!(token(b"k", "s", "n"), "d73c654253451e7ebbbba1a30ed7458c");
        fs::write(&file, "short").unwrap();
        let error = stickiness(&settings, folder.path()).unwrap_err().to_string();
        assert!(error.contains("16 to 4096 bytes"), "{error}");
        fs::remove_file(&file).unwrap();
        assert!(stickiness(&settings, folder.path()).is_err());
    }
}
