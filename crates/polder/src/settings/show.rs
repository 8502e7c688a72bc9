//! Settings back to text, with every default written out: for `polder check --show`, and as the
//! private copy that the processes of one pool read, so that an edit of the file between two
//! starts cannot give two edges different settings.

use super::model::{
    Check, Forwarded, Node, Servers, Settings, Site, SiteTls, Start, Sticky, StickyBy, TagsRead,
};
use edge::{LogFormat, LogTarget, ProxyVersion, Upstream};
use policy::choose::Balance;
use std::net::SocketAddr;
use std::path::Path;
use toml::{Table, Value};

/// Puts values into a table under their names; `None` leaves a name out.
macro_rules! table {
    ($($name:literal: $value:expr,)*) => {{
        let mut table = Table::new();
        $(if let Some(value) = Option::<Value>::from($value) {
            table.insert($name.to_owned(), value);
        })*
        table
    }};
}

impl Settings {
    /// The settings as a file that says everything; reading it gives the same settings.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let edges = self.edges.iter().map(|edge| {
            table! {
                "listen": addresses(&edge.listen),
                "tls_listen": addresses(&edge.tls_listen),
                "http2_plain": Value::from(edge.http2_plain),
                "threads": edge.threads.map(|threads| Value::from(i64::from(threads))),
                "proxy_protocol": texts(&edge.proxy_protocol),
            }
        });
        let sites = self.sites.iter().map(|site| self.site_table(site));
        let nodes = self.nodes.iter().map(|node| self.node_table(node));
        let root = table! {
            "pool": Value::from(self.pool_table()),
            "edges": Value::from(edges.collect::<Vec<Table>>()),
            "http": Value::from(self.http_table()),
            "health": Value::from(self.health_table()),
            "access_log": Value::from(self.access_log_table()),
            "remote": Value::from(self.remote_table()),
            "sites": Value::from(sites.collect::<Vec<Table>>()),
            "nodes": Value::from(nodes.collect::<Vec<Table>>()),
        };
        root.to_string()
    }

    fn pool_table(&self) -> Table {
        let pool = &self.pool;
        let metrics = pool.metrics.map_or("off".into(), |address| address.to_string());
        let runtime_dir = pool.runtime_dir.as_ref().and_then(|path| path.to_str());
        table! {
            "name": Value::from(pool.name.as_str()),
            "policy": Value::from(pool.policy.name()),
            "mode": Value::from(pool.mode.name()),
            "look_every_ms": Value::from(pool.look_every_ms),
            "idle_look_every_ms": Value::from(pool.idle_look_every_ms),
            "hold_ms": Value::from(pool.hold_ms),
            "high_load": Value::from(pool.high_load),
            "light_load": Value::from(pool.light_load),
            "drain_max_ms": Value::from(pool.drain_max_ms),
            "node_dead_ms": Value::from(pool.node_dead_ms),
            "slot_lease_ms": Value::from(pool.slot_lease_ms),
            "runtime_dir": runtime_dir.map(Value::from),
            "metrics": Value::from(metrics),
            "home": pool.home.as_deref().map(Value::from),
        }
    }

    fn http_table(&self) -> Table {
        let http = &self.http;
        let forwarded = match http.forwarded {
            Forwarded::Rewrite => "rewrite",
            Forwarded::Append => "append",
        };
        // The schema keeps sizes below 2^40.
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let disk = http.cache_disk.as_ref();
        let (body_bytes_max, cache_bytes) = (bytes(http.body_bytes_max), bytes(http.cache_bytes));
        table! {
            "default_site": http.default_site.as_deref().map(Value::from),
            "forwarded": Value::from(forwarded),
            "connections_max": Value::from(http.connections_max),
            "headers_max": Value::from(u32::from(http.headers_max)),
            "header_bytes_max": Value::from(http.header_bytes_max),
            "uri_bytes_max": Value::from(http.uri_bytes_max),
            "body_bytes_max": Value::from(body_bytes_max),
            "http2": Value::from(http.http2),
            "http2_streams_max": Value::from(http.http2_streams_max),
            "http2_stream_window_bytes": Value::from(http.http2_stream_window_bytes),
            "http2_connection_window_bytes": Value::from(http.http2_connection_window_bytes),
            "http2_resets_max": Value::from(http.http2_resets_max),
            "header_timeout_ms": Value::from(http.header_timeout_ms),
            "body_idle_timeout_ms": Value::from(http.body_idle_timeout_ms),
            "keep_alive_idle_ms": Value::from(http.keep_alive_idle_ms),
            "connect_timeout_ms": Value::from(http.connect_timeout_ms),
            "response_header_timeout_ms": Value::from(http.response_header_timeout_ms),
            "expect_wait_ms": Value::from(http.expect_wait_ms),
            "retries_max": Value::from(u32::from(http.retries_max)),
            "retry_body_max_bytes": Value::from(http.retry_body_max_bytes),
            "upstream_idle_max": Value::from(http.upstream_idle_max),
            "upstream_idle_ms": Value::from(http.upstream_idle_ms),
            "upstream": Value::from(match http.upstream {
                Upstream::Own => "own",
                Upstream::Hyper => "hyper",
            }),
            "upgrades": Value::from(http.upgrades),
            "upgraded_max": Value::from(http.upgraded_max),
            "upgrade_idle_ms": Value::from(http.upgrade_idle_ms),
            "cache_bytes": Value::from(cache_bytes),
            "cache_disk_folder": disk.map(|disk| Value::from(&*disk.folder.to_string_lossy())),
            "cache_disk_bytes": disk.map(|disk| Value::from(bytes(disk.bytes))),
            "request_id": Value::from(http.request_id),
            "trace": Value::from(http.trace),
        }
    }

    fn access_log_table(&self) -> Table {
        let log = &self.access_log;
        let path = log.target.as_ref().map(|target| match target {
            LogTarget::Stdout => "-".into(),
            LogTarget::File(path) => path.to_string_lossy(),
        });
        let format = match log.format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        table! {
            "path": path.as_deref().map(Value::from),
            "format": Value::from(format),
            "queue_max": Value::from(log.queue_max),
        }
    }

    fn remote_table(&self) -> Table {
        let remote = &self.remote;
        let key_file = remote.key_file.as_ref().and_then(|path| path.to_str());
        table! {
            "key_file": key_file.map(Value::from),
            "plain_on_loopback": Value::from(remote.plain_on_loopback),
            "deadline_ms": Value::from(remote.deadline_ms),
            "connect_ms": Value::from(remote.connect_ms),
            "realtime": Value::from(remote.realtime),
        }
    }

    fn health_table(&self) -> Table {
        let health = &self.health;
        table! {
            "failures_max": Value::from(health.failures_max),
            "eject_ms": Value::from(health.eject_ms),
            "eject_max_pct": Value::from(u32::from(health.eject_max_pct)),
            "check_every_ms": Value::from(health.check_every_ms),
            "check_timeout_ms": Value::from(health.check_timeout_ms),
            "rise": Value::from(u32::from(health.rise)),
            "fall": Value::from(u32::from(health.fall)),
            "unresponsive_max_ms": Value::from(health.unresponsive_max_ms),
            "stop_timeout_ms": Value::from(health.stop_timeout_ms),
        }
    }
}

/// A list that may be missing but not empty.
fn texts(items: impl IntoIterator<Item = impl ToString>) -> Option<Value> {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    (!texts.is_empty()).then(|| Value::from(texts))
}

fn tls_table(tls: &SiteTls) -> Table {
    // They were text in the file.
    let text = |path: &Path| Value::from(path.to_string_lossy().into_owned());
    table! {
        "certificate": text(&tls.certificate),
        "key": text(&tls.key),
        "client_ca": tls.client_ca.as_deref().map(text),
        "client_certificate": Value::from(tls.client_certificate.name()),
    }
}

/// A list of addresses; an empty one is left out.
fn addresses(listen: &[SocketAddr]) -> Option<Value> {
    let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
    (!listen.is_empty()).then(|| Value::from(listen))
}

fn sticky_table(sticky: &Sticky) -> Table {
    let (mut cookie, mut key_file, mut hash) = (None, None, None);
    match &sticky.by {
        StickyBy::Cookie { name, key_file: file } => {
            cookie = Some(Value::from(name.as_str()));
            key_file = file.as_ref().and_then(|path| path.to_str()).map(Value::from);
        }
        StickyBy::Hash(by) => hash = Some(Value::from(by.to_string())),
    }
    table! {
        "cookie": cookie,
        "key_file": key_file,
        "hash": hash,
        "wait_ms": Value::from(sticky.wait_ms),
    }
}

fn rate_table(rate: &edge::RateOptions) -> Option<Table> {
    let (client, site) = (rate.client, rate.site);
    let table = table! {
        "client_per_s": client.map(|rate| Value::from(rate.per_s)),
        "client_burst": client.map(|rate| Value::from(rate.burst)),
        "site_per_s": site.map(|rate| Value::from(rate.per_s)),
        "site_burst": site.map(|rate| Value::from(rate.burst)),
    };
    (!table.is_empty()).then_some(table)
}

fn admission_tables(rules: &[edge::ClassRule]) -> Option<Value> {
    let tables = rules.iter().map(|rule| {
        table! {
            "name": Value::from(rule.name.as_str()),
            "header": rule.header.as_ref().map(|header| Value::from(header.to_string())),
            "path": rule.path.as_deref().map(Value::from),
        }
    });
    (!rules.is_empty()).then(|| Value::from(tables.collect::<Vec<Table>>()))
}

impl Settings {
    pub(super) fn site_table(&self, site: &Site) -> Table {
        let balance = match site.balance {
            Balance::LeastInFlight => "least-in-flight",
            Balance::RoundRobin => "round-robin",
            Balance::TwoChoices => "two-choices",
        };
        let start = match site.start {
            Start::Warm => "warm",
            Start::OnAssignment => "on-assignment",
        };
        let check = match &site.check {
            Check::Tcp => table! { "tcp": Value::from(true), },
            Check::Path(path) => table! { "path": Value::from(path.as_str()), },
        };
        let (terms, tags) = (&site.terms, site.tags.as_ref());
        let files = tags.and_then(|tags| tags.files.as_ref());
        let guarantee = terms.guarantee;
        let objective = terms.objective.map(|objective| objective.p99_us / 1_000);
        let max = (guarantee.max != u16::MAX).then(|| Value::from(u32::from(guarantee.max)));
        let command = (!site.command.is_empty()).then(|| Value::from(site.command.clone()));
        table! {
            "name": Value::from(site.name.as_str()),
            "hosts": Value::from(site.hosts.clone()),
            "priority": Value::from(u32::from(terms.priority.0)),
            "hard": Value::from(u32::from(guarantee.hard)),
            "soft": Value::from(u32::from(guarantee.soft)),
            "max": max,
            "p99_ms": objective.map(Value::from),
            "classes": texts(self.class_names(terms.wants)),
            "unfit_pct": Value::from(u32::from(terms.unfit_pct)),
            "nodes": Value::from(u32::from(site.nodes)),
            "balance": Value::from(balance),
            "queue_max": Value::from(site.queue_max),
            "queue_timeout_ms": Value::from(site.queue_timeout_ms),
            "command": command,
            "start": Value::from(start),
            "check": Value::from(check),
            "tls": site.tls.as_ref().map(tls_table).map(Value::from),
            "proxy_protocol_out": Value::from(match site.proxy_protocol_out {
                None => "off",
                Some(ProxyVersion::V1) => "v1",
                Some(ProxyVersion::V2) => "v2",
            }),
            "slow_start_ms": Value::from(site.slow_start_ms),
            "sticky": site.sticky.as_ref().map(|sticky| Value::from(sticky_table(sticky))),
            "rate": rate_table(&site.rate).map(Value::from),
            "admission": admission_tables(&site.admission),
            "tags": tags.map(|tags| Value::from(tags.words.slots() as u32)),
            "writers_socket": tags.and_then(|tags| tags.socket.as_ref()?.to_str()).map(Value::from),
            "tags_listen": tags
                .and_then(|tags| tags.listen)
                .map(|address| Value::from(address.to_string())),
            "tags_read": tags.filter(|tags| tags.read == TagsRead::Tcp).map(|_| Value::from("tcp")),
            "writers_group": tags.and_then(|tags| tags.group.as_deref()).map(Value::from),
            "files": files.map(|files| Value::from(&*files.root.to_string_lossy())),
            "files_at": files.map(|files| Value::from(files.at.as_str())),
            "cache": super::cache::written(&site.cache).map(Value::from),
            "purge": site.purge.as_ref().map(super::purge::written).map(Value::from),
        }
    }

    fn node_table(&self, node: &Node) -> Table {
        let (host, servers) = match &node.servers {
            Servers::Agent { host } => (Some(Value::from(host.to_string())), None),
            Servers::Addresses(addresses) => {
                let named = self.sites.iter().zip(addresses);
                let servers: Table = named
                    .map(|(site, address)| (site.name.clone(), Value::from(address.to_string())))
                    .collect();
                (None, Some(Value::from(servers)))
            }
        };
        table! {
            "name": Value::from(node.name.as_str()),
            "max_in_flight": Value::from(node.max_in_flight),
            "capacity_pct": Value::from(u32::from(node.traits.capacity_pct)),
            "classes": texts(self.class_names(node.traits.classes)),
            "address": node.address.map(|address| Value::from(address.to_string())),
            "host": host,
            "servers": servers,
        }
    }
}
