//! The face `Mapped` on a region of our own: bounds, alignment, futex.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use remote_memory::shm::{OwnedRegion, ShmError};
use remote_memory::{AccessError, AtomicPath, MAX_REGION_BYTES, Mapped, WaitEnd, Wake, WakeError};

use crate::support::DEADLINE;

/// Less than a page, and no multiple of one: the rest of the page is no part of the region.
const REGION_BYTES: u64 = 1000;

fn region() -> OwnedRegion {
    OwnedRegion::create("test", REGION_BYTES).unwrap()
}

#[test]
fn a_new_region_is_all_zero_and_described() {
    let (one, two) = (region(), region());
    assert_eq!(one.words().len(), 125);
    assert!(one.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    let descriptor = one.descriptor();
    assert_eq!(descriptor.length_bytes, REGION_BYTES);
    assert_eq!(descriptor.atomic_path, AtomicPath::Cpu);
    assert_eq!(descriptor.label, "test");
    assert_ne!(descriptor.key, two.descriptor().key);
    assert_ne!(descriptor.incarnation, two.descriptor().incarnation);
}

#[test]
fn operations_do_what_their_names_say() {
    let region = region();
    region.write(992, 5).unwrap();
    assert_eq!(region.read(992), Ok(5));
    assert_eq!(region.compare_and_swap(992, 4, 9), Ok(5));
    assert_eq!(region.compare_and_swap(992, 5, 9), Ok(5));
    assert_eq!(region.fetch_and_add(992, u64::MAX), Ok(9));
    assert_eq!(region.words()[124].load(Ordering::Relaxed), 8);
    let mut out = [1; 2];
    region.read_into(984, &mut out).unwrap();
    assert_eq!(out, [0, 8]);
    region.read_into(0, &mut []).unwrap();
    region.read_into(REGION_BYTES, &mut []).unwrap();
}

#[test]
fn accesses_outside_or_between_words_are_refused() {
    let region = region();
    for offset_bytes in [REGION_BYTES, 1008, 4096, 1 << 40, u64::MAX - 7] {
        let error =
            AccessError::OutOfBounds { offset_bytes, access_bytes: 8, region_bytes: REGION_BYTES };
        assert_eq!(region.read(offset_bytes), Err(error));
        assert_eq!(region.write(offset_bytes, 1), Err(error));
        assert_eq!(region.compare_and_swap(offset_bytes, 0, 1), Err(error));
        assert_eq!(region.fetch_and_add(offset_bytes, 1), Err(error));
        assert_eq!(region.read_into(offset_bytes, &mut [0]), Err(error));
    }
    for offset_bytes in [1, 4, 996, 1001, u64::MAX] {
        let error = AccessError::Misaligned { offset_bytes };
        assert_eq!(region.read(offset_bytes), Err(error));
        assert_eq!(region.write(offset_bytes, 1), Err(error));
        assert_eq!(region.compare_and_swap(offset_bytes, 0, 1), Err(error));
        assert_eq!(region.fetch_and_add(offset_bytes, 1), Err(error));
        assert_eq!(region.read_into(offset_bytes, &mut [0]), Err(error));
    }
    let mut out = [7; 3];
    assert!(region.read_into(984, &mut out).is_err());
    assert_eq!(out, [7; 3], "a refused read changes nothing");
    assert!(region.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

#[test]
fn lengths_and_labels_have_limits() {
    for length_bytes in [0, 7, 12, MAX_REGION_BYTES + 8, u64::MAX] {
        let error = OwnedRegion::create("test", length_bytes).err();
        assert!(matches!(error, Some(ShmError::BadLength { .. })), "{error:?}");
    }
    for label in ["", "a\0b", &"x".repeat(65)] {
        let error = OwnedRegion::create(label, 8).err();
        assert!(matches!(error, Some(ShmError::BadLabel { .. })), "{error:?}");
    }
}

#[test]
fn nobody_can_cut_or_grow_a_region() {
    let region = region();
    assert!(rustix::fs::ftruncate(region.as_fd(), 8).is_err());
    assert!(rustix::fs::ftruncate(region.as_fd(), 1 << 20).is_err());
    let more = rustix::fs::SealFlags::FUTURE_WRITE;
    assert!(rustix::fs::fcntl_add_seals(region.as_fd(), more).is_err());
}

#[test]
fn an_adopted_region_is_the_old_memory_under_a_new_name() {
    let old = region();
    old.write(8, 42).unwrap();
    let adopted = OwnedRegion::adopt(old.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(adopted.is_adopted() && !old.is_adopted());
    assert_eq!(adopted.read(8), Ok(42));
    assert_eq!(adopted.descriptor().length_bytes, REGION_BYTES);
    assert_ne!(adopted.descriptor().incarnation, old.descriptor().incarnation);
    // The tombstone that makes late compare-and-swaps miss.
    assert_eq!(adopted.compare_and_swap(8, 42, u64::MAX), Ok(42));
    assert_eq!(old.read(8), Ok(u64::MAX));
}

#[test]
fn sleepers_see_changes_time_outs_and_wakes() {
    let region = Arc::new(region());
    // The high half does not matter: only the low 32 bits are compared.
    region.write(40, 0xffff_0000_0000_0001).unwrap();
    assert_eq!(region.wait(5, 2, DEADLINE).unwrap(), WaitEnd::Changed);
    let start = Instant::now();
    let short = Duration::from_millis(20);
    assert_eq!(region.wait(5, 1, short).unwrap(), WaitEnd::TimedOut);
    assert!(start.elapsed() >= short);
    assert_eq!(region.wake(5, u32::MAX).unwrap(), 0, "nobody sleeps");

    let sleeper = Arc::clone(&region);
    let thread = std::thread::spawn(move || {
        // A wake can come early: sleep until the word has changed.
        while sleeper.read(40).unwrap() as u32 == 1 {
            assert_ne!(sleeper.wait(5, 1, DEADLINE).unwrap(), WaitEnd::TimedOut);
        }
    });
    std::thread::sleep(short);
    region.write(40, 2).unwrap();
    region.wake(5, 1).unwrap();
    thread.join().unwrap();
}

#[test]
fn there_is_no_sleep_on_a_word_that_is_not_there() {
    let region = region();
    assert!(matches!(region.wait(125, 0, DEADLINE), Err(WakeError::Access(_))));
    assert!(matches!(region.wake(usize::MAX, 1), Err(WakeError::Access(_))));
    // A time beyond what the kernel takes is cut, not refused.
    assert_eq!(region.wait(0, 1, Duration::MAX).unwrap(), WaitEnd::Changed);
}
