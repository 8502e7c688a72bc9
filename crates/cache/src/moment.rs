//! Time as a number that the caller brings.

/// A moment: milliseconds since 1970 of the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// How long after `earlier` this is; 0 if it is before.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000
    }
}
