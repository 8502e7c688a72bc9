//! The policies by their names.

use crate::{Policy, Reconf, ReconfP, ReconfPq, Rigid, Slo, Staged, Thresholds};
use std::fmt;

/// Which policy shares a pool: what settings, simulations and figures choose from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing moves.
    Rigid,
    /// From light sites only.
    #[default]
    Reconf,
    /// From light sites and from lower priorities.
    ReconfP,
    /// By priorities and guarantees.
    ReconfPq,
    /// The same for unlike nodes, over several moves if need be.
    Staged,
    /// By objectives, within priorities and guarantees.
    Slo,
}

impl Kind {
    /// All of them, the simplest first.
    pub const ALL: [Self; 6] =
        [Self::Rigid, Self::Reconf, Self::ReconfP, Self::ReconfPq, Self::Staged, Self::Slo];

    /// The name in settings and status; that of the policy itself.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rigid => "rigid",
            Self::Reconf => "reconf",
            Self::ReconfP => "reconf_p",
            Self::ReconfPq => "reconf_pq",
            Self::Staged => "staged",
            Self::Slo => "slo",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The policy itself.
    #[must_use]
    pub fn build(self, thresholds: Thresholds) -> Box<dyn Policy> {
        match self {
            Self::Rigid => Box::new(Rigid),
            Self::Reconf => Box::new(Reconf::new(thresholds)),
            Self::ReconfP => Box::new(ReconfP::new(thresholds)),
            Self::ReconfPq => Box::new(ReconfPq::new(thresholds)),
            Self::Staged => Box::new(Staged::new(thresholds)),
            Self::Slo => Box::new(Slo::new(thresholds)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_leads_to_its_policy() {
        for kind in Kind::ALL {
            assert_eq!(Kind::by_name(kind.name()), Some(kind));
            assert_eq!(kind.build(Thresholds::default()).name(), kind.name());
        }
        assert_eq!(Kind::by_name("reconf-p"), None);
    }
}
