//! Where WebSocket frames end (RFC 6455, 5.2), so that a closing frame can be put between two of
//! them. Nothing else of them is read, changed or judged. Pure.

/// Two bytes, at most eight of length, at most four of mask.
const HEADER_BYTES_MAX: usize = 14;

const OPCODE_CLOSE: u8 = 0x8;

/// Final, close, two bytes of payload: 1001, the endpoint goes away.
const CLOSE_FROM_SERVER: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];

/// The frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    header: [u8; HEADER_BYTES_MAX],
    have: usize,
    /// Bytes of payload that are still to come.
    left: u64,
    /// A closing frame went by: no other may follow.
    has_closed: bool,
    /// A length that cannot be: no end is known any more.
    is_lost: bool,
}

impl Frames {
    /// Whether another frame may begin here.
    pub(crate) fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.is_lost
    }

    /// Whether a closing frame may stand here.
    pub(crate) fn may_close(&self) -> bool {
        self.is_between() && !self.has_closed
    }

    /// Follows the bytes up to the end of a frame; how many that were, none where it does not
    /// end within them.
    pub(crate) fn follow_to_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && !self.is_lost {
            if self.left == 0 {
                self.header[self.have] = bytes[at];
                self.have += 1;
                at += 1;
                if self.have < self.header_bytes() {
                    continue;
                }
                self.begin();
            } else {
                let rest = (bytes.len() - at) as u64;
                let count = rest.min(self.left);
                self.left -= count;
                // At most `rest`, which is a length in memory.
                at += count as usize;
            }
            if self.is_between() {
                return Some(at);
            }
        }
        None
    }

    /// Follows all the bytes.
    pub(crate) fn follow(&mut self, mut bytes: &[u8]) {
        while let Some(count) = self.follow_to_end(bytes) {
            bytes = &bytes[count..];
        }
    }

    fn is_masked(&self) -> bool {
        self.header[1] & 0x80 != 0
    }

    /// How long the header is, as far as its bytes so far tell.
    fn header_bytes(&self) -> usize {
        if self.have < 2 {
            return 2;
        }
        let length = match self.header[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.is_masked() { 4 } else { 0 }
    }

    fn begin(&mut self) {
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, &b| sum << 8 | u64::from(b));
        self.left = match self.header[1] & 0x7f {
            126 => number(&self.header[2..4]),
            127 => number(&self.header[2..10]),
            short => u64::from(short),
        };
        self.has_closed |= self.header[0] & 0xf == OPCODE_CLOSE;
        self.is_lost = self.left > i64::MAX as u64;
        self.have = 0;
    }
}

/// The frame by which an endpoint says that it goes away: a client must mask it, a server not.
pub(crate) fn going_away(mask: Option<[u8; 4]>) -> Vec<u8> {
    let [start, length, high, low] = CLOSE_FROM_SERVER;
    match mask {
        None => CLOSE_FROM_SERVER.to_vec(),
        Some(mask) => {
            let [a, b, c, d] = mask;
            vec![start, length | 0x80, a, b, c, d, high ^ a, low ^ b]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(opcode: u8, mask: bool, length: usize, long: bool) -> Vec<u8> {
        let mut bytes = vec![0x80 | opcode];
        let flag = if mask { 0x80 } else { 0 };
        match length {
            0..126 if !long => bytes.push(flag | length as u8),
            0..65_536 if !long => {
                bytes.push(flag | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(flag | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(0xff, if mask { 4 } else { 0 }));
        // Looks like headers, and is none.
        bytes.extend((0..length).map(|at| (at % 256) as u8));
        bytes
    }

    #[test]
    fn one_close_is_enough() {
        let mut frames = Frames::default();
        assert!(frames.may_close());
        frames.follow(&[0x88, 0x00]);
        assert!(frames.is_between() && !frames.may_close());
        let mut own = Frames::default();
        own.follow(&going_away(None));
        assert!(own.is_between() && !own.may_close());
        let mut masked = Frames::default();
        masked.follow(&going_away(Some([1, 2, 3, 4])));
        assert!(masked.is_between() && !masked.may_close());
    }

    #[test]
    fn a_length_that_cannot_be_leaves_no_boundary() {
        let mut frames = Frames::default();
        frames.follow(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]);
        frames.follow(&[0x81, 0x00]);
        assert!(!frames.is_between() && !frames.may_close());
    }

    proptest! {
        #[test]
        fn frames_end_where_they_were_put_together(
            kinds in prop::collection::vec(
                (
                    0_u8..3,
                    any::<bool>(),
                    prop_oneof![0_usize..140, Just(65_535), Just(65_536)],
                    any::<bool>(),
                ),
                1..6,
            ),
            cuts in prop::collection::vec(1_usize..5_000, 1..80),
        ) {
            let frames: Vec<_> =
                kinds
                    .iter()
                    .map(|&(code, mask, length, long)| frame(code, mask, length, long))
                    .collect();
            let all = frames.concat();
            let mut ends = Vec::new();
            let mut tracker = Frames::default();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < all.len() {
                let mut piece = &all[at..(at + cuts.next().unwrap()).min(all.len())];
                while let Some(count) = tracker.follow_to_end(piece) {
                    at += count;
                    ends.push(at);
                    piece = &piece[count..];
                }
                at += piece.len();
                prop_assert_eq!(tracker.is_between(), ends.last() == Some(&at));
            }
            let mut sum = 0;
            let expected: Vec<_> = frames.iter().map(|frame| { sum += frame.len(); sum }).collect();
            prop_assert_eq!(ends, expected);
        }
    }
}
