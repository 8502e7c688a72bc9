//! What the next agent must know of this one: which processes it runs, and where.
//!
//! The file is JSON of mode 0600, replaced by rename, so that a reader sees one state or the next.
//! It is not synced to disk: it serves a restart of the agent, not of the machine, after which no
//! process of it runs anyway.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The format that this program writes and reads.
const FORMAT: u32 = 1;
/// A longer file is none of ours: 1,023 servers with long errors take less.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Characters of an error that are kept: the state file is no log.
const ERROR_CHARS_MAX: usize = 200;

/// What an agent noted about itself and its servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// The version of this file's format.
    pub format: u32,
    /// The node's name.
    pub node: String,
    /// The agent's process.
    pub pid: u32,
    /// When the kernel started it, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its servers that run, or that have something to say.
    pub servers: Vec<ServerState>,
}

/// What an agent noted about one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// The site's number.
    pub site: u16,
    /// The site's name.
    pub name: String,
    /// Its process, if the agent started one that runs.
    pub process: Option<ProcessState>,
    /// How often it was started again.
    pub restarts: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// One process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its id, which is also that of its group.
    pub pid: u32,
    /// When the kernel started it, in clock ticks since boot: tells it from a later process with
    /// the same id.
    pub start_ticks: u64,
    /// Where it listens.
    pub address: SocketAddrV4,
}

/// Why a state file could not be read or written.
#[derive(Debug, Error)]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{}: not the state of an agent: {reason}", path.display())]
    Garbage {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl AgentState {
    pub(crate) fn new(node: &str, pid: u32, start_ticks: u64) -> Self {
        let node = node.to_owned();
        Self { format: FORMAT, node, pid, start_ticks, servers: Vec::new() }
    }

    /// Reads the file; none if there is none. Blocks on the file only.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Option<Self>, StateError> {
        let failed = |source| StateError::File { path: path.to_owned(), source };
        let garbage = |reason: String| StateError::Garbage { path: path.to_owned(), reason };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(garbage(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        Self::parse(&bytes).map(Some).map_err(garbage)
    }

    /// What a file says, or what is wrong with it.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let state: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if state.format != FORMAT {
            return Err(format!("format {}, not {FORMAT}", state.format));
        }
        Ok(state)
    }

    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), StateError> {
        let failed = |source| StateError::File { path: path.to_owned(), source };
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = file.and_then(|mut file| file.write_all(&bytes));
        written.and_then(|()| std::fs::rename(&new, path)).map_err(failed)
    }

    /// Removes the file, if it is there.
    pub(crate) fn remove(path: &Path) -> Result<(), StateError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StateError::File { path: path.to_owned(), source: error })
            }
            _ => Ok(()),
        }
    }

    /// Whether the agent that wrote it runs, and is not this process.
    pub(crate) fn agent_runs(&self) -> bool {
        self.pid != std::process::id() && crate::process::is_alive(self.pid, self.start_ticks)
    }
}

/// An error as it is kept.
pub(crate) fn shortened(error: &str) -> String {
    error.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    fn state() -> AgentState {
        let mut state = AgentState::new("n1", 17, 4_711);
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9_001);
        state.servers.push(ServerState {
            site: 3,
            name: "shop".to_owned(),
            process: Some(ProcessState { pid: 18, start_ticks: 5, address }),
            restarts: 2,
            last_error: Some("killed by signal 9".to_owned()),
        });
        state
    }

    #[test]
    fn what_is_written_is_read_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node-n1.json");
        assert_eq!(AgentState::read(&path).unwrap(), None);
        state().write(&path).unwrap();
        assert_eq!(AgentState::read(&path).unwrap(), Some(state()));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        AgentState::remove(&path).unwrap();
        AgentState::remove(&path).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn garbage_gets_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let newer = serde_json::to_string(&AgentState { format: 2, ..state() }).unwrap();
        let long = " ".repeat(FILE_BYTES_MAX as usize + 1);
        for garbage in ["", "{", "[1, 2]", "{\"format\": 1}", "\u{0}\u{1}", &newer, &long] {
            std::fs::write(&path, garbage).unwrap();
            let error = AgentState::read(&path).unwrap_err();
            assert!(matches!(error, StateError::Garbage { .. }), "{error}");
            assert!(error.to_string().contains("state.json"), "{error}");
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(AgentState::read(&path), Err(StateError::Garbage { .. })));
        assert!(matches!(AgentState::read(directory.path()), Err(StateError::File { .. })));
    }

    #[test]
    fn fuzz_agent_state() {
        let tokens = [
            "\"format\":1,",
            "\"node\":\"n1\",",
            "\"pid\":0,",
            "\"start_ticks\":18446744073709551615,",
            "\"servers\":[",
            "{\"site\":3,\"name\":\"shop\",\"process\":null,\"restarts\":0,\"last_error\":null}",
            "\"address\":\"127.0.0.1:9001\"",
            "\"[::1]:1\"",
            "null",
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        ];
        let made = |_: &mut fuzzing::Random| serde_json::to_vec(&state()).unwrap();
        let check = |bytes: &[u8], _: &mut fuzzing::Random| {
            let read = AgentState::parse(bytes);
            if let Ok(state) = &read {
                let again = AgentState::parse(&serde_json::to_vec_pretty(state).unwrap());
                assert_eq!(again.as_ref(), Ok(state));
                assert!(state.pid != std::process::id() || !state.agent_runs());
            }
            let kind = |text: String| text.split(['`', '0', '1']).next().map(str::to_owned);
            read.map(|state| state.servers.len()).map_err(kind)
        };
        let target = fuzzing::Target::new("agent_state", env!("CARGO_MANIFEST_DIR"));
        target.tokens(&tokens).made_by(made).run(check);
    }
}
