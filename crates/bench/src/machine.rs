//! On what a figure was measured: it stands beside every result.

use serde::Serialize;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine, the versions, the command.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) memory_gib: f64,
    pub(crate) virtual_machine: bool,
    pub(crate) version: &'static str,
    pub(crate) commit: String,
    pub(crate) optimised: bool,
    pub(crate) command: String,
    pub(crate) unix_s: u64,
    pub(crate) load_before: String,
}

impl Setting {
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kib: f64 = field(&meminfo, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0);
        let flags = field(&cpuinfo, "flags").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            memory_gib: (memory_kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            optimised: !cfg!(debug_assertions),
            command: command(std::env::args().skip(1)),
            unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()),
            load_before: first_line("/proc/loadavg"),
        }
    }

    /// In one line, for a table and a picture.
    pub(crate) fn line(&self) -> String {
        let kind = if self.virtual_machine { ", virtual machine" } else { "" };
        let build = if self.optimised { "" } else { ", NOT OPTIMISED" };
        format!(
            "{}, {} cores{kind}, Linux {}, Polder {} ({}){build}",
            self.cpu, self.cores, self.kernel, self.version, self.commit
        )
    }
}

/// As typed from the repository's folder; the program's own path says nothing.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = arguments.collect();
    format!("cargo run --release -p bench -- {}", words.join(" "))
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The commit that lies checked out here, with a mark where files were changed since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "no commit".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash}, changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_without_its_paths() {
        let setting = Setting::read();
        assert!(setting.cores >= 1 && setting.memory_gib > 0.0);
        assert!(setting.kernel.contains('.'));
        assert!(!setting.line().is_empty());
        let words = ["burst", "--quick"].map(str::to_owned);
        assert_eq!(command(words.into_iter()), "cargo run --release -p bench -- burst --quick");
    }

    #[test]
    fn fields_are_found_by_name() {
        assert_eq!(field("a : 1\nmodel name\t: X 3\n", "model name"), Some("X 3".into()));
        assert_eq!(field("a : 1\n", "b"), None);
    }
}
