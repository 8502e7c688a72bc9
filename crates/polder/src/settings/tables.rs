//! The tables of the settings file, key by key.

use super::schema::{Key, Kind, Missing, Section};
use shared_state::versions::SlotBits;

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
const RATE_PER_S: Kind = Kind::Integer { min: 1, max: edge::PER_S_MAX as u64 };

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

/// `[[sites]]`.
pub const SITES: Section = Section {
    name: "sites",
    repeated: true,
    help: "The web sites that share the pool.",
    keys: &[
        key("name", Kind::Text, Missing::Required, "Names the site; lower case."),
        key(
            "hosts",
            Kind::Texts,
            Missing::Required,
            "Host names that mean this site; `*.example.org` for all names below one.",
        ),
        int(
            "priority",
            0,
            255,
            0,
            "The larger goes first: policies that read it take nodes for this site from loaded \
             sites with a smaller one.",
        ),
        int("hard", 0, 16_382, 1, "Nodes that no move ever takes from it."),
        key(
            "soft",
            Kind::Integer { min: 0, max: 16_382 },
            Missing::Means("as `hard`"),
            "Nodes that it gets back when it is loaded, from sites with the same or a smaller \
             `priority`. All `soft` together may exceed the pool: `polder check` says who gets \
             what.",
        ),
        key(
            "max",
            Kind::Integer { min: 1, max: 16_382 },
            Missing::Means("no bound"),
            "Nodes beyond which it takes no more.",
        ),
        key(
            "p99_ms",
            Kind::Integer { min: 1, max: HOUR_MS },
            Missing::Means("none"),
            "Its objective: 99 of 100 requests are answered within this time.",
        ),
        key(
            "classes",
            Kind::Texts,
            Missing::Means("none: each node serves it well"),
            "Classes that a node needs to serve it well; at most 32 names in a pool.",
        ),
        int(
            "unfit_pct",
            0,
            100,
            0,
            "What a node without these classes does for it, in percent of its capacity. 0: it \
             is never given to the site.",
        ),
        key(
            "nodes",
            Kind::Integer { min: 0, max: 16_382 },
            Missing::Means("as `hard`"),
            "Nodes that it starts with, in the order of the file; the rest start free.",
        ),
        key(
            "balance",
            Kind::Choice(&["least-in-flight", "round-robin", "two-choices"]),
            Missing::Text("least-in-flight"),
            "Which server takes the next request.",
        ),
        int(
            "queue_max",
            0,
            1_000_000,
            1_000,
            "Requests that may wait at one edge; the next gets \
             503.",
        ),
        int("queue_timeout_ms", 1, HOUR_MS, 5_000, "How long one may wait."),
        key(
            "command",
            Kind::Texts,
            Missing::Means("none: then each node needs `servers`"),
            "The program that serves the site on a node. `{port}`, `{host}`, `{node}` and \
             `{site}` are filled in, and stand in the environment as `PORT`, `HOST`, `NODE` and \
             `SITE`.",
        ),
        key(
            "start",
            Kind::Choice(&["warm", "on-assignment"]),
            Missing::Text("warm"),
            "`warm` runs the program on each node at once; `on-assignment` when the node comes.",
        ),
        key(
            "check",
            Kind::Table,
            Missing::Means("`{ tcp = true }`"),
            "How a server is checked: `{ path = \"/healthz\" }` or `{ tcp = true }`.",
        ),
        key(
            "tls",
            Kind::Table,
            Missing::Means("none"),
            "Its certificate: `{ certificate = \"/etc/...\", key = \"/etc/...\" }`.",
        ),
        key(
            "proxy_protocol_out",
            Kind::Choice(&["off", "v1", "v2"]),
            Missing::Text("off"),
            "Whether each connection to a server begins with a header of the PROXY protocol that \
             names the client. Such a connection serves one client's connection only. Checks send \
             no header: such a server needs `check = { tcp = true }`.",
        ),
        int(
            "slow_start_ms",
            0,
            HOUR_MS,
            0,
            "A server that came (its node moved here, it was started again, it is healthy again) \
             gets to its whole share over this time. 0: at once.",
        ),
        key(
            "sticky",
            Kind::Table,
            Missing::Means("requests belong to no server"),
            "Which requests go to one server: `{ cookie = \"NAME\" }` or `{ hash = \"address\" }`.",
        ),
        key(
            "rate",
            Kind::Table,
            Missing::Means("no limit"),
            "How many requests a client and the site may make: `{ client_per_s = 50 }`.",
        ),
        key(
            "admission",
            Kind::Tables,
            Missing::Means("all requests are alike"),
            "Which requests go first, the most important first: `[{ name = \"gold\", header = \
             \"X-Plan: gold\" }, { name = \"api\", path = \"/api/\" }]`.",
        ),
        key(
            "tags",
            Kind::Integer { min: 1 << SlotBits::MIN, max: 1 << SlotBits::MAX },
            Missing::Means("no version table"),
            "Words of the site's version table, a power of two; each takes 8 bytes, and half a MiB \
             comes on top. With a million tags in use one update voids in vain, beside the \
             entries of its own tag, as many again as 95 % of them with 1_048_576 words (8 MiB), \
             24 % with 4_194_304 (32 MiB), 6.0 % with 16_777_216 (128 MiB) and 1.5 % with \
             67_108_864 (512 MiB). See docs/writers.md.",
        ),
        key(
            "writers_socket",
            Kind::Text,
            Missing::Means("none beside `tell-SITE.sock` in the pool's folder"),
            "Where writers that run as other users tell of changes: the absolute path of a socket \
             in a folder that they can enter.",
        ),
        key(
            "writers_group",
            Kind::Text,
            Missing::Means("the pool's own user"),
            "The group that may use `writers_socket`: its name in /etc/group, or its number.",
        ),
        key(
            "cache",
            Kind::Table,
            Missing::Means("nothing is kept"),
            "Which responses the edges keep and answer with: `{ mode = \"http\" }`.",
        ),
        key(
            "purge",
            Kind::Table,
            Missing::Means("nobody"),
            "Who may invalidate over HTTP: `{ from = [\"127.0.0.1\"] }`.",
        ),
    ],
};

/// `check = { ... }` of a site.
pub const CHECK: Section = Section {
    name: "check",
    repeated: false,
    help: "How a server is checked; one of the two.",
    keys: &[
        key("path", Kind::Text, Missing::Means("no request"), "GET this; 200 to 399 passes."),
        key("tcp", Kind::Flag, Missing::Means("`true` without `path`"), "A connection passes."),
    ],
};

/// `tls = { ... }` of a site.
pub const TLS: Section = Section {
    name: "tls",
    repeated: false,
    help: "A site's certificate. The files are read when an edge starts.",
    keys: &[
        key(
            "certificate",
            Kind::Text,
            Missing::Required,
            "The certificate and those between it and the root, in PEM; absolute.",
        ),
        key(
            "key",
            Kind::Text,
            Missing::Required,
            "Its private key, in PEM; absolute. Everyone but its owner and group must be kept out.",
        ),
        key(
            "client_ca",
            Kind::Text,
            Missing::Means("none"),
            "Certificates that sign those of clients, in PEM; absolute.",
        ),
        key(
            "client_certificate",
            Kind::Choice(&["off", "optional", "required"]),
            Missing::Text("off"),
            "Whether clients show a certificate. Servers get its subject in \
             `X-Client-Cert-Subject`. With `required`, requests without one get 421, also those \
             that come without TLS or by another site's name.",
        ),
    ],
};

/// `sticky = { ... }` of a site.
pub const STICKY: Section = Section {
    name: "sticky",
    repeated: false,
    help: "Which requests go to one server while it serves the site and answers; `cookie` or \
           `hash`. When its node moves or fails, they go to another.",
    keys: &[
        key(
            "cookie",
            Kind::Text,
            Missing::Means("no cookie"),
            "The edge sets a cookie of this name that stands for the server.",
        ),
        key(
            "key_file",
            Kind::Text,
            Missing::Means("a key drawn when the pool starts"),
            "With `cookie`: a file of at least 16 secret bytes, from which the cookies are made; \
             absolute. With it they outlive the pool, and edges on several machines agree.",
        ),
        key(
            "hash",
            Kind::Text,
            Missing::Means("no hash"),
            "`address`, `header:NAME` or `cookie:NAME`: requests alike in it go to one server. A \
             move disturbs only the moved node's share of them.",
        ),
        int(
            "wait_ms",
            0,
            HOUR_MS,
            1_000,
            "How long a request waits for its server when that is full, before it takes any.",
        ),
    ],
};

/// `rate = { ... }` of a site.
pub const RATE: Section = Section {
    name: "rate",
    repeated: false,
    help: "How many requests each edge lets in; the next gets 429 and `Retry-After`. A client is \
           an IPv4 address, or the first 64 bits of an IPv6 address; an edge remembers 65,536 of \
           them for each site, and forgets first who has been idle for longest.",
    keys: &[
        key(
            "client_per_s",
            RATE_PER_S,
            Missing::Means("no limit"),
            "Requests of one client in a second.",
        ),
        key(
            "client_burst",
            RATE_PER_S,
            Missing::Means("as `client_per_s`"),
            "Requests of one client at once, after a rest.",
        ),
        key("site_per_s", RATE_PER_S, Missing::Means("no limit"), "Requests of all in a second."),
        key(
            "site_burst",
            RATE_PER_S,
            Missing::Means("as `site_per_s`"),
            "Requests of all at once, after a rest.",
        ),
    ],
};

/// `admission = [{ ... }]` of a site.
pub const ADMISSION: Section = Section {
    name: "admission",
    repeated: true,
    help: "Classes of requests, the most important first; at most 7. Requests that match none form \
           the last one, `other`. Of those that wait, higher classes go first; in a full queue a \
           higher one takes the place of the newest of the lowest. Where the site has an objective \
           (`p99_ms`), requests that would be answered too late are refused at once, but for the \
           highest class. Who is refused gets 503 and, in `Retry-After`, the seconds until the \
           queue would be empty, 1 to 60. What a client says is believed: where clients choose \
           the header, it says what they want, not what they may have.",
    keys: &[
        key("name", Kind::Text, Missing::Required, "Names the class, in metrics and the log."),
        key(
            "header",
            Kind::Text,
            Missing::Means("any"),
            "A header field that its requests have: `Name: value`, or `Name` for any value.",
        ),
        key(
            "path",
            Kind::Text,
            Missing::Means("any"),
            "What the path of its requests begins with, as clients send it. With both, both must \
             match.",
        ),
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
