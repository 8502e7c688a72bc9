//! Ids are types: a node's number can't be handed over where a site's is wanted.

use std::fmt;

/// A number that does not fit its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdOutOfRange {
    /// What kind of id was asked for.
    pub kind: &'static str,
    /// The number given.
    pub given: u64,
    /// The smallest number allowed.
    pub min: u64,
    /// The largest number allowed.
    pub max: u64,
}

impl fmt::Display for IdOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is not within {} to {}", self.kind, self.given, self.min, self.max)
    }
}

impl std::error::Error for IdOutOfRange {}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $kind:literal, $min:expr, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// The smallest id.
            pub const MIN: $name = $name($min);
            /// The largest id.
            pub const MAX: $name = $name($max);

            /// Makes the id, or says which numbers are allowed.
            pub const fn new(number: $repr) -> Result<Self, IdOutOfRange> {
                #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)]
                if number < $min || number > $max {
                    return Err(IdOutOfRange {
                        kind: $kind,
                        given: number as u64,
                        min: $min as u64,
                        max: $max as u64,
                    });
                }
                Ok(Self(number))
            }

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A site: 1 to 1,023. Zero stands for "no site" in the shared words (10 bits there).
    SiteId(u16), "site", 1, 1_023
}

id! {
    /// A node: 0 to 16,381. 0x3fff stands for "idle" in the shared words (14 bits there).
    NodeId(u16), "node", 0, 16_381
}

id! {
    /// An edge: 0 to 63, which is also the number of its slot in every record.
    EdgeId(u8), "edge", 0, 63
}

impl SiteId {
    /// The place of the site in a table that starts with site 1.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// The site at a place of such a table.
    pub fn from_index(index: usize) -> Result<Self, IdOutOfRange> {
        let number = u16::try_from(index.saturating_add(1)).unwrap_or(u16::MAX);
        Self::new(number)
    }
}

impl NodeId {
    /// The place of the node in a table that starts with node 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// The place of the edge in a table that starts with edge 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_ranges() {
        assert!(SiteId::new(0).is_err());
        assert!(SiteId::new(1).is_ok());
        assert!(SiteId::new(1_023).is_ok());
        assert!(SiteId::new(1_024).is_err());
        assert!(NodeId::new(0).is_ok());
        assert!(NodeId::new(16_382).is_err());
        assert!(EdgeId::new(64).is_err());
    }

    #[test]
    fn a_refusal_names_the_range() {
        let refusal = SiteId::new(0).unwrap_err().to_string();
        assert_eq!(refusal, "site 0 is not within 1 to 1023");
    }

    #[test]
    fn a_site_finds_its_place_and_back() {
        for number in 1..=1_023 {
            let site = SiteId::new(number).unwrap();
            assert_eq!(SiteId::from_index(site.index()).unwrap(), site);
        }
        assert!(SiteId::from_index(1_023).is_err());
        assert!(SiteId::from_index(usize::MAX).is_err());
    }
}
