//! A header map to be used again.
//!
//! A map for a usual head takes two allocations of a kilobyte and more, which the allocator has no
//! quick list for. The request's map is spare once the response's head is there; the next
//! response's fields go into it; from there it goes to hyper, which reads the next request of that
//! connection into it.
//!
//! Fast path: no allocation, no lock.

use http::HeaderMap;
use std::cell::Cell;

/// Larger maps are not kept: a few large heads must not hold their memory for ever.
const FIELDS_MAX: usize = 96;

thread_local! {
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// An empty map with room for so many fields.
pub(crate) fn take(fields: usize) -> HeaderMap {
    match SPARE.take() {
        Some(map) if map.capacity() >= fields => map,
        _ => HeaderMap::with_capacity(fields),
    }
}

/// Leaves a map that is no longer needed for the next [`take`].
pub(crate) fn keep(mut map: HeaderMap) {
    if (1..=FIELDS_MAX).contains(&map.capacity()) {
        map.clear();
        SPARE.set(Some(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_map_is_used_again_and_empty() {
        let mut map = HeaderMap::with_capacity(20);
        map.append("a", HeaderValue::from_static("1"));
        map.append("a", HeaderValue::from_static("2"));
        let room = map.capacity();
        keep(map);
        let again = take(12);
        assert!(again.is_empty() && again.get("a").is_none());
        assert_eq!(again.capacity(), room);
        assert!(take(12).capacity() < room, "it was given away");
    }

    #[test]
    fn a_map_without_room_is_not_handed_out_and_a_large_one_not_kept() {
        keep(HeaderMap::with_capacity(2));
        assert!(take(40).capacity() >= 40);
        keep(HeaderMap::with_capacity(1_000));
        assert!(take(1).capacity() < 1_000);
    }
}
