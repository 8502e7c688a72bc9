//! Whatever the words hold and whatever is answered: no panic, no endless loop; and step 0 agrees
//! with a naive twin.

use crate::memory::{node, site};
use moves::protocol::{
    DepartState, FloorPlan, Help, Join, Machine, Next, Prepared, Renew, Reply, Seen, SetFloor,
    SiteWords, Task, prepare,
};
use moves::{Core, Input, Mode, Options, Timing, Work};
use pool_model::{EdgeId, Guarantee, NodeTraits, NodeView, PoolView, SiteTerms, SiteView};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use shared_state::words::{Assign, Depart, Departure, Epoch, Floor};

fn terms() -> SiteTerms {
    SiteTerms::default().with_guarantee(Guarantee { hard: 1, soft: 1, max: 9 })
}

const SITES: u16 = 3;
const NODES: u16 = 5;
/// Operations within which every machine ends: a renewal takes one for each node.
const OPS_MAX: usize = 40;

/// Words that look real, and words that are noise.
fn epoch() -> impl Strategy<Value = Epoch> {
    (0..3u32, 0..2u32).prop_map(|(counter, nonce)| Epoch::new(counter, nonce))
}

fn depart() -> impl Strategy<Value = u64> {
    let departure = (0..NODES, 0..=SITES, 0..4u8).prop_map(|(number, taker, version_low)| {
        let taker = (taker > 0).then(|| site(taker));
        Departure { node: node(number), taker, version_low }
    });
    let word = (epoch(), prop_oneof![0..3u8, Just(255)], proptest::option::of(departure));
    prop_oneof![
        6 => word.prop_map(|(epoch, sequence, pending)| Depart { epoch, sequence, pending }.pack()),
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

fn assign() -> impl Strategy<Value = Option<u64>> {
    let word = (0..=SITES, epoch(), 0..4u32).prop_map(|(at, stamp, version)| {
        Assign { site: (at > 0).then(|| site(at)), stamp, version }.pack()
    });
    prop_oneof![
        8 => word.prop_map(Some),
        1 => any::<u64>().prop_map(Some),
        1 => Just(Some(Assign::TOMBSTONE)),
        1 => Just(None),
    ]
}

fn floor() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..4u16).prop_map(|hard| Floor { settings_version: 1, hard, max: 9 }.pack()),
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    let words = (depart(), any::<u64>(), floor()).prop_map(|(depart, arrive, floor)| SiteWords {
        depart,
        arrive,
        floor,
    });
    let sites = vec(words, usize::from(SITES));
    let nodes = vec(assign(), usize::from(NODES));
    let counted = vec(any::<bool>(), usize::from(NODES));
    (sites, nodes, counted).prop_map(|(sites, nodes, counted)| Seen { sites, nodes, counted })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        any::<u64>().prop_map(Reply::Value),
        any::<u64>().prop_map(|found| Reply::Swapped { found }),
        Just(Reply::Unreachable),
        Just(Reply::Unknown),
    ]
}

/// Everything that can be started on what was seen.
fn tasks(seen: &Seen) -> Vec<Task> {
    let mut tasks = Vec::new();
    let changed = Floor { settings_version: 2, hard: 2, max: 3 };
    for donor in (1..=SITES + 1).map(site) {
        tasks.extend(Help::plan(seen, donor, true).map(Task::Help));
        tasks.extend(Renew::plan(seen, donor).map(Task::Renew));
        tasks.push(Task::Bump(seen.bump_plan(donor).draw(5)));
        if let FloorPlan::Ready(set) = SetFloor::plan(seen, donor, changed) {
            tasks.push(Task::SetFloor(set));
        }
        for number in (0..=NODES).map(node) {
            tasks.extend(Join::plan(seen, number, donor).map(Task::Join));
            for taker in [None, Some(site(1)), Some(site(2))] {
                if let Prepared::Ready(attempt) = prepare(seen, donor, taker, number) {
                    tasks.push(Task::Attempt(attempt));
                }
            }
        }
    }
    tasks
}

fn view(seen: &Seen) -> PoolView {
    let site_view = |number: u16| SiteView {
        id: site(number),
        terms: terms(),
        service_us: 0,
        queued: u32::from(number) * 5,
        in_flight: 0,
        capacity: 0,
        nodes: 0,
    };
    let node_view = |number: u16| {
        let at = seen.assign(node(number))?.site;
        let id = node(number);
        let traits = NodeTraits::default();
        Some(NodeView { id, site: at, in_flight: 0, max_in_flight: 8, movable: true, traits })
    };
    let sites = (1..=SITES).map(site_view).collect();
    let nodes = (0..NODES).filter_map(node_view).collect();
    let mut view = PoolView { sites, nodes, ..PoolView::default() };
    view.sum_up();
    view
}

/// The count of step 0 as a sentence of the notes, not as a loop of the code.
fn naive_allows(seen: &Seen, donor: u16, number: u16) -> bool {
    let DepartState::Idle(word) = seen.depart(site(donor)) else { return false };
    let words: Vec<(usize, Assign)> = seen
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(index, raw)| Some((index, Assign::unpack((*raw)?)?)))
        .filter(|(_, assign)| assign.site == Some(site(donor)))
        .collect();
    let stands = |index: usize| words.iter().any(|(i, a)| *i == index && a.stamp == word.epoch);
    let others = (0..usize::from(NODES))
        .filter(|&index| index != usize::from(number) && stands(index) && seen.counted[index])
        .count();
    let newer = words.iter().any(|(_, assign)| assign.stamp.is_newer_than(word.epoch));
    let hard = seen.floor(site(donor)).map(|floor| usize::from(floor.hard));
    let room = hard.is_some_and(|hard| others >= hard);
    stands(usize::from(number)) && !newer && room && word.sequence < u8::MAX
}

proptest! {
    #[test]
    fn machines_end_whatever_is_answered(seen in seen(), replies in vec(reply(), OPS_MAX)) {
        for task in tasks(&seen) {
            let mut task = task;
            for reply in &replies {
                // An answer that equals the expected word is the likely one; noise never is.
                let reply = match (task.next(), reply) {
                    (Next::Op(moves::protocol::Op::CompareAndSwap { expected, .. }),
                        Reply::Swapped { found }) if found % 2 == 0 =>
                        Reply::Swapped { found: expected },
                    _ => *reply,
                };
                task.reply(reply);
            }
            prop_assert!(matches!(task.next(), Next::Done(_)), "{task:?}");
        }
    }

    #[test]
    fn step_0_agrees_with_its_twin(seen in seen(), donor in 1..=SITES, number in 0..NODES) {
        let taker = Some(site(donor % SITES + 1));
        let prepared = prepare(&seen, site(donor), taker, node(number));
        let ready = matches!(prepared, Prepared::Ready(_));
        prop_assert_eq!(ready, naive_allows(&seen, donor, number), "{:?}", prepared);
    }

    #[test]
    fn a_core_lives_through_noise(
        looks in vec((seen(), vec(reply(), 60)), 1..6),
        step_ms in 0..60u64,
    ) {
        let policy = policy::Reconf::default();
        let mut core = Core::new(Options {
            edge: EdgeId::MIN,
            timing: Timing::default(),
            sites: vec![terms(); usize::from(SITES)],
            nodes: NODES,
            settings_version: 1,
            mode: Mode::Move,
        });
        let mut now_ns = 0;
        core.request(now_ns, 1, node(0), Some(site(1))).expect("room");
        for (seen, replies) in &looks {
            now_ns += step_ms * 1_000_000;
            let view = view(seen);
            let (view, policy, is_unready) = (&view, &policy, &|_, _| false);
            let (op_time_ns, nonce) = (50, 3);
            let input = Input { now_ns, seen, view, policy, is_unready, op_time_ns, nonce };
            core.looked(&input, |_| true);
            let mut replies = replies.iter();
            let mut works = 0;
            loop {
                works += 1;
                prop_assert!(works < 200, "no rest");
                match core.next(&input) {
                    Work::Rest => break,
                    Work::LookAgain => core.looked(&input, |_| true),
                    Work::Run(mut task) => {
                        let outcome = task.drive(|_| {
                            replies.next().copied().unwrap_or(Reply::Unknown)
                        });
                        core.ended(now_ns, &outcome);
                    }
                }
            }
        }
    }
}
