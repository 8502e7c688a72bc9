//! The settings file of a rig.

use super::options::{RigFront, RigOptions, RigServers, RigSite};
use super::stub_process::StubAddresses;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// An idle connection lives longer than any figure leaves a pool alone: 10 minutes.
const IDLE_MS: u32 = 600_000;
/// Requests wait as long as the longest burst takes on the fewest nodes, and longer.
const QUEUE_TIMEOUT_MS: u32 = 60_000;
/// A rig that stops has nothing in flight that anybody waits for.
const DRAIN_MAX_MS: u32 = 2_000;

/// The text. `servers` says how a node's servers are given; `stubs` has the addresses of
/// [`RigServers::OneStub`], `program` starts a stub for [`RigServers::Agents`].
pub(super) fn settings_text(
    options: &RigOptions,
    runtime_dir: &Path,
    edges: &[SocketAddr],
    stubs: &StubAddresses,
    program: &Path,
) -> String {
    let mut text = String::new();
    pool(&mut text, options, runtime_dir);
    for edge in edges {
        put(&mut text, format_args!("\n[[edges]]\n{}", listen(&options.front, *edge)));
        if let Some(threads) = options.threads {
            put(&mut text, format_args!("threads = {threads}"));
        }
    }
    put(&mut text, format_args!("\n[http]\nkeep_alive_idle_ms = {IDLE_MS}"));
    put(&mut text, format_args!("upstream_idle_ms = {IDLE_MS}"));
    for site in &options.sites {
        put(&mut text, format_args!("\n[[sites]]\nname = \"{}\"", site.name));
        put(&mut text, format_args!("hosts = [\"{}\"]", site.host()));
        put(&mut text, format_args!("nodes = {}\nhard = {}", site.nodes, site.hard));
        terms(&mut text, site);
        put(&mut text, format_args!("queue_max = {}", options.queue_max));
        put(&mut text, format_args!("queue_timeout_ms = {QUEUE_TIMEOUT_MS}"));
        if let RigFront::Tls { certificate, key } = &options.front {
            let [certificate, key] = [certificate, key].map(|path| quoted(path));
            put(&mut text, format_args!("tls = {{ certificate = {certificate}, key = {key} }}"));
        }
        if let Some(command) = command(&options.servers, program) {
            put(&mut text, format_args!("command = {}", toml::Value::from(command)));
        }
    }
    for index in 0..options.nodes() {
        let name = RigOptions::node_name(index);
        put(&mut text, format_args!("\n[[nodes]]\nname = \"{name}\""));
        put(&mut text, format_args!("max_in_flight = {}", options.node.max_in_flight));
        if matches!(options.servers, RigServers::OneStub | RigServers::At(_)) {
            let listed: Vec<String> = options
                .sites
                .iter()
                .filter_map(|site| Some((site, stubs.address(&name, &site.name)?)))
                .map(|(site, address)| format!("{} = \"{address}\"", site.name))
                .collect();
            put(&mut text, format_args!("servers = {{ {} }}", listed.join(", ")));
        }
    }
    text
}

/// What else it is promised, where it is.
fn terms(text: &mut String, site: &RigSite) {
    if let Some(soft) = site.soft {
        put(text, format_args!("soft = {soft}"));
    }
    if site.priority > 0 {
        put(text, format_args!("priority = {}", site.priority));
    }
    if let Some(p99_ms) = site.p99_ms {
        put(text, format_args!("p99_ms = {p99_ms}"));
    }
}

/// The keys that say where and how an edge listens.
fn listen(front: &RigFront, address: SocketAddr) -> String {
    match front {
        RigFront::Http1 => format!("listen = [\"{address}\"]"),
        RigFront::Http2 => format!("listen = [\"{address}\"]\nhttp2_plain = true"),
        RigFront::Tls { .. } => format!("tls_listen = [\"{address}\"]"),
    }
}

fn quoted(path: &Path) -> toml::Value {
    toml::Value::from(path.display().to_string())
}

/// What an agent starts for a site, if there are agents.
fn command(servers: &RigServers, program: &Path) -> Option<Vec<String>> {
    let stub =
        ["stub-process", "--node", "{node}", "--site", "{site}", "--listen", "{host}:{port}"];
    match servers {
        RigServers::OneStub | RigServers::At(_) => None,
        RigServers::Agents => {
            let program = program.display().to_string();
            Some([program].into_iter().chain(stub.map(str::to_owned)).collect())
        }
        RigServers::Command(command) => Some(command.clone()),
    }
}

fn pool(text: &mut String, options: &RigOptions, runtime_dir: &Path) {
    let folder = quoted(runtime_dir);
    put(text, format_args!("[pool]\nname = \"{}\"", options.name));
    put(text, format_args!("policy = \"{}\"\nruntime_dir = {folder}", options.policy.name()));
    put(text, format_args!("drain_max_ms = {DRAIN_MAX_MS}"));
    if let Some(look_every_ms) = options.look_every_ms {
        put(text, format_args!("look_every_ms = {look_every_ms}"));
    }
    if let Some(hold_ms) = options.hold_ms {
        put(text, format_args!("hold_ms = {hold_ms}"));
    }
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{PolicyName, Servers, parse};
    use std::path::PathBuf;

    fn options(servers: RigServers) -> RigOptions {
        let sites = vec![RigSite::new("red", 3), RigSite::new("blue", 2)];
        let mut options = RigOptions::new("rig", sites);
        (options.servers, options.policy) = (servers, PolicyName::Rigid);
        (options.look_every_ms, options.hold_ms) = (Some(20), Some(200));
        options
    }

    fn stubs(options: &RigOptions) -> StubAddresses {
        let mut stubs = StubAddresses::default();
        let mut port = 9_000;
        for index in 0..options.nodes() {
            for site in &options.sites {
                port += 1;
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                stubs.add(&RigOptions::node_name(index), &site.name, address);
            }
        }
        stubs
    }

    #[test]
    fn the_settings_of_a_rig_with_addresses_can_be_used() {
        let options = options(RigServers::OneStub);
        let edges = ["127.0.0.1:8001".parse().unwrap(), "127.0.0.1:8002".parse().unwrap()];
        let folder = Path::new("/tmp/a \"quoted\" folder/run");
        let text = settings_text(&options, folder, &edges, &stubs(&options), Path::new("/bin/x"));
        let checked = parse("rig.toml", &text, &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(!checked.warnings.any_error());
        let settings = checked.settings;
        assert_eq!(settings.pool.policy, PolicyName::Rigid);
        assert_eq!((settings.pool.look_every_ms, settings.pool.hold_ms), (20, 200));
        assert_eq!(settings.pool.runtime_dir.as_deref(), Some(folder));
        assert_eq!(settings.edges.len(), 2);
        assert_eq!(settings.edges[0].threads, Some(1));
        assert_eq!(settings.nodes.len(), 5);
        let Servers::Addresses(addresses) = &settings.nodes[1].servers else { panic!("no agent") };
        assert_eq!(addresses[1].port(), 9_004);
        assert_eq!(settings.sites[1].hosts, ["blue.test"]);
    }

    #[test]
    fn edges_listen_as_their_front_says() {
        let mut options = options(RigServers::OneStub);
        let (stubs, edges) = (stubs(&options), ["127.0.0.1:8001".parse().unwrap()]);
        let mut edge = |front| {
            options.front = front;
            let (run, program) = (Path::new("/tmp/run"), Path::new("/bin/x"));
            let text = settings_text(&options, run, &edges, &stubs, program);
            let settings = parse("rig.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).settings;
            settings.edges[0].clone()
        };
        assert!(!edge(RigFront::Http1).http2_plain);
        let plain = edge(RigFront::Http2);
        assert!(plain.http2_plain && plain.tls_listen.is_empty());
        let [certificate, key] = ["/tmp/c.pem", "/tmp/k.pem"].map(PathBuf::from);
        let tls = edge(RigFront::Tls { certificate, key });
        assert!(tls.listen.is_empty() && tls.tls_listen == edges);
    }

    #[test]
    fn servers_that_run_anyway_are_named() {
        let mut options = options(RigServers::OneStub);
        let at = stubs(&options);
        options.servers = RigServers::At(at.clone());
        let edges = ["127.0.0.1:8001".parse().unwrap()];
        let text = settings_text(&options, Path::new("/tmp/run"), &edges, &at, Path::new("/bin/x"));
        let settings = parse("rig.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).settings;
        let Servers::Addresses(addresses) = &settings.nodes[0].servers else { panic!("no agent") };
        assert_eq!(addresses[0].port(), 9_001);
    }

    #[test]
    fn the_settings_of_a_rig_with_agents_start_this_program() {
        let options = options(RigServers::Agents);
        let edges = ["127.0.0.1:8001".parse().unwrap()];
        let none = StubAddresses::default();
        let text =
            settings_text(&options, Path::new("/tmp/run"), &edges, &none, Path::new("/bin/x"));
        let settings = parse("rig.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).settings;
        assert_eq!(settings.sites[0].command[..2], ["/bin/x", "stub-process"]);
        assert!(settings.nodes.iter().all(|node| matches!(node.servers, Servers::Agent { .. })));
    }

    #[test]
    fn another_command_goes_through_word_for_word() {
        let words = ["/bin/sh", "-c", "echo \"$0\" && exec \"$@\"", "{node}", "{host}:{port}"];
        let words = words.map(str::to_owned).to_vec();
        let options = options(RigServers::Command(words.clone()));
        let edges = ["127.0.0.1:8001".parse().unwrap()];
        let (run, none) = (Path::new("/tmp/run"), StubAddresses::default());
        let text = settings_text(&options, run, &edges, &none, Path::new("/bin/x"));
        let settings = parse("rig.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).settings;
        assert!(settings.sites.iter().all(|site| site.command == words));
    }
}
