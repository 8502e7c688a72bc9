//! `polder completions` and `polder man`: what a package or an administrator installs beside the
//! program, made from the command line's own definition.

use super::{CommandError, Output};
use crate::cli::{ABOUT, Cli};
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use std::fs;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  polder completions bash > \
                        ~/.local/share/bash-completion/completions/polder\n  polder completions \
                        zsh > ~/.zfunc/_polder\n  polder completions fish > \
                        ~/.config/fish/completions/polder.fish")]
pub struct CompletionsArguments {
    /// For which shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    pub shell: String,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  polder man | man -l -\n  polder man --out \
                        /usr/local/share/man/man1")]
pub struct ManArguments {
    /// Write the page of every command into this folder instead of printing the first one
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// The script for a shell.
pub(super) fn completions(arguments: &CompletionsArguments) -> Result<Output, CommandError> {
    let shell: Shell = arguments.shell.parse().map_err(CommandError::Argument)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "polder", &mut script);
    Ok(Output::from(String::from_utf8_lossy(&script).into_owned()))
}

/// The command line with a description that fits the first line of a page, where `apropos` looks.
fn described() -> Command {
    Cli::command().about("Many web sites on one pool of nodes").long_about(ABOUT)
}

/// The page of `polder`, or the pages of all commands as files.
pub(super) fn man(arguments: &ManArguments) -> Result<Output, CommandError> {
    let io_error = |doing| move |cause| CommandError::Io { doing, cause };
    let Some(folder) = &arguments.out else {
        let mut page = Vec::new();
        let written = clap_mangen::Man::new(described()).render(&mut page);
        written.map_err(io_error("cannot write a page"))?;
        return Ok(Output::from(String::from_utf8_lossy(&page).into_owned()));
    };
    fs::create_dir_all(folder).map_err(io_error("cannot make the folder of the pages"))?;
    let written = clap_mangen::generate_to(described(), folder);
    written.map_err(io_error("cannot write the pages"))?;
    Ok(Output { aside: format!("written: {}/polder*.1\n", folder.display()), ..Output::default() })
}
