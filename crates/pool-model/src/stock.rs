//! Which kinds of node each site has, so that nobody looks through nodes in vain.

use crate::{Classes, SiteTerms};

/// A set of kinds of node, where nodes of the same classes are of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u64);

impl Kinds {
    /// Kinds that are told apart: the bits of the set, less one for all others. A pool has a
    /// handful; one that has more is served as well, only slower.
    const APART_MAX: usize = 63;
    /// All that were not told apart.
    const OTHERS: Self = Self(1 << Self::APART_MAX);
    const ALL: Self = Self(u64::MAX);

    /// Whether some kind is in both.
    #[must_use]
    pub const fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The kinds of each site's nodes, and of the free ones; unknown until [`Stock::reset`].
///
/// It answers for a whole site in a few instructions what else takes a pass over the nodes. The
/// answer errs on one side: perhaps "yes" where no node fits that may move, never "no" where one
/// does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// The kinds that are told apart, as first met.
    apart: Vec<Classes>,
    /// Of the free nodes, then of each site by its place; empty: unknown.
    held: Vec<Kinds>,
}

impl Stock {
    /// Starts anew for so many sites: nobody has a node. Keeps its memory.
    pub fn reset(&mut self, sites: usize) {
        self.apart.clear();
        self.held.clear();
        self.held.resize(sites + 1, Kinds::default());
    }

    /// Notes a node of the site at this place, or a free one.
    pub fn add(&mut self, place: Option<usize>, classes: Classes) {
        let known = self.apart.iter().position(|&kind| kind == classes);
        let bit = known.unwrap_or_else(|| {
            if self.apart.len() < Kinds::APART_MAX {
                self.apart.push(classes);
                return self.apart.len() - 1;
            }
            Kinds::APART_MAX
        });
        if let Some(held) = self.held.get_mut(Self::slot(place)) {
            held.0 |= 1 << bit;
        }
    }

    /// The kinds that may be of use to a site with these terms.
    #[must_use]
    pub fn fit_for(&self, terms: &SiteTerms) -> Kinds {
        if terms.unfit_pct > 0 {
            return Kinds::ALL;
        }
        let fits = |kinds: u64, (bit, kind): (usize, &Classes)| {
            kinds | u64::from(kind.contains(terms.wants)) << bit
        };
        Kinds(self.apart.iter().enumerate().fold(Kinds::OTHERS.0, fits))
    }

    /// Whether the site at this place, or the free nodes, may have a node of these kinds; true
    /// where nothing is known.
    #[must_use]
    pub fn has(&self, place: Option<usize>, kinds: Kinds) -> bool {
        self.held.get(Self::slot(place)).is_none_or(|held| held.meet(kinds))
    }

    fn slot(place: Option<usize>) -> usize {
        place.map_or(0, |place| place + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(classes: u32, unfit_pct: u8) -> SiteTerms {
        SiteTerms { wants: Classes(classes), unfit_pct, ..SiteTerms::default() }
    }

    #[test]
    fn a_site_without_a_class_serves_nobody_who_wants_it() {
        let mut stock = Stock::default();
        assert!(stock.has(Some(7), stock.fit_for(&wants(1, 0))), "nothing is known");
        stock.reset(2);
        stock.add(None, Classes(0b10));
        stock.add(Some(1), Classes(0b01));
        stock.add(Some(1), Classes(0b10));
        let serves = |place, terms: SiteTerms| stock.has(place, stock.fit_for(&terms));
        assert!(serves(None, wants(0b10, 0)) && !serves(None, wants(0b01, 0)));
        assert!(!serves(Some(0), wants(0, 0)), "no node at all");
        assert!(serves(Some(1), wants(0b10, 0)) && serves(Some(1), wants(0, 0)));
        assert!(!serves(Some(1), wants(0b11, 0)), "no node has both");
        assert!(serves(Some(1), wants(0b11, 50)), "unfit, but not useless");
    }

    #[test]
    fn more_kinds_than_are_told_apart_are_answered_with_perhaps() {
        let mut stock = Stock::default();
        stock.reset(2);
        for kind in 0..100 {
            stock.add(Some(usize::from(kind >= 50)), Classes(kind << 1));
        }
        let serves = |stock: &Stock, place, classes| {
            stock.has(Some(place), stock.fit_for(&wants(classes, 0)))
        };
        assert!(!serves(&stock, 0, 1) && serves(&stock, 0, 0b100) && serves(&stock, 1, 99 << 1));
        assert!(serves(&stock, 1, 1), "one of those that weren't told apart may");
        stock.reset(1);
        assert!(!serves(&stock, 0, 0), "all is forgotten");
    }
}
