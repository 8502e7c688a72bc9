//! The tables of the settings file, key by key.

use super::schema::{Key, Kind, Missing, Section};
use super::site_tables::SITES;

pub(super) const fn int(
    name: &'static str,
    min: u64,
    max: u64,
    default: u64,
    help: &'static str,
) -> Key {
    Key { name, kind: Kind::Integer { min, max }, missing: Missing::Integer(default), help }
}

pub(super) const fn key(
    name: &'static str,
    kind: Kind,
    missing: Missing,
    help: &'static str,
) -> Key {
    Key { name, kind, missing, help }
}

/// The longest time that any setting may name: an hour. What takes longer is not a time-out.
pub(super) const HOUR_MS: u64 = 3_600_000;
/// The largest size that any setting may name: 1 TiB.
const TIB_BYTES: u64 = 1 << 40;
/// The largest count that fits the shared words (`in_flight` has 24 bits, less a margin that an
/// overflow by all edges at once cannot use up).
const IN_FLIGHT_MAX: u64 = 65_535;

/// What a rate may be: beyond a request a microsecond nothing is limited.
pub(super) const RATE_PER_S: Kind = Kind::Integer { min: 1, max: edge::PER_S_MAX as u64 };

/// `[pool]`.
pub const POOL: Section = Section {
    name: "pool",
    repeated: false,
    help: "How the nodes are shared.",
    keys: &[
        key(
            "name",
            Kind::Text,
            Missing::Text("pool"),
            "Names the pool in `polder status` and its folder for sockets.",
        ),
        key(
            "policy",
            Kind::Choice(&["reconf", "rigid", "reconf_p", "reconf_pq", "staged", "slo"]),
            Missing::Text("reconf"),
            "`reconf` moves nodes from lightly loaded sites to loaded ones; `rigid` leaves each \
             where it started. `reconf_p` also takes from sites with a smaller `priority`, however \
             loaded they are; `reconf_pq` does so up to `soft`, and gives back what was lent. \
             `staged` does the same for unlike nodes, by `capacity_pct` and `classes`; `slo` gives \
             nodes by `p99_ms`, within `hard`, `soft` and `max`.",
        ),
        key(
            "mode",
            Kind::Choice(&["move", "observe"]),
            Missing::Text("move"),
            "`observe` decides and logs, and moves nothing: how to start with a new balancer.",
        ),
        int(
            "look_every_ms",
            1,
            1_000,
            1,
            "How often an edge with requests looks at the pool. Four times as long while no \
             request waits and no site uses a quarter of its capacity: the first that waits ends \
             that.",
        ),
        int("idle_look_every_ms", 1, 10_000, 50, "How often an edge without requests looks."),
        int("hold_ms", 1, 60_000, 2, "How long a load must last before a node moves."),
        key(
            "high_load",
            Kind::Number { min: 0.01, max: 1_000.0 },
            Missing::Number(1.0),
            "A site whose load is above this wants a node. Load is (requests in flight + queued) \
             / sum of `max_in_flight` of its nodes.",
        ),
        key(
            "light_load",
            Kind::Number { min: 0.001, max: 1_000.0 },
            Missing::Number(0.5),
            "A site whose load is below this may give a node. Below `high_load`.",
        ),
        int(
            "drain_max_ms",
            1,
            HOUR_MS,
            30_000,
            "How long requests in flight may finish after their node moved, or after Ctrl-C.",
        ),
        int(
            "node_dead_ms",
            10,
            60_000,
            50,
            "A node whose heartbeat stands still for so long takes no part in moves.",
        ),
        int(
            "slot_lease_ms",
            10,
            60_000,
            100,
            "An edge that does not look for so long is dead: what it had in flight no longer \
             counts. At least twice `idle_look_every_ms`.",
        ),
        key(
            "runtime_dir",
            Kind::Text,
            Missing::Means(
                "`$XDG_RUNTIME_DIR/polder-NAME`, else a private folder under the temporary one",
            ),
            "The folder for sockets and the lock; absolute.",
        ),
        key(
            "home",
            Kind::Text,
            Missing::Means("the first node with an `address`"),
            "The node whose agent holds the sites' shared words when roles run apart. Without it \
             requests go on and nothing moves.",
        ),
        key(
            "metrics",
            Kind::Text,
            Missing::Text("127.0.0.1:0"),
            "Where `/metrics` and `/healthz` are served: a loopback address, or `off`. Port 0 \
             takes a free one, which `polder status` shows.",
        ),
    ],
};

/// `[[edges]]`.
pub const EDGES: Section = Section {
    name: "edges",
    repeated: true,
    help: "Where clients connect. Each table is a process; two with the same address share it. \
           Without any, one edge listens on 127.0.0.1:8080.",
    keys: &[
        key(
            "listen",
            Kind::Texts,
            Missing::Means("none: then `tls_listen`"),
            "Addresses without TLS, as `IP:PORT`.",
        ),
        key(
            "tls_listen",
            Kind::Texts,
            Missing::Means("none"),
            "Addresses with TLS; at least one site needs a certificate then.",
        ),
        key(
            "http2_plain",
            Kind::Flag,
            Missing::Means("`false`"),
            "Whether clients of `listen` may begin with HTTP/2 at once (prior knowledge); those of \
             HTTP/1.1 are served there too.",
        ),
        key(
            "threads",
            Kind::Integer { min: 1, max: 256 },
            Missing::Means("one for each core"),
            "Threads that carry requests.",
        ),
        key(
            "proxy_protocol",
            Kind::Texts,
            Missing::Means("none"),
            "Networks, as `10.0.0.0/8`, whose connections begin with a header of the PROXY \
             protocol (version 1 or 2), and are closed without one. From everybody else such a \
             header is a malformed request.",
        ),
    ],
};

/// `[http]`.
pub const HTTP: Section = Section {
    name: "http",
    repeated: false,
    help: "Limits and time-outs of all edges.",
    keys: &[
        key(
            "default_site",
            Kind::Text,
            Missing::Means("none: such a request gets 421"),
            "The site of requests for a host that no site names.",
        ),
        key(
            "forwarded",
            Kind::Choice(&["rewrite", "append"]),
            Missing::Text("rewrite"),
            "What a client says in `X-Forwarded-*` is dropped, or kept and continued: the latter \
             only behind another proxy.",
        ),
        int("connections_max", 1, 1_000_000, 10_000, "Client connections of one edge."),
        int("headers_max", 8, 1_000, 100, "Header lines of one request."),
        int("header_bytes_max", 8_192, 1 << 20, 32_768, "Bytes of a request's head."),
        int("uri_bytes_max", 16, 60_000, 8_192, "Bytes of a request's target."),
        int("body_bytes_max", 1, TIB_BYTES, 1 << 30, "Bytes of a request's body."),
        key(
            "http2",
            Kind::Flag,
            Missing::Means("`true`"),
            "Whether HTTP/2 is offered to clients that come by TLS.",
        ),
        int("http2_streams_max", 1, 10_000, 100, "Requests at once on one HTTP/2 connection."),
        int(
            "http2_stream_window_bytes",
            65_535,
            1 << 30,
            262_144,
            "Bytes of one HTTP/2 request's body that may be under way and unread.",
        ),
        int(
            "http2_connection_window_bytes",
            65_535,
            1 << 30,
            1 << 20,
            "The same for all requests of one HTTP/2 connection.",
        ),
        int(
            "http2_resets_max",
            1,
            1 << 20,
            100,
            "Requests that a client may give up on one HTTP/2 connection, beyond those that were \
             answered; then the connection ends.",
        ),
        int(
            "header_timeout_ms",
            1,
            HOUR_MS,
            10_000,
            "How long a request's head may take, and a TLS handshake.",
        ),
        int("body_idle_timeout_ms", 1, HOUR_MS, 30_000, "How long a body may stand still."),
        int(
            "keep_alive_idle_ms",
            1,
            HOUR_MS,
            60_000,
            "How long a client's connection may wait for its next request.",
        ),
        int("connect_timeout_ms", 1, HOUR_MS, 1_000, "How long a connection to a server may take."),
        int(
            "response_header_timeout_ms",
            1,
            HOUR_MS,
            60_000,
            "From the end of the request to the head of its response.",
        ),
        int(
            "expect_wait_ms",
            0,
            HOUR_MS,
            1_000,
            "How long a body with `Expect: 100-continue` waits for the server's word.",
        ),
        int(
            "retries_max",
            0,
            8,
            2,
            "Further tries of a request that a server failed before it answered; only where that \
             is safe.",
        ),
        int("retry_body_max_bytes", 0, 16 << 20, 65_536, "A longer body is not kept for a retry."),
        int("upstream_idle_max", 0, 65_536, 64, "Idle connections to one server of each thread."),
        int("upstream_idle_ms", 1, HOUR_MS, 30_000, "How long such a connection is kept."),
        key(
            "upstream",
            Kind::Choice(&["own", "hyper"]),
            Missing::Text("own"),
            "Who speaks HTTP with the servers: the edge itself, or hyper's client, which answers \
             alike and costs more.",
        ),
        key(
            "upgrades",
            Kind::Flag,
            Missing::Means("`true`"),
            "Passes a client's `Upgrade` on (WebSocket and others, never HTTP or TLS; not beside \
             a body), and bytes both ways when the server agrees. Upgraded connections hold no \
             place of `max_in_flight`; when their node has left the site, or the edge has \
             drained, for `drain_max_ms`, they are closed.",
        ),
        int(
            "upgraded_max",
            0,
            1_000_000,
            10_000,
            "Upgraded connections of one edge; a request for one more gets 503.",
        ),
        int(
            "upgrade_idle_ms",
            1,
            24 * HOUR_MS,
            HOUR_MS,
            "An upgraded connection on which nothing moves for so long is closed.",
        ),
        int(
            "cache_bytes",
            1 << 20,
            TIB_BYTES,
            256 << 20,
            "Memory of each edge for the responses that sites with a `cache` let it keep. What is \
             asked for again stays longest. Another value empties the cache.",
        ),
        key(
            "cache_disk_folder",
            Kind::Text,
            Missing::Means("nothing is kept on a disk"),
            "An absolute path: each edge keeps what its memory has no room for in a folder of its \
             own below it, which it empties at its start. Made with mode 0700 if it is missing. \
             Not for a file system in memory: `cache_bytes` is that.",
        ),
        key(
            "cache_disk_bytes",
            Kind::Integer { min: 1 << 20, max: TIB_BYTES },
            Missing::Means("nothing is kept on a disk"),
            "Bytes of its files, for each edge; those that were written first go first. With \
             `cache_disk_folder`. Another value empties the cache.",
        ),
        key(
            "request_id",
            Kind::Flag,
            Missing::Means("`true`"),
            "Gives each request an `X-Request-Id`, which the server, the client and the access \
             log get. With `forwarded = \"append\"` that of the proxy before is kept.",
        ),
        key(
            "trace",
            Kind::Flag,
            Missing::Means("`true`"),
            "Gives each request a `traceparent` (W3C Trace Context): continues a valid one under \
             a new span, replaces an invalid one, or begins a trace, which counts as sampled.",
        ),
    ],
};

/// `[health]`.
pub const HEALTH: Section = Section {
    name: "health",
    repeated: false,
    help: "When a server counts as failing: by the requests it fails, and by the agent's checks.",
    keys: &[
        int(
            "failures_max",
            1,
            1_000,
            5,
            "Requests failed in a row after which an edge sends a \
             server nothing for `eject_ms`.",
        ),
        int(
            "eject_ms",
            1,
            HOUR_MS,
            10_000,
            "How long that lasts the first time; twice as long each time that follows before the \
             server has done well for as long, up to five minutes.",
        ),
        int(
            "eject_max_pct",
            0,
            100,
            50,
            "The share of a site's servers that an edge leaves out at once for failed requests, in \
             percent: at least one of two or more, never all. Where more of them fail, requests \
             go to all. 0: none is left out.",
        ),
        int("check_every_ms", 10, HOUR_MS, 1_000, "How often an agent checks a server."),
        int("check_timeout_ms", 1, HOUR_MS, 1_000, "How long one check may take."),
        int("rise", 1, 100, 1, "Checks passed in a row that make a server ready."),
        int("fall", 1, 100, 3, "Checks failed in a row that make it failing."),
        int(
            "unresponsive_max_ms",
            1,
            HOUR_MS,
            30_000,
            "A started server that passes no check for so long is replaced.",
        ),
        int("stop_timeout_ms", 0, HOUR_MS, 5_000, "Time between SIGTERM and SIGKILL."),
    ],
};

/// `[[nodes]]`.
pub const NODES: Section = Section {
    name: "nodes",
    repeated: true,
    help: "What serves the sites.",
    keys: &[
        key("name", Kind::Text, Missing::Required, "Names the node; lower case."),
        key(
            "count",
            Kind::Integer { min: 1, max: 16_382 },
            Missing::Means("one node"),
            "So many nodes alike: `n` with 8 is `n1` to `n8`.",
        ),
        int(
            "max_in_flight",
            1,
            IN_FLIGHT_MAX,
            8,
            "Requests that it takes at once, over all \
             edges and sites.",
        ),
        int(
            "capacity_pct",
            1,
            10_000,
            100,
            "How much it serves in a given time, in percent of a usual node.",
        ),
        key(
            "classes",
            Kind::Texts,
            Missing::Means("none"),
            "What kinds of node it is, as the sites' `classes` name them.",
        ),
        key(
            "host",
            Kind::Text,
            Missing::Means("the IP of `address`; without one `127.0.0.1`"),
            "The IPv4 address that its servers listen on; without `address` a loopback one.",
        ),
        key(
            "address",
            Kind::Text,
            Missing::Means("none: it runs under `polder up` only"),
            "Where its agent serves its record to edges on other machines, as `IP:PORT`: all \
             nodes have one, or none.",
        ),
        key(
            "servers",
            Kind::Table,
            Missing::Means("an agent starts the sites' commands"),
            "Addresses of servers that run anyway, one for each site: \
             `{ shop = \"10.0.0.5:9001\" }`. Not with `count`.",
        ),
    ],
};

/// `[access_log]`.
pub const ACCESS_LOG: Section = Section {
    name: "access_log",
    repeated: false,
    help: "A line for each request of all edges. It never holds up a request: lines that can't be \
           written in time are dropped and counted. Requests that are no HTTP at all have none; \
           an upgrade has its line when it is established.",
    keys: &[
        key(
            "path",
            Kind::Text,
            Missing::Means("no log"),
            "The file, absolute; `-` for standard output. It is made with mode 0640, appended \
             to, and opened anew within a second of writing when it was renamed.",
        ),
        key(
            "format",
            Kind::Choice(&["text", "json"]),
            Missing::Text("text"),
            "`text` is the combined log format with more fields behind it; `json` is an object a \
             line.",
        ),
        int("queue_max", 1, 1 << 20, 16_384, "Lines that may wait, for each thread of an edge."),
    ],
};

/// `[remote]`.
pub const REMOTE: Section = Section {
    name: "remote",
    repeated: false,
    help: "How edges and agents on several machines reach each other: `polder edge` and `polder \
           agent`, with an `address` for each node. `polder up` needs none of it.",
    keys: &[
        key(
            "key_file",
            Kind::Text,
            Missing::Means("none: then all addresses are loopback ones"),
            "The pool's key, the same on all machines, as `polder key` prints it; mode 0600. Who \
             holds it can change every record.",
        ),
        key(
            "plain_on_loopback",
            Kind::Flag,
            Missing::Means("`false`"),
            "Loopback addresses do without encryption: anybody on the machine can connect.",
        ),
        int(
            "deadline_ms",
            1,
            60_000,
            20,
            "A node that does not answer within it takes no part in moves and gets no new \
             requests if there is another. At most a quarter of `slot_lease_ms`.",
        ),
        int("connect_ms", 1, 60_000, 500, "How long connecting to an agent may take."),
        key(
            "realtime",
            Kind::Flag,
            Missing::Means("`true`"),
            "An agent answers edges before all else that its machine computes (`SCHED_FIFO`), \
             where the kernel lets it; `polder status` says where not.",
        ),
    ],
};

/// All tables, in the order of the documentation.
pub const SECTIONS: [&Section; 8] =
    [&POOL, &EDGES, &HTTP, &HEALTH, &ACCESS_LOG, &REMOTE, &SITES, &NODES];
