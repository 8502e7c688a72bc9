//! Admission classes against a naive twin, one list searched for whoever goes first and last; and
//! an overloaded site in virtual time.

use super::tests::{MAX, NOW, Out, Somebody, granted, look, record, site};
use super::*;
use crate::face::{Rank, Stick};
use proptest::prelude::*;
use shared_state::slot::NodeSlot;
use shared_state::words::Lease;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

const QUEUE_MAX: usize = 6;

/// A core with one site of one node, of this many classes.
fn ranked_core(rules: SiteRules, records: &[NodeRecord]) -> Core<Somebody> {
    let edge = EdgeId::new(0).unwrap();
    let health = HealthOptions::default();
    let options = DispatchOptions { edge, incarnation: 1, sites: vec![rules], health };
    let mut core = Core::new(&options);
    for record in records {
        let lease = Lease { incarnation: 1, beat: 0 };
        core.attach(NodeSlot::take(record.clone(), edge, 0, lease).unwrap());
    }
    look(&mut core, records, &[]);
    core
}

fn rules(classes: u8) -> SiteRules {
    SiteRules { classes, queue_max: QUEUE_MAX, ..SiteRules::new(site(1)) }
}

fn ask(rank: u8) -> Ask<'static> {
    Ask { rank: Rank(rank), ..Ask::default() }
}

/// Somebody who waits in the twin, in the order of arrival.
#[derive(Clone, Debug)]
struct Waits {
    who: usize,
    rank: usize,
    gone: Rc<Cell<bool>>,
}

/// The naive reading of the rules.
#[derive(Debug, Default)]
struct Twin {
    classes: usize,
    in_flight: u32,
    waiting: Vec<Waits>,
    counts: Vec<(u64, u64)>,
}

/// What comes of a request: it goes, it waits (in the place of somebody), or it is refused.
#[derive(Debug, PartialEq)]
enum Told {
    Goes,
    Waits(Option<usize>),
    Shed,
}

impl Twin {
    fn ask(&mut self, who: usize, rank: usize, gone: &Rc<Cell<bool>>) -> Told {
        let rank = rank.min(self.classes - 1);
        self.counts[rank].0 += 1;
        // As the core: a class of whom all are gone is noticed by whoever comes behind them.
        let is_alive = |waits: &Waits, rank| waits.rank == rank && !waits.gone.get();
        let free = |rank| !self.waiting.iter().any(|waits| is_alive(waits, rank));
        let passed = (0..=rank).take_while(|&rank| free(rank)).count();
        self.waiting.retain(|waits| waits.rank >= passed);
        if passed > rank && self.in_flight < MAX {
            self.in_flight += 1;
            return Told::Goes;
        }
        if self.waiting.len() >= QUEUE_MAX {
            self.waiting.retain(|waits| !waits.gone.get());
        }
        let me = Waits { who, rank, gone: Rc::clone(gone) };
        if self.waiting.len() < QUEUE_MAX {
            self.waiting.push(me);
            return Told::Waits(None);
        }
        // The newest of the lowest class.
        let places = self.waiting.iter().enumerate();
        let lowest = places.max_by_key(|(place, waits)| (waits.rank, *place)).unwrap().0;
        let shed = if self.waiting[lowest].rank > rank { lowest } else { QUEUE_MAX };
        self.waiting.push(me);
        let shed = self.waiting.remove(shed);
        self.counts[shed.rank].1 += 1;
        if shed.who == who { Told::Shed } else { Told::Waits(Some(shed.who)) }
    }

    fn pump(&mut self) -> Vec<usize> {
        let mut out = Vec::new();
        while self.in_flight < MAX {
            let alive = self.waiting.iter().enumerate().filter(|(_, waits)| !waits.gone.get());
            let Some((first, _)) = alive.min_by_key(|(place, waits)| (waits.rank, *place)) else {
                break;
            };
            out.push(self.waiting.remove(first).who);
            self.in_flight += 1;
        }
        // As the core: it forgets those whom it meets before the first who stays.
        let stays = self.waiting.iter().filter(|waits| !waits.gone.get());
        let first = stays.map(|waits| (waits.rank, waits.who)).min();
        let before = |waits: &Waits| first.is_none_or(|first| (waits.rank, waits.who) < first);
        self.waiting.retain(|waits| !(waits.gone.get() && before(waits)));
        out
    }

    fn set_classes(&mut self, after: usize) {
        let before = std::mem::replace(&mut self.classes, after);
        for waits in &mut self.waiting {
            let is_last = waits.rank == before - 1;
            waits.rank = if is_last { after - 1 } else { waits.rank.min(after - 1) };
        }
        if before != after {
            self.counts = vec![(0, 0); after];
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8),
    Leave(usize),
    GiveUp(usize),
    Classes(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_u8..5).prop_map(Step::Ask),
        6 => any::<usize>().prop_map(Step::Leave),
        2 => any::<usize>().prop_map(Step::GiveUp),
        1 => (2_u8..5).prop_map(Step::Classes),
    ]
}

struct Pair {
    core: Core<Somebody>,
    twin: Twin,
    asked: usize,
    in_flight: Vec<Grant>,
    flags: Vec<Rc<Cell<bool>>>,
}

impl Pair {
    fn new() -> Self {
        let core = ranked_core(rules(3), &[record(0, 1)]);
        let twin = Twin { classes: 3, counts: vec![(0, 0); 3], ..Twin::default() };
        Self { core, twin, asked: 0, in_flight: Vec::new(), flags: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask(rank) => self.ask(rank),
            Step::Leave(which) if !self.in_flight.is_empty() => {
                let grant = self.in_flight.swap_remove(which % self.in_flight.len());
                self.twin.in_flight -= 1;
                let mut out = Out::new();
                self.core.leave(&grant, NOW, &mut out);
                let gone: Vec<usize> = out.iter().map(|(who, _)| who.0).collect();
                assert_eq!(gone, self.twin.pump(), "{:?}", self.twin);
                self.in_flight.extend(out.into_iter().map(|(_, grant)| grant));
            }
            Step::GiveUp(which) if !self.flags.is_empty() => {
                self.flags[which % self.flags.len()].set(true);
            }
            Step::Classes(classes) => {
                self.core.set_rules(&[rules(classes)], HealthOptions::default());
                self.twin.set_classes(usize::from(classes));
            }
            Step::Leave(_) | Step::GiveUp(_) => {}
        }
        let counts = self.core.class_counts().remove(0);
        let counts: Vec<_> = counts.iter().map(|count| (count.requests, count.shed)).collect();
        assert_eq!(counts, self.twin.counts);
        assert_eq!(self.core.totals().0, self.twin.waiting.len(), "{:?}", self.twin);
    }

    fn ask(&mut self, rank: u8) {
        self.asked += 1;
        let (who, gone) = (self.asked, Rc::new(Cell::new(false)));
        let me = Somebody(who, Rc::clone(&gone));
        let outcome = self.core.request(site(1), ask(rank), NOW, || me);
        let displaced = self.core.take_shed().pop().map(|(waiter, _)| waiter.0);
        let told = match outcome {
            Outcome::Granted(grant) => {
                self.in_flight.push(grant);
                Told::Goes
            }
            Outcome::Queued { .. } => {
                self.flags.push(Rc::clone(&gone));
                Told::Waits(displaced)
            }
            Outcome::Refused(Refusal::Shed { .. }) => Told::Shed,
            Outcome::Refused(other) => panic!("{other:?}"),
        };
        assert_eq!(told, self.twin.ask(who, usize::from(rank), &gone), "{:?}", self.twin);
    }
}

proptest! {
    /// Whoever comes, of whatever class, and whoever gives up: the same requests go in the same
    /// order, and the same are shed, as by the naive reading of the rules.
    #[test]
    fn classes_agree_with_one_list(steps in proptest::collection::vec(any_step(), 1..300)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        for _ in 0..steps.len() {
            pair.step(&Step::Leave(0));
        }
        prop_assert!(pair.in_flight.is_empty() && pair.core.totals() == (0, 0));
    }
}

#[test]
fn a_higher_class_goes_before_who_waits_for_the_same_server_and_takes_its_place() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = ranked_core(SiteRules { queue_max: 2, ..rules(2) }, &records);
    let own = Some(Stick::Server(NodeId::new(0).unwrap()));
    let mut request = |who: usize, rank: u8, stick| {
        let ask = Ask { stick, ..ask(rank) };
        let outcome = core.request(site(1), ask, NOW, || Somebody(who, Rc::default()));
        (outcome, core.take_shed().pop().map(|(waiter, refusal)| (waiter.0, refusal)))
    };
    let grants: Vec<Grant> = (0..MAX).map(|_| granted(request(0, 1, own).0)).collect();
    for who in 1..=2 {
        assert_eq!(request(who, 1, own).0, Outcome::Queued { first: who == 1 });
    }
    let shed = Refusal::Shed { retry_after_s: 1 };
    assert_eq!(request(3, 1, own).0, Outcome::Refused(shed), "nobody is below it");
    assert_eq!(request(4, 0, own), (Outcome::Queued { first: false }, Some((2, shed))));
    // One that takes any server finds the other one idle.
    assert!(matches!(request(5, 1, None).0, Outcome::Granted(_)));
    let mut out = Out::new();
    core.leave(&grants[0], NOW, &mut out);
    core.leave(&grants[1], NOW, &mut out);
    assert_eq!(out.iter().map(|(who, _)| who.0).collect::<Vec<_>>(), [4, 1]);
}

#[test]
fn a_retry_is_not_shed_by_prediction_and_a_full_queue_is_told_as_before_without_classes() {
    let records = [record(0, 1)];
    let objective = Some(Duration::from_millis(1));
    let mut core = ranked_core(SiteRules { objective, ..rules(2) }, &records);
    for _ in 0..MAX {
        granted(core.request(site(1), ask(1), NOW, || Somebody(0, Rc::default())));
    }
    let mut again = |avoid: &[NodeId]| {
        let ask = Ask { avoid, ..ask(1) };
        core.request(site(1), ask, NOW, || Somebody(0, Rc::default()))
    };
    // Nothing is known: as many may wait as are served, which the queue has no room for.
    for _ in 0..QUEUE_MAX {
        assert!(matches!(again(&[]), Outcome::Queued { .. }));
    }
    let records = [record(0, 1)];
    let mut core = ranked_core(SiteRules { objective, queue_max: 99, ..rules(2) }, &records);
    let mut last = None;
    for _ in 0..3 * MAX {
        last = Some(core.request(site(1), ask(1), NOW, || Somebody(0, Rc::default())));
    }
    assert!(matches!(last, Some(Outcome::Refused(Refusal::Shed { .. }))), "{last:?}");
    let avoid = [NodeId::new(7).unwrap()];
    let retry = Ask { avoid: &avoid, ..ask(1) };
    let outcome = core.request(site(1), retry, NOW, || Somebody(0, Rc::default()));
    assert_eq!(outcome, Outcome::Queued { first: false });
    assert!(!core.class_counts()[0].is_empty());
    core.set_rules(&[SiteRules { queue_max: 0, ..rules(1) }], HealthOptions::default());
    let outcome = core.request(site(1), ask(0), NOW, || Somebody(0, Rc::default()));
    assert_eq!(outcome, Outcome::Refused(Refusal::QueueFull));
    assert!(core.class_counts()[0].is_empty());
}

/// An overloaded site in virtual time: a node that serves [`MAX`] requests at once, each for a
/// fixed time, and requests that come at random.
struct Overload {
    service: Duration,
    objective: Duration,
    /// Requests for each one that could be answered.
    times: f64,
    gold_pct: u64,
}

/// What came of the requests of one class.
#[derive(Debug, Default)]
struct Tally {
    came: u32,
    /// At once.
    shed: u32,
    /// After they had waited.
    shed_late: u32,
    in_time: u32,
    late: u32,
}

/// Marsaglia's xorshift as numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Overload {
    fn run(&self, seed: u64, length: Duration) -> [Tally; 2] {
        let rules = SiteRules { objective: Some(self.objective), queue_max: 10_000, ..rules(2) };
        let mut core = ranked_core(rules, &[record(0, 1)]);
        let mut tallies = [Tally::default(), Tally::default()];
        let mut random = Random(seed | 1);
        let gap_s = self.service.as_secs_f64() / f64::from(MAX) / self.times;
        let start = Duration::from_secs(9);
        let mut next = start;
        // When each request came, and its class; who is served, in the order of their ends.
        let mut asked: Vec<(Duration, usize)> = Vec::new();
        let mut served: VecDeque<(Duration, usize, Grant)> = VecDeque::new();
        let mut out = Out::new();
        loop {
            let end = served.front().map(|first| first.0);
            let arrives = next < start + length;
            let now = match end {
                Some(end) if !arrives || end <= next => end,
                _ if arrives => next,
                _ => return tallies,
            };
            if end == Some(now) {
                let (_, who, grant) = served.pop_front().unwrap();
                let (came, class) = asked[who];
                let tally = &mut tallies[class];
                let in_time = now - came <= self.objective;
                *if in_time { &mut tally.in_time } else { &mut tally.late } += 1;
                core.leave(&grant, now, &mut out);
                for (who, _) in core.take_shed() {
                    tallies[asked[who.0].1].shed_late += 1;
                }
                let goes = out.drain(..).map(|(who, grant)| (now + self.service, who.0, grant));
                served.extend(goes);
                continue;
            }
            let class = usize::from(random.draw() * 100.0 >= self.gold_pct as f64);
            let who = asked.len();
            asked.push((now, class));
            tallies[class].came += 1;
            let me = Somebody(who, Rc::default());
            match core.request(site(1), ask(class as u8), now, || me) {
                Outcome::Granted(grant) => served.push_back((now + self.service, who, grant)),
                Outcome::Queued { .. } => {}
                Outcome::Refused(_) => tallies[class].shed += 1,
            }
            next = now + Duration::from_secs_f64(-gap_s * random.draw().max(1e-9).ln());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A site gets twice as much as it can answer. Its highest class loses nothing and is in time;
    /// of the others those that are let in are in time; and the servers do not idle for it.
    #[test]
    fn those_admitted_meet_the_objective(
        seed: u64, gold_pct in 5_u64..30, service_ms in 2_u64..30, budget in 5_u64..12,
        times in 1.5_f64..2.5,
    ) {
        let service = Duration::from_millis(service_ms);
        let objective = service * budget as u32;
        let overload = Overload { service, objective, times, gold_pct };
        let length = service * 3_000;
        let [gold, other] = overload.run(seed, length);
        prop_assert_eq!(gold.in_time, gold.came, "{:?} {:?}", gold, other);
        prop_assert!(other.late * 100 <= other.in_time, "{:?} {:?}", gold, other);
        // Nearly all of those who are refused hear it at once.
        prop_assert!(other.shed > 5 * other.shed_late, "{:?} {:?}", gold, other);
        let (all, told) = (other.came, other.shed + other.shed_late + other.in_time + other.late);
        prop_assert_eq!(all, told, "each has one end");
        let capacity = 3_000 * MAX;
        let answered = gold.in_time + other.in_time + other.late;
        prop_assert!(answered * 100 >= capacity * 95, "{} of {}", answered, capacity);
    }
}
