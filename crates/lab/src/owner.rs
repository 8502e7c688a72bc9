//! Names that tell who owns a folder or a group, so that the next run finds what a killed one left.

use std::fs;

/// What the names begin with.
const PREFIX: &str = "polder-lab-";

/// The name of things of this process: its number, and when the kernel started it, because numbers
/// are used again.
pub(crate) fn own_name() -> String {
    let process = std::process::id();
    format!("{PREFIX}{process}-{}", start_ticks(process).unwrap_or(0))
}

/// Whether a name is one of ours and its owner has ended. A name that cannot be read as one of
/// ours is not.
pub(crate) fn is_abandoned(name: &str) -> bool {
    let Some((process, started)) = owner(name) else { return false };
    start_ticks(process) != Some(started)
}

/// `polder-lab-PROCESS-START`, with anything behind a further `-`.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// When the kernel started a process: field 22 of `/proc/PID/stat`; none if it is gone.
fn start_ticks(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; the state follows its last one.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_gone = matches!(fields.next()?, "Z" | "X");
    if is_gone { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_own_what_is_theirs() {
        let name = own_name();
        assert!(!is_abandoned(&name));
        assert!(!is_abandoned(&format!("{name}-x7")));
        let (process, started) = owner(&name).unwrap();
        assert_eq!(process, std::process::id());
        // Another process under the same number.
        assert!(is_abandoned(&format!("{PREFIX}{process}-{}", started + 1)));
        // No machine gives this number away.
        assert!(is_abandoned(&format!("{PREFIX}4294967295-1")));
    }

    #[test]
    fn other_names_are_nobodys_to_remove() {
        for name in ["", "polder-lab-", "polder-lab-1", "polder-lab-x-1", "system.slice", "1-1"] {
            assert!(!is_abandoned(name), "{name}");
        }
    }
}
