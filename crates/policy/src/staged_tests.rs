//! Rules one by one, against a naive twin, and at rest.

use super::*;
use crate::CANDIDATES_MAX;
use crate::pools::{
    GPU, Made, check_common, constant, drive, node_view, pool, pools, site, site_view,
};
use pool_model::{Classes, Guarantee};
use proptest::prelude::*;

const POLICY: Staged = Staged { thresholds: Thresholds::DEFAULT };
const LOAD: Reason = Reason::Load;
const FLOOR: Reason = Reason::Floor;

/// Site 1 is hot and wants a GPU; without, a node does a quarter. Site 2 has `gpus` with one, site
/// 3 is light; nodes are those of `pool`.
fn one_wants_gpu(nodes: [u16; 3], gpus: u16) -> PoolView {
    let mut wants = site_view(1, 999, 0, [1, 1, 99]);
    (wants.terms.wants, wants.terms.unfit_pct) = (GPU, 25);
    let [holds, light] = [2, 3].map(|number| site_view(number, 1, 0, [1, 1, 99]));
    let mut view = pool(0, &[(wants, nodes[0]), (holds, nodes[1]), (light, nodes[2])]);
    let held = view.nodes.iter_mut().filter(|node| node.site == Some(site(2)));
    for node in held.take(usize::from(gpus)) {
        node.traits.classes = GPU;
    }
    view.sum_up();
    view
}

fn stage(view: &PoolView, taker: u16, reason: Reason) -> Option<Stage> {
    let best = POLICY.candidates(view, site(taker), reason).first().copied();
    POLICY.stage(view, site(taker), reason, best)
}

fn moves(view: &mut PoolView) -> Vec<(u16, u16, u16)> {
    let number = |id: Option<SiteId>| id.map_or(0, SiteId::get);
    let made = drive(&POLICY, view, &[]);
    made.iter().map(|m| (m.node.id.get(), number(m.node.site), m.taker.id.get())).collect()
}

#[test]
fn the_fittest_of_the_light_goes_first_though_others_are_lighter() {
    let mut view = one_wants_gpu([1, 2, 2], 2);
    view.sites[1].queued = 3;
    view.sum_up();
    let found = POLICY.candidates(&view, site(1), LOAD);
    assert_eq!(found.iter().map(|c| c.node.get()).collect::<Vec<_>>(), [1, 2]);
    let usual = crate::ReconfPq::default().candidates(&view, site(1), LOAD);
    assert_eq!(usual[0].donor, Some(site(3)));
}

#[test]
fn a_free_node_goes_first_only_if_it_is_as_fit() {
    let mut view = one_wants_gpu([1, 2, 1], 2);
    view.nodes.push(node_view(4, 0, 8));
    view.sum_up();
    let first = |view: &PoolView| POLICY.candidates(view, site(1), LOAD)[0].node.get();
    assert_eq!(first(&view), 1);
    view.nodes[4].traits.classes = GPU;
    view.sum_up();
    assert_eq!(first(&view), 4);
}

/// The example: A needs a GPU node that B holds, C has a light plain one that B can use.
#[test]
fn a_plain_node_makes_way_for_the_fit_one() {
    let mut view = one_wants_gpu([1, 1, 2], 1);
    assert_eq!(moves(&mut view), [(2, 3, 2), (1, 2, 1)]);
}

#[test]
fn a_free_node_makes_way_for_the_fit_one() {
    let mut view = one_wants_gpu([1, 1, 1], 1);
    view.nodes.push(node_view(3, 0, 8));
    view.sum_up();
    assert_eq!(moves(&mut view), [(3, 0, 2), (1, 2, 1)]);
}

#[test]
fn two_sites_at_hard_exchange_nothing() {
    let view = one_wants_gpu([1, 1, 1], 1);
    assert_eq!(stage(&view, 1, LOAD), None);
    assert_eq!(POLICY.candidates(&view, site(1), LOAD), []);
}

#[test]
fn no_stage_where_the_plain_node_is_as_good_or_of_no_use() {
    let mut view = one_wants_gpu([1, 1, 2], 1);
    view.sites[0].terms.unfit_pct = 50;
    assert_eq!(stage(&view, 1, LOAD), None, "it would bring only half a node more");
    view.sites[0].terms.unfit_pct = 25;
    assert!(stage(&view, 1, LOAD).is_some());
    view.sites[1].terms.wants = GPU;
    assert_eq!(stage(&view, 1, LOAD), None, "the holder can't use a plain node");
}

#[test]
fn who_is_below_hard_takes_what_there_is() {
    let mut view = one_wants_gpu([0, 1, 2], 1);
    assert_eq!(stage(&view, 1, FLOOR), None);
    view.sites[0].terms.unfit_pct = 0;
    assert_eq!(moves(&mut view), [(1, 3, 2), (0, 2, 1)]);
}

#[test]
fn a_donor_keeps_what_its_load_takes_of_unlike_nodes() {
    // Site 2 is light with a node of 400 % and one of 50 %: only the slow one can be spared.
    let mut view =
        pool(0, &[(site_view(1, 999, 0, [1, 1, 9]), 1), (site_view(2, 5, 0, [1, 1, 9]), 2)]);
    (view.nodes[1].traits.capacity_pct, view.nodes[2].traits.capacity_pct) = (400, 50);
    let found = POLICY.candidates(&view, site(1), LOAD);
    assert_eq!(found.iter().map(|c| c.node.get()).collect::<Vec<_>>(), [2]);
}

#[test]
fn nothing_leaves_a_site_before_what_came_serves_it() {
    let mut view = one_wants_gpu([1, 2, 1], 1);
    view.nodes[2].movable = false;
    assert_eq!(POLICY.candidates(&view, site(1), LOAD), []);
    assert_eq!(stage(&view, 1, LOAD), None);
}

/// The twin's idea of a site with some nodes more or fewer.
struct Site<'a> {
    view: &'a SiteView,
    nodes: Vec<&'a NodeView>,
}

impl<'a> Site<'a> {
    fn of(view: &'a PoolView, id: SiteId) -> Self {
        let nodes = view.nodes.iter().filter(|node| node.site == Some(id)).collect();
        Self { view: view.site(id).unwrap(), nodes }
    }

    fn demand(&self) -> f64 {
        f64::from(self.view.in_flight + self.view.queued)
    }

    fn slots<'b>(nodes: impl Iterator<Item = &'b &'b NodeView>) -> f64 {
        nodes.map(|node| f64::from(node.max_in_flight)).sum()
    }

    /// What serving nodes do.
    fn can(&self, but: Option<&NodeView>, and: Option<&NodeView>) -> f64 {
        let serving = self.nodes.iter().copied().filter(|node| node.movable);
        let kept = serving.filter(|node| but.is_none_or(|but| but.id != node.id)).chain(and);
        kept.map(|node| f64::from(fit(self.view, node))).sum()
    }

    /// Whether it spares `node` once it has `more`.
    fn spares(&self, node: &NodeView, more: Option<&NodeView>) -> bool {
        let Guarantee { hard, .. } = self.view.terms.guarantee;
        let serving = self.nodes.iter().filter(|node| node.movable).count();
        let have = serving + usize::from(more.is_some());
        let slots = Self::slots(self.nodes.iter().chain(&more));
        let load = if self.demand() == 0.0 { 0.0 } else { self.demand() / slots };
        let rest = slots - f64::from(node.max_in_flight);
        let usual = self.demand() == 0.0 || self.demand() / rest <= 1.0;
        let own = Self::slots(self.nodes.iter());
        let share = if self.demand() == 0.0 { 0.0 } else { self.demand() / own };
        let used = share * self.can(None, None);
        have > usize::from(hard)
            && self.nodes.len() + usize::from(more.is_some()) > usize::from(hard)
            && load < 0.5
            && usual
            && used <= 0.9 * self.can(Some(node), more)
    }
}

/// What the best candidate brings the taker.
fn direct(view: &PoolView, taker: &SiteView) -> u32 {
    let found = POLICY.candidates(view, taker.id, LOAD);
    found.first().map_or(0, |c| fit(taker, view.node(c.node).unwrap()))
}

/// Whether `more` for `to` lets that spare `node` for the taker, by the rules.
fn enables(
    view: &PoolView,
    taker: &SiteView,
    to: &Site<'_>,
    node: &NodeView,
    more: &NodeView,
) -> bool {
    let (gets, gives) = (fit(taker, node), fit(taker, more));
    let least = (u64::from(direct(view, taker)) * 125 / 100).max(1);
    let worth = u64::from(gets) >= u64::from(gives) + least;
    let spared = more.site.is_none_or(|id| id != taker.id && Site::of(view, id).spares(more, None));
    let other = more.site != Some(to.view.id) && more.movable && fit(to.view, more) > 0;
    let room = to.view.nodes < to.view.terms.guarantee.max && to.view.id != taker.id;
    let all_serve = to.nodes.iter().all(|node| node.movable);
    let hot = to.view.load() > 1.0;
    worth && spared && other && room && all_serve && !hot && to.spares(node, Some(more))
}

fn check_rules(made: &Made) -> Result<(), TestCaseError> {
    check_common(made)?;
    let Some(donor) = made.donor else { return Ok(()) };
    let calm = donor.load() < 0.5 && donor.load_without(made.node.max_in_flight) <= 1.0;
    let (mine, theirs) = (made.taker.terms.priority, donor.terms.priority);
    let lent = theirs == mine && donor.nodes > donor.terms.guarantee.soft;
    let must = made.reason != LOAD && (theirs < mine || lent);
    prop_assert!(made.reason == FLOOR || calm || must);
    Ok(())
}

/// Pools in which nodes differ in speed, too.
fn unlike() -> impl Strategy<Value = PoolView> {
    let speeds = prop::collection::vec(prop::sample::select(vec![50u16, 100, 400]), 20);
    (pools(), speeds).prop_map(|(mut view, speeds)| {
        for (node, speed) in view.nodes.iter_mut().zip(speeds) {
            node.traits.capacity_pct = speed;
        }
        view
    })
}

proptest! {
    #[test]
    fn candidates_are_what_the_rules_say(view in unlike()) {
        for taker in &view.sites {
            let found = POLICY.candidates(&view, taker.id, LOAD);
            let may = |node: &&NodeView| {
                let spared = node.site.is_none_or(|id| Site::of(&view, id).spares(node, None));
                node.movable && node.site != Some(taker.id) && fit(taker, node) > 0 && spared
            };
            let loss = |n: &NodeView| n.site.map_or(0, |id| fit(view.site(id).unwrap(), n));
            let load = |n: &NodeView| n.site.map_or(0.0, |id| view.site(id).unwrap().load());
            let key = |n: &NodeView| {
                (u32::MAX - fit(taker, n), loss(n), load(n), n.in_flight, n.id)
            };
            let all = view.nodes.iter().filter(may).map(key);
            let naive = all.min_by(|a, b| a.partial_cmp(b).unwrap()).map(|key| key.4);
            prop_assert_eq!(found.first().map(|c| c.node), naive);
            prop_assert!(found.len() <= CANDIDATES_MAX);
        }
    }

    #[test]
    fn stages_are_what_the_rules_say(view in unlike()) {
        for taker in &view.sites {
            let Some(stage) = stage(&view, taker.id.get(), LOAD) else { continue };
            let to = Site::of(&view, stage.to);
            let more = view.node(stage.candidate.node).unwrap();
            let some = to.nodes.iter().any(|node| enables(&view, taker, &to, node, more));
            prop_assert!(some && more.site == stage.candidate.donor, "{stage:?}");
            // The second step is what the next look offers, and it is worth the first.
            let mut next = view.clone();
            let place = next.nodes.iter().position(|n| n.id == stage.candidate.node).unwrap();
            next.nodes[place].site = Some(stage.to);
            next.sum_up();
            // What was in flight there is still the donor's.
            let moved = next.nodes[place].in_flight;
            let to = next.place(stage.to).unwrap();
            next.sites[to].in_flight -= moved;
            let second = POLICY.candidates(&next, taker.id, LOAD);
            let node = |c: &Candidate| *next.node(c.node).unwrap();
            let first = second.first().map(node);
            prop_assert_eq!(first.and_then(|node| node.site), Some(stage.to));
            let least = direct(&view, taker) * 5 / 4;
            prop_assert!(first.is_some_and(|node| fit(taker, &node) >= least.max(1)));
        }
    }

    #[test]
    fn a_stage_is_found_where_there_is_one(view in unlike()) {
        for taker in &view.sites {
            if stage(&view, taker.id.get(), LOAD).is_some() {
                continue;
            }
            for to in view.sites.iter().filter(|to| to.id != taker.id) {
                let to = Site::of(&view, to.id);
                let serving = to.nodes.iter().filter(|node| node.movable);
                let key = |n: &&&NodeView| (u32::MAX - fit(taker, n), fit(to.view, n), n.id);
                let Some(best) = serving.min_by_key(key) else { continue };
                let some = view.nodes.iter().any(|more| enables(&view, taker, &to, best, more));
                prop_assert!(!some, "{:?} over {:?}", taker.id, to.view.id);
            }
        }
    }

    #[test]
    fn constant_loads_come_to_rest(
        view in unlike(), picks in prop::collection::vec(0usize..8, 0..40),
    ) {
        let mut view = constant(view);
        for made in drive(&POLICY, &mut view, &picks) {
            check_rules(&made)?;
        }
        for taker in &view.sites {
            let Some(reason) = POLICY.need(&view, taker.id) else { continue };
            prop_assert_eq!(POLICY.candidates(&view, taker.id, reason), vec![]);
        }
    }
}

#[test]
fn a_node_without_classes_is_told_from_one_with() {
    assert_eq!(fit(&site_view(1, 0, 0, [1, 1, 1]), &node_view(0, 0, 8)), 800);
    let mut wants = site_view(1, 0, 0, [1, 1, 1]);
    (wants.terms.wants, wants.terms.unfit_pct) = (Classes(1), 50);
    assert_eq!(fit(&wants, &node_view(0, 0, 8)), 400);
}
