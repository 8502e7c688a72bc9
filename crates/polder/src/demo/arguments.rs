//! The command line of `polder demo`.

use super::DemoError;
use clap::Args;
use rustix::fs::{Access, access};
use std::io;
use std::path::{Path, PathBuf};

/// The picture's file unless another is named.
const SVG_FILE: &str = "polder-demo.svg";

/// Arguments of `demo`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Everything runs on this machine, on free loopback ports, with stand-in servers of exact capacity.
No root, no settings. Ctrl-C stops it and leaves no process behind.")]
pub struct DemoArguments {
    /// How long it takes in all, about
    #[arg(long, value_name = "N", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(10..=3_600))]
    pub seconds: u64,

    /// Plain lines without escapes, as without a terminal
    #[arg(long)]
    pub plain: bool,

    /// End with the results as one JSON object on a line of its own
    #[arg(long)]
    pub json: bool,

    /// Write the picture here; without it to ./polder-demo.svg, if that can be written
    #[arg(long, value_name = "FILE", conflicts_with = "no_svg")]
    pub svg: Option<PathBuf>,

    /// Write no picture
    #[arg(long)]
    pub no_svg: bool,

    /// Start of the random traffic; the same number gives the same traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// At the end keep Polder's pool running until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub keep: bool,
}

/// Where the picture goes.
#[derive(Debug)]
pub(super) enum Picture {
    /// There.
    At(PathBuf),
    /// Nowhere, and nobody wants it.
    Unwanted,
    /// Nowhere, because the usual place cannot be written to.
    Impossible(DemoError),
}

impl DemoArguments {
    /// Finds out where the picture goes before the minute has passed.
    ///
    /// # Errors
    ///
    /// [`DemoError::SvgPlace`] for a file that was named and cannot be written.
    pub(super) fn picture(&self) -> Result<Picture, DemoError> {
        if self.no_svg {
            return Ok(Picture::Unwanted);
        }
        let usual = PathBuf::from(SVG_FILE);
        match (&self.svg, check_place(self.svg.as_ref().unwrap_or(&usual))) {
            (Some(named), Ok(())) => Ok(Picture::At(named.clone())),
            (Some(_), Err(error)) => Err(error),
            (None, Ok(())) => Ok(Picture::At(usual)),
            (None, Err(error)) => Ok(Picture::Impossible(error)),
        }
    }
}

/// Whether a file can be made or written there.
fn check_place(path: &Path) -> Result<(), DemoError> {
    let wrong = |cause: io::Error| DemoError::SvgPlace { path: path.to_owned(), cause };
    if path.is_dir() {
        return Err(wrong(io::ErrorKind::IsADirectory.into()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let place = if path.exists() { path } else { folder.unwrap_or(Path::new(".")) };
    access(place, Access::WRITE_OK).map_err(|errno| wrong(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn arguments(words: &[&str]) -> DemoArguments {
        let line = ["polder", "demo"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Demo(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_that_was_named_and_cannot_be_written_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &Path| arguments(&["--svg", path.to_str().unwrap()]).picture();
        assert!(matches!(at(&folder.path().join("a.svg")), Ok(Picture::At(_))));
        for place in [folder.path().to_owned(), folder.path().join("missing/a.svg")] {
            let error = at(&place).unwrap_err().to_string();
            assert!(error.contains("--no-svg"), "{error}");
        }
    }

    #[test]
    fn without_a_name_it_lies_here_unless_nobody_wants_it() {
        let Ok(Picture::At(path)) = arguments(&[]).picture() else { panic!("tests can write") };
        assert_eq!(path, Path::new(SVG_FILE));
        assert!(matches!(arguments(&["--no-svg"]).picture(), Ok(Picture::Unwanted)));
        assert_eq!((arguments(&[]).seconds, arguments(&["--seed", "7"]).seed), (60, 7));
    }
}
