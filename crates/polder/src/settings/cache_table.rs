//! `cache` of a site, key by key.

use super::schema::{Kind, Missing, Section};
use super::tables::{HOUR_MS, int, key};

/// `cache = { ... }` of a site.
pub const CACHE: Section = Section {
    name: "cache",
    repeated: false,
    help: "What the edges keep of a site's responses, each in memory of its own (`cache_bytes` in \
           [http]). Never shared, unless the response says that it may be: what sets a cookie, \
           what answers an authorised request; and what was made for a request with cookies, \
           unless `Vary` or this table says how. Requests of clients that have shown a certificate \
           go past it. Only what a response is found by, and what changes no page, reaches the \
           servers.",
    keys: &[
        key(
            "mode",
            Kind::Choice(&["off", "http", "strict"]),
            Missing::Text("off"),
            "`http`: as RFC 9111 lets a shared cache, fresh for as long as the response says \
             (`CDN-Cache-Control`, `Cache-Control`, `Expires`). `strict`, for sites with \
             `tags`: each hit is proved besides by the versions of its tags, read after the \
             request arrived; a response without tags is never one.",
        ),
        key(
            "source",
            Kind::Choice(&["acknowledged", "linearizable", "bounded"]),
            Missing::Text("acknowledged"),
            "What the site's writers promise in mode `strict`; `Cache-Status` of a hit says it. \
             `linearizable`: they tell before and after each commit, so that no hit is older than \
             what was committed. `acknowledged`: after it, and they wait for the answer. \
             `bounded`: changes are seen a moment later.",
        ),
        int(
            "strict_lifetime_ms",
            0,
            365 * 24 * HOUR_MS,
            24 * HOUR_MS,
            "How long a response with tags is fresh in mode `strict` if it says nothing of it.",
        ),
        int(
            "audit_per_million",
            0,
            1_000_000,
            0,
            "Of so many of a million hits in mode `strict` a server is asked too: if it answers \
             otherwise although the tags held before and after, a change was not told, which \
             counts in `polder_cache_audit_violations_total`.",
        ),
        key(
            "cookies",
            Kind::Choice(&["by-vary", "ignored", "bypass"]),
            Missing::Text("by-vary"),
            "`by-vary`: servers see them, and what answers a request with some is kept only if its \
             `Vary` names `Cookie`. `ignored`: servers never see them where the response may be \
             kept. `bypass`: a request with one goes past the cache.",
        ),
        key(
            "keyed_cookies",
            Kind::Texts,
            Missing::Means("as `cookies` says"),
            "Servers see these cookies alone, and each of their values has a response of its own.",
        ),
        key(
            "unkeyed",
            Kind::Choice(&["removed", "passed"]),
            Missing::Text("removed"),
            "What becomes of a request's other fields where the response may be kept. `passed`: \
             servers see them, but for those by which a client can pretend another address, host \
             or method; for servers that are trusted to name in `Vary` what they read.",
        ),
        key(
            "keyed",
            Kind::Texts,
            Missing::Means("`Origin` and `X-Requested-With`"),
            "Fields besides these that servers see and that every response is found by. What a \
             `Vary` of the site names is added by itself.",
        ),
        key(
            "passed",
            Kind::Texts,
            Missing::Means("none"),
            "Fields that servers see and that no response is found by: they change no page.",
        ),
        key(
            "client_directives",
            Kind::Flag,
            Missing::Means("`false`"),
            "Whether `Cache-Control` of requests counts: then any client can make the servers \
             work.",
        ),
        key(
            "heuristics",
            Kind::Flag,
            Missing::Means("`true`"),
            "Whether a response that says nothing of its freshness is fresh for a tenth of the \
             time since its `Last-Modified`, a day at most.",
        ),
        int(
            "lifetime_max_ms",
            0,
            365 * 24 * HOUR_MS,
            365 * 24 * HOUR_MS,
            "No response is fresh for longer, whatever it says.",
        ),
        int(
            "stale_if_error_ms",
            0,
            365 * 24 * HOUR_MS,
            0,
            "For how long after its time a response stands in for one that no server gives, or \
             that is a 500, 502, 503 or 504. `Cache-Status` says so.",
        ),
        key(
            "stale_while_revalidate",
            Kind::Flag,
            Missing::Means("`false`"),
            "Whether a response that allows it is answered after its time while its server is \
             asked.",
        ),
        int(
            "object_max_bytes",
            1,
            1 << 30,
            8 << 20,
            "Longer bodies are sent on and not kept; nor is what takes a quarter of a part of \
             the cache (it has one for each 32 MiB, 16 at most).",
        ),
        key(
            "tags",
            Kind::Choice(&["removed", "kept"]),
            Missing::Text("removed"),
            "What becomes of the fields that name tags on the way to clients: `Surrogate-Key`, \
             `Cache-Tag`, `X-Cache-Tags`, `xkey`, `Cache-Tags`, `Purge-Cache-Tags` and \
             `X-Magento-Tags`.",
        ),
    ],
};
