//! Files of a target: its corpus, and the inputs that failed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file of a corpus, in bytes. A corpus is read by people, and by every checkout.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// One input of the corpus.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// All files of the corpus, by name. Panics where there is none: a target without one does not
/// find the doors of its parser.
pub(crate) fn read(directory: &Path) -> Vec<Seed> {
    let fail = |path: &Path, why: &str| -> ! { panic!("{}: {why}", path.display()) };
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| fail(directory, &format!("no corpus: {error}")));
    let mut seeds = Vec::new();
    for entry in entries {
        let path = entry.unwrap_or_else(|error| fail(directory, &error.to_string())).path();
        let bytes = fs::read(&path).unwrap_or_else(|error| fail(&path, &error.to_string()));
        if bytes.len() as u64 > FILE_BYTES_MAX {
            fail(&path, &format!("longer than {FILE_BYTES_MAX} bytes"));
        }
        seeds.push(Seed { path, bytes });
    }
    if seeds.is_empty() {
        fail(directory, "the corpus is empty");
    }
    seeds.sort_by(|one, other| one.path.cmp(&other.path));
    seeds
}

/// Where inputs that failed are kept: `fuzz` below the build's directory.
fn failures_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let deps = program.ancestors().find(|path| path.ends_with("deps"));
    let target = deps.and_then(Path::parent).and_then(Path::parent);
    target.map_or_else(std::env::temp_dir, Path::to_owned).join("fuzz")
}

/// Keeps an input that failed; its file.
pub(crate) fn keep(target: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let directory = failures_directory();
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{target}-{:016x}", crate::Random::of(bytes).next()));
    fs::write(&path, bytes)?;
    Ok(path)
}
