//! Slow start: a server that came takes its share little by little.
//!
//! ```text
//! part(t)   = (now - came) / slow_start, at most 1
//! limit     = max(1, max_in_flight * part)
//! chosen as if it were full, with the probability 1 - part, unless no other has room
//! ```
//!
//! The limit bounds what a cold server has at once where all are busy, the draw its share of the
//! requests where all are idle: there a server with nothing in flight would look as good as any.

use std::time::Duration;

/// The whole share. A power of two, so that a draw costs a mask.
pub(crate) const WHOLE: u32 = 1 << 10;

/// The part of its share, out of [`WHOLE`], that a server takes which came at `came`.
pub(crate) fn part(came: Duration, now: Duration, slow_start: Duration) -> u32 {
    let gone = now.saturating_sub(came);
    if gone >= slow_start {
        return WHOLE;
    }
    // Below one, so that the quotient fits.
    (gone.as_micros() * u128::from(WHOLE) / slow_start.as_micros().max(1)) as u32
}

/// What the server may have in flight meanwhile.
pub(crate) fn limit(max_in_flight: u32, part: u32) -> u32 {
    let limit = u64::from(max_in_flight) * u64::from(part) / u64::from(WHOLE);
    // A part of the whole fits where the whole did.
    (limit as u32).max(1).min(max_in_flight)
}

/// Whether this draw leaves the server out.
pub(crate) fn is_held(part: u32, draw: u64) -> bool {
    (draw & u64::from(WHOLE - 1)) as u32 >= part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OVER: Duration = Duration::from_millis(1_000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_share_grows_linearly() {
        assert_eq!(part(ms(500), ms(500), OVER), 0);
        assert_eq!(part(ms(500), ms(750), OVER), WHOLE / 4);
        assert_eq!(part(ms(500), ms(1_500), OVER), WHOLE);
        assert_eq!(part(ms(500), ms(0), OVER), 0, "a clock that is read late");
        assert_eq!(part(ms(500), ms(500), Duration::ZERO), WHOLE, "off");
        assert_eq!((limit(8, 0), limit(8, WHOLE / 2), limit(8, WHOLE)), (1, 4, 8));
        assert_eq!(limit(0, WHOLE / 2), 0);
    }

    proptest! {
        /// Against the naive reading in real numbers.
        #[test]
        fn part_and_limit_agree_with_real_numbers(
            gone_us in 0_u64..10_000_000, over_us in 1_u64..10_000_000, max in 1_u32..65_536,
        ) {
            let (gone, over) = (Duration::from_micros(gone_us), Duration::from_micros(over_us));
            let part = part(ms(5), ms(5) + gone, over);
            let real = (gone_us as f64 / over_us as f64).min(1.0);
            prop_assert!((f64::from(part) / f64::from(WHOLE) - real).abs() <= 1.0 / 1_024.0);
            let limit = limit(max, part);
            prop_assert!(limit >= 1 && limit <= max);
            prop_assert!((f64::from(limit) - f64::from(max) * real).abs() <= 65.0);
        }

        #[test]
        fn a_draw_holds_back_what_is_missing(part in 0_u32..=WHOLE) {
            let held = (0..u64::from(WHOLE)).filter(|&draw| is_held(part, draw)).count();
            prop_assert_eq!(held as u32, WHOLE - part);
        }
    }
}
