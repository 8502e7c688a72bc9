//! The command line: what may be written, and what `--help` says.

use crate::cli_cache::{CacheArguments, InvalidateArguments};
use crate::commands::{
    CompletionsArguments, LoadArguments, ManArguments, SimulateArguments, StubArguments,
};
use crate::demo::DemoArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What each exit code means.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// Something went wrong while it ran.
    pub const FAILED: u8 = 1;
    /// The command line is wrong (clap's own code).
    pub const USAGE: u8 = 2;
    /// The settings file is wrong or missing.
    pub const SETTINGS: u8 = 3;
    /// No running pool was found, or it did not answer.
    pub const NO_POOL: u8 = 4;
    /// The pool answered, and refused.
    pub const REFUSED: u8 = 5;
    /// Somebody stopped it (what a shell reports for SIGINT).
    pub const INTERRUPTED: u8 = 130;
}

/// What the program does.
pub(crate) const ABOUT: &str = "\
Polder runs many web sites on one pool of nodes. Clients connect to its edges; each edge sends a
request to a node that serves the request's site. When one site gets more load than its nodes can
take, a node of an idle site moves over, within milliseconds, and no request is lost. Each site
keeps the nodes it was promised.";

const TEMPLATE: &str = "\
{about}

Usage: polder COMMAND [ARGUMENTS]

Run a pool:
  up         Start everything on this machine from one settings file; Ctrl-C drains and stops
  check      Check a settings file; show each mistake with its line and a suggestion
  edge       Start one edge of it, the agents being on other machines
  agent      Start the agent of one node of it
  key        Print a new key for the machines of a pool

Look at a running pool:
  status     Who serves what, and how loaded it is

Change a running pool:
  move       Give a node to a site
  drain      Take a node out of service, once its requests are done
  undrain    Put a drained node back
  pause      Stop moving nodes; requests go on
  resume     Move nodes again
  site       Look at sites' settings and set keys of one; no request is lost
  reload     Read the settings again and change what differs; no request is lost
  upgrade    Put another polder program in place of the running one; no request is lost

Caches:
  invalidate Void what caches hold of these tags
  cache      See what edges keep, have it forgotten, and settle what dead writers left

Try things out:
  demo       See nodes move between sites, and what that is worth, in about a minute
  load       Send requests and count each one
  stub       Stand in for servers, with an exact capacity
  simulate   See what a pool would do with your traffic, and how many nodes it needs

Set up this machine:
  completions
             Print the completions of bash, zsh or fish
  man        Print the manual page, or write those of all commands

Options:
{options}{after-help}";

const AFTER_HELP: &str = "\
Examples:
  polder demo                        what is this all about?
  polder check polder.toml           what is wrong with my settings?
  polder up polder.toml              run the pool
  polder status --watch              who serves what, live
  polder status --moves              each move and its reason
  polder site set shop hard=3        promise shop three nodes, now
  polder move n3 shop                give node n3 to the site shop
  polder cache purge --tag product-7 have all edges forget what shows a product
  polder load burst --host shop.localhost --requests 4096
  polder load --trace access.log.gz --host shop.localhost --compress 1h
  polder simulate --trace access.log.gz=shop --nodes 4..12

`polder COMMAND --help` tells more of a command.

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 wrong settings, 4 no running pool found,
5 refused by the pool, 130 interrupted by Ctrl-C. The environment: POLDER_LOG (as --log-level),
NO_COLOR, XDG_RUNTIME_DIR.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "polder", version, about = ABOUT, help_template = TEMPLATE)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// What to log to standard error: error, warn, info (without this), debug, trace or off
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Whether to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything on this machine from one settings file; Ctrl-C drains and stops.
    Up(UpArguments),
    /// Start one edge of it, the agents being on other machines.
    Edge(EdgeArguments),
    /// Start the agent of one node of it.
    Agent(AgentArguments),
    /// Print a new key for the machines of a pool.
    Key,
    /// Check a settings file; show each mistake with its line and a suggestion.
    Check(CheckArguments),
    /// Who serves what, and how loaded it is.
    Status(StatusArguments),
    /// Give a node to a site.
    Move(MoveArguments),
    /// Take a node out of service, once its requests are done.
    Drain(NodeArguments),
    /// Put a drained node back.
    Undrain(NodeArguments),
    /// Stop moving nodes; requests go on.
    Pause(PoolArguments),
    /// Move nodes again.
    Resume(PoolArguments),
    /// Look at sites' settings and set keys of one; no request is lost.
    Site(SiteArguments),
    /// Read the settings again and change what differs; no request is lost.
    Reload(ReloadArguments),
    /// Put another polder program in place of the running one; no request is lost.
    Upgrade(UpgradeArguments),
    /// Void what caches hold of these tags.
    Invalidate(InvalidateArguments),
    /// See what edges keep, have it forgotten, and settle what dead writers left.
    Cache(CacheArguments),
    /// See nodes move between sites, and what that is worth, in about a minute.
    Demo(DemoArguments),
    /// Send requests and count each one.
    Load(LoadArguments),
    /// Stand in for servers, with an exact capacity.
    Stub(StubArguments),
    /// See what a pool would do with your traffic, and how many nodes it needs.
    Simulate(Box<SimulateArguments>),
    /// Print the completions of bash, zsh or fish.
    Completions(CompletionsArguments),
    /// Print the manual page, or write those of all commands.
    Man(ManArguments),
}

/// A settings file and what to change in it.
#[derive(Clone, Debug, Args)]
pub struct SettingsArguments {
    /// The settings file; ./polder.toml if none is named
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Set one key instead of what the file says: pool.hold_ms=5, sites.shop.max=3
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Starts the edges, an agent for each node and the sites' servers, restarts \
                        what dies, and tells when all of it serves. With `mode = \"observe\"` in \
                        [pool] decisions are logged and nothing moves: a way to begin."
)]
pub struct UpArguments {
    /// What to run.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Arguments of `edge`.
#[derive(Debug, Args)]
#[command(
    after_help = "The same settings file, with an `address` for each node and a `key_file` in \
                        [remote], goes to all machines. Ctrl-C drains and stops."
)]
pub struct EdgeArguments {
    /// What to run.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// Which of the `[[edges]]`, from 0 on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub index: u8,
}

/// Arguments of `agent`.
#[derive(Debug, Args)]
#[command(after_help = "Starts the node's servers, serves its record to the edges at the node's \
                        `address`, and restarts what dies. Ctrl-C stops the servers.")]
pub struct AgentArguments {
    /// What to run.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// The node's name
    #[arg(long, value_name = "NAME")]
    pub node: String,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "Prints nothing but a summary if all is well; else every mistake with its \
                        line. Exit code 3 then.")]
pub struct CheckArguments {
    /// What to check.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// Print the settings with every default filled in
    #[arg(long, conflicts_with = "json")]
    pub show: bool,

    /// Print the mistakes as JSON
    #[arg(long)]
    pub json: bool,
}

/// Which running pool a command is for.
#[derive(Clone, Debug, Default, Args)]
pub struct PoolArguments {
    /// The pool's name; without it the only one that runs
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,

    /// Its folder of sockets, if the settings name one
    #[arg(long, value_name = "FOLDER", conflicts_with = "pool")]
    pub runtime_dir: Option<PathBuf>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,

    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Show the last moves, each with its reason
    #[arg(long)]
    pub moves: bool,

    /// Draw it anew every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
}

/// Arguments of `move`.
#[derive(Debug, Args)]
#[command(after_help = "The hard guarantee of the node's present site holds for this move too.")]
pub struct MoveArguments {
    /// The node
    pub node: String,
    /// The site that gets it
    pub site: String,
    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `drain` and `undrain`.
#[derive(Debug, Args)]
pub struct NodeArguments {
    /// The node
    pub node: String,
    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `site`.
#[derive(Debug, Args)]
pub struct SiteArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: SiteCommand,
}

/// What can be done with the settings of sites.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// The sites, and what differs from the file.
    List(SiteListArguments),
    /// All keys of one site as they are in force.
    Show(SiteShowArguments),
    /// Set keys of one site, at once or not at all.
    Set(SiteSetArguments),
}

/// Arguments of `site list`.
#[derive(Debug, Args)]
pub struct SiteListArguments {
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `site show`.
#[derive(Debug, Args)]
pub struct SiteShowArguments {
    /// The site
    #[arg(value_name = "NAME")]
    pub site: String,

    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `site set`.
#[derive(Debug, Args)]
#[command(
    after_help = "The keys are those of [[sites]] in the settings file, and are checked as the \
                        file is: if anything is wrong with them, nothing changes and the reasons \
                        are shown. `KEY=` takes back what was set. It answers when all edges go by \
                        the new values and a raised `hard` is reached, or says what is missing. \
                        The change lasts until the next `polder reload`; with --save the file says \
                        so too, and keeps its comments.\n\n\
                        polder site set shop hard=3 max=8\n\
                        polder site set shop 'rate={ client_per_s = 20 }' --dry-run"
)]
pub struct SiteSetArguments {
    /// The site
    #[arg(value_name = "NAME")]
    pub site: String,

    /// What to set: max=8, sticky.wait_ms=50
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub keys: Vec<String>,

    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write it into the settings file too
    #[arg(long, conflicts_with = "dry_run")]
    pub save: bool,

    /// Print what changed as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the file that the pool was started with, or another one from now on. \
                        What was set by `up --set` holds. If anything is wrong with the file, or \
                        can't change while the pool runs, nothing changes and the reasons are \
                        shown. An edge that is to listen elsewhere is replaced by another process \
                        on the same sockets. SIGHUP to the pool's process does the same."
)]
pub struct ReloadArguments {
    /// Another settings file
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
#[command(
    after_help = "The running program hands sockets, shared memory and children over to the \
                        new one and becomes it, under the same process id; then agents and edges \
                        are replaced one after the other, over running servers. Before that the \
                        new program must show that it can go on; else the old one stays."
)]
pub struct UpgradeArguments {
    /// The new program [default: the one that runs, read again from its file]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_finds_no_contradiction() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_groups_of_the_help_name_each_command_once() {
        for command in Cli::command().get_subcommands() {
            // A longer name has a line of its own.
            let line = format!("\n  {:<10} ", command.get_name());
            let long = format!("\n  {}\n{:13}", command.get_name(), "");
            let shown = TEMPLATE.matches(&line).count() + TEMPLATE.matches(&long).count();
            assert_eq!(shown, usize::from(!command.is_hide_set()), "{}", command.get_name());
        }
        let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let listed = TEMPLATE.lines().filter(is_command).count();
        let visible = Cli::command().get_subcommands().filter(|c| !c.is_hide_set()).count();
        assert_eq!(listed, visible);
    }

    #[test]
    fn the_help_fits_a_terminal() {
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        assert!(help.starts_with("Polder runs many web sites"), "{help}");
        assert!(help.contains("--log-level"), "{help}");
    }

    #[test]
    fn arguments_are_understood() {
        let cli = Cli::try_parse_from(["polder", "check", "x.toml", "--set", "pool.hold_ms=5"]);
        let Command::Check(check) = cli.unwrap().command else { panic!("this is check") };
        assert_eq!(check.settings.overrides, ["pool.hold_ms=5"]);
        assert!(Cli::try_parse_from(["polder", "move", "n1"]).is_err());
        let cli = Cli::try_parse_from(["polder", "site", "set", "shop", "max=3", "hard=1"]);
        let Command::Site(SiteArguments { command: SiteCommand::Set(set) }) = cli.unwrap().command
        else {
            panic!("this is a set")
        };
        assert_eq!((set.site.as_str(), set.keys.len()), ("shop", 2));
        assert!(Cli::try_parse_from(["polder", "site", "set", "shop"]).is_err());
        assert!(Cli::try_parse_from(["polder", "stats"]).is_err());
    }
}
