//! Writers, readers, settlers and the database, one single-word step after the other.

use crate::memory::{Blind, Breach, CLOSED, ENTRIES, Memory, RECORDS, RETIRED, Running, SLOTS};
use shared_state::versions::{
    Begin, Check, Fill, Filled, Held, Lower, Place, RecordHeader, Settle, Shape, Slot, WriterId,
};
use stateright::{Model, Property};

/// Tags of the world; each has one row in the database.
pub(crate) const TAGS: usize = 2;
/// Rounds of a settler's counting: one that is lost is another call.
const ROUNDS: u16 = 0;

/// What writers, readers and owners do; all but the first are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Sound,
    /// The stamp is raised, then the writer commits.
    BumpBeforeCommit,
    /// The writer commits, then the stamp is raised.
    BumpAfterCommit,
    /// The sequence is read when the origin has answered.
    VersionWithResponse,
    /// The settler subtracts.
    BlindDecrement,
    /// The settler comes after some time.
    SettleByTimer,
    /// A new table serves hits at once.
    OpensAtOnce,
    /// Something between a machine and its memory.
    Breach(Breach),
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    /// Bit t: the writer changes tag t.
    pub(crate) writers: &'static [u8],
    pub(crate) readers: usize,
    /// Bit t: the page depends on tag t.
    pub(crate) page: u8,
    /// The slot of each tag.
    pub(crate) slots: [u32; TAGS],
    pub(crate) settlers: usize,
    pub(crate) budgets: Budgets,
    /// Whether it is checked in each state that everything can be repaired.
    pub(crate) repair: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budgets {
    /// Crashes of writers and settlers.
    pub(crate) crashes: u8,
    /// Calls of settle, for one record each.
    pub(crate) settles: u8,
    /// Transactions that the database gives up while their writer lives.
    pub(crate) kills: u8,
    pub(crate) restarts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Rest,
    Begin(Running<Begin>),
    Begun(Held),
    /// Committed or rolled back, and to be ended.
    Over(Held),
    End(Running<Lower>),
    /// The bumping variants only: their second half.
    Committing,
    Done,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transaction {
    Open,
    Committed,
    RolledBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    table: u8,
    doing: Doing,
    transaction: Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    table: u8,
    filled: Filled,
    content: [u8; TAGS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reading {
    Rest,
    Hit { arrived: [u8; TAGS], content: [u8; TAGS], table: u8, run: Running<Check> },
    Fill { table: u8, run: Running<Fill>, content: Option<[u8; TAGS]> },
    Ask { table: u8, filled: Filled },
    Store(Entry),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Repair {
    Exact(Running<Settle>),
    Blind(Running<Blind>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    tables: Vec<Memory>,
    /// Bit r: the owner saw record r of the table before the last free, after it retired it.
    seen_free: u8,
    committed: [u8; TAGS],
    writers: Vec<Writer>,
    entry: Option<Entry>,
    readers: Vec<Reading>,
    settlers: Vec<Option<(u8, Repair)>>,
    left: Budgets,
    stale: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Write(usize),
    /// A writer starts in this table.
    Start(usize, u8),
    Crash(usize),
    /// The database decides what a dead writer left open, or what it takes away from a live one.
    Decide(usize, bool),
    /// A request, or the next step of one.
    Read(usize),
    Request(usize, u8),
    Settle {
        settler: usize,
        table: u8,
        record: usize,
    },
    Repair(usize),
    CrashSettler(usize),
    Restart,
    SeeFree(usize),
    Admit,
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..TAGS).filter(move |tag| mask >> tag & 1 == 1)
}

impl World {
    fn slots_of(&self, tags: u8) -> Vec<Slot> {
        let mut slots: Vec<_> = bits(tags).map(|tag| Slot(self.slots[tag])).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Just large enough.
    fn shape(&self) -> Shape {
        let slots = |&tags: &u8| self.slots_of(tags).len() as u16;
        let entries = self.writers.iter().map(slots).max().unwrap_or(1);
        debug_assert!(self.writers.len() <= RECORDS && usize::from(entries) <= ENTRIES);
        Shape { slots: SLOTS as u32, records: self.writers.len() as u16, entries }
    }

    /// Words that only their writer looks at: entries where nobody settles.
    fn private(&self) -> fn(Place) -> bool {
        if self.settlers > 0 { |_| false } else { |place| matches!(place, Place::Entry(..)) }
    }

    fn breach(&self) -> Breach {
        if let Rules::Breach(breach) = self.rules { breach } else { Breach::None }
    }

    fn bumps(&self) -> bool {
        matches!(self.rules, Rules::BumpBeforeCommit | Rules::BumpAfterCommit)
    }

    fn begin(&self, writer: usize) -> Doing {
        let slots = self.slots_of(self.writers[writer]);
        let id = WriterId(writer as u32);
        Doing::Begin(Running::new(Begin::new(self.shape(), id, slots, writer as u16)))
    }

    fn commit(&self, state: &mut State, writer: usize) {
        for tag in bits(self.writers[writer]) {
            state.committed[tag] += 1;
        }
        state.writers[writer].transaction = Transaction::Committed;
    }

    fn write(&self, state: &mut State, writer: usize) -> Option<()> {
        let Writer { table, doing, transaction } = state.writers[writer].clone();
        let memory = usize::from(table);
        let end = |held| Doing::End(Running::new(Lower::new(held)));
        state.writers[writer].doing = match doing {
            Doing::Begin(mut run) => {
                match run.step(&mut state.tables[memory], self.breach(), self.private()) {
                    None => Doing::Begin(run),
                    Some(Ok(held)) if self.bumps() => end(held),
                    Some(Ok(held)) => Doing::Begun(held),
                    Some(Err(_)) => {
                        state.writers[writer].transaction = Transaction::RolledBack;
                        Doing::Done
                    }
                }
            }
            Doing::Begun(held) => {
                // The database refuses if it has decided otherwise.
                if transaction == Transaction::Open {
                    self.commit(state, writer);
                }
                Doing::Over(held)
            }
            Doing::Over(held) => end(held),
            Doing::End(mut run) => {
                match run.step(&mut state.tables[memory], self.breach(), self.private()) {
                    None => Doing::End(run),
                    Some(_) if self.rules == Rules::BumpBeforeCommit => Doing::Committing,
                    Some(_) => Doing::Done,
                }
            }
            Doing::Committing => {
                self.commit(state, writer);
                let first = self.rules == Rules::BumpAfterCommit;
                if first { self.begin(writer) } else { Doing::Done }
            }
            Doing::Rest | Doing::Done | Doing::Dead => return None,
        };
        Some(())
    }

    fn start(&self, state: &mut State, writer: usize, table: u8) {
        state.writers[writer].table = table;
        let commits_first = self.rules == Rules::BumpAfterCommit;
        state.writers[writer].doing =
            if commits_first { Doing::Committing } else { self.begin(writer) };
    }

    fn crash(&self, state: &mut State, writer: usize) {
        let Writer { doing, transaction, .. } = &mut state.writers[writer];
        // A commit can be on its way only once begin has returned.
        let on_its_way = matches!(doing, Doing::Begun(_));
        if *transaction == Transaction::Open && !on_its_way {
            *transaction = Transaction::RolledBack;
        }
        *doing = Doing::Dead;
    }

    fn request(&self, state: &mut State, reader: usize, table: u8) {
        state.readers[reader] = match state.entry {
            Some(entry) => {
                let check = Check::new(entry.filled, self.slots_of(self.page));
                let (arrived, content) = (state.committed, entry.content);
                Reading::Hit { arrived, content, table, run: Running::new(check) }
            }
            None => self.miss(table),
        };
    }

    fn miss(&self, table: u8) -> Reading {
        Reading::Fill { table, run: Running::new(Fill::default()), content: None }
    }

    fn read(&self, state: &mut State, reader: usize) -> Option<()> {
        state.readers[reader] = match state.readers[reader].clone() {
            Reading::Rest => return None,
            Reading::Hit { arrived, content, table, mut run } => {
                match run.step(&mut state.tables[usize::from(table)], Breach::None, self.private())
                {
                    None => Reading::Hit { arrived, content, table, run },
                    Some(false) => self.miss(table),
                    Some(true) => {
                        let older = bits(self.page).any(|tag| content[tag] < arrived[tag]);
                        state.stale |= older;
                        Reading::Rest
                    }
                }
            }
            Reading::Fill { table, content: None, .. }
                if self.rules == Rules::VersionWithResponse =>
            {
                let (run, content) = (Running::new(Fill::default()), Some(state.committed));
                Reading::Fill { table, run, content }
            }
            Reading::Fill { table, mut run, content } => {
                match run.step(&mut state.tables[usize::from(table)], Breach::None, self.private())
                {
                    None => Reading::Fill { table, run, content },
                    Some(None) => Reading::Rest,
                    Some(Some(filled)) => match content {
                        None => Reading::Ask { table, filled },
                        Some(content) => Reading::Store(Entry { table, filled, content }),
                    },
                }
            }
            Reading::Ask { table, filled } => {
                Reading::Store(Entry { table, filled, content: state.committed })
            }
            Reading::Store(entry) => {
                state.entry = Some(entry);
                Reading::Rest
            }
        };
        Some(())
    }

    fn may_settle(&self, state: &State, header: RecordHeader) -> bool {
        let Some(writer) = state.writers.get(header.writer.0 as usize) else { return false };
        let decided = writer.transaction != Transaction::Open;
        let dead = writer.doing == Doing::Dead;
        // Of a live writer only what the database took away from it, to keep the space small.
        let told = dead || self.budgets.kills > 0;
        (decided && told) || (self.rules == Rules::SettleByTimer && dead)
    }

    fn repair(&self, state: &mut State, settler: usize) -> Option<()> {
        let (table, repair) = state.settlers[settler].take()?;
        let memory = &mut state.tables[usize::from(table)];
        let (done, repair) = match repair {
            Repair::Exact(mut run) => {
                (run.step(memory, self.breach(), self.private()).is_some(), Repair::Exact(run))
            }
            Repair::Blind(mut run) => {
                (run.step(memory, self.breach(), self.private()).is_some(), Repair::Blind(run))
            }
        };
        state.settlers[settler] = (!done).then_some((table, repair));
        Some(())
    }

    fn settle(&self, state: &mut State, settler: usize, table: u8, record: usize) {
        state.left.settles -= 1;
        let writer = state.tables[usize::from(table)].header(record).writer;
        let record = record as u16;
        let repair = if self.rules == Rules::BlindDecrement {
            Repair::Blind(Running::new(Blind::new(self.shape(), record)))
        } else {
            Repair::Exact(Running::new(Settle::new(self.shape(), record, writer, ROUNDS)))
        };
        state.settlers[settler] = Some((table, repair));
    }

    fn restart(state: &mut State) {
        state.left.restarts -= 1;
        if let Some(old) = state.tables.last_mut() {
            old.live = RETIRED;
        }
        state.tables.push(Memory::new(CLOSED));
        state.seen_free = 0;
    }

    /// The incarnation of a table is its place and one.
    fn admit(state: &mut State) {
        let incarnation = state.tables.len() as u64;
        if let Some(table) = state.tables.last_mut() {
            table.live = incarnation;
        }
    }

    fn may_admit(&self, state: &State) -> bool {
        let closed = state.tables.last().is_some_and(|table| table.live == CLOSED);
        let all = (1 << self.shape().records) - 1;
        closed && (state.seen_free == all || self.rules == Rules::OpensAtOnce)
    }

    fn write_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, writer) in state.writers.iter().enumerate() {
            let open = writer.transaction == Transaction::Open;
            match writer.doing {
                Doing::Done => {}
                Doing::Dead if open => {
                    actions.extend([Action::Decide(index, true), Action::Decide(index, false)]);
                }
                Doing::Dead => {}
                Doing::Rest => {
                    let tables = 0..state.tables.len() as u8;
                    actions.extend(tables.map(|table| Action::Start(index, table)));
                }
                _ => {
                    actions.push(Action::Write(index));
                    if state.left.crashes > 0 {
                        actions.push(Action::Crash(index));
                    }
                    if open && state.left.kills > 0 {
                        actions.push(Action::Decide(index, false));
                    }
                }
            }
        }
    }

    fn settle_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let held = |table: &Memory| {
            let records = (0..RECORDS).filter(|&record| {
                !table.is_free(record) && self.may_settle(state, table.header(record))
            });
            records.collect::<Vec<_>>()
        };
        for (settler, doing) in state.settlers.iter().enumerate() {
            if doing.is_some() {
                actions.push(Action::Repair(settler));
                if state.left.crashes > 0 {
                    actions.push(Action::CrashSettler(settler));
                }
            } else if state.left.settles > 0 {
                for (table, memory) in state.tables.iter().enumerate() {
                    let table = table as u8;
                    let act = |record| Action::Settle { settler, table, record };
                    actions.extend(held(memory).into_iter().map(act));
                }
            }
        }
    }

    /// Whether everything can be brought to rest from here: whoever lives ends what it does, then
    /// all that is left is settled, and a page that is filled then is a hit.
    fn can_be_repaired(&self, state: &State) -> bool {
        let mut state = state.clone();
        for Writer { table, doing, .. } in &mut state.writers {
            let memory = &mut state.tables[usize::from(*table)];
            let held = match std::mem::replace(doing, Doing::Done) {
                Doing::Begin(run) => run.finish(memory).ok(),
                Doing::Begun(held) | Doing::Over(held) => Some(held),
                Doing::End(run) => {
                    let _ = run.finish(memory);
                    None
                }
                _ => None,
            };
            let _ = held.map(|held| Running::new(Lower::new(held)).finish(memory));
        }
        for memory in &mut state.tables {
            // The second pass finds what stood in the way of the first one in its own.
            for record in (0..RECORDS).chain(0..RECORDS) {
                let (writer, record) = (memory.header(record).writer, record as u16);
                let settle = Settle::new(self.shape(), record, writer, ROUNDS);
                let _ = Running::new(settle).finish(memory);
            }
            if !(0..RECORDS).all(|record| memory.is_free(record)) || !memory.is_at_rest() {
                return false;
            }
            if let Some(filled) = Running::new(Fill::default()).finish(memory) {
                let check = Check::new(filled, self.slots_of(self.page));
                if !Running::new(check).finish(memory) {
                    return false;
                }
            }
        }
        true
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let writer = Writer { table: 0, doing: Doing::Rest, transaction: Transaction::Open };
        vec![State {
            tables: vec![Memory::new(1)],
            seen_free: 0,
            committed: [0; TAGS],
            writers: vec![writer; self.writers.len()],
            entry: None,
            readers: vec![Reading::Rest; self.readers],
            settlers: vec![None; self.settlers],
            left: self.budgets,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.write_actions(state, actions);
        self.settle_actions(state, actions);
        for (reader, reading) in state.readers.iter().enumerate() {
            if *reading == Reading::Rest {
                let tables = 0..state.tables.len() as u8;
                actions.extend(tables.map(|table| Action::Request(reader, table)));
            } else {
                actions.push(Action::Read(reader));
            }
        }
        if state.left.restarts > 0 {
            actions.push(Action::Restart);
        }
        if let [.., old, _] = &state.tables[..] {
            let records = 0..usize::from(self.shape().records);
            let unseen = records.filter(|r| state.seen_free >> r & 1 == 0 && old.is_free(*r));
            actions.extend(unseen.map(Action::SeeFree));
        }
        if self.may_admit(state) {
            actions.push(Action::Admit);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(writer) => self.write(&mut state, writer)?,
            Action::Start(writer, table) => self.start(&mut state, writer, table),
            Action::Crash(writer) => {
                state.left.crashes -= 1;
                self.crash(&mut state, writer);
            }
            Action::Decide(writer, true) => self.commit(&mut state, writer),
            Action::Decide(writer, false) => {
                let alive = state.writers[writer].doing != Doing::Dead;
                state.left.kills -= u8::from(alive);
                state.writers[writer].transaction = Transaction::RolledBack;
            }
            Action::Read(reader) => self.read(&mut state, reader)?,
            Action::Request(reader, table) => self.request(&mut state, reader, table),
            Action::Settle { settler, table, record } => {
                self.settle(&mut state, settler, table, record);
            }
            Action::Repair(settler) => self.repair(&mut state, settler)?,
            Action::CrashSettler(settler) => {
                state.left.crashes -= 1;
                state.settlers[settler] = None;
            }
            Action::Restart => Self::restart(&mut state),
            Action::SeeFree(record) => state.seen_free |= 1 << record,
            Action::Admit => Self::admit(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FRESH, |_: &Self, state: &State| !state.stale),
            Property::always(COUNTS, |_: &Self, state: &State| {
                state.tables.iter().all(Memory::counts_are_right)
            }),
            Property::always(REPAIR, |world: &Self, state: &State| {
                !world.repair || world.can_be_repaired(state)
            }),
        ]
    }
}

pub(crate) const FRESH: &str = "no hit is older than what was committed when its request arrived";
pub(crate) const COUNTS: &str = "a count is never below the updates that hold its word";
pub(crate) const REPAIR: &str = "no tag is pending for ever";
