//! Makes an input that fails smaller, as long as it fails.

use std::time::{Duration, Instant};

/// How often a smaller input is tried: enough to halve a long one down to its grain.
const TRIES_MAX: usize = 2_000;

/// How long it is tried. The report waits for it.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Removes ranges, from halves down to single bytes; then makes bytes plain.
pub(crate) fn shrink(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let (mut best, mut tries, start) = (input.to_vec(), 0, Instant::now());
    let mut still_fails = |candidate: &[u8]| {
        tries += 1;
        tries <= TRIES_MAX && start.elapsed() < TIME_MAX && fails(candidate)
    };
    let mut width = best.len().div_ceil(2);
    while width > 0 {
        let mut at = 0;
        while at < best.len() {
            let end = (at + width).min(best.len());
            let candidate = [&best[..at], &best[end..]].concat();
            if still_fails(&candidate) {
                best = candidate;
            } else {
                at = end;
            }
        }
        width /= 2;
    }
    for at in 0..best.len() {
        let old = std::mem::replace(&mut best[at], b'0');
        if old == b'0' || !still_fails(&best) {
            best[at] = old;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left() {
        let input = b"some long text with a mistake! in its middle, and an end";
        let shrunken = shrink(input, |bytes| bytes.contains(&b'!') && bytes.len() > 2);
        assert_eq!(shrunken.len(), 3);
        assert!(shrunken.contains(&b'!') && shrunken.iter().filter(|&&b| b == b'0').count() == 2);
    }

    #[test]
    fn what_fails_no_more_stays_as_it_was() {
        assert_eq!(shrink(b"once", |_| false), b"once");
        assert_eq!(shrink(b"", |_| true), b"");
    }
}
