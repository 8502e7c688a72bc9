//! What a name, a host and an address may look like.

use super::problem::Findings;
use super::reader::{At, Table, shown};
use edge::Network;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Names stand in file names, labels of metrics and the environment of programs; this is as long
/// as a person reads, and leaves room for sockets' paths.
pub(super) const NAME_MAX_BYTES: usize = 32;
/// `sun_path` has 108 bytes with its zero; the longest name of a socket in the folder is that of a
/// node, `node-NAME.sock`, with 42 bytes and a slash before it.
pub(crate) const RUNTIME_DIR_MAX_BYTES: usize = 64;
/// RFC 1035, section 2.3.4.
const HOST_MAX_BYTES: usize = 253;
/// RFC 1035, section 2.3.4.
const LABEL_MAX_BYTES: usize = 63;

/// Whether a text may name something.
pub(super) fn is_name(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    text.chars().all(valid) && starts_well && text.len() <= NAME_MAX_BYTES
}

/// What to write instead of a text that is no name.
pub(super) fn name_help() -> String {
    format!("use at most {NAME_MAX_BYTES} of a-z, 0-9, `-` and `_`, a letter or digit first")
}

/// The `name` of a pool, site or node. A missing one was reported when it was read.
pub(super) fn name_of(table: &Table<'_>, what: &str, findings: &Findings) -> At<String> {
    let name = table.text("name");
    let is_given = table.get("name").is_some_and(|value| value.get_ref().is_str());
    if is_given && !is_name(name.value) {
        let message = format!("`{}` cannot name a {what}", shown(name.value));
        findings.error(&name.span, message, name_help());
    }
    At { value: name.value.to_owned(), span: name.span }
}

/// `IP:PORT`.
pub(super) fn address(text: &At<&str>, findings: &Findings) -> Option<SocketAddr> {
    match text.value.parse() {
        Ok(address) => Some(address),
        Err(_) => {
            let message = format!("`{}` is not an address", shown(text.value));
            findings.error(&text.span, message, address_help(text.value));
            None
        }
    }
}

/// A list of networks; empty where it is not given.
pub(super) fn networks(table: &Table<'_>, name: &str, findings: &Findings) -> Vec<Network> {
    let mut networks = Vec::new();
    for text in table.texts(name).map(|list| list.value).unwrap_or_default() {
        match text.value.parse::<Network>() {
            Ok(network) => networks.push(network),
            Err(why) => {
                let message = format!("`{}` is not a network", shown(text.value));
                findings.error(&text.span, message, why.to_string());
            }
        }
    }
    networks
}

/// What was probably meant by a text that is no address.
fn address_help(text: &str) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let port_is_number = port.parse::<u16>().is_ok();
    if host == "localhost" && port_is_number {
        return format!("write `127.0.0.1:{port}`: names are not looked up");
    }
    if host.is_empty() && port_is_number {
        return format!("write `127.0.0.1:{port}`, or `0.0.0.0:{port}` for all interfaces");
    }
    if text.parse::<u16>().is_ok() {
        return format!("write `127.0.0.1:{text}`");
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return "add a port, as in `127.0.0.1:8080` or `[::1]:8080`".to_owned();
    }
    "write it as `IP:PORT`, for instance `127.0.0.1:8080`; names are not looked up".to_owned()
}

/// `IP:PORT` where the IP is of this machine alone.
pub(super) fn loopback(text: &At<&str>, findings: &Findings) -> Option<SocketAddr> {
    let address = address(text, findings)?;
    if address.ip().is_loopback() {
        return Some(address);
    }
    let message = format!("{address} can be reached from other machines");
    let help = "only edges may: write `127.0.0.1` here, or `off` for metrics";
    findings.error(&text.span, message, help);
    None
}

/// An IPv4 address of this machine alone.
pub(super) fn loopback_host(text: &At<&str>, findings: &Findings) -> Option<Ipv4Addr> {
    match text.value.parse::<Ipv4Addr>() {
        Ok(host) if host.is_loopback() => Some(host),
        Ok(host) => {
            let message = format!("`host` {host} can be reached from other machines");
            let help = "an agent starts servers on a loopback address; servers that run \
                        elsewhere are named by `servers = { SITE = \"IP:PORT\" }`";
            findings.error(&text.span, message, help);
            None
        }
        Err(_) => {
            let message = format!("`host` is `{}`, not an IPv4 address", shown(text.value));
            findings.error(&text.span, message, "write `127.0.0.1`");
            None
        }
    }
}

/// `IPv4:PORT` that a connection can be made to.
pub(super) fn server_address(text: &At<&str>, findings: &Findings) -> Option<SocketAddrV4> {
    let address = match address(text, findings)? {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => {
            let message = format!("{} is an IPv6 address", shown(text.value));
            findings.error(&text.span, message, "servers have IPv4 addresses for now");
            return None;
        }
    };
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
        let message = format!("nobody can connect to {address}");
        findings.error(&text.span, message, "name the server's own address and port");
        return None;
    }
    Some(address)
}

/// A host name, with `*.` in front or not; in lower case, without a dot at its end.
pub(super) fn host(text: &At<&str>, findings: &Findings) -> Option<String> {
    let lower = text.value.to_ascii_lowercase();
    let whole = lower.strip_suffix('.').unwrap_or(&lower);
    let name = whole.strip_prefix("*.").unwrap_or(whole);
    let is_label = |label: &str| {
        (1..=LABEL_MAX_BYTES).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if whole.len() <= HOST_MAX_BYTES && name.split('.').all(is_label) {
        return Some(whole.to_owned());
    }
    let help = if name.contains("://") || name.contains('/') {
        "write the name alone, without scheme and path"
    } else if name.contains(':') {
        "write the name without the port: an edge ignores the port of `Host`"
    } else if name.contains('*') {
        "a `*` stands alone at the front: `*.example.org`"
    } else if !name.is_ascii() {
        "write international names in their ASCII form: `xn--...`"
    } else {
        "use letters, digits and `-`, with dots between"
    };
    findings.error(&text.span, format!("`{}` is not a host name", shown(text.value)), help);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_of(text: &str) -> Option<String> {
        host(&At { value: text, span: 0..1 }, &Findings::default())
    }

    #[test]
    fn hosts_are_names_or_wildcards() {
        assert_eq!(host_of("Shop.Example.ORG.").as_deref(), Some("shop.example.org"));
        assert_eq!(host_of("*.shop.localhost").as_deref(), Some("*.shop.localhost"));
        assert_eq!(host_of("localhost").as_deref(), Some("localhost"));
        assert_eq!(host_of("127.0.0.1").as_deref(), Some("127.0.0.1"));
        let long = "a".repeat(64);
        for wrong in
            ["", ".", "*", "a..b", "a.*.b", "*a.b", "http://a", "a:80", "a/b", "-a", "ä.de", &long]
        {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn help_says_what_was_meant() {
        assert!(address_help("localhost:80").contains("`127.0.0.1:80`"));
        assert!(address_help(":80").contains("`0.0.0.0:80`"));
        assert!(address_help("8080").contains("`127.0.0.1:8080`"));
        assert!(address_help("::1").contains("add a port"));
        assert!(address_help("shop:http").contains("IP:PORT"));
    }
}
