//! Settings become the plain options of each crate.

use super::descriptors::connections_max;
use super::purging::Purging;
use crate::runtime_dir::MARK_EXTENSION;
use crate::settings::{self, Check, Edge, Forwarded, Mode, Servers, Settings, Site, Start};
use edge::dispatch::{DispatchOptions, HealthOptions, SiteRules};
use edge::{ClientCertificate, ForwardedTrust, LogOptions, SiteOptions, SiteTls};
use moves::Timing;
use moves::looper::{LooperOptions, Place};
use policy::{Policy, Thresholds, ThresholdsError};
use pool_model::{EdgeId, IdOutOfRange, NodeId, SiteId};
use shared_state::words::{Assign, Epoch};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The version of the settings that the shared words carry when a pool starts. It grows whenever
/// settings change that moves depend on.
pub(super) const SETTINGS_VERSION_MIN: u32 = 1;

/// Where the home's region is served.
pub(super) fn home_socket(folder: &Path) -> PathBuf {
    folder.join("home.sock")
}

/// Where a node's region is served.
pub(super) fn node_socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("node-{name}.sock"))
}

/// Where the version table of a site is served.
pub(super) fn tags_socket(folder: &Path, site: &str) -> PathBuf {
    folder.join(format!("tags-{site}.sock"))
}

/// What a run notes of that table for the next one.
pub(super) fn tags_mark(folder: &Path, site: &str) -> PathBuf {
    folder.join(format!("tags-{site}.{MARK_EXTENSION}"))
}

/// Where writers of a site tell of changes.
pub(crate) fn tell_socket(folder: &Path, site: &str) -> PathBuf {
    folder.join(format!("tell-{site}.sock"))
}

/// Where an agent notes its servers.
pub(super) fn state_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("node-{name}{STATE_FILE_END}"))
}

/// How names of such files end.
const STATE_FILE_END: &str = ".servers.json";

/// Whether an agent wrote this file.
pub(super) fn is_state_file(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.ends_with(STATE_FILE_END))
}

/// Where an edge answers the parent.
pub(super) fn edge_control(folder: &Path, edge: EdgeId) -> PathBuf {
    folder.join(format!("edge-{edge}.control"))
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

fn site_id(index: usize) -> Result<SiteId, IdOutOfRange> {
    SiteId::from_index(index)
}

/// Who decides.
pub(crate) fn policy(settings: &Settings) -> Result<Box<dyn Policy>, ThresholdsError> {
    let pool = &settings.pool;
    Ok(pool.policy.build(Thresholds::new(pool.high_load, pool.light_load)?))
}

/// Threads of an edge that carry requests.
pub(super) fn threads(edge: &Edge) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    edge.threads.map_or_else(cores, usize::from)
}

/// The data plane of the edge at a place of the settings.
pub(super) fn edge(
    settings: &Settings,
    place: usize,
    stickiness: Vec<Option<edge::Sticky>>,
    versions: &[Option<edge::Versions>],
    purging: Purging,
) -> Result<edge::Options, IdOutOfRange> {
    let http = &settings.http;
    let own = &settings.edges[place];
    let mut sites = Vec::new();
    let told = stickiness.into_iter().zip(purging.sites);
    for ((index, site), (sticky, purge)) in settings.sites.iter().enumerate().zip(told) {
        sites.push(SiteOptions {
            id: site_id(index)?,
            name: site.name.clone(),
            hosts: site.hosts.clone(),
            body_bytes_max: http.body_bytes_max,
            tls: site.tls.as_ref().map(site_tls),
            proxy_protocol_out: site.proxy_protocol_out,
            sticky,
            rate: site.rate,
            admission: site.admission.clone(),
            purge,
            cache: (site.cache.mode != cache::Mode::Off).then(|| cache_rules(site)),
            versions: versions.get(index).cloned().flatten(),
            objective: site.terms.objective.map(|told| Duration::from_micros(told.p99_us.into())),
        });
    }
    let default_site = http.default_site.as_deref();
    let threads = threads(own);
    let (connections_max, upgraded_max) = connections_max(settings, threads);
    Ok(edge::Options {
        listen: own.listen.clone(),
        tls_listen: own.tls_listen.clone(),
        http2: http.http2,
        http2_plain: own.http2_plain,
        http2_streams_max: http.http2_streams_max,
        http2_stream_window_bytes: http.http2_stream_window_bytes,
        http2_connection_window_bytes: http.http2_connection_window_bytes,
        http2_resets_max: http.http2_resets_max,
        threads,
        sites,
        default_site: default_site.and_then(|name| settings.site(name)).map(|(id, _)| id),
        header_bytes_max: http.header_bytes_max as usize,
        headers_max: usize::from(http.headers_max),
        uri_bytes_max: http.uri_bytes_max as usize,
        header_timeout_ms: http.header_timeout_ms.into(),
        keep_alive_idle_ms: http.keep_alive_idle_ms.into(),
        connect_timeout_ms: http.connect_timeout_ms.into(),
        response_header_timeout_ms: http.response_header_timeout_ms.into(),
        body_idle_timeout_ms: http.body_idle_timeout_ms.into(),
        expect_wait_ms: http.expect_wait_ms.into(),
        retry_body_max_bytes: http.retry_body_max_bytes as usize,
        retries_max: usize::from(http.retries_max),
        upstream: http.upstream,
        upstream_idle_max: http.upstream_idle_max as usize,
        upstream_idle_ms: http.upstream_idle_ms.into(),
        connections_max,
        drain_max_ms: settings.pool.drain_max_ms.into(),
        forwarded: match http.forwarded {
            Forwarded::Rewrite => ForwardedTrust::Rewrite,
            Forwarded::Append => ForwardedTrust::Append,
        },
        via_name: "polder".to_owned(),
        proxy_protocol: own.proxy_protocol.clone(),
        request_id: http.request_id,
        trace: http.trace,
        upgrades: http.upgrades,
        upgraded_max,
        upgrade_idle_ms: http.upgrade_idle_ms.into(),
        cache_bytes: http.cache_bytes,
        invalidator: purging.invalidator,
        cache_disk: http.cache_disk.clone(),
        access_log: access_log(settings),
    })
}

/// What is kept of a site's responses; those of watched files have the tags of their paths.
fn cache_rules(site: &Site) -> Arc<cache::Rules> {
    let files = site.tags.as_ref().and_then(|tags| tags.files.as_ref());
    match files {
        None => Arc::clone(&site.cache),
        Some(files) => {
            let files_at = Some(files.at.clone());
            Arc::new(cache::Rules { files_at, ..cache::Rules::clone(&site.cache) })
        }
    }
}

fn access_log(settings: &Settings) -> Option<LogOptions> {
    let log = &settings.access_log;
    Some(LogOptions {
        target: log.target.clone()?,
        format: log.format,
        queue_max: log.queue_max as usize,
        nodes: settings.nodes.iter().map(|node| node.name.clone()).collect(),
    })
}

fn site_tls(tls: &settings::SiteTls) -> SiteTls {
    SiteTls {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        client_ca: tls.client_ca.clone(),
        client_certificate: match tls.client_certificate {
            settings::ClientCertificate::Off => ClientCertificate::Off,
            settings::ClientCertificate::Optional => ClientCertificate::Optional,
            settings::ClientCertificate::Required => ClientCertificate::Required,
        },
    }
}

/// The dispatcher of one edge.
pub(super) fn dispatch(
    settings: &Settings,
    edge: EdgeId,
    incarnation: u32,
) -> Result<DispatchOptions, IdOutOfRange> {
    let mut sites = Vec::new();
    for (index, site) in settings.sites.iter().enumerate() {
        sites.push(SiteRules {
            site: site_id(index)?,
            balance: site.balance,
            queue_max: site.queue_max as usize,
            queue_timeout: ms(site.queue_timeout_ms),
            slow_start: ms(site.slow_start_ms),
            stick_wait: ms(site.sticky.as_ref().map_or(0, |sticky| sticky.wait_ms)),
            // The reader keeps it below `CLASSES_MAX`.
            classes: u8::try_from(site.admission.len() + 1).unwrap_or(u8::MAX),
            objective: site
                .terms
                .objective
                .map(|objective| Duration::from_micros(objective.p99_us.into())),
        });
    }
    let health = HealthOptions {
        failures_max: settings.health.failures_max,
        eject_for: ms(settings.health.eject_ms),
        eject_max_pct: settings.health.eject_max_pct,
    };
    Ok(DispatchOptions { edge, incarnation, sites, health })
}

/// The look loop of one edge.
pub(super) fn looper(
    settings: &Settings,
    (hash, version): (u64, u32),
    edge: EdgeId,
    incarnation: u32,
    folder: &Path,
) -> LooperOptions {
    let pool = &settings.pool;
    let timing = Timing {
        look_every_ns: nanos(pool.look_every_ms),
        hold_ns: nanos(pool.hold_ms),
        node_dead_ns: nanos(pool.node_dead_ms),
        ..Timing::default()
    };
    LooperOptions {
        core: moves::Options {
            edge,
            timing,
            sites: settings.sites.iter().map(|site| site.terms).collect(),
            nodes: u16::try_from(settings.nodes.len()).unwrap_or(u16::MAX),
            settings_version: version,
            mode: match pool.mode {
                Mode::Move => moves::Mode::Move,
                Mode::Observe => moves::Mode::Observe,
            },
        },
        incarnation,
        settings_hash: hash,
        look_every: ms(pool.look_every_ms),
        idle_look_every: ms(pool.idle_look_every_ms),
        slot_lease: ms(pool.slot_lease_ms),
        node_dead: ms(pool.node_dead_ms),
        remote_deadline: settings.remote.deadline(),
        home: Place::Here(home_socket(folder)),
        traits: settings.nodes.iter().map(|node| node.traits).collect(),
        nodes: settings
            .nodes
            .iter()
            .map(|node| Place::Here(node_socket(folder, &node.name)))
            .collect(),
    }
}

fn nanos(ms: u32) -> u64 {
    u64::from(ms) * 1_000_000
}

/// The agent of one node.
pub(super) fn agent(
    settings: &Settings,
    node: NodeId,
    folder: &Path,
) -> Result<agent::Options, IdOutOfRange> {
    let own = &settings.nodes[node.index()];
    let health = &settings.health;
    let mut options = agent::Options::new(node, &own.name, folder);
    options.max_in_flight = own.max_in_flight;
    options.region_socket = node_socket(folder, &own.name);
    options.state_file = state_file(folder, &own.name);
    options.drain_max_ms = settings.pool.drain_max_ms.into();
    options.slot_lease_ms = settings.pool.slot_lease_ms.into();
    options.health = agent::Health {
        check_every_ms: health.check_every_ms.into(),
        check_timeout_ms: health.check_timeout_ms.into(),
        rise: health.rise.into(),
        fall: health.fall.into(),
        unresponsive_max_ms: health.unresponsive_max_ms.into(),
        stop_timeout_ms: health.stop_timeout_ms.into(),
        ..agent::Health::default()
    };
    options.health.idle_check_every_ms =
        options.health.idle_check_every_ms.max(options.health.check_every_ms);
    if let Servers::Agent { host } = &own.servers {
        options.host = *host;
    }
    let site = settings.first_assignment()[node.index()];
    options.initial = Assign { site, stamp: Epoch::ZERO, version: 0 };
    for (index, site) in settings.sites.iter().enumerate() {
        let Some(kind) = server_kind(site, &own.servers, index) else { continue };
        let check = match &site.check {
            Check::Tcp => agent::Check::Tcp,
            Check::Path(path) => agent::Check::Http { path: path.clone() },
        };
        let (id, name) = (site_id(index)?, site.name.clone());
        options.servers.push(agent::ServerSpec { site: id, name, kind, check });
    }
    Ok(options)
}

fn server_kind(site: &Site, servers: &Servers, index: usize) -> Option<agent::ServerKind> {
    match servers {
        Servers::Addresses(addresses) => {
            addresses.get(index).map(|&address| agent::ServerKind::Address(address))
        }
        Servers::Agent { .. } if site.command.is_empty() => None,
        Servers::Agent { .. } => Some(agent::ServerKind::Command(agent::Program {
            argv: program(&site.command),
            env: Vec::new(),
            start: match site.start {
                Start::Warm => agent::Start::Warm,
                Start::OnAssignment => agent::Start::OnAssignment,
            },
        })),
    }
}

/// A site's command. `polder` is this very program: examples run without an installation.
fn program(command: &[String]) -> Vec<String> {
    let mut argv = command.to_vec();
    if let (Some(first), Ok(own)) = (argv.first_mut(), std::env::current_exe())
        && first == "polder"
        && own.file_name().is_some_and(|name| name == "polder")
    {
        *first = own.display().to_string();
    }
    argv
}
