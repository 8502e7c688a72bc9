//! Traffic as rates: a fluid.
//!
//! ```text
//! each step of time dt, each site:
//!   can    = dt x sum over its live nodes of (max_in_flight / service time x fitness)
//!   served = min(waiting + rate x dt, can);  waiting += rate x dt - served, refused beyond a bound
//!   load   = all slots full while anything waits, else served / can of the slots
//! ```
//!
//! A request that comes while `waiting` are before it is answered after `waiting / can x dt` and
//! one service time; if that is beyond the objective, the step's arrivals are slow. The load of a
//! site is written to its nodes' load words in whole requests whose sum is right.

use crate::memory::{Memory, NodeLife};
use crate::options::Options;
use crate::outcome::Totals;
use crate::traffic::RateStep;
use pool_model::{NodeId, SiteId};

/// The state of all sites.
#[derive(Debug)]
pub(crate) struct Rates {
    steps: Vec<RateStep>,
    at: usize,
    rate: Vec<f64>,
    waiting: Vec<f64>,
    /// Requests per second that a site's nodes serve; kept until its nodes change.
    can: Vec<Option<f64>>,
    slots: Vec<u64>,
    /// What the load words of a site say in sum; none if they must be written again.
    written: Vec<Option<u64>>,
    queue_max: f64,
}

impl Rates {
    pub(crate) fn new(options: &Options, mut steps: Vec<RateStep>) -> Self {
        steps.sort_by_key(|step| step.at_ns);
        let sites = options.sites.len();
        Self {
            steps,
            at: 0,
            rate: vec![0.0; sites],
            waiting: vec![0.0; sites],
            can: vec![None; sites],
            slots: vec![0; sites],
            written: vec![None; sites],
            queue_max: options.queue_max as f64 * f64::from(options.edges),
        }
    }

    /// The nodes of a site changed.
    pub(crate) fn changed(&mut self, site: SiteId) {
        let index = site.index();
        (self.can[index], self.written[index]) = (None, None);
    }

    /// Requests of a site that wait.
    pub(crate) fn waiting(&self, site: SiteId) -> f64 {
        self.waiting[site.index()]
    }

    /// The mean service time of a site, as its nodes are; 0 while it has none.
    pub(crate) fn service_us(&self, site: SiteId) -> u32 {
        let can = self.can[site.index()].unwrap_or(0.0);
        let slots = self.slots[site.index()] as f64;
        if can > 0.0 { (slots * 1e6 / can).round() as u32 } else { 0 }
    }

    /// Lets one step of time pass that ends at `now_ns`.
    pub(crate) fn flow(
        &mut self,
        now_ns: u64,
        options: &Options,
        memory: &mut Memory,
        totals: &mut Totals,
    ) {
        let dt_ns = options.flow_every_ns;
        let from_ns = now_ns.saturating_sub(dt_ns);
        while let Some(step) = self.steps.get(self.at).filter(|step| step.at_ns <= from_ns) {
            self.rate[step.site.index()] = step.per_second;
            self.at += 1;
        }
        let comes = from_ns < options.duration_ns;
        for index in 0..self.rate.len() {
            let Ok(site) = SiteId::from_index(index) else { break };
            self.flow_site(site, (from_ns, comes), options, memory, totals);
        }
    }

    fn flow_site(
        &mut self,
        site: SiteId,
        (from_ns, comes): (u64, bool),
        options: &Options,
        memory: &mut Memory,
        totals: &mut Totals,
    ) {
        let index = site.index();
        let spec = &options.sites[index];
        let dt_s = options.flow_every_ns as f64 / 1e9;
        let can = match self.can[index] {
            Some(can) => can,
            None => self.count(site, options, memory),
        } * dt_s;
        let came = if comes { self.rate[index] * dt_s } else { 0.0 };
        let before = self.waiting[index];
        let served = (before + came).min(can);
        let waits = before + came - served;
        let refused = (waits - self.queue_max).max(0.0);
        self.waiting[index] = waits - refused;
        // The last of the step's arrivals waits for what is before it, then for its own service.
        let takes_s = if can > 0.0 {
            self.waiting[index] / can * dt_s + spec.service_ns as f64 / 1e9
        } else {
            f64::INFINITY
        };
        let slow = if takes_s * 1e9 > spec.slow_ns as f64 { came } else { refused.min(came) };
        let site_totals = &mut totals.sites[index];
        site_totals.arrived += came;
        site_totals.served += served;
        site_totals.slow += slow;
        site_totals.refused += refused;
        let window = totals.window(site, from_ns);
        window.arrived += came;
        window.served += served;
        window.slow += slow;
        let slots = self.slots[index];
        let used = if self.waiting[index] > 0.0 || can == 0.0 { 1.0 } else { served / can };
        let in_flight = (used * slots as f64).round() as u64;
        if self.written[index] != Some(in_flight) {
            self.written[index] = Some(in_flight);
            write(site, (in_flight, slots), options, memory);
        }
    }

    /// Adds up what a site's nodes can do.
    fn count(&mut self, site: SiteId, options: &Options, memory: &Memory) -> f64 {
        let spec = &options.sites[site.index()];
        let (mut can, mut slots) = (0.0, 0);
        for &node in memory.members(site) {
            if memory.life(node) == NodeLife::Down {
                continue;
            }
            let of = &options.nodes[node.index()];
            let fitness = f64::from(spec.terms.fitness_pct(of.traits)) / 100.0;
            can += f64::from(of.max_in_flight) * 1e9 / spec.service_ns as f64 * fitness;
            slots += u64::from(of.max_in_flight);
        }
        (self.can[site.index()], self.slots[site.index()]) = (Some(can), slots);
        can
    }
}

/// Spreads a site's requests over its nodes by their slots, in whole numbers of the right sum.
fn write(site: SiteId, (in_flight, slots): (u64, u64), options: &Options, memory: &mut Memory) {
    let share = |before: u64| (before * in_flight).checked_div(slots).unwrap_or(0);
    let mut before = 0;
    for place in 0..memory.members(site).len() {
        let node: NodeId = memory.members(site)[place];
        if memory.life(node) == NodeLife::Down {
            continue;
        }
        let after = before + u64::from(options.nodes[node.index()].max_in_flight);
        memory.set_load(node, u32::try_from(share(after) - share(before)).unwrap_or(u32::MAX));
        before = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{NodeSpec, SiteSpec};
    use pool_model::{NodeTraits, SiteTerms};

    const MS: u64 = 1_000_000;

    fn options() -> Options {
        let spec = SiteSpec { terms: SiteTerms::default(), service_ns: 5 * MS, slow_ns: 50 * MS };
        let site = Some(SiteId::MIN);
        let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: 8, site };
        let fast = NodeTraits { capacity_pct: 200, ..NodeTraits::default() };
        Options::new(vec![spec], vec![node, NodeSpec { traits: fast, ..node }])
    }

    fn run(per_second: f64, steps: u64) -> (Rates, Memory, Totals) {
        let options = options();
        let site = SiteId::MIN;
        let mut rates = Rates::new(&options, vec![RateStep { at_ns: 0, site, per_second }]);
        let (mut memory, mut totals) = (Memory::new(&options), Totals::new(&options));
        for step in 1..=steps {
            rates.flow(step * options.flow_every_ns, &options, &mut memory, &mut totals);
        }
        (rates, memory, totals)
    }

    #[test]
    fn what_can_be_served_is_and_the_load_words_say_how_full_the_nodes_are() {
        // 8 / 5 ms and twice that: 4,800 in a second.
        let (rates, memory, totals) = run(2_400.0, 100);
        assert_eq!(rates.waiting(SiteId::MIN), 0.0);
        assert!((totals.sites[0].served - 2_400.0).abs() < 1.0);
        assert_eq!(totals.sites[0].slow, 0.0);
        let loads = (0..2).map(|n| memory.load(NodeId::new(n).unwrap())).sum::<u32>();
        assert_eq!(loads, 8, "half of 16 slots");
    }

    #[test]
    fn what_cannot_waits_and_is_slow() {
        let (rates, memory, totals) = run(5_800.0, 100);
        assert!((rates.waiting(SiteId::MIN) - 1_000.0).abs() < 1.0);
        let totals = &totals.sites[0];
        assert!((totals.arrived - totals.served - 1_000.0).abs() < 1.0);
        // The first are in time: until 45 ms of work wait.
        assert!(totals.slow > 4_000.0 && totals.slow < 5_000.0, "{}", totals.slow);
        assert_eq!(memory.load(NodeId::MIN), 8);
    }
}
