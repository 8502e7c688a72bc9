//! What an edge mends on the way: epochs, abandoned descriptors, unwritten guarantees.

use super::{Core, Input};
use crate::protocol::{DepartState, FloorPlan, Help, Outcome, Seen, SetFloor, Task};
use crate::record::{Ending, MoveRecord};
use crate::round::{Helping, Running};
use pool_model::{NodeId, Reason, SiteId};
use shared_state::words::{Arrive, Floor};

impl Core {
    /// Counts the words that nobody writes, and compares the guarantees with the settings.
    pub(super) fn judge_words(&mut self, seen: &Seen) {
        self.conflict = false;
        for (index, terms) in self.options.sites.iter().enumerate() {
            let own = terms.guarantee;
            let Ok(site) = SiteId::from_index(index) else { break };
            let Some(floor) = seen.floor(site) else { continue };
            let same = (floor.hard, floor.max) == (own.hard, own.max);
            let version = self.options.settings_version;
            let theirs_rule =
                floor.settings_version > version || (floor.settings_version == version && !same);
            self.conflict |= theirs_rule;
        }
        self.counters.bad_words = seen.bad_words().count() as u64;
    }

    /// The next repair of this look, site by site.
    pub(super) fn repair(&mut self, input: &Input<'_>) -> Option<Task> {
        while self.round.repair_at < self.options.sites.len() {
            let site = SiteId::from_index(self.round.repair_at).ok()?;
            self.round.repair_at += 1;
            let (running, task) = match input.seen.depart(site) {
                DepartState::Unset | DepartState::Bad(_) => {
                    let unread = self.events.some_unread(input.now_ns);
                    if unread || !self.events.take_bump(input.now_ns, site) {
                        continue;
                    }
                    let plan = input.seen.bump_plan(site);
                    (Running::Other, Task::Bump(plan.draw(input.nonce)))
                }
                DepartState::Pending(_, departure) => {
                    let (now_ns, op_time_ns) = (input.now_ns, input.op_time_ns);
                    if !self.events.may_help(now_ns, op_time_ns, site) {
                        continue;
                    }
                    let dead = self.events.is_dead(now_ns, departure.node);
                    let Some(help) = Help::plan(input.seen, site, dead) else { continue };
                    let reason = claimed_reason(input.seen, departure.taker);
                    let helping = Helping { site, departure, reason, started_ns: now_ns };
                    (Running::Help(helping), Task::Help(help))
                }
                DepartState::Idle(_) => match self.floor_task(input.seen, site) {
                    Some(FloorPlan::Ready(set)) => (Running::Other, Task::SetFloor(set)),
                    Some(FloorPlan::Bump(plan)) => {
                        if !self.events.take_bump(input.now_ns, site) {
                            continue;
                        }
                        (Running::Other, Task::Bump(plan.draw(input.nonce)))
                    }
                    _ => continue,
                },
            };
            self.round.running = running;
            return Some(task);
        }
        None
    }

    /// Writes this edge's guarantee where the shared word has none or an older one.
    fn floor_task(&self, seen: &Seen, site: SiteId) -> Option<FloorPlan> {
        let own = self.options.sites.get(site.index())?.guarantee;
        let version = self.options.settings_version;
        let floor = Floor { settings_version: version, hard: own.hard, max: own.max };
        let older = seen.floor(site).is_none_or(|theirs| theirs.settings_version < version);
        older.then(|| SetFloor::plan(seen, site, floor))
    }

    /// Notes that the shell set a node free whose word had named no site of the pool.
    pub fn freed(&mut self, now_ns: u64, node: NodeId, version: u32) {
        self.push(Some(MoveRecord {
            at_ns: now_ns,
            node,
            from: None,
            to: None,
            reason: Reason::Floor,
            load: 0.0,
            version: Some(version),
            took_ns: 0,
            ending: Ending::Freed,
            request: None,
        }));
    }

    pub(super) fn help_ended(&mut self, now_ns: u64, helping: &Helping, outcome: &Outcome) {
        match *outcome {
            Outcome::Helped { moved: Some((_, _, version)), .. } => {
                // That was this look's move.
                self.round.moved = true;
                let record = helped_record(now_ns, helping, Ending::Helped, Some(version));
                self.push(Some(record));
            }
            Outcome::MustBump(plan) => self.round.must_bump = Some((plan, Some(*helping))),
            _ => {}
        }
    }
}

pub(super) fn helped_record(
    now_ns: u64,
    helping: &Helping,
    ending: Ending,
    version: Option<u32>,
) -> MoveRecord {
    MoveRecord {
        at_ns: now_ns,
        node: helping.departure.node,
        from: Some(helping.site),
        to: helping.departure.taker,
        reason: helping.reason,
        load: 0.0,
        version,
        took_ns: now_ns.saturating_sub(helping.started_ns),
        ending,
        request: None,
    }
}

/// The reason that the taker's latest claim gives, for the record of a move that is helped.
fn claimed_reason(seen: &Seen, taker: Option<SiteId>) -> Reason {
    let claimed = taker.and_then(|taker| Arrive::unpack(seen.site(taker).arrive).reason);
    claimed.unwrap_or(Reason::Admin)
}
