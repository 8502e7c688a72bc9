//! Two sites of different priority under three policies.

use super::pools::{HIGH, LOW, SITES, minimum};
use super::streams::{Done, Shape, Stream, wait};
use super::{pools, zipf};
use crate::waits::Cost;
use anyhow::{Context as _, ensure};
use load::clock::{ThreadTime, now_ns};
use load::generate::{Cancel, GeneratorOptions};
use polder::rig::{MoveLog, NodeHistory, Rig};
use polder::settings::PolicyName;
use serde::Serialize;
use std::thread::sleep;
use std::time::Duration;

/// The site that is loaded throughout has the pool to itself for so long: many times what its
/// nodes take to come.
const LEAD: Duration = Duration::from_millis(300);
/// Requests in flight of a loaded site: twice what all nodes take at once. Nodes in step
/// answer dozens of requests at a time, and a site that waits for its clients' next ones must not
/// look as if nobody wanted it.
pub(crate) const IN_FLIGHT: usize = 256;

/// Which site gets what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Case {
    /// Case 1: the low one throughout, then a burst to the high one.
    LowFirst,
    /// Case 2: the high one throughout, then a burst to the low one.
    HighFirst,
    /// Case 3: a burst to both at once.
    Together,
}

impl Case {
    pub(crate) const ALL: [Self; 3] = [Self::LowFirst, Self::HighFirst, Self::Together];

    /// As the paper counts them.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::LowFirst => 1,
            Self::HighFirst => 2,
            Self::Together => 3,
        }
    }

    /// The site that is loaded throughout.
    fn throughout(self) -> Option<usize> {
        match self {
            Self::LowFirst => Some(LOW),
            Self::HighFirst => Some(HIGH),
            Self::Together => None,
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Documents {
    /// One file of so many bytes.
    Single(usize),
    /// Many, by Zipf's law.
    Zipf,
}

impl Documents {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Single(bytes) => format!("{}K", bytes / 1_024),
            Self::Zipf => "Zipf".to_owned(),
        }
    }

    pub(crate) fn longest_bytes(self) -> usize {
        match self {
            Self::Single(bytes) => bytes,
            Self::Zipf => zipf::LONGEST_BYTES,
        }
    }

    fn ask(self, load: &mut GeneratorOptions, site: usize) {
        if self == Self::Zipf {
            zipf::ask_for_documents(load, site as u64 + 1);
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CaseRound {
    pub(crate) case: Case,
    pub(crate) documents: Documents,
    /// Requests of a burst.
    pub(crate) requests: u64,
    /// A burst is cut after so long.
    pub(crate) cut: Option<Duration>,
}

/// One site in one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteRun {
    pub(crate) site: &'static str,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    /// Their kinds.
    pub(crate) failures: String,
    /// Good responses per second while the measured burst was on.
    pub(crate) per_second: f64,
    /// Share of the whole run in which the site had its hard guarantee; percent.
    pub(crate) hard_met_pct: f64,
    /// Share of the time in which it was loaded in which it had its soft one; percent.
    pub(crate) soft_met_pct: f64,
    /// The fewest nodes that it had.
    pub(crate) fewest: u32,
    /// Its nodes over time: from so many seconds on so many.
    pub(crate) nodes: Vec<(f64, u32)>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseRun {
    pub(crate) case: Case,
    pub(crate) documents: Documents,
    #[serde(skip)]
    pub(crate) policy: PolicyName,
    #[serde(rename = "policy")]
    pub(crate) policy_name: &'static str,
    /// Nodes that a site is left, as the settings say.
    pub(crate) minimum: u16,
    /// [`HIGH`] and [`LOW`].
    pub(crate) sites: [SiteRun; 2],
    pub(crate) seconds: f64,
    /// Whether the burst ended before it was cut.
    pub(crate) is_whole: bool,
    pub(crate) moves: usize,
    pub(crate) cost: Cost,
}

impl CaseRun {
    /// What failed, in words; nothing if nothing did.
    pub(crate) fn failures(&self) -> Option<String> {
        let failing = self.sites.iter().filter(|site| site.failed > 0);
        let kinds: Vec<String> =
            failing.map(|site| format!("{} {}", site.site, site.failures)).collect();
        let (number, policy) = (self.case.number(), self.policy_name);
        let text = || format!("failed in case {number}, {policy}: {}", kinds.join("; "));
        (!kinds.is_empty()).then(text)
    }
}

/// Starts a pool, runs the case, and lets the pool go.
pub(crate) fn run(
    round: CaseRound,
    policy: PolicyName,
    cancel: &Cancel,
) -> anyhow::Result<CaseRun> {
    let mut options = pools::prioritised(policy, round.documents.longest_bytes());
    options.cancel = cancel.clone();
    let rig = Rig::start(&options)?;
    let load = GeneratorOptions { in_flight: IN_FLIGHT, ..rig.load() };
    in_rig(&rig, &load, round, policy, cancel)
}

/// The same in a pool that runs, whose nodes are where they started. `load` says how to ask.
pub(crate) fn in_rig(
    rig: &Rig,
    load: &GeneratorOptions,
    round: CaseRound,
    policy: PolicyName,
    cancel: &Cancel,
) -> anyhow::Result<CaseRun> {
    let load_of = |site| {
        let mut load = load.clone();
        round.documents.ask(&mut load, site);
        load
    };
    let (before, cpu) = (rig.status()?, rig.cpu());
    let start_ns = now_ns();
    let throughout = round.case.throughout().map(|site| {
        let stream = Stream::start(load_of(site), site, Shape::Throughout);
        sleep(LEAD);
        (site, stream)
    });
    let is_measured = |site: &usize| Some(*site) != round.case.throughout();
    let burst = |site| (site, Stream::start(load_of(site), site, Shape::Burst(round.requests)));
    let bursts: Vec<(usize, Stream)> =
        [HIGH, LOW].into_iter().filter(is_measured).map(burst).collect();
    let streams: Vec<&Stream> = bursts.iter().map(|(_, stream)| stream).collect();
    let waited = wait(&streams, round.cut, cancel);
    bursts.iter().for_each(|(_, stream)| stream.stop());
    // Also when it failed: whoever makes load must end before its pool does.
    let mut done: [Option<Done>; 2] = [None, None];
    for (site, stream) in bursts {
        done[site] = Some(stream.finish()?);
    }
    if let Some((site, stream)) = throughout {
        stream.stop();
        done[site] = Some(stream.finish()?);
    }
    let is_whole = waited?;
    let [Some(high), Some(low)] = done else { anyhow::bail!("a site was not loaded") };
    let end_ns = high.end_ns.max(low.end_ns);
    let spent = rig.cpu().since(&cpu);
    let after = rig.status()?;
    let mut log = MoveLog::default();
    log.add(rig.moves()?);
    let history = NodeHistory::replay(&before, &log, &after).context("the history of moves")?;
    let run = Run { round, history, start_ns, end_ns };
    let (mut generator, requests) =
        (ThreadTime::default(), high.tally.requests + low.tally.requests);
    for one in [&high, &low] {
        generator.run_ns += one.cpu.run_ns;
        generator.wait_ns = generator.wait_ns.max(one.cpu.wait_ns);
    }
    let sites = [run.site(HIGH, &high, &low), run.site(LOW, &low, &high)];
    let counted = [&high, &low].iter().all(|one| one.tally.adds_up());
    ensure!(counted, "a request was counted twice or not at all");
    Ok(CaseRun {
        case: round.case,
        documents: round.documents,
        policy,
        policy_name: policy.name(),
        minimum: minimum(policy),
        sites,
        seconds: (end_ns - start_ns) as f64 / 1e9,
        is_whole,
        moves: run.history.moves(),
        cost: Cost::of(requests, &spent, generator),
    })
}

struct Run {
    round: CaseRound,
    history: NodeHistory,
    start_ns: u64,
    end_ns: u64,
}

impl Run {
    fn site(&self, place: usize, done: &Done, other: &Done) -> SiteRun {
        let name = SITES[place];
        let is_throughout = self.round.case.throughout() == Some(place);
        // Of the one that is loaded throughout counts what it got beside the other's burst.
        let per_second = if is_throughout {
            done.rate_within(other.start_ns, other.end_ns)
        } else {
            let seconds = done.end_ns.saturating_sub(done.start_ns) as f64 / 1e9;
            if seconds > 0.0 { done.tally.ok as f64 / seconds } else { 0.0 }
        };
        let hard = self.history.below(name, u32::from(pools::HARD), (self.start_ns, self.end_ns));
        let soft = self.history.below(name, u32::from(pools::SOFT), (done.start_ns, done.end_ns));
        let nodes = self.history.nodes_of(name).into_iter();
        let since = |at_ns: u64| at_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        SiteRun {
            site: name,
            ok: done.tally.ok,
            failed: done.tally.failures.total(),
            failures: done.tally.failures.to_string(),
            per_second,
            hard_met_pct: met_pct(hard.possible_ns, self.end_ns - self.start_ns),
            soft_met_pct: met_pct(soft.possible_ns, done.end_ns - done.start_ns),
            fewest: hard.fewest,
            nodes: nodes.map(|(at_ns, count)| (since(at_ns), count)).collect(),
        }
    }
}

/// The share of the time that was not below; percent. Of no time, all.
fn met_pct(below_ns: u64, total_ns: u64) -> f64 {
    if total_ns == 0 { 100.0 } else { 100.0 - 100.0 * below_ns as f64 / total_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_those_of_the_paper() {
        assert_eq!(Case::ALL.map(Case::number), [1, 2, 3]);
        let throughout = Case::ALL.map(Case::throughout);
        assert_eq!(throughout, [Some(LOW), Some(HIGH), None]);
    }

    #[test]
    fn time_below_is_time_in_which_a_guarantee_was_not_met() {
        assert_eq!(met_pct(0, 500), 100.0);
        assert_eq!(met_pct(125, 500), 75.0);
        assert_eq!(met_pct(0, 0), 100.0);
    }
}
