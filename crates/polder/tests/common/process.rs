//! Questions to `/proc`, and signals to single processes.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

/// Sends a signal. False if the process is gone.
pub fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).is_ok()
}

/// The state as `/proc/PID/stat` names it; none if there is no such process. `Z` is dead, `T`
/// stopped.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether all threads of the process stand still. A signal to stop returns before they do.
pub fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_none_or(|state| state == 'T')
    })
}

/// Whether the process runs or is stopped.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Open file descriptors of a process.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Live processes with `text` in their command line or in their environment: all that belong to a
/// pool, when `text` is its folder, which no other pool has.
pub fn with(text: &Path) -> Vec<u32> {
    let text = text.as_os_str().as_encoded_bytes();
    let own = std::process::id();
    let entries = fs::read_dir("/proc").expect("there is a /proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let bears = |pid: &u32| {
        ["cmdline", "environ"].iter().any(|file| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text)
        })
    };
    pids.filter(|pid| *pid != own && is_alive(*pid)).filter(bears).collect()
}

/// A process's command line, words parted by spaces.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}
