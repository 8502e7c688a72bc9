//! Checks across tables: what no table alone can tell.

use super::model::{Edge, Node, PolicyName, Servers, Settings, Site};
use super::names::NAME_MAX_BYTES;
use super::problem::{Findings, Span, did_you_mean, one_of};
use super::read::{Address, Draft, Marks, NodeMarks};
use super::reader::shown;
use pool_model::{EdgeId, NodeId, SiteId};
use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, SocketAddrV4};

/// Sites that the shared words can number.
const SITES_MAX: usize = SiteId::MAX.index() + 1;
/// Nodes that the shared words can number.
const NODES_MAX: usize = NodeId::MAX.index() + 1;
/// Edges that have a slot in each record.
const EDGES_MAX: usize = EdgeId::MAX.index() + 1;

/// Where an edge listens when the file names none.
const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// For which pool settings are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// One that starts by them.
    Starts,
    /// One that runs, and goes on by them.
    Runs,
}

/// Checks a draft and completes it: nodes of a `count` one by one, servers in the order of sites.
pub(super) fn complete(draft: Draft, pool: Stage, end: &Span, findings: &Findings) -> Settings {
    let Draft { mut settings, marks } = draft;
    if settings.edges.is_empty() {
        settings.edges.push(Edge {
            listen: vec![LISTEN_DEFAULT],
            tls_listen: Vec::new(),
            http2_plain: false,
            threads: None,
            proxy_protocol: Vec::new(),
        });
    }
    times_and_loads(&settings, &marks, findings);
    unique_names(&settings, &marks, findings);
    unique_hosts(&settings, &marks, findings);
    default_site(&settings, &marks, findings);
    super::terms::number_classes(&mut settings, &marks, findings);
    settings.nodes = every_node(&settings, &marks, findings);
    numbers(&settings, &marks, end, findings);
    if !marks.counts_spoilt {
        super::terms::check(&settings, pool, &marks, findings);
    }
    programs(&settings, &marks, findings);
    certificates(&settings, &marks, findings);
    addresses(&settings, &marks, findings);
    super::remote::check(&settings, &marks, findings);
    if !findings.any_error() {
        oddities(&settings, &marks, findings);
        super::terms::oddities(&settings, &marks, findings);
    }
    settings
}

fn times_and_loads(settings: &Settings, marks: &Marks, findings: &Findings) {
    let pool = &settings.pool;
    let look = pool.look_every_ms;
    if pool.hold_ms < look {
        let message = format!("`hold_ms` is {}, less than `look_every_ms` ({look})", pool.hold_ms);
        let help = format!("a load is seen once a look: write {look} or more");
        findings.error(&marks.hold, message, help);
    }
    let idle = pool.idle_look_every_ms;
    if idle < look {
        let message = format!("`idle_look_every_ms` is {idle}, less than `look_every_ms` ({look})");
        findings.error(&marks.idle_look, message, format!("write {look} or more"));
    }
    if pool.slot_lease_ms < idle.saturating_mul(2) {
        let message = format!(
            "`slot_lease_ms` is {}, less than twice `idle_look_every_ms` ({idle})",
            pool.slot_lease_ms
        );
        let help = format!("an idle edge would look dead: write {} or more", idle * 2);
        findings.error(&marks.slot_lease, message, help);
    }
    if pool.light_load >= pool.high_load {
        let message = format!(
            "`light_load` is {:?}, not below `high_load` ({:?})",
            pool.light_load, pool.high_load
        );
        let help = "the gap between them keeps nodes from going to and fro";
        findings.error(&marks.light_load, message, help);
    }
}

fn unique_names(settings: &Settings, marks: &Marks, findings: &Findings) {
    let mut sites = HashSet::new();
    for (site, mark) in settings.sites.iter().zip(&marks.sites) {
        if !site.name.is_empty() && !sites.insert(site.name.as_str()) {
            let message = format!("there are two sites `{}`", shown(&site.name));
            findings.error(&mark.name, message, "give each site its own name");
        }
    }
}

fn unique_hosts(settings: &Settings, marks: &Marks, findings: &Findings) {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for (site, mark) in settings.sites.iter().zip(&marks.sites) {
        for (host, span) in site.hosts.iter().zip(&mark.hosts) {
            if let Some(owner) = owners.insert(host, &site.name) {
                let message = format!("host `{}` already means site `{}`", host, shown(owner));
                findings.error(span, message, "a host name means one site");
            }
        }
    }
}

fn default_site(settings: &Settings, marks: &Marks, findings: &Findings) {
    let Some(name) = &settings.http.default_site else { return };
    if settings.site(name).is_none() {
        let message = format!("no site `{}`", shown(name));
        findings.error(&marks.default_site, message, help_with_sites(name, &settings.sites));
    }
}

fn help_with_sites(given: &str, sites: &[Site]) -> String {
    let names = || sites.iter().map(|site| site.name.as_str());
    did_you_mean(given, names()).unwrap_or_else(|| format!("the sites are {}", one_of(names())))
}

/// The nodes one by one.
fn every_node(settings: &Settings, marks: &Marks, findings: &Findings) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut names: HashSet<String> = HashSet::new();
    for (node, mark) in settings.nodes.iter().zip(&marks.nodes) {
        let servers = servers(node, mark, &settings.sites, findings);
        let count = mark.count.as_ref().map_or(1, |count| count.value);
        let mut is_reported = false;
        for number in 1..=count {
            let name = match mark.count {
                Some(_) => format!("{}{number}", node.name),
                None => node.name.clone(),
            };
            let is_unique = name.is_empty() || names.insert(name.clone());
            if !is_reported {
                is_reported = report_name(node, &name, is_unique, &mark.name, findings);
            }
            // Far too many are reported by their number; there is no need to make them all.
            if nodes.len() <= NODES_MAX {
                nodes.push(Node { name, servers: servers.clone(), ..*node });
            }
        }
    }
    nodes
}

/// Reports a node's name, with its number, that cannot be. Whether it did.
fn report_name(node: &Node, name: &str, is_unique: bool, at: &Span, findings: &Findings) -> bool {
    let grew_too_long = node.name.len() <= NAME_MAX_BYTES && name.len() > NAME_MAX_BYTES;
    if grew_too_long {
        let message = format!("node `{}` is longer than {NAME_MAX_BYTES} bytes", shown(name));
        findings.error(at, message, "shorten it: `count` adds a number to it");
    } else if !is_unique {
        let message = format!("there are two nodes `{}`", shown(name));
        findings.error(at, message, "give each node its own name; `count` adds a number to it");
    }
    grew_too_long || !is_unique
}

/// The servers of a node in the order of the sites; each site must have one.
fn servers(node: &Node, mark: &NodeMarks, sites: &[Site], findings: &Findings) -> Servers {
    let Some((span, given)) = &mark.servers else { return node.servers.clone() };
    if let Some(count) = &mark.count {
        let message = format!("node `{}` has both `servers` and `count`", shown(&node.name));
        let help = "addresses belong to one node: write a `[[nodes]]` for each";
        findings.error(&count.span, message, help);
    }
    for Address { site, .. } in given {
        if !sites.iter().any(|known| known.name == site.value) {
            let help = help_with_sites(&site.value, sites);
            findings.error(&site.span, format!("no site `{}`", shown(&site.value)), help);
        }
    }
    let address_of = |site: &Site| {
        given.iter().find(|address| address.site.value == site.name).map(|address| address.at.value)
    };
    let missing: Vec<&str> = sites
        .iter()
        .filter(|site| address_of(site).is_none())
        .map(|site| site.name.as_str())
        .collect();
    if !missing.is_empty() {
        let message = format!(
            "`servers` of node `{}` has no address for {}",
            shown(&node.name),
            one_of(missing.iter().copied())
        );
        let help = "a node serves any site of the pool: name one server for each";
        findings.error(span, message, help);
    }
    Servers::Addresses(sites.iter().filter_map(address_of).collect())
}

fn numbers(settings: &Settings, marks: &Marks, end: &Span, findings: &Findings) {
    let counted = [
        ("sites", settings.sites.len(), SITES_MAX, marks.sites.last().map(|mark| &mark.table)),
        ("nodes", settings.nodes.len(), NODES_MAX, marks.nodes.last().map(|mark| &mark.table)),
        ("edges", settings.edges.len(), EDGES_MAX, marks.edges.last().and_then(|e| e.first())),
    ];
    for (what, count, max, last) in counted {
        if count > max {
            let message = format!("there are more than {max} {what}");
            findings.error(last.unwrap_or(end), message, "the shared words number no more");
        }
        if count == 0 {
            let example = if what == "sites" {
                "add `[[sites]]` with `name = \"shop\"` and `hosts = [\"shop.localhost\"]`"
            } else {
                "add `[[nodes]]` with `name = \"n\"` and `count = 8`"
            };
            findings.error(end, format!("there are no {what}"), example);
        }
    }
}

/// What can be used, but hardly was meant.
fn oddities(settings: &Settings, marks: &Marks, findings: &Findings) {
    let nodes = settings.nodes.len();
    let sum = |count: fn(&Site) -> u16| -> usize {
        settings.sites.iter().map(|site| usize::from(count(site))).sum()
    };
    let start_sum = sum(|site| site.nodes);
    let hard_sum = sum(|site| site.terms.guarantee.hard);
    let is_rigid = settings.pool.policy == PolicyName::Rigid;
    if is_rigid && start_sum < nodes {
        let free = nodes - start_sum;
        let message = format!("{free} of {nodes} nodes start free, and `rigid` leaves them so");
        findings.warning(&marks.policy, message, "give them to sites by `nodes = ...`");
    }
    if !is_rigid && hard_sum == nodes && settings.sites.len() > 1 {
        let message = "the sites' `hard` bind every node: none can move";
        findings.warning(&marks.policy, message, "lower `hard`, or add nodes");
    }
}

fn programs(settings: &Settings, marks: &Marks, findings: &Findings) {
    let of_agent = |node: &&Node| matches!(node.servers, Servers::Agent { .. });
    let Some(node) = settings.nodes.iter().find(of_agent) else { return };
    for (site, mark) in settings.sites.iter().zip(&marks.sites) {
        if !mark.has_command {
            let message = format!(
                "site `{}` has no `command`, and node `{}` no `servers`",
                shown(&site.name),
                shown(&node.name)
            );
            let help = "add `command = [\"program\", \"--listen\", \"127.0.0.1:{port}\"]` here, \
                        or `servers` there";
            findings.error(&mark.table, message, help);
        }
    }
}

/// Addresses with TLS need a certificate, and are not shared with addresses without it.
fn certificates(settings: &Settings, marks: &Marks, findings: &Findings) {
    let has_certificate = settings.sites.iter().any(|site| site.tls.is_some());
    let plain: HashSet<_> = settings.edges.iter().flat_map(|edge| &edge.listen).collect();
    for (edge, spans) in settings.edges.iter().zip(&marks.edges) {
        // The spans of an edge are those of `listen`, then those of `tls_listen`.
        for (address, span) in edge.tls_listen.iter().zip(spans.iter().skip(edge.listen.len())) {
            if !has_certificate {
                let help = "give one `tls = { certificate = \"...\", key = \"...\" }`";
                findings.error(span, "no site has a certificate for `tls_listen`", help);
            } else if address.port() != 0 && plain.contains(address) {
                let message = format!("an edge listens on {address} without TLS too");
                findings.error(span, message, "edges that share an address share what it speaks");
            }
        }
    }
}

/// A server's address belongs to one node, and nothing else listens there.
fn addresses(settings: &Settings, marks: &Marks, findings: &Findings) {
    let mut listeners: HashMap<SocketAddr, &str> = HashMap::new();
    for address in settings.edges.iter().flat_map(Edge::addresses) {
        listeners.insert(address, "an edge listens");
    }
    let metrics = settings.pool.metrics.filter(|metrics| metrics.port() != 0);
    if let Some(metrics) = metrics
        && listeners.insert(metrics, "metrics are served").is_some()
    {
        let message = format!("an edge listens on {metrics} too");
        findings.error(&marks.metrics, message, "take another port, or 0 for a free one");
    }
    let mut owners: HashMap<SocketAddrV4, usize> = HashMap::new();
    for (index, mark) in marks.nodes.iter().enumerate() {
        for Address { at, .. } in mark.servers.iter().flat_map(|(_, given)| given) {
            let own = listeners.iter().find(|(listener, _)| covers(**listener, at.value));
            if let Some((_, who)) = own {
                let message = format!("{who} on {} itself", at.value);
                findings.error(&at.span, message, "name the server's own address");
            }
            let owner = *owners.entry(at.value).or_insert(index);
            if owner != index {
                let message = format!("{} is a server of another node already", at.value);
                let help = "two nodes with one server would count its requests twice";
                findings.error(&at.span, message, help);
            }
        }
    }
}

/// Whether who connects to the server's address reaches the listener. Other addresses of this
/// machine are not known here.
fn covers(listener: SocketAddr, server: SocketAddrV4) -> bool {
    let is_any = listener.ip().is_unspecified() && server.ip().is_loopback();
    listener.port() == server.port() && (is_any || listener.ip() == *server.ip())
}
