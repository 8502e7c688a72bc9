//! What one edge tells of the pool: the look loop's state and the edge's counters in the words
//! of `status`.

use crate::control::FirstDispatch;
use crate::settings::{Settings, SettingsHash, Site};
use crate::status::{
    BelowHardStatus, CacheStatus, ClassStatus, EdgeStatus, MoveRecord, NodeState, NodeStatus,
    PoolStatus, REPORT_VERSION, SiteStatus, StatusReport, TermsStatus, TrafficStatus, TraitsStatus,
    Warning,
};
use edge::dispatch::{ClassCounts, SiteCounts};
use edge::{Reason, SiteSnapshot, Snapshot};
use moves::Ending;
use moves::looper::{Cause, Link, LoopStatus, MoveLine, SiteState, monotonic};
use pool_model::{Classes, EdgeId, NodeId, SiteId};
use shared_state::Service;
use shared_state::words::Phase;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a report is made for.
pub(super) struct Reporter {
    settings: Settings,
    hash: SettingsHash,
    edge: EdgeId,
    listen: Vec<String>,
    started: Duration,
    samples: VecDeque<Sample>,
}

/// Requests answered up to a moment, by site.
struct Sample {
    at: Duration,
    answered: Vec<u64>,
}

/// Samples kept: rates are over the last second or two.
const SAMPLES_MAX: usize = 3;

fn answered(site: &SiteSnapshot) -> u64 {
    site.requests[1..].iter().sum()
}

impl Reporter {
    pub(super) fn new(
        settings: Settings,
        hash: SettingsHash,
        edge: EdgeId,
        listen: Vec<String>,
    ) -> Self {
        let samples = VecDeque::with_capacity(SAMPLES_MAX);
        Self { settings, hash, edge, listen, started: monotonic(), samples }
    }

    /// Tells by other settings with the same sites from now on.
    pub(super) fn update(&mut self, settings: Settings, hash: SettingsHash) {
        (self.settings, self.hash) = (settings, hash);
    }

    /// Notes the counters; to be called about once a second.
    pub(super) fn sample(&mut self, counters: &Snapshot) {
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        let answered = counters.sites.iter().map(answered).collect();
        self.samples.push_back(Sample { at: monotonic(), answered });
    }

    fn rate(&self, index: usize, now: u64) -> f64 {
        let Some(first) = self.samples.front() else { return 0.0 };
        let elapsed = (monotonic().saturating_sub(first.at)).as_secs_f64();
        let before = first.answered.get(index).copied().unwrap_or(now);
        if elapsed > 0.0 { now.saturating_sub(before) as f64 / elapsed } else { 0.0 }
    }

    pub(super) fn report(
        &self,
        pool: &LoopStatus,
        counters: &Snapshot,
        balance: &[SiteCounts],
        classes: &[Vec<ClassCounts>],
    ) -> StatusReport {
        StatusReport {
            version: REPORT_VERSION,
            pool: self.pool(pool),
            sites: self.sites(pool, counters, balance, classes),
            nodes: self.nodes(pool, counters),
            edges: vec![self.edge(pool, counters)],
            warnings: self.warnings(pool, balance),
        }
    }

    fn pool(&self, pool: &LoopStatus) -> PoolStatus {
        PoolStatus {
            name: self.settings.pool.name.clone(),
            policy: pool.policy.clone(),
            mode: if pool.observe { "observe" } else { "move" }.to_owned(),
            paused: pool.paused,
            settings_hash: self.hash,
            look_every_ms: self.settings.pool.look_every_ms,
            hold_ms: self.settings.pool.hold_ms,
            uptime_s: monotonic().saturating_sub(self.started).as_secs(),
            metrics: None,
            ..PoolStatus::default()
        }
    }

    fn sites(
        &self,
        pool: &LoopStatus,
        counters: &Snapshot,
        balance: &[SiteCounts],
        classes: &[Vec<ClassCounts>],
    ) -> Vec<SiteStatus> {
        let mut told = Vec::new();
        for (index, site) in self.settings.sites.iter().enumerate() {
            let seen = pool.sites.get(index);
            let own = counters.sites.get(index);
            let guarantee = site.terms.guarantee;
            let count = own.map_or(0, answered);
            let refused = own.map_or(0, |own| {
                let reasons = [Reason::QueueFull, Reason::QueueTimeout, Reason::Shed];
                reasons.map(|reason| own.refused(reason)).iter().sum()
            });
            let load = seen.filter(|seen| seen.capacity > 0).map(|seen| seen.load);
            told.push(SiteStatus {
                name: site.name.clone(),
                nodes: seen.map_or(0, |seen| seen.nodes.into()),
                hard: guarantee.hard.into(),
                max: (guarantee.max != u16::MAX).then_some(guarantee.max.into()),
                load,
                queued: seen.map_or(0, |seen| seen.queued.into()),
                in_flight: seen.map_or(0, |seen| seen.in_flight.into()),
                requests_per_s: self.rate(index, count),
                requests: own.map_or(0, |own| own.requests.iter().sum()),
                failed: own.map_or(0, |own| own.requests[5].saturating_sub(refused)),
                refused,
                traffic: traffic(own, balance.get(index)),
                classes: class_statuses(&site.admission, classes.get(index)),
                terms: self.terms(site, seen, own),
            });
        }
        told
    }

    fn terms(
        &self,
        site: &Site,
        seen: Option<&SiteState>,
        own: Option<&SiteSnapshot>,
    ) -> TermsStatus {
        let terms = &site.terms;
        let (hard, soft) = (terms.guarantee.hard, terms.guarantee.soft);
        let has = |nodes| seen.is_some_and(|seen| seen.nodes >= nodes);
        let below = seen.map(|seen| seen.below_hard).unwrap_or_default();
        let seconds = |cause| below.by(cause).as_secs_f64();
        let service_us = seen.map_or(0, |seen| seen.service_us);
        TermsStatus {
            priority: terms.priority.0,
            soft: soft.into(),
            hard_met: has(hard),
            soft_met: has(soft),
            below_hard: BelowHardStatus {
                now: below.now.map(|cause| cause.name().to_owned()),
                unmet_s: seconds(Cause::Unmet),
                node_s: seconds(Cause::Node),
                move_s: seconds(Cause::Move),
            },
            p99_ms: terms.objective.map(|objective| objective.p99_us / 1_000),
            slower: own.map_or(0, |own| own.slower),
            service_ms: (service_us > 0).then(|| f64::from(service_us) / 1e3),
            classes: self.class_names(terms.wants),
            unfit_pct: terms.unfit_pct,
        }
    }

    fn class_names(&self, classes: Classes) -> Vec<String> {
        self.settings.class_names(classes).map(str::to_owned).collect()
    }

    fn site_name(&self, site: SiteId) -> String {
        let found = self.settings.sites.get(site.index());
        found.map_or_else(|| site.to_string(), |site| site.name.clone())
    }

    fn nodes(&self, pool: &LoopStatus, counters: &Snapshot) -> Vec<NodeStatus> {
        let mut told = Vec::new();
        let upgraded = |index: usize| {
            let node = NodeId::new(u16::try_from(index).ok()?).ok()?;
            counters.upgraded_by_node.get(&node).copied()
        };
        for (index, node) in self.settings.nodes.iter().enumerate() {
            let Some(seen) = pool.nodes.get(index) else { continue };
            told.push(NodeStatus {
                name: node.name.clone(),
                site: seen.site.map(|site| self.site_name(site)),
                version: seen.version,
                in_flight: seen.in_flight,
                max_in_flight: node.max_in_flight,
                upgraded: upgraded(index).unwrap_or(0),
                state: node_state(seen),
                restarts: seen.restarts,
                servers: seen.servers.iter().map(|phase| phase.name().to_owned()).collect(),
                scheduled: scheduled(seen.service),
                traits: TraitsStatus {
                    capacity_pct: node.traits.capacity_pct,
                    classes: self.class_names(node.traits.classes),
                },
            });
        }
        told
    }

    fn edge(&self, pool: &LoopStatus, counters: &Snapshot) -> EdgeStatus {
        let requests: Vec<u64> = counters.sites.iter().map(answered).collect();
        let rates = requests.iter().enumerate().map(|(index, &now)| self.rate(index, now));
        let look_us = pool.look_cost.as_secs_f64() * 1e6;
        let every_us = pool.look_every_now.as_secs_f64() * 1e6;
        EdgeStatus {
            edge: self.edge.get().into(),
            pid: std::process::id(),
            listen: self.listen.clone(),
            alive: true,
            connections: counters.connections_open,
            requests_per_s: rates.sum(),
            look_us,
            look_every_ms: every_us / 1e3,
            look_cpu_pct: if every_us > 0.0 { 100.0 * look_us / every_us } else { 0.0 },
            settings_hash: self.hash,
            moves: pool.counters.moves,
            age_s: monotonic().saturating_sub(self.started).as_secs(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            leaving: false,
            tls_handshakes: counters.tls_handshakes,
            tls_failures: counters.tls_failures,
            upgraded: counters.upgraded_by_node.values().sum(),
            proxy_headers_refused: counters.proxy_headers_refused,
            access_log_dropped: counters.access_log_dropped,
            cache: counters.cache.as_ref().map(CacheStatus::of),
        }
    }

    fn warnings(&self, pool: &LoopStatus, balance: &[SiteCounts]) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let other = |text: &str| Warning::Other { text: text.to_owned() };
        for edge in pool.edges.iter().filter(|edge| !edge.same_settings) {
            let hash = SettingsHash(edge.row.settings_hash);
            warnings.push(Warning::SettingsDiffer { edge: edge.id.get().into(), hash });
        }
        if pool.settings_differ && warnings.is_empty() {
            warnings.push(other("the home has other settings for the pool: no edge moves nodes"));
        }
        if !pool.home {
            warnings.push(other("the site record is not reached: no edge moves nodes"));
        }
        warnings.extend(pool.faults.iter().map(|text| other(text)));
        if pool.stretched {
            warnings.push(Warning::LookStretched {
                edge: self.edge.get().into(),
                look_every_ms: pool.look_every.as_secs_f64() * 1e3,
                wanted_ms: self.settings.pool.look_every_ms.into(),
            });
        }
        for site in &pool.sites {
            let (nodes, hard) = (site.nodes.into(), site.terms.guarantee.hard.into());
            if nodes < hard {
                let site = self.site_name(site.id);
                warnings.push(Warning::BelowHard { site, nodes, hard });
            }
        }
        for (counts, site) in balance.iter().zip(&self.settings.sites) {
            let SiteCounts { failing, ejected, .. } = *counts;
            if failing > 0 {
                let (site, edge) = (site.name.clone(), self.edge.get().into());
                warnings.push(Warning::RequestsFail { site, edge, failing, ejected });
            }
        }
        for (seen, node) in pool.nodes.iter().zip(&self.settings.nodes) {
            if seen.attached && !seen.alive {
                warnings.push(Warning::AgentDead { node: node.name.clone() });
            }
            for (index, phase) in seen.servers.iter().enumerate() {
                if *phase == Phase::Failing {
                    let site = self.settings.sites.get(index).map_or("", |site| &site.name);
                    let (node, site) = (node.name.clone(), site.to_owned());
                    warnings.push(Warning::ServerFailing { node, site });
                }
            }
        }
        warnings
    }

    /// The last moves, as a person or a figure reads them.
    pub(super) fn moves(&self, lines: &[MoveLine], limit: usize) -> Vec<MoveRecord> {
        let offset = unix_offset();
        let made = |line: &&MoveLine| {
            let ending = line.record.ending;
            matches!(ending, Ending::Moved | Ending::Helped | Ending::WouldMove | Ending::Freed)
        };
        let lines: Vec<&MoveLine> = lines.iter().filter(made).collect();
        let skip = lines.len().saturating_sub(limit);
        lines[skip..].iter().map(|line| self.one_move(line, offset)).collect()
    }

    fn node_name(&self, node: NodeId) -> String {
        let found = self.settings.nodes.get(node.index());
        found.map_or_else(|| node.to_string(), |node| node.name.clone())
    }

    /// The first requests that this edge sent to moved nodes.
    pub(super) fn first(&self, dispatches: &[moves::looper::FirstDispatch]) -> Vec<FirstDispatch> {
        let first = |one: &moves::looper::FirstDispatch| FirstDispatch {
            node: self.node_name(one.node),
            at_ns: u64::try_from(one.at.as_nanos()).unwrap_or(u64::MAX),
        };
        dispatches.iter().map(first).collect()
    }

    fn one_move(&self, line: &MoveLine, offset: Duration) -> MoveRecord {
        let record = &line.record;
        let decided_ns = record.at_ns.saturating_sub(record.took_ns);
        let first = line.first_dispatch_ns;
        let is_freed = record.ending == Ending::Freed;
        let reason = if is_freed { record.ending.name() } else { record.reason.name() };
        let to_ms = |first: u64| first.saturating_sub(decided_ns) as f64 / 1e6;
        let at = offset + Duration::from_nanos(record.at_ns);
        MoveRecord {
            at_unix_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            node: self.node_name(record.node),
            from: record.from.map(|site| self.site_name(site)),
            to: record.to.map(|site| self.site_name(site)),
            reason: reason.to_owned(),
            load: record.load.is_finite().then_some(record.load),
            edge: self.edge.get().into(),
            move_ms: first.map(to_ms),
            observed_only: record.ending == Ending::WouldMove,
            decided_ns,
            effect_ns: record.at_ns,
            first_dispatch_ns: first,
            version: record.version,
            swapped_ns: line.swapped_ns,
        }
    }
}

/// What this edge counted for one site, from its data plane and from its dispatcher.
fn traffic(own: Option<&SiteSnapshot>, balance: Option<&SiteCounts>) -> TrafficStatus {
    let refused = |reason| own.map_or(0, |own| own.refused(reason));
    let balance = balance.copied().unwrap_or_default();
    TrafficStatus {
        client_limited: refused(Reason::ClientRate),
        site_limited: refused(Reason::SiteRate),
        ejections: balance.ejections,
        spread: balance.spread,
        sticky_kept: balance.sticky_kept,
        sticky_anew: balance.sticky_anew,
        failing: balance.failing,
        ejected: balance.ejected,
        slow: balance.slow,
    }
}

/// What the dispatcher counted for a site's admission classes.
fn class_statuses(
    rules: &[edge::ClassRule],
    counts: Option<&Vec<ClassCounts>>,
) -> Vec<ClassStatus> {
    let names = rules.iter().map(|rule| rule.name.as_str()).chain([edge::LAST_CLASS]);
    let counts = names.zip(counts.into_iter().flatten());
    let status = |(name, counts): (&str, &ClassCounts)| ClassStatus {
        name: name.to_owned(),
        requests: counts.requests,
        shed: counts.shed,
        queued: counts.queued,
    };
    counts.map(status).collect()
}

/// How the service for edges elsewhere is scheduled, for a person.
fn scheduled(service: Service) -> Option<String> {
    let text = match service {
        Service::None => return None,
        Service::RealTime => "real time",
        Service::AsSet => "normal: `realtime` is off",
        Service::NotPermitted => "normal: real time needs CAP_SYS_NICE or RLIMIT_RTPRIO",
        Service::NoRunTime => "normal: its control group has no `cpu.rt_runtime_us`",
        Service::Refused => "normal: the kernel refused real time",
    };
    Some(text.to_owned())
}

fn node_state(seen: &moves::looper::NodeState) -> NodeState {
    match seen {
        seen if !seen.attached || seen.link == Link::Silent => NodeState::Unreachable,
        seen if !seen.alive => NodeState::AgentDead,
        seen if seen.cordoned => NodeState::Draining,
        seen if seen.site.is_none() => NodeState::Free,
        seen if seen.serving => NodeState::Serving,
        _ => NodeState::Waiting,
    }
}

/// From the monotonic clock to the calendar, for people.
fn unix_offset() -> Duration {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    unix.saturating_sub(monotonic())
}
