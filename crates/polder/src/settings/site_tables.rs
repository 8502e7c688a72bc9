//! The tables of a site in the settings file, key by key.

use super::schema::{Kind, Missing, Section};
use super::tables::{HOUR_MS, RATE_PER_S, int, key};
use shared_state::versions::SlotBits;

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
            "tags_listen",
            Kind::Text,
            Missing::Means("not over TCP"),
            "Where the version table is also served over TCP, for reading alone: `IP:PORT`, \
             protected as [remote] says.",
        ),
        key(
            "tags_read",
            Kind::Choice(&["memory", "tcp"]),
            Missing::Text("memory"),
            "How edges read the version table. `tcp`, at `tags_listen`: a hit then costs a round \
             trip, which all requests of the moment share.",
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
            "files",
            Kind::Text,
            Missing::Means("none are watched"),
            "The folder whose files the site's static servers answer with: its changes are seen \
             within a second, and what was made of them is asked for anew. With `tags` and mode \
             `strict`. See docs/cache.md.",
        ),
        key(
            "files_at",
            Kind::Text,
            Missing::Means("`/`"),
            "Where in the site's URLs these files lie, such as `/assets/`.",
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
