//! nginx and Varnish as their operators would set them up for this work, and pools of Polder.

use super::application::HOSTS;
use super::changes::writers_socket;
use super::plan::Scheme;
use crate::children::Process;
use crate::cores::{Cores, family, pin_process};
use crate::tools::server;
use anyhow::{Context as _, bail, ensure};
use load::generate::Cancel;
use polder::rig::{HeldPort, Part, Rig, RigOptions, RigServers, RigSite, StubAddresses};
use polder::settings::PolicyName;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use writers::Client;

/// How long nginx may take until it listens, and a pool until it hears writers.
const READY_PATIENCE: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(10);
/// More than there are connections: nothing waits in Polder, as nothing does in its peers.
const MAX_IN_FLIGHT: u32 = 256;
/// `SCHED_FIFO` as /proc shows it (sched(7)).
const FIFO: &str = "1";
/// Hosts of Varnish, by which its program knows what is wanted.
const VARNISH_HIT: &str = "hit.test";
const VARNISH_ASKS: &str = "asks.test";

/// Where load goes, and whose CPU time it costs.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) host: String,
    pub(crate) processes: Vec<u32>,
    /// The writers' socket, where it has a version table.
    pub(crate) table: Option<PathBuf>,
}

/// A running nginx with three servers: one that believes its pages, one that asks, one for files.
pub(crate) struct Nginx {
    // In the order in which they go: the process, then its ports.
    process: Process,
    ports: [HeldPort; 3],
}

impl Nginx {
    /// Starts it on a core; `files` are served as they are.
    pub(crate) fn start(
        core: usize,
        application: SocketAddr,
        folder: &Path,
        files: &Path,
    ) -> anyhow::Result<Self> {
        let ports = [HeldPort::take()?, HeldPort::take()?, HeldPort::take()?];
        let addresses = [&ports[0], &ports[1], &ports[2]].map(HeldPort::address);
        let (file, log) = (folder.join("nginx.conf"), folder.join("nginx.log"));
        fs::write(&file, nginx(addresses, application, folder, files))?;
        let arguments = ["-q", "-c", &file.display().to_string()].map(str::to_owned);
        let process = server(core, "nginx", &arguments, &log)?;
        let mut nginx = Self { process, ports };
        let deadline = Instant::now() + READY_PATIENCE;
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                if nginx.process.has_ended() || Instant::now() > deadline {
                    let text = fs::read_to_string(&log).unwrap_or_default();
                    bail!("nginx does not listen; its log says:\n{text}");
                }
                sleep(READY_POLL);
            }
        }
        Ok(nginx)
    }

    pub(crate) fn target(&self, scheme: Scheme) -> Target {
        let place = match scheme {
            Scheme::NginxAsks => 1,
            Scheme::NginxStatic => 2,
            _ => 0,
        };
        Target {
            addresses: vec![self.ports[place].address()],
            host: "front.test".to_owned(),
            processes: family(self.process.id()),
            table: None,
        }
    }
}

/// One worker with its cache in memory, descriptors of files kept open, connections kept on both
/// sides. It asks at each hit only if the page says that it was fresh until 1970, in its own words.
fn nginx(
    [hit, asks, static_files]: [SocketAddr; 3],
    application: SocketAddr,
    folder: &Path,
    files: &Path,
) -> String {
    // Its worker would give up root for a user who may not enter this private folder.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let (folder, files) = (folder.display(), files.display());
    let cached = |address: SocketAddr, zone: &str, more: &str| {
        format!(
            "server {{\nlisten {address};\n\
             location / {{\n\
             proxy_pass http://application; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
             proxy_cache {zone}; proxy_cache_key $uri$is_args$args;\n\
             add_header X-Cache $upstream_cache_status;\n{more}\n}}\n}}\n"
        )
    };
    let path = |zone: &str| {
        format!(
            "proxy_cache_path {folder}/{zone} levels=1:2 keys_zone={zone}:16m inactive=1d \
             max_size=1g use_temp_path=off;\n"
        )
    };
    let [path_hit, path_asks] = [path("hit"), path("asks")];
    let hit = cached(hit, "hit", "");
    let again = "proxy_cache_revalidate on; proxy_set_header X-Revalidate 1;";
    let asks = cached(asks, "asks", again);
    format!(
        "daemon off; worker_processes 1; {user}\n\
         pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; server_tokens off;\n\
         keepalive_timeout 600s; keepalive_requests 1000000000;\n\
         open_file_cache max=8192 inactive=1d; open_file_cache_valid 1d;\n\
         proxy_read_timeout 120s; proxy_send_timeout 120s;\n\
         client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;\n\
         fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
         {path_hit}{path_asks}\
         upstream application {{\n\
         server {application};\n\
         keepalive 256; keepalive_requests 1000000000; keepalive_timeout 600s; keepalive_time 1d;\n\
         }}\n\
         {hit}{asks}\
         server {{\nlisten {static_files};\nroot {files};\n}}\n\
         }}\n"
    )
}

/// What Varnish does: `hit.test` believes the pages, `asks.test` asks again behind a millisecond,
/// for behind none it forgets what to ask with.
pub(crate) fn vcl(application: SocketAddr) -> String {
    format!(
        "vcl 4.1;\n\
         backend application {{\n.host = \"{}\"; .port = \"{}\";\n\
         .first_byte_timeout = 120s; .between_bytes_timeout = 120s;\n}}\n\
         sub vcl_backend_response {{\n\
         if (bereq.http.host == \"{VARNISH_ASKS}\") {{\n\
         set beresp.ttl = 1ms; set beresp.grace = 0s; set beresp.keep = 1h;\n}}\n}}\n",
        application.ip(),
        application.port()
    )
}

/// The host by which Varnish is asked for a scheme.
pub(crate) fn varnish_host(scheme: Scheme) -> String {
    let asks = scheme == Scheme::VarnishAsks;
    if asks { VARNISH_ASKS } else { VARNISH_HIT }.to_owned()
}

/// A pool of Polder, all of whose processes are on the core of edges and load.
pub(crate) struct Pool {
    rig: Rig,
    _table: Option<HeldPort>,
}

/// Sites of the usual pool; their names are those of its nodes' servers too.
const SITES: [(Scheme, &str); 3] =
    [(Scheme::NoCache, "off"), (Scheme::Strict, "strict"), (Scheme::Unvalidated, "plain")];
/// Of every pool: the others neither make ids nor begin traces unless told to.
const COMMON: [&str; 4] = [
    "http.request_id=false",
    "http.trace=false",
    "http.upstream_idle_max=256",
    "http.cache_bytes=1073741824",
];
const STRICT: &str = "sites.strict.cache={ mode = \"strict\", source = \"linearizable\" }";
/// The default size of a table, 128 MiB.
const TAGS: &str = "sites.strict.tags=16777216";

impl Pool {
    /// A pool with a site without a cache, a strict one, and one that validates nothing: the same
    /// edges answer for all, from memory of the same kind.
    pub(crate) fn near(
        edges: u8,
        application: SocketAddr,
        cores: Cores,
        cancel: &Cancel,
    ) -> anyhow::Result<Self> {
        let names = SITES.map(|(_, name)| name);
        let settings =
            [TAGS, STRICT, "sites.plain.tags=65536", "sites.plain.cache={ mode = \"http\" }"];
        let settings = settings.map(str::to_owned);
        let rig = start(&names, edges, &settings, application, cancel)?;
        pin_all(&rig, cores.measured)?;
        Ok(Self { rig, _table: None })
    }

    /// A pool whose edge reads the table over `tcp`, of a process on the application's core.
    pub(crate) fn far(
        is_real_time: bool,
        application: SocketAddr,
        cores: Cores,
        cancel: &Cancel,
    ) -> anyhow::Result<Self> {
        let table = HeldPort::take()?;
        let settings = [
            TAGS.to_owned(),
            STRICT.to_owned(),
            format!("sites.strict.tags_listen={:?}", table.address().to_string()),
            "sites.strict.tags_read=\"tcp\"".to_owned(),
            // Without encryption: the least that it can cost.
            "remote.plain_on_loopback=true".to_owned(),
            format!("remote.realtime={is_real_time}"),
        ];
        let rig = start(&["strict"], 1, &settings, application, cancel)?;
        pin_all(&rig, cores.measured)?;
        let pool = Self { rig, _table: Some(table) };
        let answers = pool.answers()?;
        pin_process(answers, cores.others)?;
        ensure!(
            has_fifo(answers) == is_real_time,
            "the kernel lets nobody here answer before all others (SCHED_FIFO)"
        );
        Ok(pool)
    }

    /// The process that has the version tables at hand, and answers for them.
    pub(crate) fn answers(&self) -> anyhow::Result<u32> {
        let is_it = |process: &u32| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).nth(1) == Some(b"writers-process")
        };
        self.family()?.into_iter().find(is_it).context("a pool with tables has such a process")
    }

    fn family(&self) -> anyhow::Result<Vec<u32>> {
        family_of(&self.rig)
    }

    /// The site of a scheme.
    pub(crate) fn target(&self, scheme: Scheme) -> Target {
        let name = SITES.iter().find(|(of, _)| *of == scheme).map_or("strict", |(_, name)| name);
        let edges = self.rig.processes().iter().filter(|(part, _)| *part == Part::Edge);
        let has_table = scheme != Scheme::NoCache;
        Target {
            addresses: self.rig.edges(),
            host: RigSite::new(name, 1).host(),
            processes: edges.map(|&(_, process)| process).collect(),
            table: has_table.then(|| writers_socket(self.rig.control(), name)),
        }
    }

    /// Where the strict site's table is handed out.
    pub(crate) fn tags_socket(&self) -> PathBuf {
        self.rig.control().with_file_name("tags-strict.sock")
    }
}

fn start(
    names: &[&str],
    edges: u8,
    settings: &[String],
    application: SocketAddr,
    cancel: &Cancel,
) -> anyhow::Result<Rig> {
    let sites = names.iter().map(|&name| RigSite::new(name, 1)).collect();
    let mut options = RigOptions::new("cache", sites);
    options.policy = PolicyName::Rigid;
    options.edges = edges;
    options.node.max_in_flight = MAX_IN_FLIGHT;
    let mut servers = StubAddresses::default();
    for (node, host) in (0..options.nodes()).zip(HOSTS) {
        let server = SocketAddr::from((host, application.port()));
        names.iter().for_each(|name| servers.add(&RigOptions::node_name(node), name, server));
    }
    options.servers = RigServers::At(servers);
    options.overrides = COMMON.map(str::to_owned).to_vec();
    options.overrides.extend_from_slice(settings);
    options.cancel = cancel.clone();
    let rig = Rig::start(&options).context("a pool")?;
    for name in names.iter().filter(|&&name| name != "off") {
        let socket = writers_socket(rig.control(), name);
        let deadline = Instant::now() + READY_PATIENCE;
        while let Err(error) =
            Client::connect(&socket, READY_PATIENCE).and_then(|mut one| one.pending())
        {
            if Instant::now() > deadline {
                bail!("nobody answers the writers of site {name}: {error}");
            }
            sleep(READY_POLL);
        }
    }
    Ok(rig)
}

fn pin_all(rig: &Rig, core: usize) -> anyhow::Result<()> {
    family_of(rig)?.into_iter().try_for_each(|process| pin_process(process, core))
}

fn family_of(rig: &Rig) -> anyhow::Result<Vec<u32>> {
    let parent = rig.processes().iter().find(|(part, _)| *part == Part::Parent);
    Ok(family(parent.context("a pool has a parent")?.1))
}

/// Whether a thread of the process runs before all others.
fn has_fifo(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.map(|task| fs::read_to_string(task.path().join("stat")));
    stats.any(|stat| stat.is_ok_and(|stat| policy_of(&stat) == Some(FIFO)))
}

/// Field 41 of a thread's line in /proc (proc(5)).
fn policy_of(stat: &str) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(38)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::find;
    use crate::varnish::check;
    use std::process::Command;

    const APPLICATION: &str = "127.0.0.1:8080";

    fn is_missing(error: &anyhow::Error) -> bool {
        error.to_string().contains("is missing; it is in")
    }

    #[test]
    fn nginx_understands_its_configuration() {
        let program = match find("nginx") {
            Err(error) if is_missing(&error) => return println!("skipped: {error}"),
            found => found.unwrap(),
        };
        let folder = tempfile::tempdir().unwrap();
        let ports = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|a| a.parse().unwrap());
        let text = nginx(ports, APPLICATION.parse().unwrap(), folder.path(), folder.path());
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let output = Command::new(program).arg("-t").arg("-c").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("syntax is ok"), "{said}");
    }

    #[test]
    fn varnish_understands_its_program() {
        match check(&vcl(APPLICATION.parse().unwrap())) {
            Err(error) if is_missing(&error) => println!("skipped: {error}"),
            checked => checked.unwrap(),
        }
        assert_ne!(varnish_host(Scheme::VarnishAsks), varnish_host(Scheme::VarnishHit));
    }

    #[test]
    fn this_test_runs_like_all_others() {
        assert!(!has_fifo(std::process::id()));
        let rest = ["x"; 38].join(" ");
        assert_eq!(policy_of(&format!("1 (a) {rest} 1 0")), Some(FIFO));
        assert_eq!(policy_of("1 (a) S 0"), None);
    }
}
