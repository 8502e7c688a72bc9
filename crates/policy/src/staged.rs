//! Unlike nodes: the fittest one goes where it is needed, over other sites if need be.
//!
//! ```text
//! fit(S, n)       what n does for S: max_in_flight(n) x fitness in percent
//! can(S)          sum of fit(S, n) over its nodes that are seen serving it
//! used(S)         load(S) x can(S)
//!
//! need(T)         as in `reconf_pq`
//! candidates(T)   who offers, and at which price, as in `reconf_pq`, but
//!                   a light donor D spares n only if
//!                   used(D) <= SPARE_SHARE x high x (can(D) - fit(D, n)), and only of nodes that
//!                   serve it already
//!                   free and light nodes have one price
//!                   order within a price: most fit(T, n), least fit(D, n), load(D), in flight, id
//! stage(T)        g := fit(T, .) of the best candidate, 0 if there is none
//!                 for donors B != T that aren't hot, with |B| < max(B) and all nodes seen serving,
//!                 most fit(T, n) first, at most DONORS_MAX:
//!                   n  the movable node of B with the most fit(T, n), then least fit(B, n)
//!                   m  a free node, or one that a light C (not B, not T) spares, with
//!                      fit(B, m) > 0 and fit(T, n) - fit(T, m) >= STAGE_GAIN x g, so that B with m
//!                      is light and spares n: the one with the least fit(T, m), then most
//!                      fit(B, m), load(C), in flight
//!                   if there is an m: give it to B
//!                 none for the reason floor where there is a candidate: that can't wait
//! ```
//!
//! The second step is the best candidate of the next look: nothing is remembered in between. If T
//! isn't loaded any more by then, B has a light node more, which is no harm. Each step alone
//! respects what `reconf_pq` respects: no donor goes below hard, no light donor gets hot, and a
//! loaded one gives what it must and no more. So B may be at its hard guarantee, or unable to
//! spare n as it stands; two sites that are both at hard exchange nodes over a third one or a free
//! node, and if there is neither, they don't.
//!
//! T never gives a node of its own for the first step, though it may hold some that are of little
//! use to it: it would be worse off for a look, and where several sites are hot, others took what
//! it had given, and it theirs, without end (`constant_loads_come_to_rest` found that).
//!
//! Longer chains are not looked for. They come about where the node that B gets is itself the
//! reason for a later stage, one look at a time.
//!
//! Why `fit` and not `max_in_flight`: a site whose nodes are slow for it has more in flight for the
//! same rate, so its load says how much of what it can do is used, not how much it can do. Without
//! its fastest node a light donor may be hot, without its slowest it may not notice.
//!
//! Costs one pass over the nodes for the sums, one for the candidates, one for the fittest, and one
//! for each B that is tried; but nothing except passes over the sites where that finds nothing: for
//! the candidates where nobody offers a node of T's classes, for the stage where nobody is B or
//! nobody is C, and for one B where no C has a node of its classes.

use crate::best::{Marks, Offer, Offers, Rules, Worth, best, offers};
use crate::reconf_pq::{Guaranteed, guaranteed_need};
use crate::{Candidate, Policy, Stage, Thresholds};
use pool_model::{NodeView, PoolView, Reason, SiteId, SiteView};
use std::cell::OnceCell;

/// What a stage must bring the taker, in percent of what the best node brings that it can have at
/// once: two moves take a look longer than one.
pub const STAGE_GAIN_PCT: u32 = 125;

/// Up to which share of what is left a light donor may be used after it gave: loads are counted in
/// whole requests, and what is used of a fast node weighs on slow ones.
pub const SPARE_SHARE: f64 = 0.9;

/// Donors whose fittest node is tried for a stage. Each costs a pass over the nodes, and the
/// fittest few are as good as any.
pub const DONORS_MAX: usize = 8;

/// The policy `staged`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Staged {
    thresholds: Thresholds,
}

/// What a site's nodes do for it.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    can: u64,
    serving: u16,
}

/// The rules for one taker.
struct Fit<'a> {
    view: &'a PoolView,
    usual: Guaranteed<'a>,
    /// By the site's place; made when first asked for.
    sums: OnceCell<Vec<Sum>>,
}

/// What a node does for a site.
fn fit(site: &SiteView, node: &NodeView) -> u32 {
    node.max_in_flight.saturating_mul(site.terms.fitness_pct(node.traits))
}

impl Staged {
    /// With these thresholds.
    #[must_use]
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds }
    }

    fn rules<'a>(&'a self, view: &'a PoolView, taker: &'a SiteView, reason: Reason) -> Fit<'a> {
        let usual = Guaranteed { thresholds: &self.thresholds, taker, reason };
        Fit { view, usual, sums: OnceCell::new() }
    }
}

impl Fit<'_> {
    fn sum(&self, site: &SiteView) -> Sum {
        let sums = self.sums.get_or_init(|| {
            let mut sums = vec![Sum::default(); self.view.sites.len()];
            for node in self.view.nodes.iter().filter(|node| node.movable) {
                let Some(place) = node.site.and_then(|id| self.view.place(id)) else { continue };
                let sum = &mut sums[place];
                sum.can += u64::from(fit(&self.view.sites[place], node));
                sum.serving = sum.serving.saturating_add(1);
            }
            sums
        });
        self.view.place(site.id).map_or(Sum::default(), |place| sums[place])
    }

    /// Whether a site that can do so much is calm when it can do this instead.
    fn stays_calm(&self, site: &SiteView, can: u64, then: Option<u64>) -> bool {
        let Some(then) = then else { return false };
        let most = self.usual.thresholds.high() * SPARE_SHARE;
        site.load() * can as f64 <= most * then as f64
    }

    /// The node that `donor`, if it had `more`, would spare for the taker.
    fn spares_with(&self, donor: &SiteView, more: &NodeView, node: &NodeView) -> bool {
        let Sum { can, .. } = self.sum(donor);
        let then = can + u64::from(fit(donor, more));
        let with = SiteView {
            nodes: donor.nodes.saturating_add(1),
            capacity: donor.capacity.saturating_add(more.max_in_flight),
            ..*donor
        };
        self.usual.offer(&with).light
            && self.usual.spares(&with, node)
            && self.stays_calm(donor, can, then.checked_sub(u64::from(fit(donor, node))))
    }

    /// The sites that may give in the second step, if there are any.
    fn givers(&self) -> Option<Marks> {
        let Guaranteed { thresholds, taker, .. } = self.usual;
        let (stock, mut marks) = (&self.view.stock, None);
        let kinds = stock.fit_for(&taker.terms);
        for (place, site) in self.view.sites.iter().enumerate() {
            if thresholds.is_hot(site) || !stock.has(Some(place), kinds) {
                continue;
            }
            let room = site.nodes > 0 && site.nodes < site.terms.guarantee.max;
            if room && site.id != taker.id {
                marks.get_or_insert_with(Marks::new).mark(Some(site.id));
            }
        }
        marks
    }

    /// The node of each of these sites that is fittest for the taker, fittest first.
    fn fittest(&self, givers: &Marks) -> Vec<(&SiteView, &NodeView)> {
        let taker = self.usual.taker;
        let mut best: Vec<Option<(_, &NodeView)>> = vec![None; self.view.sites.len()];
        for node in self.view.nodes.iter().filter(|node| givers.has(node)) {
            let gain = fit(taker, node);
            if gain == 0 || !node.movable {
                continue;
            }
            let Some(place) = node.site.and_then(|id| self.view.place(id)) else { continue };
            let key = (gain, u32::MAX - fit(&self.view.sites[place], node));
            if best[place].is_none_or(|(other, _)| key > other) {
                best[place] = Some((key, node));
            }
        }
        let sites = self.view.sites.iter().zip(best);
        let mut found: Vec<_> = sites.filter_map(|(site, best)| Some((site, best?))).collect();
        found.sort_by_key(|(site, ((gain, _), _))| (u32::MAX - gain, site.id));
        found.into_iter().map(|(site, (_, node))| (site, node)).collect()
    }

    /// Whether some free node, or one of another light site, may be of use to `donor`.
    fn may_enable(&self, offers: &Offers, donor: &SiteView) -> bool {
        let stock = &self.view.stock;
        let kinds = stock.fit_for(&donor.terms);
        let lights = self.view.sites.iter().zip(&offers.by_place).enumerate();
        stock.has(None, kinds)
            || lights
                .filter(|(_, (site, offer))| offer.light && site.id != donor.id)
                .any(|(place, _)| stock.has(Some(place), kinds))
    }

    /// The node that makes `donor` able to spare `node`, and that does at most `limit` for the
    /// taker; from who can spare it.
    fn enabler(
        &self,
        offers: &Offers,
        (donor, node): (&SiteView, &NodeView),
        limit: u32,
    ) -> Option<Candidate> {
        let taker = self.usual.taker;
        let mut best: Option<(_, &NodeView)> = None;
        for more in self.view.nodes.iter().filter(|more| more.movable && more.site != node.site) {
            let (for_taker, for_donor) = (fit(taker, more), fit(donor, more));
            if for_donor == 0 || for_taker > limit {
                continue;
            }
            let from = more.site.map(|id| self.view.place(id));
            let load = match from {
                None => 0.0,
                Some(None) => continue,
                Some(Some(place)) => {
                    let from = &self.view.sites[place];
                    if !offers.by_place[place].light || !self.spares(from, more) {
                        continue;
                    }
                    from.load()
                }
            };
            let key = (for_taker, u32::MAX - for_donor, load, more.in_flight);
            if best.is_none_or(|(other, _)| key < other) && self.spares_with(donor, more, node) {
                best = Some((key, more));
            }
        }
        best.map(|(_, more)| Candidate { node: more.id, donor: more.site })
    }
}

impl Rules for Fit<'_> {
    const TELLS_APART: bool = true;

    fn offer(&self, donor: &SiteView) -> Offer {
        self.usual.offer(donor)
    }

    fn spares(&self, donor: &SiteView, node: &NodeView) -> bool {
        let Sum { can, serving } = self.sum(donor);
        let then = can.checked_sub(u64::from(fit(donor, node)));
        serving > donor.terms.guarantee.hard
            && self.usual.spares(donor, node)
            && self.stays_calm(donor, can, then)
    }

    fn worth(&self, donor: Option<&SiteView>, node: &NodeView) -> Worth {
        let loss = donor.map_or(0, |donor| fit(donor, node));
        Worth { gain: fit(self.usual.taker, node), loss }
    }
}

impl Policy for Staged {
    fn name(&self) -> &'static str {
        "staged"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        let site = view.site(site)?;
        guaranteed_need(site, || self.thresholds.is_hot(site))
    }

    fn is_light(&self, view: &PoolView, site: SiteId) -> bool {
        view.site(site).is_some_and(|site| self.thresholds.is_light(site))
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        let Some(site) = view.site(taker) else { return Vec::new() };
        best(view, taker, &self.rules(view, site, reason))
    }

    fn stage(
        &self,
        view: &PoolView,
        taker: SiteId,
        reason: Reason,
        direct: Option<Candidate>,
    ) -> Option<Stage> {
        // Who is below hard takes what there is, at once.
        if reason == Reason::Floor && direct.is_some() {
            return None;
        }
        let site = view.site(taker)?;
        // Who spares a node for the first step is asked as for a mere load.
        let rules = self.rules(view, site, Reason::Load);
        let givers = rules.givers()?;
        let offers = offers(view, taker, None, &rules)?;
        let direct = direct.and_then(|direct| view.node(direct.node));
        let direct = direct.map_or(0, |node| u64::from(fit(site, node)));
        let least = (direct * u64::from(STAGE_GAIN_PCT) / 100).max(1);
        for (donor, node) in rules.fittest(&givers).into_iter().take(DONORS_MAX) {
            let spare = u64::from(fit(site, node)).checked_sub(least)?;
            let limit = u32::try_from(spare).unwrap_or(u32::MAX);
            // Where a node isn't seen serving yet, the first step may just have been made.
            if !rules.may_enable(&offers, donor) || rules.sum(donor).serving < donor.nodes {
                continue;
            }
            if let Some(candidate) = rules.enabler(&offers, (donor, node), limit) {
                return Some(Stage { to: donor.id, candidate });
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "staged_tests.rs"]
mod tests;
