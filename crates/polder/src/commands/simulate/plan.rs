//! What the arguments ask for: sites, nodes, traffic, and which runs are made.

use super::SimulateArguments;
use super::rate;
use crate::commands::CommandError;
use crate::settings::Settings;
use ::load::trace::TraceWindow;
use moves::Timing;
use policy::{Kind, Thresholds};
use pool_model::{Guarantee, NodeTraits, Objective, Priority, SiteId, SiteTerms};
use sim::traces::{TraceFile, read};
use sim::{
    Arrival, EDGES_MAX, NODES_MAX, NodeSpec, Options, RateStep, SITES_MAX, ServiceTimes, SiteSpec,
    Traffic, spread,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MS: u64 = 1_000_000;
/// Runs of one command: the policies times the numbers of nodes.
const RUNS_MAX: usize = 256;
/// Nodes, objective and length where nothing says them.
const NODES_DEFAULT: u16 = 8;
const IN_FLIGHT_DEFAULT: u32 = 8;
const OBJECTIVE_MS_DEFAULT: f64 = 50.0;
const RATES_DEFAULT_S: f64 = 60.0;
/// Windows of the series over time.
const WINDOWS: u64 = 200;
/// The shortest window.
const WINDOW_MIN_NS: u64 = 10 * MS;
/// For rates, arrivals of a trace are counted in steps of so long.
const BIN_NS: u64 = 100 * MS;

/// From so many nodes to so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// The fewest.
    pub least: u16,
    /// The most.
    pub most: u16,
}

/// `8` or `4..12`.
pub(super) fn node_range(text: &str) -> Result<NodeRange, String> {
    let wrong = || format!("a number of nodes, 1 to {NODES_MAX}, or two with .. between: 4..12");
    let number = |text: &str| {
        let number: Option<u16> = text.parse().ok();
        number.filter(|&n| n > 0 && usize::from(n) <= NODES_MAX).ok_or_else(wrong)
    };
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let range = NodeRange { least: number(least)?, most: number(most)? };
    if range.least > range.most { Err(wrong()) } else { Ok(range) }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) policy: Kind,
    pub(super) nodes: u16,
}

/// What the clients do.
#[derive(Clone, Debug)]
pub(super) enum Load {
    Requests(Arc<Vec<Arrival>>),
    Rates(Vec<RateStep>),
}

/// Everything but the runs' own differences.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) names: Vec<String>,
    sites: Vec<SiteSpec>,
    /// A pattern that is repeated for as many nodes as a run has.
    nodes: Vec<NodeSpec>,
    /// Where the settings let the nodes start, if they say it.
    first: Option<Vec<Option<SiteId>>>,
    load: Load,
    pub(super) duration_ns: u64,
    edges: u8,
    timing: Timing,
    thresholds: Thresholds,
    service_times: ServiceTimes,
    seed: u64,
    pub(super) enough: f64,
    pub(super) runs: Vec<Run>,
}

fn wrong(text: impl Into<String>) -> CommandError {
    CommandError::Argument(text.into())
}

/// A trace and the site that it is for.
struct Trace {
    path: PathBuf,
    site: String,
}

/// `FILE` or `FILE=SITE`.
fn trace(text: &str) -> Trace {
    let named = text.rsplit_once('=').filter(|(file, site)| !file.is_empty() && !site.is_empty());
    if let Some((file, site)) = named.filter(|_| !Path::new(text).exists()) {
        return Trace { path: file.into(), site: site.to_owned() };
    }
    let path = PathBuf::from(text);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| text.to_owned());
    let site = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name).to_owned();
    Trace { path, site }
}

impl Plan {
    pub(super) fn of(arguments: &SimulateArguments) -> Result<Self, CommandError> {
        let settings = match &arguments.settings {
            Some(file) => Some(crate::settings::load(file, &[])?.settings),
            None => None,
        };
        let traces: Vec<Trace> = arguments.traces.iter().map(|text| trace(text)).collect();
        let made_s = arguments.window.duration.unwrap_or(RATES_DEFAULT_S);
        let rates: Vec<(String, Vec<rate::Step>)> = arguments
            .rates
            .iter()
            .map(|text| rate::parse(text, made_s).map_err(wrong))
            .collect::<Result<_, _>>()?;
        if traces.is_empty() && rates.is_empty() {
            return Err(wrong("say what clients ask for: --trace FILE=SITE or --rate SITE=RATE"));
        }
        let asked = traces.iter().map(|trace| &trace.site).chain(rates.iter().map(|rate| &rate.0));
        let names = names(settings.as_ref(), asked)?;
        refuse_twice(&traces, &rates, arguments.fluid)?;
        let sites = sites(arguments, settings.as_ref(), &names)?;
        let (load, duration_ns) = load(arguments, &names, &traces, &rates, made_s)?;
        let (nodes, first) = nodes(arguments, settings.as_ref());
        let default = u16::try_from(nodes.len()).unwrap_or(NODES_DEFAULT);
        let default = if settings.is_some() { default } else { NODES_DEFAULT };
        let range = arguments.nodes.unwrap_or(NodeRange { least: default, most: default });
        let plan = Self {
            runs: runs(arguments, settings.as_ref(), range)?,
            first: first.filter(|_| arguments.nodes.is_none()),
            names,
            sites,
            nodes,
            load,
            duration_ns,
            edges: edges(arguments, settings.as_ref()),
            timing: timing(arguments, settings.as_ref()),
            thresholds: thresholds(settings.as_ref()),
            service_times: if arguments.pool.vary {
                ServiceTimes::Exponential
            } else {
                ServiceTimes::Fixed
            },
            seed: arguments.seed,
            enough: arguments.pool.enough_pct / 100.0,
        };
        let smallest = Run { policy: Kind::Rigid, nodes: range.least };
        plan.options(&smallest).check().map_err(|error| wrong(error.to_string()))?;
        Ok(plan)
    }

    /// The pool of a run.
    pub(super) fn options(&self, run: &Run) -> Options {
        let pattern = self.nodes.iter().cycle();
        let mut nodes: Vec<NodeSpec> = pattern.take(usize::from(run.nodes)).copied().collect();
        match &self.first {
            Some(first) => nodes.iter_mut().zip(first).for_each(|(node, &site)| node.site = site),
            None => spread(&self.sites, &mut nodes),
        }
        let window_ns = (self.duration_ns / WINDOWS).max(WINDOW_MIN_NS);
        Options {
            seed: self.seed,
            edges: self.edges,
            timing: self.timing,
            slot_lease_ns: (20 * self.timing.look_every_ns).max(50 * MS),
            service_times: self.service_times,
            high_load: self.thresholds.high(),
            duration_ns: self.duration_ns,
            // What still waits then is late anyway.
            settle_ns: (self.duration_ns / 10).max(1_000 * MS),
            window_ns,
            ..Options::new(self.sites.clone(), nodes)
        }
    }

    /// The traffic of every run.
    pub(super) fn traffic(&self) -> Traffic {
        match &self.load {
            Load::Requests(all) => {
                let all = Arc::clone(all);
                Traffic::Requests(Box::new((0..all.len()).map(move |place| all[place])))
            }
            Load::Rates(steps) => Traffic::Rates(steps.clone()),
        }
    }

    pub(super) fn policy(&self, run: &Run) -> Box<dyn policy::Policy> {
        run.policy.build(self.thresholds)
    }

    /// Whether single requests are simulated.
    pub(super) fn has_requests(&self) -> bool {
        matches!(self.load, Load::Requests(_))
    }

    /// When a request of a site is late; milliseconds.
    pub(super) fn objective_ms(&self, site: usize) -> f64 {
        self.sites[site].slow_ns as f64 / 1e6
    }

    pub(super) fn guarantee(&self, site: usize) -> Guarantee {
        self.sites[site].terms.guarantee
    }
}

/// A site has one rate at a time.
fn refuse_twice(
    traces: &[Trace],
    rates: &[(String, Vec<rate::Step>)],
    fluid: bool,
) -> Result<(), CommandError> {
    for (place, (site, _)) in rates.iter().enumerate() {
        if rates[..place].iter().any(|(other, _)| other == site) {
            return Err(wrong(format!("--rate is given twice for {site}; write one with , in it")));
        }
        if fluid && traces.iter().any(|trace| trace.site == *site) {
            let text = format!("with --fluid {site} has a trace or a rate, not both");
            return Err(wrong(text));
        }
    }
    Ok(())
}

/// Sites in the order of the settings, or in which they are named first.
fn names<'a>(
    settings: Option<&Settings>,
    asked: impl Iterator<Item = &'a String>,
) -> Result<Vec<String>, CommandError> {
    let known = settings.map(|all| all.sites.iter().map(|site| site.name.clone()).collect());
    let mut names: Vec<String> = known.unwrap_or_default();
    for name in asked {
        if names.contains(name) {
            continue;
        }
        if settings.is_some() {
            return Err(wrong(format!("the settings have no site {name:?}: {}", names.join(", "))));
        }
        names.push(name.clone());
    }
    if names.len() > SITES_MAX {
        return Err(wrong(format!("{} sites; at most {SITES_MAX} can be simulated", names.len())));
    }
    Ok(names)
}

/// Values of an option, for all sites or for one: by site, if said.
fn by_site<T: Copy>(
    option: &str,
    values: &[String],
    names: &[String],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Option<T>>, CommandError> {
    let mut all = None;
    let mut own = vec![None; names.len()];
    for text in values {
        let (site, value) = match text.split_once('=') {
            Some((site, value)) => (Some(site), value),
            None => (None, text.as_str()),
        };
        let value = parse(value).ok_or_else(|| wrong(format!("{option} {text}: not a value")))?;
        match site {
            None => all = Some(value),
            Some(site) => match names.iter().position(|name| name == site) {
                Some(place) => own[place] = Some(value),
                None => {
                    let known = names.join(", ");
                    return Err(wrong(format!("{option} {text}: the sites are {known}")));
                }
            },
        }
    }
    Ok(own.into_iter().map(|value| value.or(all)).collect())
}

fn sites(
    arguments: &SimulateArguments,
    settings: Option<&Settings>,
    names: &[String],
) -> Result<Vec<SiteSpec>, CommandError> {
    let shape = &arguments.pool;
    let number = |text: &str| text.parse::<u16>().ok();
    let time = |text: &str| text.parse::<f64>().ok().filter(|ms| (1e-3..=1e7).contains(ms));
    let hard = by_site("--hard", &shape.hard, names, number)?;
    let soft = by_site("--soft", &shape.soft, names, number)?;
    let max = by_site("--max", &shape.max, names, number)?;
    let priority = by_site("--priority", &shape.priority, names, |text| text.parse::<u8>().ok())?;
    let service = by_site("--service-ms", &shape.service_ms, names, time)?;
    let objective = by_site("--objective-ms", &shape.objective_ms, names, time)?;
    let site = |place: usize| {
        let said = settings.map(|settings| settings.sites[place].terms);
        let mut terms: SiteTerms = said.unwrap_or_default();
        let bounds = terms.guarantee;
        let hard = hard[place].unwrap_or(bounds.hard);
        // What was not said follows what was.
        let soft = soft[place].unwrap_or(bounds.soft.max(hard));
        let max = max[place].unwrap_or(bounds.max.max(soft));
        terms.guarantee = Guarantee::new(hard, soft, max)
            .map_err(|error| wrong(format!("site {}: {error}", names[place])))?;
        terms.priority = priority[place].map_or(terms.priority, Priority);
        let said_ms = terms.objective.map(|objective| f64::from(objective.p99_us) / 1e3);
        let objective_ms = objective[place].or(said_ms).unwrap_or(OBJECTIVE_MS_DEFAULT);
        terms.objective = Some(Objective { p99_us: (objective_ms * 1e3) as u32 });
        let service_ns = (service[place].unwrap_or(5.0) * 1e6) as u64;
        Ok(SiteSpec { terms, service_ns, slow_ns: (objective_ms * 1e6) as u64 })
    };
    (0..names.len()).map(site).collect()
}

/// The pattern of nodes, and where the settings let them start.
fn nodes(
    arguments: &SimulateArguments,
    settings: Option<&Settings>,
) -> (Vec<NodeSpec>, Option<Vec<Option<SiteId>>>) {
    let shape = &arguments.pool;
    if let Some(settings) = settings {
        let nodes = settings.nodes.iter().map(|node| NodeSpec {
            traits: node.traits,
            max_in_flight: shape.in_flight.unwrap_or(node.max_in_flight),
            site: None,
        });
        return (nodes.collect(), Some(settings.first_assignment()));
    }
    let capacities = if shape.capacity.is_empty() { &[100][..] } else { &shape.capacity };
    let node = |&capacity_pct: &u16| NodeSpec {
        traits: NodeTraits { capacity_pct, ..NodeTraits::default() },
        max_in_flight: shape.in_flight.unwrap_or(IN_FLIGHT_DEFAULT),
        site: None,
    };
    (capacities.iter().map(node).collect(), None)
}

fn edges(arguments: &SimulateArguments, settings: Option<&Settings>) -> u8 {
    let said = settings.map(|settings| settings.edges.len().min(EDGES_MAX));
    let said = said.and_then(|count| u8::try_from(count).ok());
    arguments.pool.edges.or(said).unwrap_or(1)
}

fn timing(arguments: &SimulateArguments, settings: Option<&Settings>) -> Timing {
    let default = Timing::default();
    let said = settings.map(|settings| &settings.pool);
    let ms = |own: Option<u32>, said: Option<u32>, default_ns: u64| {
        own.or(said).map_or(default_ns, |ms| u64::from(ms) * MS)
    };
    let shape = &arguments.pool;
    let look = said.map(|pool| pool.look_every_ms);
    let hold = said.map(|pool| pool.hold_ms);
    let dead = said.map(|pool| pool.node_dead_ms);
    Timing {
        look_every_ns: ms(shape.look_ms, look, default.look_every_ns),
        hold_ns: ms(shape.hold_ms, hold, default.hold_ns),
        node_dead_ns: ms(None, dead, default.node_dead_ns),
        ..default
    }
}

fn thresholds(settings: Option<&Settings>) -> Thresholds {
    let said = settings.and_then(|settings| {
        Thresholds::new(settings.pool.high_load, settings.pool.light_load).ok()
    });
    said.unwrap_or_default()
}

fn runs(
    arguments: &SimulateArguments,
    settings: Option<&Settings>,
    range: NodeRange,
) -> Result<Vec<Run>, CommandError> {
    let said = settings.and_then(|settings| Kind::by_name(settings.pool.policy.name()));
    let default = [said.unwrap_or_default()];
    let policies = if arguments.policy.is_empty() { &default[..] } else { &arguments.policy };
    let of = |&policy: &Kind| (range.least..=range.most).map(move |nodes| Run { policy, nodes });
    let runs: Vec<Run> = policies.iter().flat_map(of).collect();
    if runs.len() > RUNS_MAX {
        return Err(wrong(format!("{} runs; at most {RUNS_MAX} at once", runs.len())));
    }
    Ok(runs)
}

/// All traffic, and how long it lasts.
fn load(
    arguments: &SimulateArguments,
    names: &[String],
    traces: &[Trace],
    rates: &[(String, Vec<rate::Step>)],
    made_s: f64,
) -> Result<(Load, u64), CommandError> {
    let id = |name: &str| {
        let place = names.iter().position(|known| known == name).unwrap_or(0);
        SiteId::from_index(place).map_err(|error| wrong(error.to_string()))
    };
    let mut steps = Vec::new();
    for (name, of_site) in rates {
        let site = id(name)?;
        let step = |step: &rate::Step| {
            let at_ns = (step.at_s * 1e9) as u64;
            RateStep { at_ns, site, per_second: step.per_second }
        };
        steps.extend(of_site.iter().map(step));
    }
    let recorded = recorded(arguments, traces, id)?;
    let last_ns = recorded.last().map_or(0, |arrival| arrival.at_ns + 1);
    let made_ns = if rates.is_empty() { 0 } else { (made_s * 1e9) as u64 };
    let duration_ns = last_ns.max(made_ns);
    if duration_ns == 0 {
        return Err(wrong("there are no requests in this part of the traces"));
    }
    if arguments.fluid {
        steps.extend(binned(&recorded, names.len()));
        return Ok((Load::Rates(steps), duration_ns.next_multiple_of(BIN_NS)));
    }
    let made = match Traffic::poisson(arguments.seed, steps, made_ns) {
        Traffic::Requests(made) => made,
        Traffic::Rates(_) => Box::new(std::iter::empty()),
    };
    let mut all = recorded;
    all.extend(made);
    all.sort_by_key(|arrival| arrival.at_ns);
    Ok((Load::Requests(Arc::new(all)), duration_ns))
}

fn recorded(
    arguments: &SimulateArguments,
    traces: &[Trace],
    id: impl Fn(&str) -> Result<SiteId, CommandError>,
) -> Result<Vec<Arrival>, CommandError> {
    if traces.is_empty() {
        return Ok(Vec::new());
    }
    let window = &arguments.window;
    let interval_ns = window.interval_s * 1e9;
    if !(1e6..=1e15).contains(&interval_ns) {
        return Err(wrong("--interval-s: 0.001 to 1,000,000"));
    }
    let mut files = Vec::new();
    for Trace { path, site } in traces {
        let (path, format, sites) = (path.clone(), window.format, vec![id(site)?]);
        files.push(TraceFile { path, format, interval_ns: interval_ns as u64, sites });
    }
    let window = TraceWindow {
        start_s: window.start,
        duration_s: window.duration,
        compress: window.compress,
        scale: window.scale,
        seed: arguments.seed,
    };
    Ok(read(&files, window)?)
}

/// Arrivals as rates: counted in steps of time.
fn binned(arrivals: &[Arrival], sites: usize) -> Vec<RateStep> {
    let mut steps = Vec::new();
    let last_bin = arrivals.last().map_or(0, |arrival| arrival.at_ns / BIN_NS + 1);
    let mut left = arrivals.iter().peekable();
    let mut counts = vec![0_u64; sites];
    for bin in 0..=last_bin {
        counts.fill(0);
        while let Some(arrival) = left.next_if(|arrival| arrival.at_ns / BIN_NS == bin) {
            counts[arrival.site.index()] += 1;
        }
        for (place, &count) in counts.iter().enumerate() {
            if let Ok(site) = SiteId::from_index(place) {
                let per_second = count as f64 * 1e9 / BIN_NS as f64;
                steps.push(RateStep { at_ns: bin * BIN_NS, site, per_second });
            }
        }
    }
    steps
}
