//! Checks of the house, as `cargo xtask COMMAND`. It stands beside the floors: it uses no crate of
//! the workspace and no crate uses it, so that it builds in seconds and judges all of them alike.
//! (Fuzz targets are programs that it runs.)

mod absences;
mod dependencies;
mod documents;
mod floors;
mod fuzz;
mod limits;
mod manifest;
mod source;
mod tidy;
mod tree;
mod unsafe_code;
mod words;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Checks of the house.

usage: cargo xtask COMMAND

  tidy            check floors, limits, unsafe code, words, dependencies and documents
  tidy --verbose  the same, and list what is near a limit
  fuzz [TARGET...] [--seconds N] [--seed S] [--file INPUT] [--list]
                  run fuzz targets, or all; 10 seconds each; INPUT is checked alone
  help            this list

Each problem is one line: path:line: what is wrong; what to do. The exit code is 1 if there is any.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["tidy"] => tidy::run(top(), false),
        ["tidy", "--verbose" | "-v"] => tidy::run(top(), true),
        ["fuzz", ref arguments @ ..] => fuzz::run(top(), arguments),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("xtask: unknown command `{}`\n\n{HELP}", words.join(" "));
            ExitCode::from(2)
        }
    }
}

/// The top of the checkout, from where this program was built: it is only ever run through cargo.
fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the top")
}
