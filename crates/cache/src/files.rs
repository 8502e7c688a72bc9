//! Tags of responses that static servers make of files: both who keeps a response and who watches
//! the files make them of paths, and they meet.
//!
//! | tag | carried by a response to | told when |
//! | --- | --- | --- |
//! | `file:/a/b` | `/a/b`, and `/a/b?...` | `b` changes, comes or goes; or `b.html`, `b.html.gz` |
//! | `file:/a/` | `/a/` | anything directly in the folder changes, comes or goes |
//! | `files:/a/` | anything below `/a/` | it comes or goes; an index or `.x` there changes |
//!
//! So a response depends on more than its own file: servers look for `index.html`, for a page with
//! an ending, for a compressed twin, in `.htaccess`, and for `/index.html` where nothing else is
//! (`try_files`). Too much is told, never too little, of what a server makes of the files below one
//! root and of the path alone. What else it reads, such as its configuration, is not here.
//!
//! Paths are as the file system has them; in a tag each byte but the letters, digits and `-._/` is
//! written as `%XX`, and endings that servers may add are cut at each dot.

use crate::tags::TAGS_BYTES_MAX;

/// Most folders above a file: deeper ones are nobody's document root.
pub const DEPTH_MAX: usize = 64;

/// Bytes of one tag: what writers may send (`TAG_BYTES_MAX` of theirs).
const TAG_BYTES_MAX: usize = 4_096;

/// A path of a request does not lead to a file whose changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFile;

/// The tags of a response to a request for this target, where the files lie at `at` (`/`, or a
/// prefix such as `/assets/`).
pub fn tags_of_request(at: &str, path_and_query: &str) -> Result<Vec<String>, NoFile> {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let (mut segments, is_folder) = normal(path)?;
    let (above, _) = normal(at)?;
    if segments.len() < above.len() || segments[..above.len()] != above {
        return Err(NoFile);
    }
    segments.drain(..above.len());
    if segments.len() > DEPTH_MAX {
        return Err(NoFile);
    }
    let mut tags = vec!["files:/".to_owned()];
    let mut place = "/".to_owned();
    for (number, segment) in segments.iter().enumerate() {
        let is_last = number + 1 == segments.len();
        push_escaped(&mut place, segment);
        if is_last {
            tags.push(format!("file:{place}"));
        }
        // Also below what may be a file: scripts and servers give their own meaning to the rest.
        place.push('/');
        tags.push(format!("files:{place}"));
    }
    if is_folder {
        tags.push(format!("file:{place}"));
    }
    let bytes: usize = tags.iter().map(String::len).sum();
    let fit = bytes <= TAGS_BYTES_MAX && tags.iter().all(|tag| tag.len() <= TAG_BYTES_MAX);
    if fit { Ok(tags) } else { Err(NoFile) }
}

/// The tags of what changes when this path below the root does: a file that was written to, came or
/// went, or a folder with all that is below it. The root itself is the empty path.
pub fn tags_of_change(path: &[u8]) -> Vec<String> {
    let mut segments: Vec<&[u8]> = split(path).collect();
    let Some(name) = segments.pop() else { return vec!["files:/".to_owned()] };
    let mut folder = "/".to_owned();
    for segment in segments {
        push_escaped(&mut folder, segment);
        folder.push('/');
    }
    let mut tags = vec![format!("file:{folder}")];
    let mut add = |name: &[u8]| {
        let mut place = folder.clone();
        push_escaped(&mut place, name);
        tags.push(format!("file:{place}"));
        place.push('/');
        tags.push(format!("files:{place}"));
    };
    add(name);
    let dots = name.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.');
    for (dot, _) in dots.filter(|(dot, _)| *dot > 0).take(ENDINGS_MAX) {
        add(&name[..dot]);
    }
    if name.starts_with(b".") || name.starts_with(b"index.") {
        tags.push(format!("files:{folder}"));
    }
    if tags.iter().any(|tag| tag.len() > TAG_BYTES_MAX) {
        return vec![nearest(path)];
    }
    tags
}

/// Endings that are cut off a name, one after the other.
const ENDINGS_MAX: usize = 4;

/// All below the nearest folder whose tag is short enough.
fn nearest(path: &[u8]) -> String {
    let mut place = "files:/".to_owned();
    for segment in split(path) {
        let before = place.len();
        push_escaped(&mut place, segment);
        place.push('/');
        if place.len() > TAG_BYTES_MAX {
            place.truncate(before);
            break;
        }
    }
    place
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty())
}

/// The segments of a request's path, as a server reads it, and whether it ends as a folder's.
fn normal(path: &str) -> Result<(Vec<Vec<u8>>, bool), NoFile> {
    let path = decoded(path.as_bytes())?;
    if path.contains(&0) || !path.starts_with(b"/") {
        return Err(NoFile);
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let mut is_folder = true;
    for segment in path.split(|&byte| byte == b'/').skip(1) {
        is_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            name => segments.push(name.to_vec()),
        }
    }
    Ok((segments, is_folder))
}

/// Without `%XX`, once.
fn decoded(path: &[u8]) -> Result<Vec<u8>, NoFile> {
    let mut all = Vec::with_capacity(path.len());
    let mut left = path.iter();
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    while let Some(&byte) = left.next() {
        if byte != b'%' {
            all.push(byte);
            continue;
        }
        let (high, low) = (digit(left.next()).ok_or(NoFile)?, digit(left.next()).ok_or(NoFile)?);
        all.push(u8::try_from(high * 16 + low).expect("two digits"));
    }
    Ok(all)
}

fn push_escaped(text: &mut String, segment: &[u8]) {
    use std::fmt::Write as _;
    for &byte in segment {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meet(change: &str, target: &str) -> bool {
        let told = tags_of_change(change.as_bytes());
        let carried = tags_of_request("/", target).unwrap();
        carried.iter().any(|tag| told.contains(tag))
    }

    #[test]
    fn a_change_meets_what_a_server_makes_of_it() {
        for (change, target) in [
            ("/a/b.html", "/a/b.html"),
            ("/a/b.html", "/a/b.html?x=/y"),
            ("/a/b.html", "//a/./c/../b%2Ehtml"),
            ("/a/b.html", "/a/b"),
            ("/a/b.html.gz", "/a/b.html"),
            ("/a/b.html", "/a/"),
            ("/a/index.html", "/a/"),
            ("/a/index.html", "/a/nothing/here"),
            ("/index.html", "/"),
            ("/index.html", "/any/thing"),
            ("/a/.htaccess", "/a/b/c.html"),
            ("/a", "/a/b/c.html"),
            ("/a", "/a"),
            ("/a.php", "/a.php/more/path"),
            ("/a b/\u{e4}.html", "/a%20b/%C3%A4.html"),
            ("/a b/\u{e4}.html", "/a%20%62/\u{e4}.html"),
            ("", "/a/b"),
        ] {
            assert!(meet(change, target), "{change} {target}");
        }
        for (change, target) in [
            ("/a/b.html", "/a/c.html"),
            ("/a/b.html", "/b.html"),
            ("/a/b.html", "/"),
            ("/a/b.html", "/a.html"),
            ("/a/indexes.html", "/a/b"),
            ("/b/index.html", "/a/b"),
        ] {
            assert!(!meet(change, target), "{change} {target}");
        }
    }

    #[test]
    fn what_is_no_file_has_no_tags() {
        let deep = "/x".repeat(DEPTH_MAX + 1);
        let long = format!("/{}", "%20".repeat(2_000));
        for target in ["", "a", "/%", "/%zz", "/a%00", "*", &deep, &long] {
            assert_eq!(tags_of_request("/", target), Err(NoFile), "{target:.20}");
        }
        assert_eq!(tags_of_request("/assets/", "/other/a"), Err(NoFile));
        assert_eq!(tags_of_request("/assets", "/assets/a"), tags_of_request("/", "/a"));
        let told = tags_of_change(long.replace("%20", " ").as_bytes());
        assert_eq!(told, ["files:/"]);
    }

    proptest! {
        /// Whatever the bytes: the file's own URL, in any spelling, meets its change.
        #[test]
        fn any_path_meets_its_own_url(
            path in prop::collection::vec(
                prop::collection::vec(1_u8..=255, 1..9), 1..6,
            ),
            spelt in any::<u64>(),
        ) {
            let is_name = |name: &Vec<u8>| {
                !name.contains(&b'/') && name != b"." && name != b".."
            };
            prop_assume!(path.iter().all(is_name));
            let file = [b"/".as_slice(), &path.join(&b'/')].concat();
            let mut url = String::new();
            for (number, byte) in file.iter().enumerate() {
                let plain = byte.is_ascii_graphic() && !b"%?#".contains(byte);
                if plain && (*byte == b'/' || spelt >> (number % 64) & 1 == 0) {
                    url.push(char::from(*byte));
                } else {
                    url.push_str(&format!("%{byte:02x}"));
                }
            }
            let told = tags_of_change(&file);
            let carried = tags_of_request("/", &url).unwrap();
            prop_assert!(carried.iter().any(|tag| told.contains(tag)), "{url}");
            for folder in 0..path.len() {
                let above = [b"/".as_slice(), &path[..folder].join(&b'/')].concat();
                let told = tags_of_change(&above);
                prop_assert!(carried.iter().any(|tag| told.contains(tag)), "{folder} {url}");
            }
        }
    }
}
