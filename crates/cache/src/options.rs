//! What a site allows, and how much the cache may hold. Plain values: the binary reads settings.

use http::HeaderName;

/// How a site's responses are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing is looked up and nothing kept.
    #[default]
    Off,
    /// RFC 9111, as a shared cache: fresh for as long as the response says.
    Http,
    /// The same, and each hit is proved by its tags besides: a response without tags is no hit.
    Strict,
}

/// How much is known of the changes that a strict site hears of; told in `Cache-Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Writers tell before and after each change: no hit is older than what was committed.
    Linearizable,
    /// Writers tell after the commit, and wait for it: no hit is older than what was acknowledged.
    Acknowledged,
    /// Changes are seen a moment later.
    Bounded,
}

impl Source {
    /// The word for it in `Cache-Status` and in settings.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Acknowledged => "acknowledged",
            Self::Bounded => "bounded",
        }
    }
}

/// What a request's `Cookie` does. A response to it never goes to others by accident.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cookies {
    /// The server sees them. Its response is kept only if `Vary` names `Cookie`; a response that
    /// was made without cookies is answered to requests with some, unless its `Vary` forbids it.
    #[default]
    ByVary,
    /// The server never sees them where the response may be kept: they change nothing there.
    Ignored,
    /// The server sees these alone, and each of their values has a response of its own.
    Keyed(Vec<String>),
    /// A request with a cookie is not for the cache.
    Bypass,
}

/// Which header fields of a request that may be answered from the cache reach the server without
/// being part of what a response is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unkeyed {
    /// None but those that cannot change a page (see [`forward`](crate::forward)). A field that a
    /// `Vary` of the site has named is sent from then on, since it is keyed then.
    #[default]
    Removed,
    /// All but those by which a client can pretend another address, host, or method: for servers
    /// that read fields of their own and are trusted to name them in `Vary`.
    Passed,
}

/// What one site allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Whether and how responses are kept.
    pub mode: Mode,
    /// What the site's writers promise, in mode `strict`.
    pub source: Source,
    /// What cookies do.
    pub cookies: Cookies,
    /// Which other fields reach the server.
    pub unkeyed: Unkeyed,
    /// Fields that the server sees and that every response of the site is found by, whatever its
    /// `Vary` says.
    pub keyed: Vec<HeaderName>,
    /// Fields that the server sees although they are in no `Vary`: the site says that they change
    /// nothing, or that they are for its statistics.
    pub passed: Vec<HeaderName>,
    /// Whether `Cache-Control` of a request counts. RFC 9111 leaves it open; where it counts, any
    /// client can make the site's servers work.
    pub client_directives: bool,
    /// Whether a response that says nothing of its freshness is fresh for a tenth of the time since
    /// its `Last-Modified` (RFC 9111, 4.2.2).
    pub heuristics: bool,
    /// How long a response with tags is fresh in mode `strict` if it says nothing of it.
    pub strict_lifetime_ms: u64,
    /// No response is fresh for longer, whatever it says.
    pub lifetime_max_ms: u64,
    /// For how long after its freshness a response may stand in for one that the server fails to
    /// give; 0: never. It says so in `Cache-Status`.
    pub stale_if_error_ms: u64,
    /// Whether `stale-while-revalidate` of a response counts, in mode `http`.
    pub stale_while_revalidate: bool,
    /// Bodies larger than this are sent on, and not kept.
    pub object_max_bytes: u64,
    /// Of so many of a million hits in mode `strict` a server is asked too, and what it says is
    /// compared.
    pub audit_per_million: u32,
    /// Whether clients see the fields with tags.
    pub tags_to_clients: bool,
    /// Where in its URLs the files of a static server lie (`/`, or a prefix), whose changes
    /// somebody watches: their responses have the tags of [`files`](crate::files), in mode
    /// `strict`.
    pub files_at: Option<String>,
}

/// A day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            source: Source::Acknowledged,
            cookies: Cookies::default(),
            unkeyed: Unkeyed::default(),
            // Servers answer to these in their own way, and often say so only where they are sent.
            keyed: vec![http::header::ORIGIN, HeaderName::from_static("x-requested-with")],
            passed: Vec::new(),
            client_directives: false,
            heuristics: true,
            strict_lifetime_ms: DAY_MS,
            // What RFC 9111 asks a cache to be able to count, and what it calls a year at most.
            lifetime_max_ms: 365 * DAY_MS,
            stale_if_error_ms: 0,
            stale_while_revalidate: false,
            // Eight such fit into the smallest useful memory tier.
            object_max_bytes: 8 << 20,
            audit_per_million: 0,
            tags_to_clients: false,
            files_at: None,
        }
    }
}

/// How much one cache may hold, over all sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of heads, bodies and keys in memory.
    pub memory_bytes: u64,
    /// How many responses are expected: the table of keys is made for so many.
    pub entries_expected: usize,
    /// What this cache is called in `Cache-Status`.
    pub name: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, entries_expected: 32 << 10, name: "polder".to_owned() }
    }
}
