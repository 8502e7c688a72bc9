//! Open files that the demo's processes need.

use super::DemoError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files of the process that has most of them: a stub with 54 listeners, and a connection
/// from each of two edges to each of 18 nodes and three sites for each of eight requests at once,
/// if every one of them were ever used; in fact about half.
const FILES_MIN: u64 = 512;

/// Raises this process's limit, which its children get, where it is too low and may be raised.
pub(super) fn allow_files() -> Result<(), DemoError> {
    let limit = getrlimit(Resource::Nofile);
    match wanted(limit) {
        None => Ok(()),
        Some(wanted) => setrlimit(Resource::Nofile, wanted)
            .map_err(|_| DemoError::FewFiles { allowed: limit.current.unwrap_or(0) }),
    }
}

/// The limit to set, if the present one is too low; it may be beyond what is allowed.
fn wanted(limit: Rlimit) -> Option<Rlimit> {
    let current = limit.current.unwrap_or(u64::MAX);
    (current < FILES_MIN).then_some(Rlimit { current: Some(FILES_MIN), maximum: limit.maximum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_low_limit_is_raised() {
        let limit = |current| Rlimit { current, maximum: Some(4_096) };
        assert!(wanted(limit(Some(1_024))).is_none());
        assert!(wanted(limit(None)).is_none());
        let raised = wanted(limit(Some(256))).unwrap();
        assert_eq!((raised.current, raised.maximum), (Some(FILES_MIN), Some(4_096)));
    }
}
