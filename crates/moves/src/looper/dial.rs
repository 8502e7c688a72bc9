//! Reaching regions elsewhere: connecting, finding the region, taking this edge's place in it.
//!
//! ```text
//! Absent ── dial ──► Connecting ── up ──► Reading ── place free ──► Taking ──► handed to the loop
//!    ▲                   │                │    ▲ └── it is ours ─────────────────────▲
//!    └────── broken ─────┴────────────────┘    └─ another's: until its lease has expired
//! ```

use super::attach::{Found, Record, Target, open};
use super::far::reads;
use super::line::{Dial, Line};
use pool_model::EdgeId;
use remote_memory::{Completion, ConnectionState, Mapped as _, Mirror, Op, OpResult, Ticket};
use shared_state::words::Lease;
use shared_state::{NODE_REGION_BYTES, NodeRecord, SiteRecord, site_region_bytes};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pause after the first try that failed; it doubles with each one that follows.
const REDIAL_MIN: Duration = Duration::from_millis(20);
/// The longest such pause: a machine that is back is found again within it.
const REDIAL_MAX: Duration = Duration::from_millis(500);
/// How long the owner may take for an answer while a region is taken; then it is dialled again.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// One region elsewhere that is wanted.
pub(super) struct Dialling {
    target: Target,
    label: String,
    dial: Arc<dyn Dial>,
    state: State,
    pause: Duration,
}

/// Who wants regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    pub(super) edge: EdgeId,
    pub(super) incarnation: u32,
    pub(super) sites: usize,
    pub(super) slot_lease: Duration,
}

enum State {
    Absent { again: Instant },
    Connecting(Box<dyn Line>),
    Reading(Asked),
    Taking(Asked),
    Handed,
}

/// A batch under way.
struct Asked {
    line: Box<dyn Line>,
    mirror: Arc<Mirror>,
    ticket: Ticket,
    /// The lease on this edge's place as it was read last, and since when it is the same.
    lease: (u64, Instant),
}

/// Why a step did not lead on.
enum Setback {
    /// Nobody is there, for now.
    Absent(String),
    /// It can't be used.
    Broken(String),
}

impl Dialling {
    pub(super) fn new(target: Target, label: String, dial: Arc<dyn Dial>) -> Self {
        let state = State::Absent { again: Instant::now() };
        Self { target, label, dial, state, pause: REDIAL_MIN }
    }

    pub(super) fn target(&self) -> Target {
        self.target
    }

    /// The loop has given the line up.
    pub(super) fn lost(&mut self) {
        self.state = State::Absent { again: Instant::now() };
    }

    /// Whether the loop has the line.
    pub(super) fn is_handed(&self) -> bool {
        matches!(self.state, State::Handed)
    }

    /// One step, which does not block. What there is to tell goes to `tell`; reasons may repeat.
    pub(super) fn round(&mut self, who: Claimant, tell: &mut Vec<Found>) {
        let state = std::mem::replace(&mut self.state, State::Handed);
        self.state = match self.step(state, who, tell) {
            Ok(state) => state,
            Err(setback) => {
                tell.push(match setback {
                    Setback::Absent(why) => Found::Absent(self.target, why),
                    Setback::Broken(why) => Found::Broken(self.target, why),
                });
                let again = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(REDIAL_MAX);
                State::Absent { again }
            }
        };
    }

    fn step(
        &mut self,
        state: State,
        who: Claimant,
        tell: &mut Vec<Found>,
    ) -> Result<State, Setback> {
        match state {
            State::Handed => Ok(State::Handed),
            State::Absent { again } if Instant::now() < again => Ok(State::Absent { again }),
            State::Absent { .. } => {
                self.dial.dial().map(State::Connecting).map_err(Setback::Broken)
            }
            State::Connecting(mut line) => {
                line.poll(&mut Vec::new());
                match line.connection() {
                    ConnectionState::Connecting => Ok(State::Connecting(line)),
                    ConnectionState::Broken => Err(why_broken(&*line)),
                    ConnectionState::Up => self.find(line, who),
                }
            }
            State::Reading(asked) => self.read(asked, who, tell),
            State::Taking(mut asked) => match answer(&mut *asked.line, asked.ticket)?.as_deref() {
                None => Ok(State::Taking(asked)),
                Some([OpResult::Swapped { found }]) if *found == asked.lease.0 => {
                    Ok(self.hand(asked, tell))
                }
                // Somebody was faster: what stands there now is read again.
                Some(_) => self.ask(asked.line, asked.mirror, asked.lease, who),
            },
        }
    }

    /// Finds the region among those that the owner serves, and asks for its words.
    fn find(&self, mut line: Box<dyn Line>, who: Claimant) -> Result<State, Setback> {
        let found = line.served().iter().find(|served| served.label == self.label).cloned();
        let Some(descriptor) = found else {
            return Err(Setback::Absent(format!("its owner serves no region {}", self.label)));
        };
        let wanted = match self.target {
            Target::Home => site_region_bytes(who.sites),
            Target::Node(_) => NODE_REGION_BYTES,
        };
        if descriptor.length_bytes != wanted {
            let found = descriptor.length_bytes;
            let why = format!("it has {found} bytes; by these settings it has {wanted}");
            return Err(Setback::Broken(why));
        }
        line.open(&descriptor).map_err(|error| Setback::Broken(error.to_string()))?;
        let mirror = Arc::new(Mirror::new(&descriptor));
        self.ask(line, mirror, (0, Instant::now()), who)
    }

    /// Asks for the words that say whether the record can be used, and whose this edge's place is.
    fn ask(
        &self,
        mut line: Box<dyn Line>,
        mirror: Arc<Mirror>,
        lease: (u64, Instant),
        who: Claimant,
    ) -> Result<State, Setback> {
        let batch = self.reads(&*line, who).into_iter().map(|(_, op)| op).collect();
        let ticket = submit(&mut *line, &mirror, batch)?;
        Ok(State::Reading(Asked { line, mirror, ticket, lease }))
    }

    fn reads(&self, line: &dyn Line, who: Claimant) -> Vec<(usize, Op)> {
        let watched = match self.target {
            Target::Home => SiteRecord::watched(who.sites, 0, who.edge),
            Target::Node(_) => NodeRecord::watched(who.edge, who.sites),
        };
        reads(&watched, line.capabilities().op_words_max)
    }

    /// The words came: the record must be what it should be, and this edge's place free or ours.
    fn read(
        &mut self,
        mut asked: Asked,
        who: Claimant,
        tell: &mut Vec<Found>,
    ) -> Result<State, Setback> {
        let Some(results) = answer(&mut *asked.line, asked.ticket)? else {
            return Ok(State::Reading(asked));
        };
        for ((start, _), result) in self.reads(&*asked.line, who).into_iter().zip(results) {
            if let OpResult::Read(words) = result {
                asked.mirror.put(start, &words, &[]);
            }
        }
        let record = open(self.target, asked.mirror.clone()).map_err(Setback::Broken)?;
        if let Record::Home(home) = &record
            && home.sites() != who.sites
        {
            let (found, sites) = (home.sites(), who.sites);
            let why = format!("it is for {found} sites, these settings have {sites}");
            return Err(Setback::Broken(why));
        }
        let place = record.lease_word(who.edge);
        let word = place.load(Ordering::SeqCst);
        if Lease::unpack(word).incarnation == who.incarnation {
            return Ok(self.hand(asked, tell));
        }
        let (before, since) = asked.lease;
        if word != 0 && (word != before || since.elapsed() < who.slot_lease) {
            if word != before && before != 0 {
                let why = format!("another edge with number {} is alive", who.edge);
                tell.push(Found::Absent(self.target, why));
            }
            let since = if word == before { since } else { Instant::now() };
            return self.ask(asked.line, asked.mirror, (word, since), who);
        }
        let index = asked.mirror.index_of(place).unwrap_or_default();
        let new = Lease { incarnation: who.incarnation, beat: 0 }.pack();
        let offset_bytes = super::far::at(index);
        let swap = Op::CompareAndSwap { offset_bytes, expected: word, new };
        let ticket = submit(&mut *asked.line, &asked.mirror, vec![swap])?;
        Ok(State::Taking(Asked { ticket, lease: (word, since), ..asked }))
    }

    fn hand(&mut self, asked: Asked, tell: &mut Vec<Found>) -> State {
        self.pause = REDIAL_MIN;
        tell.push(Found::Line(self.target, asked.mirror, asked.line));
        State::Handed
    }
}

fn submit(line: &mut dyn Line, mirror: &Mirror, batch: Vec<Op>) -> Result<Ticket, Setback> {
    let submitted = line.submit(mirror.descriptor().key, batch, ANSWER_MAX);
    submitted.map_err(|error| Setback::Broken(error.to_string()))
}

/// The results of a batch, once they are there and all of them are good.
fn answer(line: &mut dyn Line, ticket: Ticket) -> Result<Option<Vec<OpResult>>, Setback> {
    let mut done: Vec<Completion> = Vec::new();
    line.poll(&mut done);
    let Some(completion) = done.into_iter().find(|completion| completion.ticket == ticket) else {
        return Ok(None);
    };
    let results: Result<Vec<_>, _> = completion.results.into_iter().collect();
    results.map(Some).map_err(|error| Setback::Absent(error.to_string()))
}

fn why_broken(line: &dyn Line) -> Setback {
    Setback::Absent(line.why_broken().unwrap_or_else(|| "the connection broke".to_owned()))
}
