//! What the settings state of a site and of a node, as far as a decision depends on it.

use std::fmt;

/// How many nodes a site is promised and how many it may have: `hard <= soft <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarantee {
    /// Nodes that no move ever takes from the site.
    pub hard: u16,
    /// Nodes that the site gets back when it is loaded, from lower or equal priorities.
    pub soft: u16,
    /// Nodes beyond which the site takes no more.
    pub max: u16,
}

/// Why three numbers are no guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuaranteeError {
    /// What was given.
    pub given: Guarantee,
}

impl fmt::Display for GuaranteeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Guarantee { hard, soft, max } = self.given;
        write!(f, "hard = {hard}, soft = {soft}, max = {max}: need hard <= soft <= max")
    }
}

impl std::error::Error for GuaranteeError {}

impl Guarantee {
    /// One node for certain, no upper bound.
    pub const DEFAULT: Guarantee = Guarantee { hard: 1, soft: 1, max: u16::MAX };

    /// Checks that `hard <= soft <= max`.
    pub const fn new(hard: u16, soft: u16, max: u16) -> Result<Self, GuaranteeError> {
        let given = Self { hard, soft, max };
        if hard > soft || soft > max {
            return Err(GuaranteeError { given });
        }
        Ok(given)
    }

    /// A site that is promised nothing beyond `hard`.
    #[must_use]
    pub const fn hard(hard: u16) -> Self {
        Self { hard, soft: hard, max: u16::MAX }
    }
}

impl Default for Guarantee {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How important a site is; the larger number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a site promises its clients: 99 of 100 requests take at most so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Objective {
    /// Time from a request's arrival at an edge to its response, in microseconds; not zero.
    pub p99_us: u32,
}

/// A set of kinds of node ("gpu", "ssd"), one bit each, in the order of the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Classes(pub u32);

impl Classes {
    /// Classes that one pool may name: the bits of the set.
    pub const COUNT_MAX: usize = 32;

    /// Whether all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What the settings state of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteTerms {
    /// Its bounds.
    pub guarantee: Guarantee,
    /// Its importance.
    pub priority: Priority,
    /// What it promises its clients; read by the policy `slo` only.
    pub objective: Option<Objective>,
    /// Classes that a node needs to serve it well.
    pub wants: Classes,
    /// What a node without those classes does for it, in percent of its capacity; 0: it can't
    /// serve the site at all and is never given to it.
    pub unfit_pct: u8,
}

impl Default for SiteTerms {
    fn default() -> Self {
        Self {
            guarantee: Guarantee::DEFAULT,
            priority: Priority::default(),
            objective: None,
            wants: Classes::default(),
            unfit_pct: 0,
        }
    }
}

impl SiteTerms {
    /// The same with these bounds.
    #[must_use]
    pub const fn with_guarantee(self, guarantee: Guarantee) -> Self {
        Self { guarantee, ..self }
    }

    /// What a node does for the site, in percent of a usual node; 0 if it can't serve it.
    #[must_use]
    pub fn fitness_pct(&self, node: NodeTraits) -> u32 {
        let share = if node.classes.contains(self.wants) { 100 } else { self.unfit_pct };
        u32::from(node.capacity_pct) * u32::from(share) / 100
    }
}

/// What the settings state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeTraits {
    /// How much it serves in a given time, in percent of a usual node; not zero.
    pub capacity_pct: u16,
    /// What kinds of node it is.
    pub classes: Classes,
}

impl Default for NodeTraits {
    fn default() -> Self {
        Self { capacity_pct: 100, classes: Classes::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_is_ordered() {
        assert!(Guarantee::new(2, 2, 1).is_err());
        assert!(Guarantee::new(2, 1, 3).is_err());
        assert_eq!(Guarantee::new(2, 2, 2).unwrap(), Guarantee { hard: 2, soft: 2, max: 2 });
        let words = Guarantee::new(3, 2, 9).unwrap_err().to_string();
        assert!(words.contains("hard = 3, soft = 2"), "{words}");
    }

    #[test]
    fn a_node_without_the_classes_is_worth_its_share() {
        let gpu = Classes(0b10);
        let node = |classes| NodeTraits { capacity_pct: 200, classes };
        let terms = SiteTerms { wants: gpu, unfit_pct: 25, ..SiteTerms::default() };
        assert_eq!(terms.fitness_pct(node(Classes(0b11))), 200);
        assert_eq!(terms.fitness_pct(node(Classes(0b01))), 50);
        let strict = SiteTerms { unfit_pct: 0, ..terms };
        assert_eq!(strict.fitness_pct(node(Classes::default())), 0);
        assert_eq!(SiteTerms::default().fitness_pct(NodeTraits::default()), 100);
    }
}
