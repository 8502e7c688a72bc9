//! `polder stub`: servers with an exact capacity, in place of real ones.

use super::interrupt::Interrupt;
use super::{CommandError, Output};
use ::load::stub::{ListenOn, ListenerInfo, NodeOptions, StubOptions, StubServer};
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Arguments of `stub`.
#[derive(Debug, Args)]
#[command(after_help = "\
A stub node has WORKERS workers, and each request takes one of them for SERVICE_US: it serves
exactly WORKERS / SERVICE_US requests per second. Its servers of all sites share that capacity.

Without --listen, each node serves each site on a port of its own, and what is printed can be
pasted into a settings file as it is.")]
pub struct StubArguments {
    /// Listen here, for one node and one site: as the command of a site in the settings
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["nodes", "sites", "first_port"])]
    pub listen: Option<SocketAddr>,

    /// Name of the node, or of all nodes before their number; $NODE or n if none is given
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub nodes: u16,

    /// Sites, by name; $SITE or site if none is given
    #[arg(long = "site", value_name = "NAME", value_delimiter = ',')]
    pub sites: Vec<String>,

    /// First of the ports that the servers take; without it free ones
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub first_port: Option<u16>,

    /// Requests served at the same time
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub workers: u32,

    /// Time that one request takes
    #[arg(long, value_name = "US", default_value_t = 2_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000_000))]
    pub service_us: u64,

    /// Requests that may wait; more get 503
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub queue_max: usize,

    /// Length of a response's body
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub body_bytes: usize,

    /// Answer GET /stats and POST /reset here
    #[arg(long, value_name = "IP:PORT")]
    pub control: Option<SocketAddr>,

    /// Print what listens where as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(arguments: &StubArguments) -> Result<Output, CommandError> {
    let mut interrupt = Interrupt::new()?;
    let server = StubServer::start(&options(arguments)?).map_err(CommandError::Stub)?;
    let text = description(&server, arguments.json);
    let mut out = std::io::stdout().lock();
    // Whoever started this may not read what it says; it serves all the same.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(out);
    interrupt.wait();
    drop(server);
    Ok(Output::default())
}

fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn options(arguments: &StubArguments) -> Result<StubOptions, CommandError> {
    let name = arguments.node.clone().or_else(|| from_environment("NODE"));
    let name = name.unwrap_or_else(|| "n".into());
    let sites = match &arguments.sites[..] {
        [] => vec![from_environment("SITE").unwrap_or_else(|| "site".into())],
        sites => sites.to_vec(),
    };
    let names: Vec<String> = match (arguments.listen, arguments.nodes) {
        (Some(_), _) | (None, 1) => vec![name],
        (None, count) => (1..=count).map(|number| format!("{name}{number}")).collect(),
    };
    let node = |name: &String| NodeOptions {
        name: name.clone(),
        workers: arguments.workers,
        service_time: Duration::from_micros(arguments.service_us),
        queue_max: arguments.queue_max,
        body_bytes: arguments.body_bytes,
    };
    let mut listeners = Vec::new();
    for node in &names {
        for site in &sites {
            let address = match arguments.listen {
                Some(address) => address,
                None => loopback(arguments.first_port, listeners.len())?,
            };
            listeners.push(ListenOn { node: node.clone(), site: site.clone(), address });
        }
    }
    let nodes = names.iter().map(node).collect();
    Ok(StubOptions { nodes, listeners, control: arguments.control })
}

fn loopback(first_port: Option<u16>, place: usize) -> Result<SocketAddr, CommandError> {
    let port = match first_port {
        None => Some(0),
        Some(first) => u16::try_from(place).ok().and_then(|place| first.checked_add(place)),
    };
    let text = "--first-port: there are not that many ports above it";
    let port = port.ok_or_else(|| CommandError::Argument(text.into()))?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// As `[[nodes]]` of a settings file, or as JSON.
fn description(server: &StubServer, is_json: bool) -> String {
    let listeners = server.listeners();
    let control = server.control_address().map(|address| address.to_string());
    if is_json {
        let all: Vec<_> = listeners
            .iter()
            .map(|ListenerInfo { node, site, address }| {
                json!({ "node": node, "site": site, "address": address.to_string() })
            })
            .collect();
        return format!("{}\n", json!({ "listeners": all, "control": control }));
    }
    let mut text = String::new();
    for node in server.nodes() {
        let name = &node.options().name;
        let servers: Vec<String> = listeners
            .iter()
            .filter(|listener| listener.node == *name)
            .map(|listener| format!("{} = \"{}\"", listener.site, listener.address))
            .collect();
        let _ = writeln!(
            text,
            "[[nodes]] # {:.0} requests per second\nname = \"{name}\"\nservers = {{ {} }}",
            node.options().capacity_per_second(),
            servers.join(", ")
        );
    }
    if let Some(control) = control {
        let _ = writeln!(text, "# GET http://{control}/stats, POST http://{control}/reset");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stub: StubArguments,
    }

    fn started(words: &[&str]) -> StubServer {
        let line = Line::try_parse_from([&["stub"], words].concat()).unwrap();
        StubServer::start(&options(&line.stub).unwrap()).unwrap()
    }

    #[test]
    fn what_is_printed_is_a_part_of_settings() {
        let server = started(&["--nodes", "2", "--site", "shop,blog", "--workers", "8"]);
        let sites = "[[sites]]\nname = \"shop\"\nhosts = [\"a\"]\n\
                     [[sites]]\nname = \"blog\"\nhosts = [\"b\"]\n";
        let text = format!("{sites}{}", description(&server, false));
        let settings = crate::settings::parse("x", &text, &[]).unwrap().settings;
        let shop = server.address("n2", "shop").unwrap();
        let crate::settings::Servers::Addresses(addresses) = &settings.nodes[1].servers else {
            panic!("{text}")
        };
        assert_eq!(SocketAddr::V4(addresses[0]), shop);
        assert!(text.contains("# 4000 requests per second"), "{text}");
    }

    #[test]
    fn one_server_listens_where_it_is_told() {
        let server = started(&["--listen", "127.0.0.1:0", "--node", "x", "--json"]);
        let value: serde_json::Value = serde_json::from_str(&description(&server, true)).unwrap();
        assert_eq!(value["listeners"][0]["node"], "x");
        let address = value["listeners"][0]["address"].as_str().unwrap();
        assert!(std::net::TcpStream::connect(address).is_ok());
    }

    #[test]
    fn ports_end_at_the_last_one() {
        let words = ["stub", "--nodes", "3", "--first-port", "65534"];
        let line = Line::try_parse_from(words).unwrap();
        assert!(options(&line.stub).is_err());
    }
}
