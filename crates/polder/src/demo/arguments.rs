//! The command line of `polder demo`.

use clap::Args;
use std::path::{Path, PathBuf};

/// The picture's file unless another is named.
pub(super) const SVG_FILE: &str = "polder-demo.svg";

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

    /// Write the picture here; ./polder-demo.svg if no file is named
    #[arg(long, value_name = "FILE", conflicts_with = "no_svg")]
    pub svg: Option<PathBuf>,

    /// Write no picture
    #[arg(long)]
    pub no_svg: bool,

    /// Start of the random traffic; the same number gives the same traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// At the end start Polder's pool once more and keep it until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

impl DemoArguments {
    /// Where the picture goes, if it is wanted.
    pub(super) fn svg_file(&self) -> Option<&Path> {
        if self.no_svg { None } else { Some(self.svg.as_deref().unwrap_or(Path::new(SVG_FILE))) }
    }
}
