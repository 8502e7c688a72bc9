//! What one edge does in one step: the real look, the real step 0, the real machines.

use crate::state::{
    Budgets, Doing, FIRST_EPOCH, Looking, NODES_MAX, NOTHING, State, floor, node, resize, site,
};
use crate::world::World;
use moves::protocol::{
    BumpPlan, DepartState, FloorPlan, HelpOf, LookOf, Looked, Next, Op, Outcome, Prepared, Reply,
    Seen, SetFloor, Word, flaw, prepare_of,
};
use pool_model::SiteId;
use shared_state::words::{Depart, Floor};
use std::cell::RefCell;

/// Bumps count their nonces up to this one.
const LAST_NONCE: u32 = 2_000;

thread_local! {
    /// The buffers that the real look writes to and the real functions read from.
    static SCRATCH: RefCell<Seen> = RefCell::default();
}

impl<const FLAW: u8> World<FLAW> {
    pub(crate) fn sites(&self) -> usize {
        self.hard.len()
    }

    pub(crate) fn nodes(&self) -> usize {
        self.start.len()
    }

    /// Pairs of donor and taker; donor twice stands for "to none".
    pub(crate) fn pairs(&self) -> usize {
        self.sites() * (self.sites() - 1 + usize::from(self.to_none))
    }

    pub(crate) fn pair(&self, choice: usize) -> (u8, u8) {
        let others = self.sites() - 1 + usize::from(self.to_none);
        let (donor, other) = (choice / others, choice % others);
        let taker = match other {
            _ if other == self.sites() - 1 => donor,
            _ if other < donor => other,
            _ => other + 1,
        };
        (u8::try_from(donor).expect("few sites"), u8::try_from(taker).expect("few sites"))
    }

    /// How many ways the next step of an edge can go.
    pub(crate) fn choices(&self, doing: &Doing<FLAW>) -> usize {
        match doing {
            Doing::Nothing => self.pairs(),
            Doing::Looking(looking) if self.chooses_node(looking) => NODES_MAX + 1,
            Doing::Dead => 0,
            _ => 1,
        }
    }

    /// Whether a choice can make a difference: all nodes that are not the donor's are refused
    /// alike, so only the last is tried of them.
    pub(crate) fn is_worth(&self, left: &Budgets, doing: &Doing<FLAW>, choice: usize) -> bool {
        match doing {
            Doing::Looking(looking) if self.chooses_node(looking) => {
                if choice == NODES_MAX {
                    return left.raises > 0 && looking.donor == 0;
                }
                let last = self.nodes() - 1;
                choice == last || (choice < last && looking.nodes[choice] != NOTHING)
            }
            _ => true,
        }
    }

    /// Whether the next read is the last of a look after which a node is chosen.
    pub(crate) fn chooses_node(&self, looking: &Looking<FLAW>) -> bool {
        let Next::Op(Op::Read(word)) = looking.look.next() else { return false };
        let idle = |raw| Depart::unpack(raw).pending.is_none() && !Depart::is_unset(raw);
        if FLAW == flaw::NODES_BEFORE_DEPART {
            let last = looking.donor.max(looking.taker);
            return word == Word::Depart(site(usize::from(last)));
        }
        word == Word::Assign(node(self.nodes() - 1)) && looking.depart.is_some_and(idle)
    }

    /// Starts a look with this pair in mind; it stands at its first read that matters.
    pub(crate) fn start_look(&self, choice: usize) -> Looking<FLAW> {
        let (donor, taker) = self.pair(choice);
        let nodes = [NOTHING; NODES_MAX];
        let look = SCRATCH.with_borrow_mut(|scratch| {
            resize(scratch, self.sites(), self.nodes());
            LookOf::new(scratch)
        });
        let floor = floor(self.hard[usize::from(donor)]);
        let mut looking =
            Looking { look, donor, taker, depart: None, taker_depart: 0, floor, nodes };
        self.skip(&mut looking);
        looking
    }

    /// Answers reads that cannot matter, at no step.
    pub(crate) fn skip(&self, looking: &mut Looking<FLAW>) {
        while let Next::Op(op) = looking.look.next() {
            if looking.matters(op, self.budgets.raises > 0) {
                return;
            }
            let value = match op {
                Op::Read(Word::Floor(site)) => floor(self.hard[site.index()]),
                _ => 0,
            };
            // The reply goes to scratch words: what the look keeps of them is constant.
            SCRATCH.with_borrow_mut(|scratch| looking.look.reply(scratch, Reply::Value(value)));
        }
    }

    /// Hands one reply to a look; what the edge does next.
    pub(crate) fn look_on(
        &self,
        left: &mut Budgets,
        mut looking: Looking<FLAW>,
        reply: Reply,
        choice: usize,
    ) -> Doing<FLAW> {
        let Next::Op(Op::Read(word)) = looking.look.next() else { return Doing::Nothing };
        let donor = site(usize::from(looking.donor));
        SCRATCH.with_borrow_mut(|seen| {
            looking.fill(seen, &self.hard, self.nodes());
            looking.look.reply(seen, reply);
            looking.remember(seen, word == Word::Depart(donor));
        });
        let written = looking.depart.filter(|&raw| !Depart::is_unset(raw));
        if let Some(departure) = written.and_then(|raw| Depart::unpack(raw).pending) {
            // The taker of a help is not chosen: another choice of the same step has it right.
            let taker = usize::from(looking.taker);
            let named = departure.taker.map_or(usize::from(looking.donor), SiteId::index);
            if taker != named {
                return Doing::Nothing;
            }
        }
        self.skip(&mut looking);
        match looking.look.next() {
            Next::Op(_) => Doing::Looking(looking),
            Next::Done(Looked::HomeLost) => Doing::Nothing,
            Next::Done(Looked::Complete) => self.decide(left, &looking, choice),
        }
    }

    /// What an edge makes of a complete look.
    pub(crate) fn decide(
        &self,
        left: &mut Budgets,
        looking: &Looking<FLAW>,
        choice: usize,
    ) -> Doing<FLAW> {
        SCRATCH.with_borrow_mut(|seen| {
            looking.fill(seen, &self.hard, self.nodes());
            self.decide_on(left, looking, seen, choice)
        })
    }

    pub(crate) fn decide_on(
        &self,
        left: &mut Budgets,
        looking: &Looking<FLAW>,
        seen: &Seen,
        choice: usize,
    ) -> Doing<FLAW> {
        let donor = site(usize::from(looking.donor));
        let taker = (looking.taker != looking.donor).then(|| site(usize::from(looking.taker)));
        match seen.depart(donor) {
            DepartState::Unset | DepartState::Bad(_) => self.bump(left, seen.bump_plan(donor)),
            DepartState::Pending(..) => match HelpOf::plan(seen, donor, true) {
                Some(help) => Doing::Help(help),
                None => Doing::Nothing,
            },
            DepartState::Idle(_) if choice == NODES_MAX => self.raise(left, seen),
            DepartState::Idle(_) => match prepare_of(seen, donor, taker, node(choice)) {
                Prepared::Ready(_) if left.installs == 0 => Doing::Nothing,
                Prepared::Ready(attempt) => Doing::Attempt(attempt),
                Prepared::Bump(plan) => self.bump(left, plan),
                Prepared::Renew(renew) => Doing::Renew(renew),
                Prepared::Refused(_) => Doing::Nothing,
            },
        }
    }

    /// Draws a nonce that no other bump has; that uses the budget, whether the bump lands or not.
    pub(crate) fn bump(&self, left: &mut Budgets, plan: BumpPlan) -> Doing<FLAW> {
        if left.bumps == 0 {
            return Doing::Nothing;
        }
        left.bumps -= 1;
        let nonce = LAST_NONCE - u32::from(left.bumps);
        Doing::Bump(plan.draw(if self.no_nonce { FIRST_EPOCH.nonce() } else { nonce }))
    }

    /// Changes the first site's guarantee.
    pub(crate) fn raise(&self, left: &mut Budgets, seen: &Seen) -> Doing<FLAW> {
        let new = Floor { settings_version: 2, hard: self.raise_to, max: u16::MAX };
        let FloorPlan::Ready(set) = SetFloor::plan(seen, site(0), new) else {
            return Doing::Nothing;
        };
        left.raises -= 1;
        Doing::SetFloor(set)
    }

    /// What follows the end of a machine.
    pub(crate) fn follow(&self, left: &mut Budgets, outcome: &Outcome) -> Doing<FLAW> {
        match *outcome {
            Outcome::Moved { close: Some(close), .. }
            | Outcome::CasMissedLate { close: Some(close), .. } => Doing::Close(close),
            Outcome::MustBump(plan) => self.bump(left, plan),
            _ => Doing::Nothing,
        }
    }

    /// Hands a reply to whatever the edge does.
    pub(crate) fn reply(
        &self,
        left: &mut Budgets,
        doing: Doing<FLAW>,
        reply: Reply,
        choice: usize,
    ) -> Doing<FLAW> {
        let mut doing = match doing {
            Doing::Looking(looking) => return self.look_on(left, looking, reply, choice),
            other => other,
        };
        doing.reply(reply);
        match doing.next() {
            Some(Next::Done(outcome)) => self.follow(left, &outcome),
            _ => doing,
        }
    }

    /// One step of one edge. None where a budget forbids it.
    pub(crate) fn step(&self, state: &mut State<FLAW>, edge: usize, choice: usize) -> Option<()> {
        let home = state.edges[edge].home;
        let doing = std::mem::replace(&mut state.edges[edge].doing, Doing::Nothing);
        let (doing, choice) = match doing {
            Doing::Nothing => (Doing::Looking(self.start_look(choice)), 0),
            other => (other, choice),
        };
        let op = doing.next_op()?;
        if installs(&op) && state.left.installs == 0 {
            // Another edge used the budget up meanwhile: this one forgets its move.
            return Some(());
        }
        let reply = state.perform(home, op);
        let mut left = state.left;
        state.edges[edge].doing = self.reply(&mut left, doing, reply, choice);
        state.left = left;
        Some(())
    }

    /// Gives an edge an answer without performing its operation.
    pub(crate) fn fault(&self, state: &mut State<FLAW>, edge: usize, reply: Reply) {
        let doing = std::mem::replace(&mut state.edges[edge].doing, Doing::Nothing);
        let mut left = state.left;
        state.edges[edge].doing = self.reply(&mut left, doing, reply, 0);
        state.left = left;
    }
}

/// Whether an operation announces a departure.
fn installs(op: &Op) -> bool {
    match op {
        Op::CompareAndSwap { word: Word::Depart(_), new, .. } => {
            Depart::unpack(*new).pending.is_some()
        }
        _ => false,
    }
}
