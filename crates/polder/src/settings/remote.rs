//! `[remote]`, the nodes' addresses and the pool's home: what roles on several machines need.

use super::model::{Remote, Settings};
use super::names;
use super::problem::{Findings, Span, one_of};
use super::read::Marks;
use super::reader::{Table, shown};
use pool_model::NodeId;
use remote_memory::tcp::{KeyError, PreSharedKey, Security};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Deadlines that fit into an edge's lease: a look may wait for the home and for the nodes, and
/// its edge must not look dead meanwhile.
const DEADLINES_PER_LEASE: u32 = 4;

/// Places of what is checked across tables.
#[derive(Default)]
pub(super) struct RemoteMarks {
    home: Span,
    key_file: Span,
    deadline: Span,
    /// Of each table of nodes: its address, or the table.
    nodes: Vec<Span>,
}

/// Reads `[remote]`.
pub(super) fn remote(table: &Table<'_>, marks: &mut Marks, findings: &Findings) -> Remote {
    let key_file = table.text_given("key_file").and_then(|given| {
        let path = PathBuf::from(given.value);
        if path.is_absolute() && !given.value.contains('\0') {
            return Some(path);
        }
        findings.error(&given.span, "`key_file` is not an absolute path", "start it with `/`");
        None
    });
    let flag = |name, default| table.flag(name).map_or(default, |given| given.value);
    let deadline = table.integer("deadline_ms");
    let key_span = table.get("key_file").map(toml::Spanned::span);
    marks.remote.key_file = key_span.unwrap_or_else(|| table.span.clone());
    marks.remote.deadline = deadline.span;
    Remote {
        key_file,
        plain_on_loopback: flag("plain_on_loopback", false),
        deadline_ms: deadline.value,
        connect_ms: table.integer("connect_ms").value,
        realtime: flag("realtime", true),
    }
}

/// Reads `home` of `[pool]`.
pub(super) fn home(table: &Table<'_>, marks: &mut Marks) -> Option<String> {
    let given = table.text_given("home")?;
    marks.remote.home = given.span;
    Some(given.value.to_owned())
}

/// Reads `address` of a node.
pub(super) fn address(
    table: &Table<'_>,
    marks: &mut Marks,
    findings: &Findings,
) -> Option<SocketAddr> {
    let given = table.text_given("address");
    let span = given.as_ref().map_or_else(|| table.span.clone(), |given| given.span.clone());
    marks.remote.nodes.push(span);
    let given = given?;
    if table.get("count").is_some() {
        let message = format!("{} has both `address` and `count`", table.title);
        let help = "an address belongs to one node: write a `[[nodes]]` for each";
        findings.error(&given.span, message, help);
        return None;
    }
    let address = names::address(&given, findings)?;
    let ip = address.ip();
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
        let message = format!("no edge can connect to {address}");
        findings.error(&given.span, message, "name the machine's own address and a port");
        return None;
    }
    Some(address)
}

/// Reads `host` of a node: where its servers listen. Beyond this machine only with an address.
pub(super) fn host(
    table: &Table<'_>,
    address: Option<SocketAddr>,
    findings: &Findings,
) -> Option<Ipv4Addr> {
    let given = table.text_given("host");
    let Some(address) = address else {
        return names::loopback_host(&given?, findings);
    };
    let Some(given) = given else {
        return match address.ip() {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => {
                let message = format!("{} has an IPv6 address and no `host`", table.title);
                findings.error(&table.span, message, "servers have IPv4 addresses: name one");
                None
            }
        };
    };
    let host = given.value.parse::<Ipv4Addr>().ok();
    let host = host.filter(|host| !host.is_unspecified() && !host.is_multicast());
    if host.is_none() {
        let message = format!("`host` is `{}`, no IPv4 address of a machine", shown(given.value));
        findings.error(&given.span, message, "write the address that edges reach its servers by");
    }
    host
}

/// What no table alone can tell.
pub(super) fn check(settings: &Settings, marks: &Marks, findings: &Findings) {
    let marks = &marks.remote;
    if let Some(name) = &settings.pool.home {
        check_home(settings, name, &marks.home, findings);
    }
    let tables = settings.sites.iter().filter_map(|site| site.tags.as_ref()?.listen);
    let addresses = || settings.nodes.iter().filter_map(|node| node.address);
    check_key(settings, tables.chain(addresses()), marks, findings);
    if addresses().next().is_none() {
        return;
    }
    let mut owners: HashMap<SocketAddr, &str> = HashMap::new();
    // With an address in any table no table has a `count` beside one: places may still differ.
    let span = |index: usize| marks.nodes.get(index).or(marks.nodes.last());
    for (index, node) in settings.nodes.iter().enumerate() {
        let Some(span) = span(index) else { continue };
        let Some(address) = node.address else {
            let message = format!("node `{}` has no `address`, others have", shown(&node.name));
            findings.error(span, message, "edges on other machines need one of each node");
            continue;
        };
        if let Some(other) = owners.insert(address, &node.name) {
            let message = format!("{address} is the address of node `{}` already", shown(other));
            findings.error(span, message, "each node's agent listens on its own");
        }
    }
    let (deadline, lease) = (settings.remote.deadline_ms, settings.pool.slot_lease_ms);
    if deadline.saturating_mul(DEADLINES_PER_LEASE) > lease {
        let message = format!("`deadline_ms` is {deadline}, and `slot_lease_ms` only {lease}");
        let help = format!(
            "an edge that waits for a lost node would look dead: raise `slot_lease_ms` to {}",
            deadline.saturating_mul(DEADLINES_PER_LEASE)
        );
        findings.error(&marks.deadline, message, help);
    }
}

/// Without a key nothing is served beyond what may go plain.
fn check_key(
    settings: &Settings,
    mut addresses: impl Iterator<Item = SocketAddr>,
    marks: &RemoteMarks,
    findings: &Findings,
) {
    let remote = &settings.remote;
    let unprotected = |address: &SocketAddr| !remote.is_plain(*address);
    if let Some(address) = addresses.find(unprotected).filter(|_| remote.key_file.is_none()) {
        let message = format!("there is no `key_file`, and {address} must be protected");
        let help = "`polder key > FILE` makes one, mode 0600; `plain_on_loopback = true` does \
                    without on loopback addresses";
        findings.error(&marks.key_file, message, help);
    }
}

fn check_home(settings: &Settings, name: &str, span: &Span, findings: &Findings) {
    match settings.node(name) {
        Some((_, node)) if node.address.is_some() => {}
        Some(_) => {
            let message = format!("node `{}`, the home, has no `address`", shown(name));
            findings.error(span, message, "add one, or remove `home`");
        }
        None => {
            let names = settings.nodes.iter().map(|node| node.name.as_str());
            let help = format!("the nodes are {}", one_of(names));
            findings.error(span, format!("no node `{}`", shown(name)), help);
        }
    }
}

impl Remote {
    /// Whether frames to this address go as they are.
    fn is_plain(&self, address: SocketAddr) -> bool {
        self.plain_on_loopback && address.ip().is_loopback()
    }

    /// How frames between edges and an agent at this address are protected.
    ///
    /// # Errors
    /// The key cannot be read, or others could read it too.
    pub fn security(&self, address: SocketAddr) -> Result<Security, KeyError> {
        if self.is_plain(address) {
            return Ok(Security::PlainLoopback);
        }
        // Settings with such an address and no key file are refused when they are checked.
        let path = self.key_file.clone().unwrap_or_default();
        PreSharedKey::read(path).map(Security::Noise)
    }

    /// The time after which an operation counts as lost.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.into())
    }

    /// The time that connecting may take.
    #[must_use]
    pub fn connect_max(&self) -> Duration {
        Duration::from_millis(self.connect_ms.into())
    }
}

impl Settings {
    /// The node whose agent holds the site record when roles run apart: the one that is named, or
    /// the first. None without addresses.
    #[must_use]
    pub fn home(&self) -> Option<NodeId> {
        let named = self.pool.home.as_ref().and_then(|name| self.node(name)).map(|(id, _)| id);
        let first = || self.nodes.iter().position(|node| node.address.is_some());
        named.or_else(|| NodeId::new(u16::try_from(first()?).ok()?).ok())
    }
}
