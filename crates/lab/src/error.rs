//! What can be missing or refused.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no lab on this machine, or not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A share or period that the kernel would not take.
    #[error("{0}")]
    Quota(String),
    /// The name of a group or a site that could leave its folder, or the configuration.
    #[error("{0:?} is no name: letters, digits, - and _ only, at most {1} bytes")]
    Name(String, usize),
    /// No CPU quota can be given here; the text says what was tried and why it failed.
    #[error("no CPU quota can be given here: {0}")]
    NoQuota(String),
    /// A program or a part of it is missing.
    #[error("{what} was not found in {tried}; the Debian package is {package}")]
    Missing {
        /// What is missing.
        what: String,
        /// Where it was looked for.
        tried: String,
        /// What to install.
        package: &'static str,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
    /// The shop's database does not start, or does not answer; what it said.
    #[error("the shop's database: {0}")]
    Shop(String),
    /// A system call failed.
    #[error("{}: {cause}", path.display())]
    Io {
        /// On which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

impl LabError {
    /// Whether this machine lacks what a lab needs: a test then says `skipped: why`.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::NoQuota(_) | Self::Missing { .. })
    }
}

/// Names the file of a system call that failed.
pub(crate) fn on(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    move |cause| LabError::Io { path: path.to_owned(), cause }
}

/// Longest name of a node or site: it becomes a part of file names.
const NAME_BYTES_MAX: usize = 64;

/// Refuses names that mean something to a file system, a shell or Apache.
pub(crate) fn check_name(name: &str) -> Result<(), LabError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if fits && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(LabError::Name(name.to_owned(), NAME_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for name in ["n1", "rigid-n1", "a_b"] {
            check_name(name).unwrap();
        }
        let long = "x".repeat(65);
        for name in ["", "..", "a/b", "a b", "a\n", "$x", "ä", &long] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
