//! Noise for the lines of writers, and for the desk that answers them.

use crate::line::{self, LINE_BYTES_MAX, Request, Token};
use crate::{Answered, Desk, Peer};
use fuzzing::{Random, Target};
use remote_memory::shm::OwnedRegion;
use shared_state::versions::{Decided, RECORDS, SlotBits, TableLayout, VersionTable};
use std::sync::Arc;
use std::time::Duration;

const TOKENS: [&str; 19] = [
    "begin ",
    "begin\t",
    "end ",
    "abort ",
    "invalidate ",
    "pending",
    "settle ",
    "read ",
    "read-end ",
    "write ",
    "write-end ",
    "disconnected",
    "earlier",
    "\n",
    "\t",
    "00000000000000ff-0000abcd-0010-00000007",
    "-00000000",
    "page:1",
    "\u{80}",
];

fn made(random: &mut Random) -> Vec<u8> {
    let mut lines = Vec::new();
    for _ in 0..random.below(6) {
        let word = *random.pick(&["begin", "invalidate", "begin"]);
        let tags: Vec<String> =
            (0..=random.below(70)).map(|_| format!("t{}", random.below(9))).collect();
        lines.extend(line::tag_line(word, &tags).unwrap());
    }
    lines
}

/// Whatever lines come, each is answered, and a line that is understood can be written again. At
/// the end everything that was begun can be settled.
#[test]
fn fuzz_writer_lines() {
    let bits = SlotBits::new(SlotBits::MIN).unwrap();
    let check = move |bytes: &[u8], random: &mut Random| {
        let length = TableLayout::new(bits).region_bytes();
        let region = Arc::new(OwnedRegion::create("tags-fuzz", length).unwrap());
        let table = VersionTable::publish(region, bits).unwrap();
        table.admit_hits(Decided);
        let mut desk = Desk::new(table.clone(), random.next() as u32);
        let peer = Peer { connection: 1, pid: 7, uid: 8, is_owner: random.once_in(2) };
        let mut kinds = Vec::new();
        for line in bytes.split(|&byte| byte == b'\n').take(usize::from(RECORDS)) {
            let request = line::parse(line);
            if let Ok(Request::Begin(tags)) = &request {
                let again = line::tag_line("begin", tags);
                let again = again.expect("what was read in one line fits one");
                assert_eq!(line::parse(&again[..again.len() - 1]), request);
            }
            let mut answer = Vec::new();
            if desk.answer(line, &peer, Duration::ZERO, &mut answer) == Answered::Later {
                // Behind itself it is refused, so behind nobody it does not wait.
                panic!("one connection never waits");
            }
            assert!(answer.ends_with(b"\n") && answer.len() < LINE_BYTES_MAX);
            let text = std::str::from_utf8(&answer).expect("answers are text");
            if let Some(token) = text.strip_prefix("ok ").filter(|text| text.contains('-')) {
                let token = token.split_whitespace().next().unwrap();
                let read = Token::parse(token.as_bytes());
                assert!(read.is_some_and(|read| read.to_string() == token) || token.len() < 9);
            }
            let words: Vec<&str> = text.split(' ').take(2).collect();
            kinds.push((words.first() == Some(&"ok"), request.err()));
        }
        desk.disconnected(1);
        let owner = Peer { is_owner: true, ..peer };
        let _ = desk.answer(b"settle disconnected", &owner, Duration::ZERO, &mut Vec::new());
        assert!(table.undecided().is_empty());
        kinds.truncate(4);
        kinds
    };
    let target = Target::new("writer_lines", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&TOKENS).made_by(made).smoke_cases(300).run(check);
}
