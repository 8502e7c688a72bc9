//! Frames from a peer: whatever the bytes, reading them gives a descriptor or a clear error.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::{collection, prop_assert, prop_assert_eq, proptest};
use remote_memory::frame::{FRAME_BYTES, FrameError, Refusal, decode, encode};
use remote_memory::{
    AtomicPath, Incarnation, LABEL_BYTES_MAX, MAX_REGION_BYTES, RegionDescriptor, RemoteKey,
    label_is_valid, length_is_valid,
};

fn descriptor() -> RegionDescriptor {
    RegionDescriptor {
        key: RemoteKey(0x1122_3344_5566_7788),
        incarnation: Incarnation(0x99aa_bbcc_ddee_ff00),
        length_bytes: 4096,
        atomic_path: AtomicPath::Cpu,
        label: "node-3".to_owned(),
    }
}

fn any_descriptor() -> impl Strategy<Value = RegionDescriptor> {
    let path = prop_oneof![
        proptest::strategy::Just(AtomicPath::Cpu),
        any::<u64>().prop_map(AtomicPath::Adapter)
    ];
    let words = 1..=MAX_REGION_BYTES / 8;
    let label = "[a-zåß-]{1,32}";
    (any::<u64>(), any::<u64>(), words, path, label).prop_map(
        |(key, incarnation, words, atomic_path, label)| RegionDescriptor {
            key: RemoteKey(key),
            incarnation: Incarnation(incarnation),
            length_bytes: words * 8,
            atomic_path,
            label,
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err(), "noise passed for a frame");
    }

    #[test]
    fn what_is_written_is_read(descriptor in any_descriptor()) {
        let frame = encode(&Ok(descriptor.clone()));
        prop_assert_eq!(decode(&frame), Ok(Ok(descriptor)));
    }

    #[test]
    fn a_frame_cut_short_says_so(descriptor in any_descriptor(), length in 0..FRAME_BYTES) {
        let frame = encode(&Ok(descriptor));
        let found = decode(&frame[..length]);
        prop_assert_eq!(found, Err(FrameError::Truncated { found_bytes: length }));
    }

    /// Damaged frames get past the magic number, so every field meets nonsense; what is read
    /// nevertheless keeps the rules that mapping relies on.
    #[test]
    fn damaged_frames_give_errors_or_sane_descriptors(
        descriptor in any_descriptor(),
        damage in collection::vec((8..FRAME_BYTES, any::<u8>()), 1..20),
    ) {
        let mut frame = encode(&Ok(descriptor));
        for (offset, byte) in damage {
            frame[offset] = byte;
        }
        if let Ok(Ok(read)) = decode(&frame) {
            prop_assert!(length_is_valid(read.length_bytes));
            prop_assert!(label_is_valid(&read.label));
        }
    }
}

#[test]
fn the_bytes_are_as_drawn() {
    let mut drawn = Vec::new();
    drawn.extend(*b"PLDRSHM1");
    drawn.extend([1, 0, 128, 0, 0, 0, 0, 0]);
    drawn.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    drawn.extend([0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99]);
    drawn.extend([0, 0x10, 0, 0, 0, 0, 0, 0]);
    drawn.extend([0, 0, 0, 0, 6, 0, 0, 0]);
    drawn.extend([0; 16]);
    drawn.extend(*b"node-3");
    drawn.resize(FRAME_BYTES, 0);
    assert_eq!(encode(&Ok(descriptor())).to_vec(), drawn);
}

#[test]
fn refusals_are_read_as_refusals() {
    for refusal in [Refusal::OtherUser, Refusal::TooManyPeers] {
        assert_eq!(decode(&encode(&Err(refusal))), Ok(Err(refusal)));
    }
}

#[test]
fn each_wrong_field_is_named() {
    let cases: [(usize, u8, &str); 9] = [
        (0, b'X', "not a region socket: the frame starts with [58, 4c, 44, 52, 53, 48, 4d, 31]"),
        (8, 2, "frame version 2, this program reads version 1"),
        (10, 127, "frame field length holds 127: must be 128"),
        (12, 3, "frame field status holds 3: must be 0, 1 or 2"),
        (
            32,
            1,
            "frame field region length holds 4097: must be a multiple of 8, at least 8 and \
                 at most 2^30",
        ),
        (40, 2, "frame field atomic path holds 2: must be 0 or 1"),
        (44, 65, "frame field label length holds 65: must be 1 to 64"),
        (48, 1, "frame field adapter holds 1: must be 0 for the processor"),
        (56, 1, "frame field reserved holds 1: must be 0"),
    ];
    for (offset, byte, message) in cases {
        let mut frame = encode(&Ok(descriptor()));
        frame[offset] = byte;
        assert_eq!(decode(&frame).unwrap_err().to_string(), message);
    }
    for (length, bytes) in [(0, *b"node-3"), (6, *b"no\nde3"), (6, *b"no\xff\xff\xff3")] {
        let mut frame = encode(&Ok(descriptor()));
        frame[44] = length;
        frame[64..70].copy_from_slice(&bytes);
        assert_eq!(decode(&frame), Err(FrameError::Label));
    }
}

#[test]
fn a_long_label_is_cut_at_a_character() {
    let label = "é".repeat(LABEL_BYTES_MAX);
    let frame = encode(&Ok(RegionDescriptor { label, ..descriptor() }));
    assert_eq!(decode(&frame).unwrap().unwrap().label, "é".repeat(LABEL_BYTES_MAX / 2));
}
