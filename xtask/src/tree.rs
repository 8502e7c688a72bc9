//! The files of the checkout, read once into memory, so that each check is a pure function of them
//! and each check's tests can write a small tree down.

use std::fs;
use std::io;
use std::path::Path;

/// Files larger than this are not read: they are data, and no check looks into data.
const READ_MAX_BYTES: u64 = 4 << 20;

/// How deep directories may nest: far beyond ours, and an end for a loop of links.
const DEPTH_MAX: usize = 16;

/// One file: its path from the top with `/` between parts, and its text.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    /// `None` for what is not UTF-8 or too large.
    pub(crate) text: Option<String>,
}

impl File {
    /// The text, or nothing for binary files.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("")
    }

    /// The part of the path behind the last `/`.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// All files of the checkout, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads everything below `top` but git's own files and what the top's `.gitignore` anchors.
    pub(crate) fn read(top: &Path) -> io::Result<Tree> {
        let ignored = fs::read_to_string(top.join(".gitignore")).unwrap_or_default();
        let mut skipped: Vec<String> =
            ignored.lines().filter_map(|line| line.strip_prefix('/')).map(str::to_owned).collect();
        skipped.push(".git".to_owned());
        let mut files = Vec::new();
        read_directory(top, "", &skipped, 0, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    /// The file at exactly this path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file lies there, or a directory with a file in it.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let inside = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&inside))
    }

    /// Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// A tree for tests, written down as pairs of path and text.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        };
        Tree { files: files.iter().map(file).collect() }
    }
}

fn read_directory(
    directory: &Path,
    prefix: &str,
    skipped: &[String],
    depth: usize,
    files: &mut Vec<File>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("directories nest too deep at {prefix}")));
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if skipped.iter().any(|name| name.trim_end_matches('/') == path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_directory(&entry.path(), &format!("{path}/"), skipped, depth + 1, files)?;
        } else if kind.is_file() {
            let small = entry.metadata()?.len() <= READ_MAX_BYTES;
            let bytes = if small { fs::read(entry.path())? } else { vec![0xff] };
            files.push(File { path, text: String::from_utf8(bytes).ok() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_checkout_without_ignored_directories() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent");
        let tree = Tree::read(top).expect("the checkout can be read");
        assert!(tree.get("xtask/src/tree.rs").is_some());
        assert!(tree.exists("xtask/src") && tree.exists("xtask/src/"));
        assert!(!tree.exists("target") && !tree.exists(".git"));
        assert!(!tree.exists("xtask/sr"));
    }

    #[test]
    fn what_is_not_text_has_a_path_only() {
        let file = File { path: "a/b.png".to_owned(), text: String::from_utf8(vec![0xff]).ok() };
        assert_eq!((file.name(), file.text()), ("b.png", ""));
    }
}
