//! The process that stands in for the servers of a rig: what its parent tells it, what it tells
//! back, and what it does.

use super::options::RigOptions;
use anyhow::Context as _;
use load::stub::{ListenOn, NodeOptions, StubOptions, StubServer};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The longest line that is read: a rig has tens of nodes and a handful of sites.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// What a stub process serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StubSpec {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Names of the sites; each node has one listener for each.
    pub sites: Vec<String>,
    /// Where the listeners are opened; port 0 takes free ones, anything else fits one server only.
    pub listen: SocketAddr,
    /// Requests that a node serves at the same time.
    pub workers: u32,
    /// Time that one request takes; microseconds.
    pub service_us: u64,
    /// Length of a response's body.
    pub body_bytes: usize,
}

/// Where the listeners of a stub process are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StubAddresses {
    /// Where its records are read.
    pub control: Option<SocketAddr>,
    servers: Vec<(String, String, SocketAddr)>,
}

impl StubAddresses {
    /// The address of a node's server for a site.
    #[must_use]
    pub fn address(&self, node: &str, site: &str) -> Option<SocketAddr> {
        let found = self.servers.iter().find(|server| server.0 == node && server.1 == site);
        found.map(|server| server.2)
    }

    /// Adds the address of a node's server for a site.
    pub fn add(&mut self, node: &str, site: &str, address: SocketAddr) {
        self.servers.push((node.to_owned(), site.to_owned(), address));
    }
}

impl StubSpec {
    /// All nodes of a rig, on free ports.
    #[must_use]
    pub fn of(options: &RigOptions) -> Self {
        Self {
            nodes: (0..options.nodes()).map(RigOptions::node_name).collect(),
            sites: options.sites.iter().map(|site| site.name.clone()).collect(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            workers: options.node.workers,
            service_us: u64::try_from(options.node.service_time.as_micros()).unwrap_or(u64::MAX),
            body_bytes: options.node.body_bytes,
        }
    }

    /// Starts the servers in a thread of this process.
    fn start(&self) -> anyhow::Result<(StubServer, StubAddresses)> {
        let node = |name: &String| {
            let mut node = NodeOptions::named(name.clone());
            node.workers = self.workers;
            node.service_time = Duration::from_micros(self.service_us);
            node.body_bytes = self.body_bytes;
            node
        };
        let listen = |node: &String, site: &String| ListenOn {
            node: node.clone(),
            site: site.clone(),
            address: self.listen,
        };
        let listeners = self
            .nodes
            .iter()
            .flat_map(|node| self.sites.iter().map(move |site| listen(node, site)));
        let options = StubOptions {
            nodes: self.nodes.iter().map(node).collect(),
            listeners: listeners.collect(),
            control: (self.listen.port() == 0).then_some(self.listen),
        };
        let server = StubServer::start(&options)?;
        let mut addresses =
            StubAddresses { control: server.control_address(), servers: Vec::new() };
        for listener in server.listeners() {
            addresses.add(&listener.node, &listener.site, listener.address);
        }
        Ok((server, addresses))
    }
}

/// The hidden sub-command `stub-process`; blocks until it is over.
///
/// Without arguments it reads one [`StubSpec`] as a line of JSON from standard input, answers with
/// its [`StubAddresses`] on standard output, and serves until standard input ends: its parent has
/// gone. With `--node NAME --site NAME --listen ADDRESS` it is one server as an agent starts it,
/// with the capacity of [`super::RigNode`]'s default, and serves until SIGTERM.
///
/// # Errors
///
/// In words, when it cannot start.
pub(super) fn stub_process(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.is_empty() {
        return serve_rig();
    }
    let (_server, _) = one_server(arguments)?.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let (mut term, mut int) = (pin!(term.recv()), pin!(int.recv()));
        tokio::select! {
            _ = &mut term => {}
            _ = &mut int => {}
        }
        Ok(())
    })
}

fn serve_rig() -> anyhow::Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.by_ref().take(LINE_MAX_BYTES).read_line(&mut line)?;
    let spec: StubSpec = serde_json::from_str(&line).context("what the stub should serve")?;
    let (_server, addresses) = spec.start()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&addresses)?)?;
    out.flush()?;
    // Nothing more is ever written: this waits for the parent's end.
    std::io::copy(&mut stdin, &mut std::io::sink())?;
    Ok(())
}

fn one_server(arguments: &[String]) -> anyhow::Result<StubSpec> {
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name);
        let value = place.and_then(|place| arguments.get(place + 1));
        value.with_context(|| format!("stub-process needs {name}"))
    };
    let node = super::RigNode::default();
    Ok(StubSpec {
        nodes: vec![value("--node")?.clone()],
        sites: vec![value("--site")?.clone()],
        listen: value("--listen")?.parse().context("--listen needs IP:PORT")?,
        workers: node.workers,
        service_us: u64::try_from(node.service_time.as_micros())?,
        body_bytes: node.body_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::RigSite;
    use load::generate::{Generator, GeneratorOptions, SiteTarget};
    use load::stub::fetch_record;

    #[test]
    fn the_stubs_of_a_rig_serve_and_tell() {
        let options = RigOptions::new("rig", vec![RigSite::new("red", 2), RigSite::new("blue", 1)]);
        let (_server, addresses) = StubSpec::of(&options).start().unwrap();
        let json = serde_json::to_string(&addresses).unwrap();
        let addresses: StubAddresses = serde_json::from_str(&json).unwrap();
        let at = addresses.address("n3", "red").expect("every node serves every site");
        assert_eq!(addresses.address("n4", "red"), None);
        let site = SiteTarget::served_as("red.test", "red");
        let mut generator = Generator::new(GeneratorOptions::new(vec![at], vec![site])).unwrap();
        let burst = generator.burst(0, 10).unwrap();
        assert_eq!(burst.tally.ok, 10);
        let record = fetch_record(addresses.control.unwrap(), 0).unwrap();
        assert_eq!(record.node("n3").unwrap().served, 10);
    }

    #[test]
    fn arguments_make_one_server_and_missing_ones_are_named() {
        let words = ["--node", "n1", "--site", "red", "--listen", "127.0.0.1:9"];
        let arguments = words.map(str::to_owned);
        let spec = one_server(&arguments).unwrap();
        assert_eq!((spec.nodes[0].as_str(), spec.listen.port()), ("n1", 9));
        assert!(one_server(&arguments[..4]).unwrap_err().to_string().contains("--listen"));
    }
}
