//! Which running pool a command is for.

use super::CommandError;
use crate::cli::PoolArguments;
use crate::runtime_dir::{Base, CONTROL_SOCKET, check_private};
use std::path::{Path, PathBuf};

/// The control socket in a pool's folder.
#[must_use]
pub fn control_socket(folder: &Path) -> PathBuf {
    folder.join(CONTROL_SOCKET)
}

/// The folder of the pool that is meant: the one that was named, or the only one that runs.
pub fn find_pool(arguments: &PoolArguments) -> Result<PathBuf, CommandError> {
    find_pool_in(arguments, &Base::of_user())
}

fn find_pool_in(arguments: &PoolArguments, base: &Base) -> Result<PathBuf, CommandError> {
    let folder = match (&arguments.runtime_dir, &arguments.pool) {
        (Some(folder), _) => folder.clone(),
        (None, Some(name)) => base.of_pool(name),
        (None, None) => only_one(base)?,
    };
    if !folder.exists() {
        let text = format!("no pool runs: there is no {}", folder.display());
        return Err(CommandError::NoPool(text));
    }
    check_private(&folder)?;
    Ok(folder)
}

fn only_one(base: &Base) -> Result<PathBuf, CommandError> {
    match &base.running()[..] {
        [name] => Ok(base.of_pool(name)),
        [] => {
            let text = "no pool of yours runs here; `polder up FILE` starts one (one that was \
                        started with a `runtime_dir` is named by --runtime-dir)";
            Err(CommandError::NoPool(text.into()))
        }
        several => {
            let text = format!("several pools run: {}; name one by --pool", several.join(", "));
            Err(CommandError::NoPool(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_dir::RuntimeDir;

    #[test]
    fn the_only_pool_is_found_and_several_must_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::in_folder(folder.path());
        let nobody = PoolArguments::default();
        let found = |arguments: &PoolArguments| {
            find_pool_in(arguments, &base).map_err(|error| error.to_string())
        };
        assert!(found(&nobody).unwrap_err().contains("polder up"));
        let _one = RuntimeDir::take(base.of_pool("one")).unwrap();
        assert_eq!(found(&nobody), Ok(base.of_pool("one")));
        let _two = RuntimeDir::take(base.of_pool("two")).unwrap();
        assert!(found(&nobody).unwrap_err().contains("one, two"));
        let two = PoolArguments { pool: Some("two".into()), runtime_dir: None };
        assert_eq!(found(&two), Ok(base.of_pool("two")));
        let missing = PoolArguments { pool: Some("x".into()), runtime_dir: None };
        assert!(found(&missing).unwrap_err().contains("polder-x"));
    }
}
