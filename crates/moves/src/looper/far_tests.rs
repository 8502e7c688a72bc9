//! Mirrors over regions of this process, and over an owner that says nothing.

use super::*;
use remote_memory::shm::OwnedRegion;
use remote_memory::{
    Capabilities, Inline, Mapped, OpenError, RegionDescriptor, Remote, RemoteKey, SubmitError,
};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

const DEADLINE: Duration = Duration::from_millis(10);

/// Reaches a region inline; while it is mute, batches time out at once.
struct Local {
    inline: Inline,
    mute: Arc<AtomicBool>,
    unanswered: Mutex<Vec<Completion>>,
    tickets: u64,
}

impl Line for Local {
    fn served(&self) -> &[RegionDescriptor] {
        &[]
    }

    fn why_broken(&self) -> Option<String> {
        None
    }
}

impl Remote for Local {
    fn capabilities(&self) -> &Capabilities {
        self.inline.capabilities()
    }

    fn open(&mut self, descriptor: &RegionDescriptor) -> Result<(), OpenError> {
        self.inline.open(descriptor)
    }

    fn close(&mut self, key: RemoteKey) {
        self.inline.close(key);
    }

    fn submit(
        &mut self,
        key: RemoteKey,
        batch: Vec<Op>,
        deadline: Duration,
    ) -> Result<Ticket, SubmitError> {
        if !self.mute.load(Ordering::SeqCst) {
            return self.inline.submit(key, batch, deadline);
        }
        // Beyond all tickets of the other.
        self.tickets += 1;
        let ticket = Ticket(u64::MAX - self.tickets);
        let results = batch.iter().map(|_| Err(OpError::TimedOut)).collect();
        self.unanswered.get_mut().unwrap().push(Completion { ticket, results });
        Ok(ticket)
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let unanswered = self.unanswered.get_mut().unwrap();
        let count = unanswered.len();
        out.append(unanswered);
        count + self.inline.poll(out)
    }

    fn connection(&self) -> ConnectionState {
        ConnectionState::Up
    }

    fn reconnect(&mut self) {}
}

/// A region of 32 words, of which this edge owns 8 to 15, with a seqlock at 16 and bits at 24.
fn far() -> (Arc<OwnedRegion>, Far, Arc<AtomicBool>) {
    let region = Arc::new(OwnedRegion::create("far", 32 * WORD_BYTES).unwrap());
    let mut inline = Inline::new();
    inline.add(Arc::clone(&region) as Arc<dyn Mapped>);
    inline.open(region.descriptor()).unwrap();
    let mute = Arc::new(AtomicBool::new(false));
    let unanswered = Mutex::default();
    let line = Local { inline, mute: Arc::clone(&mute), unanswered, tickets: 0 };
    let shape = Shape {
        watched: vec![0..20, 20..32],
        own: 8..16,
        checked: Some(16..20),
        bits: Some(24),
        bell: Some(25),
    };
    let mirror = Arc::new(Mirror::new(region.descriptor()));
    (region, Far::new(Box::new(line), mirror, shape, DEADLINE), mute)
}

fn word(region: &dyn Mapped, index: usize) -> &AtomicU64 {
    &region.words()[index]
}

fn look(far: &mut Far, ms: u64) {
    refresh(&mut [far], || Duration::from_millis(ms));
}

#[test]
fn a_look_writes_own_words_and_reads_all_others() {
    let (region, mut far, _) = far();
    for index in 0..32 {
        word(&*region, index).store(100 + index as u64, Ordering::SeqCst);
    }
    word(&*far.mirror, 9).store(7, Ordering::SeqCst);
    look(&mut far, 1);
    assert_eq!(word(&*region, 9).load(Ordering::SeqCst), 7);
    assert_eq!(word(&*far.mirror, 9).load(Ordering::SeqCst), 7);
    assert_eq!(far.told[1].load(Ordering::SeqCst), 7);
    for index in [0, 7, 16, 19, 20, 31] {
        assert_eq!(word(&*far.mirror, index).load(Ordering::SeqCst), 100 + index as u64);
    }
}

#[test]
fn checked_words_that_are_being_written_are_not_taken() {
    let (region, mut far, _) = far();
    word(&*region, 16).store(2, Ordering::SeqCst);
    word(&*region, 17).store(5, Ordering::SeqCst);
    look(&mut far, 1);
    word(&*region, 16).store(3, Ordering::SeqCst);
    word(&*region, 17).store(6, Ordering::SeqCst);
    look(&mut far, 2);
    let seen = |index| word(&*far.mirror, index).load(Ordering::SeqCst);
    assert_eq!((seen(16), seen(17)), (2, 5));
}

#[test]
fn bits_and_bells_go_where_they_belong() {
    let (region, mut far, _) = far();
    word(&*far.mirror, 24).store(0b10, Ordering::SeqCst);
    far.ring();
    look(&mut far, 1);
    assert_eq!(word(&*region, 24).load(Ordering::SeqCst), 0b10);
    assert_eq!(word(&*region, 25).load(Ordering::SeqCst), 1);
    // Another edge sets its bit, and this one clears its own without a look between.
    word(&*region, 24).store(0b11, Ordering::SeqCst);
    word(&*far.mirror, 24).store(0, Ordering::SeqCst);
    look(&mut far, 2);
    assert_eq!(word(&*region, 24).load(Ordering::SeqCst), 0b11, "the other's bit is not lost");
    word(&*far.mirror, 24).store(0b01, Ordering::SeqCst);
    look(&mut far, 3);
    assert_eq!(word(&*region, 24).load(Ordering::SeqCst), 0b01);
}

#[test]
fn silence_is_noticed_and_after_a_while_the_line_is_given_up() {
    let (region, mut far, mute) = far();
    mute.store(true, Ordering::SeqCst);
    look(&mut far, 1);
    assert_eq!(far.answers, Answers::Silent(Duration::from_millis(1)));
    let clock = || Duration::from_millis(2);
    assert_eq!(far.swap(3, (0, 1), clock), Reply::Unreachable, "nothing is sent into silence");
    mute.store(false, Ordering::SeqCst);
    look(&mut far, 3);
    assert!(far.is_up());
    assert_eq!(far.swap(3, (0, 1), clock), Reply::Swapped { found: 0 });
    assert_eq!(word(&*region, 3).load(Ordering::SeqCst), 1);
    assert_eq!(word(&*far.mirror, 3).load(Ordering::SeqCst), 1);
    mute.store(true, Ordering::SeqCst);
    assert_eq!(far.swap(3, (1, 2), clock), Reply::Unknown, "it may still land");
    look(&mut far, 4);
    assert!(!far.take_cut());
    look(&mut far, 4 + SILENT_MAX.as_millis() as u64);
    assert!(far.take_cut() && !far.take_cut(), "told once");
    assert!(matches!(far.answers, Answers::Silent(_)));
}
