//! The command line of caches: `invalidate` and `cache`.

use crate::cli::PoolArguments;
use clap::{Args, Subcommand};

/// Which site's version table.
#[derive(Clone, Debug, Default, Args)]
pub struct TableArguments {
    /// The site; without it the only one that has a version table
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `invalidate`.
#[derive(Debug, Args)]
#[command(
    after_help = "For data that has changed: when this comes back, no cache of the pool serves \
                        what was made before. Whoever changes data often begins and ends updates \
                        over the writers' socket instead, and no reader ever sees the old page \
                        after the commit: docs/writers.md.\n\n\
                        polder invalidate product-4711 front-page --site shop"
)]
pub struct InvalidateArguments {
    /// The tags
    #[arg(value_name = "TAG", required = true)]
    pub tags: Vec<String>,

    /// Which table.
    #[command(flatten)]
    pub table: TableArguments,
}

/// Arguments of `cache`.
#[derive(Debug, Args)]
pub struct CacheArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What can be done with caches.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// What each edge's cache holds and has done.
    Stats(CacheStatsArguments),
    /// Forget stored responses in all edges, and those on their way.
    Purge(CachePurgeArguments),
    /// What each edge has stored for a URL.
    Explain(CacheExplainArguments),
    /// Writers that have begun an update and not ended it.
    Pending(PendingArguments),
    /// End what dead writers left, once their transactions are decided.
    Settle(SettleArguments),
}

/// Arguments of `cache pending`.
#[derive(Debug, Args)]
pub struct PendingArguments {
    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Which table.
    #[command(flatten)]
    pub table: TableArguments,
}

/// Arguments of `cache settle`.
#[derive(Debug, Args)]
#[command(
    after_help = "What a writer began and did not end stays uncached, which is safe. Settle it \
                        only when its transaction is decided, committed or rolled back, and can't \
                        commit any more: look for it in the database, not at the clock."
)]
#[group(id = "whose", required = true, multiple = false)]
pub struct SettleArguments {
    /// A writer as `cache pending` names it
    #[arg(value_name = "WRITER", group = "whose")]
    pub writers: Vec<String>,

    /// All writers whose connections have ended
    #[arg(long, group = "whose")]
    pub disconnected: bool,

    /// All writers of an earlier run of the pool, which was killed
    #[arg(long, group = "whose")]
    pub earlier: bool,

    /// Which table.
    #[command(flatten)]
    pub table: TableArguments,
}

/// Arguments of `cache stats`.
#[derive(Debug, Args)]
pub struct CacheStatsArguments {
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `cache purge`.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("what").required(true).multiple(true)),
    after_help = "It answers when all edges have forgotten: no request that comes after gets what \
                  was stored, or asked for, before.\n\n\
                  polder cache purge --url https://shop.example/page\n\
                  polder cache purge --tag product-7 --site shop"
)]
pub struct CachePurgeArguments {
    /// All responses for this absolute URL
    #[arg(long, value_name = "URL", group = "what", conflicts_with_all = ["tag", "site", "all"])]
    pub url: Option<String>,

    /// All that carry this tag
    #[arg(long, value_name = "TAG", group = "what", conflicts_with = "all")]
    pub tag: Option<String>,

    /// All of this site, or with --tag those of its responses
    #[arg(long, value_name = "NAME", group = "what", conflicts_with = "all")]
    pub site: Option<String>,

    /// Everything
    #[arg(long, group = "what")]
    pub all: bool,

    /// Keep it as stale where the site's mode is http: a server is asked first, or meanwhile
    #[arg(long, requires = "what")]
    pub soft: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}

/// Arguments of `cache explain`.
#[derive(Debug, Args)]
pub struct CacheExplainArguments {
    /// The URL, as clients ask for it
    #[arg(value_name = "URL")]
    pub url: String,

    /// Print it as JSON
    #[arg(long)]
    pub json: bool,

    /// Which pool.
    #[command(flatten)]
    pub pool: PoolArguments,
}
