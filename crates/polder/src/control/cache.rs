//! What is asked of the caches of edges.

use serde::{Deserialize, Serialize};

/// Arguments of [`Request::CachePurge`](super::Request::CachePurge): one of them, or `tag` with
/// `site`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePurgeArguments {
    /// All responses for this absolute URL.
    #[serde(default)]
    pub url: Option<String>,
    /// All that carry this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// All of this site; with `tag`: those of its responses that carry it.
    #[serde(default)]
    pub site: Option<String>,
    /// Everything.
    #[serde(default)]
    pub all: bool,
    /// Whether it goes on as stale. Left out where it is not, as in [`CacheForgetArguments`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
}

/// Arguments of [`Request::CacheForget`](super::Request::CacheForget): all that is named, of one
/// site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheForgetArguments {
    /// The site's name.
    pub site: String,
    /// What carries one of these tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// All responses for these absolute URLs.
    #[serde(default)]
    pub urls: Vec<String>,
    /// Everything.
    #[serde(default)]
    pub all: bool,
    /// Whether it goes on as stale. Left out where it is not: edges of an earlier version of this
    /// program don't know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
}

/// Arguments of [`Request::CacheExplain`](super::Request::CacheExplain).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheExplainArguments {
    /// An absolute URL.
    pub url: String,
}

/// What one edge holds for a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheExplained {
    /// The edge.
    pub edge: u32,
    /// The site that the URL belongs to.
    pub site: String,
    /// How the site's responses are kept: `off`, `http`.
    pub mode: String,
    /// Responses, the newest first.
    pub stored: Vec<CacheStored>,
    /// Whether the disk holds something, and has not said in time what.
    #[serde(default)]
    pub unread: bool,
}

/// One stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStored {
    /// Its status.
    pub status: u16,
    /// Seconds since its server made it.
    pub age_s: u64,
    /// Seconds for which it is still fresh; negative: since when it is not.
    pub ttl_s: i64,
    /// Whether it was purged, and is only still there.
    pub purged: bool,
    /// Whether it is stale because of a soft purge.
    #[serde(default)]
    pub purged_softly: bool,
    /// Whether its tags hold now, in mode `strict` and where that can be told at once.
    #[serde(default)]
    pub holds: Option<bool>,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// The fields of requests that it is found by.
    pub varies_by: Vec<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it lies on the disk alone.
    #[serde(default)]
    pub on_disk: bool,
}
