//! Writers, the agent that answers some of them, and settlers.
//!
//! A writer begins an update, has the database commit it, and ends it; some map the table, others
//! ask the agent. Each operation on a word is an event, and any of them may be its last.

use super::Flaw;
use super::options::{
    COMMIT_NS, COMMIT_WAITS, DIES_IN_COMMIT, DOWN_NS, NOTICED_NS, ROLLED_BACK, SETTLE_EVERY_NS,
    SETTLE_ROUNDS, SETTLER_DIES, SLOW_COMMIT_NS, WIRE_NS, WRITER_DIES,
};
use super::outcome::Note;
use super::site::{slot_of_tags, tag_of};
use super::table::{Running, SHAPE, summaries};
use super::world::{Due, World};
use shared_state::versions::{Begin, BeginError, Held, Lower, Settle, Slot, WriterId};

/// How far the database is with an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    Open,
    /// The commit is on its way, and nothing stops it.
    Committing,
    Committed,
    RolledBack,
}

/// One update.
#[derive(Clone, Debug)]
pub(super) struct Update {
    rows: Vec<usize>,
    pub(super) transaction: Transaction,
    /// The table in which it began, or is to begin.
    pub(super) table: usize,
}

impl Update {
    pub(super) fn is_decided(&self) -> bool {
        matches!(self.transaction, Transaction::Committed | Transaction::RolledBack)
    }

    /// The words of its tags, and unless that is forgotten their summary words.
    fn slots(&self, flaw: Flaw) -> Vec<Slot> {
        let tags: Vec<_> = self.rows.iter().map(|&row| tag_of(row)).collect();
        let slots = slot_of_tags(tags.iter().map(String::as_bytes));
        match flaw {
            Flaw::NoSummaries => slots,
            _ => [&slots[..], &summaries(&slots)].concat(),
        }
    }
}

/// An update's name is its own: whoever settles names it.
fn name_of(update: usize) -> WriterId {
    WriterId(update as u32)
}

/// The steps of an update, in the order that the rules of the run say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Commit,
    End,
    Done,
}

impl Stage {
    fn first(flaw: Flaw) -> Self {
        if flaw == Flaw::BumpAfterCommit { Self::Commit } else { Self::Begin }
    }

    fn next(self, flaw: Flaw) -> Self {
        let order = match flaw {
            Flaw::BumpBeforeCommit => [Self::Begin, Self::End, Self::Commit],
            Flaw::BumpAfterCommit => [Self::Commit, Self::Begin, Self::End],
            _ => [Self::Begin, Self::Commit, Self::End],
        };
        let at = order.iter().position(|stage| *stage == self);
        at.and_then(|at| order.get(at + 1)).copied().unwrap_or(Self::Done)
    }
}

/// What a writer does.
#[derive(Clone, Debug)]
enum Work {
    Rest,
    Enter(Stage),
    Begin(Running<Begin>),
    /// Waits for the database.
    Commit,
    End(Running<Lower>),
    /// Ends it in a later life of the agent, by what `begin` has told.
    ByToken(Running<Settle>),
}

/// One writer, in one of its lives.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    /// It maps the table itself; else the agent acts for it.
    is_direct: bool,
    pub(super) life: u32,
    rest_ns: u64,
    /// Where it begins.
    pub(super) table: usize,
    update: usize,
    held: Option<Held>,
    work: Work,
}

impl Writer {
    pub(super) fn new(is_direct: bool, rest_ns: u64) -> Self {
        let (life, table, update, held, work) = (0, 0, 0, None, Work::Rest);
        Self { is_direct, life, rest_ns, table, update, held, work }
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.work, Work::Begin(_) | Work::End(_) | Work::ByToken(_))
    }
}

/// Who settles, record by record.
#[derive(Clone, Debug, Default)]
pub(super) struct Settler {
    item: Option<usize>,
    record: u16,
    run: Option<Running<Settle>>,
    has_failed: bool,
}

fn settling(record: u16, update: usize) -> Running<Settle> {
    Running::new(Settle::new(SHAPE, record, name_of(update), SETTLE_ROUNDS))
}

impl World {
    /// The next step of a writer.
    pub(super) fn write(&mut self, index: usize, life: u32) {
        if self.writers[index].life != life {
            return;
        }
        let writer = &self.writers[index];
        if !matches!(writer.work, Work::Rest) && self.chance.below(WRITER_DIES) == 0 {
            return self.kill_writer(index);
        }
        let update = writer.update;
        let table = self.updates.get(update).map_or(0, |update| update.table);
        let after_ns = match std::mem::replace(&mut self.writers[index].work, Work::Rest) {
            Work::Rest => self.wish(index),
            Work::Enter(stage) => self.enter(index, stage),
            Work::Begin(mut run) => match run.step(&mut self.tables[table]) {
                None => {
                    self.writers[index].work = Work::Begin(run);
                    Some(self.step_ns())
                }
                Some(Ok(held)) => {
                    self.note(Note::Begun { update, rows: self.updates[update].rows.clone() });
                    self.writers[index].held = Some(held);
                    Some(self.go_on(index, Stage::Begin))
                }
                Some(Err(error)) => Some(self.not_begun(index, error)),
            },
            Work::Commit => Some(self.go_on(index, Stage::Commit)),
            Work::End(mut run) => match run.step(&mut self.tables[table]) {
                None => {
                    self.writers[index].work = Work::End(run);
                    Some(self.step_ns())
                }
                Some(ended) => {
                    // Nobody settles a writer that lives.
                    if let (Err(error), true) = (ended, self.flaw == Flaw::None) {
                        self.violated(format!("update {update} could not be ended: {error}"));
                    }
                    self.note(Note::Ended { update });
                    Some(self.go_on(index, Stage::End))
                }
            },
            Work::ByToken(mut run) => match run.step(&mut self.tables[table]) {
                None => {
                    self.writers[index].work = Work::ByToken(run);
                    Some(self.step_ns())
                }
                Some(Ok(_)) => {
                    self.counts.ended_by_token += 1;
                    self.note(Note::Ended { update });
                    Some(self.go_on(index, Stage::End))
                }
                Some(Err(_)) => {
                    self.writers[index].work = Work::Enter(Stage::End);
                    Some(self.delays.between(SETTLE_EVERY_NS.0, SETTLE_EVERY_NS.1))
                }
            },
        };
        if let Some(after_ns) = after_ns {
            self.after(after_ns, Due::Writer(index, life));
        }
    }

    /// A new update.
    fn wish(&mut self, index: usize) -> Option<u64> {
        if self.is_quiet {
            return None;
        }
        if !self.is_published || (!self.agent.is_up && !self.writers[index].is_direct) {
            return Some(self.delays.between(DOWN_NS.0, DOWN_NS.1));
        }
        let count = self.chance.between(1, 3);
        let rows = self.site.committed.len() as u64;
        let mut rows: Vec<_> = (0..count).map(|_| self.chance.below(rows) as usize).collect();
        rows.sort_unstable();
        rows.dedup();
        self.counts.updates += 1;
        let update = self.updates.len();
        let table = self.writers[index].table;
        self.updates.push(Update { rows, transaction: Transaction::Open, table });
        let writer = &mut self.writers[index];
        (writer.update, writer.held) = (update, None);
        writer.work = Work::Enter(Stage::first(self.flaw));
        Some(self.way_of(index))
    }

    fn enter(&mut self, index: usize, stage: Stage) -> Option<u64> {
        let update = self.writers[index].update;
        let waits = stage != Stage::Commit && !self.writers[index].is_direct && !self.agent.is_up;
        if waits {
            self.writers[index].work = Work::Enter(stage);
            return Some(self.delays.between(DOWN_NS.0, DOWN_NS.1));
        }
        match stage {
            Stage::Begin => {
                let start = self.chance.below(u64::from(SHAPE.records)) as u16;
                self.updates[update].table = self.writers[index].table;
                let slots = self.updates[update].slots(self.flaw);
                let begin = Begin::new(SHAPE, name_of(update), slots, start);
                self.writers[index].work = Work::Begin(Running::new(begin));
                Some(self.step_ns())
            }
            Stage::Commit => self.commit(index, update),
            Stage::End => Some(self.end(index, update)),
            Stage::Done => Some(self.rest(index)),
        }
    }

    fn commit(&mut self, index: usize, update: usize) -> Option<u64> {
        if self.chance.below(ROLLED_BACK) == 0 {
            self.roll_back(update);
            return Some(self.go_on(index, Stage::Commit));
        }
        self.updates[update].transaction = Transaction::Committing;
        let is_slow = self.chance.below(COMMIT_WAITS) == 0;
        let bounds = if is_slow { SLOW_COMMIT_NS } else { COMMIT_NS };
        let after_ns = self.delays.between(bounds.0, bounds.1);
        self.after(after_ns, Due::Commit(update));
        self.writers[index].work = Work::Commit;
        if self.chance.below(DIES_IN_COMMIT) == 0 {
            self.kill_writer(index);
            return None;
        }
        Some(after_ns + self.delays.between(WIRE_NS.0, WIRE_NS.1))
    }

    fn end(&mut self, index: usize, update: usize) -> u64 {
        let Some(held) = self.writers[index].held.clone() else { return self.rest(index) };
        // With the table went what was pending there.
        if self.updates[update].table < self.lost_before {
            return self.rest(index);
        }
        let by_token =
            !self.writers[index].is_direct && self.agent.started_ns > self.begun_ns[update];
        self.writers[index].work = if by_token {
            Work::ByToken(settling(held.record(), update))
        } else {
            Work::End(Running::new(Lower::new(held)))
        };
        self.step_ns()
    }

    fn go_on(&mut self, index: usize, done: Stage) -> u64 {
        if done == Stage::Begin {
            let update = self.writers[index].update;
            self.begun_ns.resize(self.updates.len(), 0);
            self.begun_ns[update] = self.now_ns;
        }
        match done.next(self.flaw) {
            Stage::Done => self.rest(index),
            stage => {
                self.writers[index].work = Work::Enter(stage);
                self.way_of(index)
            }
        }
    }

    fn rest(&mut self, index: usize) -> u64 {
        let writer = &mut self.writers[index];
        writer.work = Work::Rest;
        (self.chance.exponential() * writer.rest_ns as f64) as u64
    }

    /// An update that did not begin is not committed.
    fn not_begun(&mut self, index: usize, error: BeginError) -> u64 {
        let update = self.writers[index].update;
        self.counts.refused_updates += 1;
        if self.updates[update].transaction == Transaction::Open {
            self.roll_back(update);
        }
        self.left.push(update);
        if error == BeginError::Retired {
            self.writers[index].table = self.tables.len() - 1;
        }
        self.rest(index)
    }

    /// From a writer to whoever acts for it.
    fn way_of(&mut self, index: usize) -> u64 {
        if self.writers[index].is_direct {
            return self.step_ns();
        }
        self.delays.between(WIRE_NS.0, WIRE_NS.1)
    }

    fn roll_back(&mut self, update: usize) {
        self.updates[update].transaction = Transaction::RolledBack;
        self.counts.rollbacks += 1;
        self.note(Note::RolledBack { update });
    }

    /// A commit takes place, whether its writer lives or not.
    pub(super) fn committed(&mut self, update: usize) {
        self.updates[update].transaction = Transaction::Committed;
        self.counts.commits += 1;
        let rows = self.updates[update].rows.clone();
        self.site.commit(&rows);
        self.note(Note::Committed { update, rows });
    }

    /// The database finds out that a writer is gone.
    pub(super) fn noticed(&mut self, update: usize) {
        if self.updates[update].transaction == Transaction::Open {
            self.roll_back(update);
        }
    }

    /// A writer's process dies, and another starts in its place.
    pub(super) fn kill_writer(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        writer.life += 1;
        let (life, update) = (writer.life, writer.update);
        match std::mem::replace(&mut writer.work, Work::Rest) {
            Work::Begin(_) => self.counts.deaths_in_begin += 1,
            Work::Commit => self.counts.deaths_in_commit += 1,
            Work::End(_) | Work::ByToken(_) => self.counts.deaths_in_end += 1,
            Work::Enter(_) | Work::Rest => {}
        }
        writer_died(self, index, update);
        let after_ns = self.delays.between(DOWN_NS.0, DOWN_NS.1);
        self.after(after_ns, Due::Writer(index, life));
    }

    /// Whoever answers writers dies, and with it what it does for them. `is_all`: those that map
    /// the table die too.
    pub(super) fn crash_agent(&mut self, is_all: bool) {
        if !self.agent.is_up && !is_all {
            return;
        }
        self.agent.is_up = false;
        self.agent.life += 1;
        self.counts.agent_crashes += 1;
        self.note(Note::Agent { is_up: false });
        for settler in &mut self.settlers {
            self.counts.deaths_in_settle += u64::from(settler.run.is_some());
            *settler = Settler::default();
        }
        for index in 0..self.writers.len() {
            let writer = &self.writers[index];
            if writer.is_direct {
                if is_all && !matches!(writer.work, Work::Rest) {
                    self.kill_writer(index);
                }
            } else if writer.is_in_memory() {
                self.unanswered(index);
            }
        }
    }

    /// A writer that waits for an answer hears that the connection is gone.
    fn unanswered(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        writer.life += 1;
        let (life, update) = (writer.life, writer.update);
        match std::mem::replace(&mut writer.work, Work::Rest) {
            Work::Begin(_) => {
                // It does not know, and so it does not commit.
                if self.updates[update].transaction == Transaction::Open {
                    self.roll_back(update);
                }
                self.left.push(update);
                self.counts.deaths_in_begin += 1;
            }
            _ => {
                writer.work = Work::Enter(Stage::End);
                self.counts.deaths_in_end += 1;
            }
        }
        let after_ns = self.delays.between(DOWN_NS.0, DOWN_NS.1);
        self.after(after_ns, Due::Writer(index, life));
    }

    /// The next step of a settler.
    pub(super) fn settle(&mut self, index: usize, life: u32) {
        if self.agent.life != life {
            return;
        }
        if self.settlers[index].run.is_some() && self.chance.below(SETTLER_DIES) == 0 {
            self.crash_agent(false);
            return self.start_agent_soon();
        }
        let mut settler = std::mem::take(&mut self.settlers[index]);
        let after_ns = self.settle_step(&mut settler);
        self.settlers[index] = settler;
        self.after(after_ns, Due::Settler(index, life));
    }

    fn settle_step(&mut self, settler: &mut Settler) -> u64 {
        let pause = SETTLE_EVERY_NS;
        let Some(update) = settler.item else {
            let may = |update: &&usize| {
                self.flaw == Flaw::SettledByTimer || self.updates[**update].is_decided()
            };
            let items: Vec<usize> = self.left.iter().filter(may).copied().collect();
            if !items.is_empty() {
                let item = items[self.chance.below(items.len() as u64) as usize];
                *settler = Settler { item: Some(item), ..Settler::default() };
                return self.step_ns();
            }
            return self.delays.between(pause.0, pause.1);
        };
        let table = self.updates[update].table;
        let mut run = settler.run.take().unwrap_or_else(|| settling(settler.record, update));
        match run.step(&mut self.tables[table]) {
            None => settler.run = Some(run),
            Some(done) => {
                settler.has_failed |= done.is_err();
                settler.record += 1;
            }
        }
        if settler.record < SHAPE.records {
            return self.step_ns();
        }
        if !settler.has_failed && self.left.contains(&update) {
            self.left.retain(|other| *other != update);
            self.counts.settled += 1;
            self.note(Note::Settled { update });
        }
        *settler = Settler::default();
        self.delays.between(pause.0, pause.1)
    }
}

fn writer_died(world: &mut World, writer: usize, update: usize) {
    world.note(Note::WriterDied { writer, update });
    world.left.push(update);
    let after_ns = world.delays.between(NOTICED_NS.0, NOTICED_NS.1);
    world.after(after_ns, Due::Noticed(update));
}
