//! From the tables of the file to typed settings, and the checks that concern one table alone.

use super::model::{
    AccessLog, Check, Edge, Forwarded, Health, Http, Mode, Node, POLICIES, Pool, Servers, Settings,
    Site, Start,
};
use super::problem::{Findings, Span, did_you_mean, one_of};
use super::reader::{At, Table, open_all, shown};
use super::remote::{self, RemoteMarks};
use super::schema::{ACCESS_LOG, CHECK, EDGES, HEALTH, HTTP, NODES, POOL, REMOTE, SECTIONS, SITES};
use super::terms::{self, TermsMarks};
use super::{admission, cache, command, names, purge, tls, traffic, writers};
use edge::{LogFormat, LogTarget, ProxyVersion, Upstream};
use policy::choose::Balance;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Settings, and where in the file the things stand that are checked against each other.
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) marks: Marks,
}

/// Places of what is checked across tables.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) hold: Span,
    pub(super) idle_look: Span,
    pub(super) light_load: Span,
    pub(super) slot_lease: Span,
    pub(super) policy: Span,
    pub(super) metrics: Span,
    pub(super) default_site: Span,
    /// Whether a number of nodes was wrong: then sums over them would only confuse.
    pub(super) counts_spoilt: bool,
    pub(super) edges: Vec<Vec<Span>>,
    pub(super) sites: Vec<SiteMarks>,
    pub(super) nodes: Vec<NodeMarks>,
    pub(super) remote: RemoteMarks,
}

/// Places in one site's table.
pub(super) struct SiteMarks {
    pub(super) table: Span,
    pub(super) name: Span,
    pub(super) hosts: Vec<Span>,
    pub(super) terms: TermsMarks,
    pub(super) nodes: Span,
    pub(super) has_command: bool,
}

/// Places in one node's table; `servers` are as the file names them, with the site's name.
pub(super) struct NodeMarks {
    pub(super) table: Span,
    pub(super) name: Span,
    pub(super) count: Option<At<u16>>,
    pub(super) servers: Option<(Span, Vec<Address>)>,
    pub(super) classes: Vec<At<String>>,
}

/// One entry of `servers`.
pub(super) struct Address {
    pub(super) site: At<String>,
    pub(super) at: At<SocketAddrV4>,
}

/// Reads all tables.
pub(super) fn read<'a>(root: &'a DeTable<'a>, findings: &'a Findings) -> Draft {
    report_unknown_tables(root, findings);
    let mut marks = Marks::default();
    let settings = Settings {
        pool: pool(&Table::open(&POOL, root.get("pool"), findings), &mut marks, findings),
        edges: open_all(&EDGES, root.get("edges"), findings)
            .iter()
            .enumerate()
            .map(|(index, table)| edge(index, table, &mut marks, findings))
            .collect(),
        http: http(&Table::open(&HTTP, root.get("http"), findings), &mut marks, findings),
        health: health(&Table::open(&HEALTH, root.get("health"), findings)),
        access_log: access_log(
            &Table::open(&ACCESS_LOG, root.get("access_log"), findings),
            findings,
        ),
        remote: remote::remote(
            &Table::open(&REMOTE, root.get("remote"), findings),
            &mut marks,
            findings,
        ),
        sites: open_all(&SITES, root.get("sites"), findings)
            .iter()
            .map(|table| site(table, &mut marks, findings))
            .collect(),
        nodes: open_all(&NODES, root.get("nodes"), findings)
            .iter()
            .map(|table| node(table, &mut marks, findings))
            .collect(),
        // Known when all tables are read.
        classes: Vec::new(),
    };
    Draft { settings, marks }
}

fn report_unknown_tables(root: &DeTable<'_>, findings: &Findings) {
    for (name, value) in root {
        let given = name.get_ref().as_ref();
        if SECTIONS.iter().any(|section| section.name == given) {
            continue;
        }
        let what =
            if value.get_ref().is_table() || value.get_ref().is_array() { "table" } else { "key" };
        let in_section = SECTIONS.iter().find(|section| section.key(given).is_some());
        let help = did_you_mean(given, SECTIONS.iter().map(|section| section.name))
            .or_else(|| Some(format!("it belongs in `{}`", in_section?.heading())))
            .unwrap_or_else(|| {
                format!("known: {}", one_of(SECTIONS.iter().map(|section| section.name)))
            });
        findings.error(&name.span(), format!("unknown {what} `{}`", shown(given)), help);
    }
}

fn pool(table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Pool {
    let (hold, idle_look) = (table.integer("hold_ms"), table.integer("idle_look_every_ms"));
    let (light_load, slot_lease) = (table.number("light_load"), table.integer("slot_lease_ms"));
    let metrics = table.text("metrics");
    marks.policy = table.get("policy").map_or_else(|| table.span.clone(), Spanned::span);
    let pool = Pool {
        name: names::name_of(table, "pool", findings).value,
        policy: table.choice("policy", &POLICIES),
        mode: table.choice("mode", &[Mode::Move, Mode::Observe]),
        look_every_ms: table.integer("look_every_ms").value,
        idle_look_every_ms: idle_look.value,
        hold_ms: hold.value,
        high_load: table.number("high_load").value,
        light_load: light_load.value,
        drain_max_ms: table.integer("drain_max_ms").value,
        node_dead_ms: table.integer("node_dead_ms").value,
        slot_lease_ms: slot_lease.value,
        runtime_dir: runtime_dir(table, findings),
        metrics: (metrics.value != "off").then(|| names::loopback(&metrics, findings)).flatten(),
        home: remote::home(table, marks),
    };
    marks.hold = hold.span;
    marks.idle_look = idle_look.span;
    marks.light_load = light_load.span;
    marks.slot_lease = slot_lease.span;
    marks.metrics = metrics.span;
    pool
}

fn runtime_dir(table: &Table<'_>, findings: &Findings) -> Option<PathBuf> {
    let given = table.text_given("runtime_dir")?;
    let path = PathBuf::from(given.value);
    if !path.is_absolute() || given.value.contains('\0') {
        findings.error(&given.span, "`runtime_dir` is not an absolute path", "start it with `/`");
        return None;
    }
    if given.value.len() > names::RUNTIME_DIR_MAX_BYTES {
        let max = names::RUNTIME_DIR_MAX_BYTES;
        let message = format!("`runtime_dir` is longer than {max} bytes");
        findings.error(&given.span, message, "paths of sockets have at most 107 bytes on Linux");
        return None;
    }
    Some(path)
}

fn edge(index: usize, table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Edge {
    let mut known: Vec<SocketAddr> = Vec::new();
    let mut spans = Vec::new();
    let mut addresses = |name: &str| {
        let mut listen = Vec::new();
        for text in table.texts(name).map(|list| list.value).unwrap_or_default() {
            let Some(address) = names::address(&text, findings) else { continue };
            if known.contains(&address) && address.port() != 0 {
                let message = format!("edge {index} listens on {address} twice");
                findings.error(&text.span, message, "remove one of them");
                continue;
            }
            known.push(address);
            listen.push(address);
            spans.push(text.span);
        }
        listen
    };
    let (listen, tls_listen) = (addresses("listen"), addresses("tls_listen"));
    if table.get("listen").is_none() && table.get("tls_listen").is_none() {
        let message = format!("{} has no `listen`", table.title);
        findings.error(&table.span, message, "add `listen` or `tls_listen`: `[\"IP:PORT\"]`");
    }
    marks.edges.push(spans);
    Edge {
        listen,
        tls_listen,
        http2_plain: table.flag("http2_plain").is_some_and(|flag| flag.value),
        threads: table.integer_given("threads").map(|threads| threads.value),
        proxy_protocol: names::networks(table, "proxy_protocol", findings),
    }
}

fn http(table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Http {
    let default_site = table.text_given("default_site");
    marks.default_site = default_site.as_ref().map(|site| site.span.clone()).unwrap_or_default();
    Http {
        default_site: default_site.map(|site| site.value.to_owned()),
        forwarded: table.choice("forwarded", &[Forwarded::Rewrite, Forwarded::Append]),
        connections_max: table.integer("connections_max").value,
        headers_max: table.integer("headers_max").value,
        header_bytes_max: table.integer("header_bytes_max").value,
        uri_bytes_max: table.integer("uri_bytes_max").value,
        body_bytes_max: table.integer("body_bytes_max").value,
        http2: table.flag("http2").is_none_or(|flag| flag.value),
        http2_streams_max: table.integer("http2_streams_max").value,
        http2_stream_window_bytes: table.integer("http2_stream_window_bytes").value,
        http2_connection_window_bytes: table.integer("http2_connection_window_bytes").value,
        http2_resets_max: table.integer("http2_resets_max").value,
        header_timeout_ms: table.integer("header_timeout_ms").value,
        body_idle_timeout_ms: table.integer("body_idle_timeout_ms").value,
        keep_alive_idle_ms: table.integer("keep_alive_idle_ms").value,
        connect_timeout_ms: table.integer("connect_timeout_ms").value,
        response_header_timeout_ms: table.integer("response_header_timeout_ms").value,
        expect_wait_ms: table.integer("expect_wait_ms").value,
        retries_max: table.integer("retries_max").value,
        retry_body_max_bytes: table.integer("retry_body_max_bytes").value,
        upstream_idle_max: table.integer("upstream_idle_max").value,
        upstream_idle_ms: table.integer("upstream_idle_ms").value,
        upstream: table.choice("upstream", &[Upstream::Own, Upstream::Hyper]),
        upgrades: table.flag("upgrades").is_none_or(|flag| flag.value),
        upgraded_max: table.integer("upgraded_max").value,
        upgrade_idle_ms: table.integer("upgrade_idle_ms").value,
        cache_bytes: table.integer("cache_bytes").value,
        cache_disk: cache::disk(table, findings),
        request_id: table.flag("request_id").is_none_or(|flag| flag.value),
        trace: table.flag("trace").is_none_or(|flag| flag.value),
    }
}

fn access_log(table: &Table<'_>, findings: &Findings) -> AccessLog {
    let target = table.text_given("path").and_then(|path| match path.value {
        "-" => Some(LogTarget::Stdout),
        file if file.starts_with('/') && !file.contains('\0') => {
            Some(LogTarget::File(PathBuf::from(file)))
        }
        _ => {
            let help = "start it with `/`, or write `-` for standard output";
            findings.error(&path.span, "`path` of the access log is not an absolute path", help);
            None
        }
    });
    AccessLog {
        target,
        format: table.choice("format", &[LogFormat::Text, LogFormat::Json]),
        queue_max: table.integer("queue_max").value,
    }
}

fn health(table: &Table<'_>) -> Health {
    Health {
        failures_max: table.integer("failures_max").value,
        eject_ms: table.integer("eject_ms").value,
        eject_max_pct: table.integer("eject_max_pct").value,
        check_every_ms: table.integer("check_every_ms").value,
        check_timeout_ms: table.integer("check_timeout_ms").value,
        rise: table.integer("rise").value,
        fall: table.integer("fall").value,
        unresponsive_max_ms: table.integer("unresponsive_max_ms").value,
        stop_timeout_ms: table.integer("stop_timeout_ms").value,
    }
}

fn site(table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Site {
    let name = names::name_of(table, "site", findings);
    let mut hosts = Vec::new();
    let mut host_spans = Vec::new();
    for host in table.texts("hosts").map(|list| list.value).unwrap_or_default() {
        if let Some(valid) = names::host(&host, findings) {
            hosts.push(valid);
            host_spans.push(host.span);
        }
    }
    let (terms, terms_marks, is_spoilt) = terms::site(table, findings);
    let nodes: Option<At<u16>> = table.integer_given("nodes");
    marks.counts_spoilt |= is_spoilt || table.is_spoilt("nodes", &nodes);
    let (tags, cache) = (writers::tags(table, findings), cache::cache(table, findings));
    let site = Site {
        name: name.value,
        hosts,
        terms,
        nodes: nodes.as_ref().map_or(terms_marks.hard_value, |nodes| nodes.value),
        balance: table
            .choice("balance", &[Balance::LeastInFlight, Balance::RoundRobin, Balance::TwoChoices]),
        queue_max: table.integer("queue_max").value,
        queue_timeout_ms: table.integer("queue_timeout_ms").value,
        command: command::checked(table, findings),
        start: table.choice("start", &[Start::Warm, Start::OnAssignment]),
        check: check(table, findings),
        tls: tls::read(table, findings),
        proxy_protocol_out: table
            .choice("proxy_protocol_out", &[None, Some(ProxyVersion::V1), Some(ProxyVersion::V2)]),
        slow_start_ms: table.integer("slow_start_ms").value,
        sticky: traffic::sticky(table, findings),
        rate: traffic::rate(table, findings),
        admission: admission::admission(table, findings),
        purge: purge::purge(table, tags.is_some(), &cache, findings),
        tags,
        cache: Arc::new(cache),
    };
    marks.sites.push(SiteMarks {
        name: name.span,
        hosts: host_spans,
        has_command: table.get("command").is_some(),
        nodes: nodes.map_or_else(|| terms_marks.hard.clone(), |nodes| nodes.span),
        terms: terms_marks,
        table: table.span.clone(),
    });
    site
}

fn check(site: &Table<'_>, findings: &Findings) -> Check {
    let Some(value) = site.get("check") else { return Check::Tcp };
    let either = "write `{ path = \"/healthz\" }` or `{ tcp = true }`";
    if !value.get_ref().is_table() {
        findings.error(&value.span(), "`check` is not a table", either);
        return Check::Tcp;
    }
    let mut table = Table::open(&CHECK, Some(value), findings);
    table.title = format!("`check` of {}", site.title);
    let (path, tcp) = (table.text_given("path"), table.flag("tcp"));
    match (path, tcp.map(|tcp| tcp.value)) {
        (Some(path), None | Some(false)) => {
            let plain = path.value.bytes().all(|byte| byte.is_ascii_graphic());
            if !path.value.starts_with('/') || !plain {
                let message = "`path` of a check is no path of a URL";
                findings.error(&path.span, message, "start it with `/`; escape what is not ASCII");
            }
            Check::Path(path.value.to_owned())
        }
        (None, Some(true)) => Check::Tcp,
        (Some(_), Some(true)) => {
            findings.error(&value.span(), "`check` has both `path` and `tcp`", either);
            Check::Tcp
        }
        // With a wrong key or value in it, that one was reported.
        (None, None) if value.get_ref().as_table().is_some_and(|table| !table.is_empty()) => {
            Check::Tcp
        }
        (None, _) => {
            findings.error(&value.span(), "`check` says neither `path` nor `tcp = true`", either);
            Check::Tcp
        }
    }
}

fn node(table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Node {
    let name = names::name_of(table, "node", findings);
    let servers = servers(table, findings);
    let address = remote::address(table, marks, findings);
    let host = if servers.is_some() { None } else { remote::host(table, address, findings) };
    if let (Some(_), Some(given)) = (&servers, table.text_given("host")) {
        let message = format!("{} has both `host` and `servers`", table.title);
        findings.error(&given.span, message, "remove `host`: `servers` says where they are");
    }
    let (traits, classes) = terms::node(table, findings);
    let node = Node {
        name: name.value,
        max_in_flight: table.integer("max_in_flight").value,
        traits,
        address,
        servers: Servers::Agent { host: host.unwrap_or(Ipv4Addr::LOCALHOST) },
    };
    let count = table.integer_given("count");
    marks.counts_spoilt |= table.is_spoilt("count", &count);
    let table = table.span.clone();
    marks.nodes.push(NodeMarks { name: name.span, count, servers, classes, table });
    node
}

fn servers(table: &Table<'_>, findings: &Findings) -> Option<(Span, Vec<Address>)> {
    let (span, entries) = table.entries("servers")?;
    let mut addresses = Vec::new();
    for (site, value) in entries {
        let DeValue::String(text) = value.get_ref() else {
            let message = format!("the server for `{}` is no string", shown(site.get_ref()));
            findings.error(&value.span(), message, "write it as `\"IP:PORT\"`");
            continue;
        };
        let text = At { value: text.as_ref(), span: value.span() };
        if let Some(address) = names::server_address(&text, findings) {
            addresses.push(Address {
                site: At { value: site.get_ref().to_string(), span: site.span() },
                at: At { value: address, span: text.span },
            });
        }
    }
    Some((span, addresses))
}
