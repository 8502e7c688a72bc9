//! Which server of a site takes a request now.

use super::core::{Core, Grant, Waiter};
use super::health::ejections_max;
use super::slow_start;
use super::stick::{Seat, target};
use crate::face::{Ask, Stick};
use moves::looper::FirstDispatch;
use policy::choose::ServerLoad;
use pool_model::{NodeId, SiteId};
use shared_state::slot::{self, Enter};
use shared_state::words::Assign;
use std::net::SocketAddr;
use std::time::Duration;

/// First dispatches kept until a look collects them: as many as moves between two looks, of which
/// there is one; the rest is room for an administrator's.
const FIRST_DISPATCHES_MAX: usize = 64;

/// What came of looking for a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Granted(Grant),
    /// Nobody has room.
    NoRoom,
    /// The server that the request belongs to has none; its place in `Core::nodes`.
    Bound(usize),
}

/// The servers of one site while one request is placed: kept from call to call, so that nothing
/// is allocated.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) loads: Vec<ServerLoad>,
    /// Those that start slowly: index and part.
    slow: Vec<(usize, u32)>,
    /// Those that fail, as indices.
    ejected: Vec<usize>,
    /// Too many fail for any to be left out.
    spread: bool,
}

/// A request that is to be placed.
#[derive(Clone, Copy)]
pub(super) struct Placing<'a> {
    pub(super) site: SiteId,
    pub(super) ask: Ask<'a>,
    pub(super) now: Duration,
    /// It has not waited: whoever waits for a server goes first there, unless of a lower class.
    pub(super) is_new: bool,
}

impl<W: Waiter> Core<W> {
    /// Finds a server and counts the request in.
    pub(super) fn admit(&mut self, placing: Placing<'_>) -> Admission {
        let Some(Some(state)) = self.sites.get(placing.site.index()) else {
            return Admission::NoRoom;
        };
        let is_over = state.quota.is_some_and(|quota| state.in_flight >= quota);
        if is_over && placing.ask.stick.is_none() {
            return Admission::NoRoom;
        }
        self.measure(placing);
        if let Some(stick) = placing.ask.stick
            && let Some(admission) = self.admit_at_own(placing, stick, is_over)
        {
            return admission;
        }
        if is_over {
            return Admission::NoRoom;
        }
        self.admit_anywhere(placing).map_or(Admission::NoRoom, Admission::Granted)
    }

    /// The server that the request belongs to, as long as there is one.
    fn admit_at_own(
        &mut self,
        placing: Placing<'_>,
        stick: Stick,
        is_over: bool,
    ) -> Option<Admission> {
        // Each failed try closes one server, so there are no more tries than servers.
        for _ in 0..self.measured.loads.len() {
            let index = self.target(placing.site, stick)?;
            let place = self.place(placing.site, index)?;
            if is_over || !self.measured.loads[index].has_room() {
                return Some(Admission::Bound(place));
            }
            match self.enter(placing, index) {
                Ok(grant) => {
                    self.count(placing.site, |counts| counts.sticky_kept += 1);
                    return Some(Admission::Granted(grant));
                }
                Err(Refused::Full) => return Some(Admission::Bound(place)),
                Err(Refused::Gone) => self.measured.loads[index].open = false,
            }
        }
        None
    }

    /// Whatever server the site's balance chooses.
    fn admit_anywhere(&mut self, placing: Placing<'_>) -> Option<Grant> {
        let state = self.sites.get(placing.site.index())?.as_ref()?;
        let (balance, turn) = (state.rules.balance, state.turn);
        let mut held = self.hold_back();
        // Each failed try closes one server, and those held back are let go once.
        for _ in 0..=self.measured.loads.len() {
            self.random = xorshift(self.random);
            let chosen = match balance.choose(&self.measured.loads, turn, self.random) {
                Some(chosen) => chosen,
                None if std::mem::take(&mut held) => {
                    self.let_go();
                    continue;
                }
                None => return None,
            };
            if let Ok(grant) = self.enter(placing, chosen) {
                if let Some(state) = self.site(placing.site) {
                    state.turn = chosen + 1;
                }
                if placing.ask.stick.is_some() {
                    self.count(placing.site, |counts| counts.sticky_anew += 1);
                }
                return Some(grant);
            }
            self.measured.loads[chosen].open = false;
        }
        None
    }

    /// Draws which of the servers that start slowly are left out; whether there are any.
    fn hold_back(&mut self) -> bool {
        let mut any = false;
        for slow in &mut self.measured.slow {
            self.random = xorshift(self.random);
            // The lowest bits of an xorshift are its weakest.
            let load = &mut self.measured.loads[slow.0];
            if load.open && slow_start::is_held(slow.1, self.random >> 32) {
                load.open = false;
                any = true;
            } else {
                // It was not left out: nothing is to be let go.
                slow.1 = slow_start::WHOLE;
            }
        }
        any
    }

    /// Opens the servers that were held back: nobody else has room.
    fn let_go(&mut self) {
        for &(index, part) in &self.measured.slow {
            self.measured.loads[index].open |= part < slow_start::WHOLE;
        }
    }

    /// Reads what each server of the site has, over all edges, straight from memory.
    fn measure(&mut self, placing: Placing<'_>) {
        let Placing { site, ask, now, is_new } = placing;
        let Measured { loads, slow, ejected, spread } = &mut self.measured;
        loads.clear();
        slow.clear();
        ejected.clear();
        let Some(Some(state)) = self.sites.get(site.index()) else { return };
        let slow_start = state.rules.slow_start;
        let lanes = is_new && !state.lanes.is_empty();
        let mut serving = 0;
        for (index, &place) in state.nodes.iter().enumerate() {
            let Some(Some(node)) = self.nodes.get(place) else {
                loads.push(ServerLoad { in_flight: 0, max_in_flight: 0, open: false });
                continue;
            };
            let record = node.slot.record();
            let header = record.header();
            let mut max_in_flight = node.limit;
            if let Some(came) = node.came.filter(|_| !slow_start.is_zero()) {
                let part = slow_start::part(came, now, slow_start);
                if part < slow_start::WHOLE {
                    max_in_flight = slow_start::limit(max_in_flight, part);
                    slow.push((index, part));
                }
            }
            if lanes && state.lanes.go_before(place, ask.rank) {
                max_in_flight = 0;
            }
            if node.is_asked() {
                serving += 1;
                if state.ejected_any && node.health.is_ejected(now) {
                    ejected.push(index);
                }
            }
            loads.push(ServerLoad {
                in_flight: slot::server_load(record, Some(site), record.edges()),
                max_in_flight,
                open: node.is_asked() && !ask.avoid.contains(&header.node),
            });
        }
        // So many may fail that to leave them out would only break the others.
        *spread = ejected.len() > ejections_max(serving, self.health.eject_max_pct);
        if !*spread {
            ejected.iter().for_each(|&index| loads[index].open = false);
        }
        if loads.iter().any(|server| server.open) {
            return;
        }
        // All are ejected or have failed this request: a doubtful server is better than none.
        for (server, &place) in loads.iter_mut().zip(&state.nodes) {
            let node = self.nodes.get(place).and_then(Option::as_ref);
            server.open = node.is_some_and(|node| node.open);
        }
    }

    /// The place in `Core::nodes` of a server of the site.
    fn place(&self, site: SiteId, index: usize) -> Option<usize> {
        self.sites.get(site.index())?.as_ref()?.nodes.get(index).copied()
    }

    /// The server that the request belongs to, among those measured.
    fn target(&self, site: SiteId, stick: Stick) -> Option<usize> {
        let state = self.sites.get(site.index())?.as_ref()?;
        let Measured { loads, slow, .. } = &self.measured;
        let seats = state.nodes.iter().zip(loads).enumerate();
        let seats = seats.filter_map(|(index, (&place, load))| {
            let node = NodeId::new(u16::try_from(place).ok()?).ok()?;
            let part = slow.iter().find(|slow| slow.0 == index);
            Some(Seat { node, load, part: part.map_or(slow_start::WHOLE, |slow| slow.1) })
        });
        target(stick, seats)
    }

    /// Where a request that has to wait belongs: the place of its server, if that is there.
    pub(super) fn lane_of(&mut self, placing: Placing<'_>) -> Option<usize> {
        let stick = placing.ask.stick?;
        self.measure(placing);
        let index = self.target(placing.site, stick)?;
        self.place(placing.site, index)
    }

    /// Tries the one server that a request waits for.
    pub(super) fn admit_at(&mut self, placing: Placing<'_>, place: usize) -> Option<Admission> {
        self.measure(placing);
        let state = self.sites.get(placing.site.index())?.as_ref()?;
        let index = state.nodes.binary_search(&place).ok()?;
        let load = self.measured.loads.get(index).filter(|load| load.open)?;
        let is_over = state.quota.is_some_and(|quota| state.in_flight >= quota);
        if is_over || !load.has_room() {
            return Some(Admission::Bound(place));
        }
        match self.enter(placing, index) {
            Ok(grant) => {
                self.count(placing.site, |counts| counts.sticky_kept += 1);
                Some(Admission::Granted(grant))
            }
            Err(Refused::Full) => Some(Admission::Bound(place)),
            Err(Refused::Gone) => None,
        }
    }

    fn enter(&mut self, placing: Placing<'_>, chosen: usize) -> Result<Grant, Refused> {
        let Placing { site, now, .. } = placing;
        let limit = self.measured.loads[chosen].max_in_flight;
        let place = self.place(site, chosen).ok_or(Refused::Gone)?;
        let node = self.nodes.get_mut(place).and_then(Option::as_mut).ok_or(Refused::Gone)?;
        let server = node.slot.record().server(site);
        if !server.is_ready() {
            return Err(Refused::Gone);
        }
        match node.slot.enter(node.assign, limit) {
            Enter::Entered => {}
            Enter::Full => return Err(Refused::Full),
            Enter::Moved(now) => {
                // The look will say where it went; until then it takes nothing from this site.
                node.open = false;
                node.slot.follow(now.unwrap_or(Assign::FREE));
                return Err(Refused::Gone);
            }
        }
        let (version, node_id) = (node.assign.version, node.slot.record().header().node);
        if node.awaited == Some(version) {
            node.awaited = None;
            if self.first.len() < FIRST_DISPATCHES_MAX {
                self.first.push(FirstDispatch { node: node_id, version, at: now });
            }
        }
        let address = SocketAddr::from((server.address, server.port));
        let (life, since) = (node.life, now);
        let grant = Grant { node: node_id, site, version, address, life, since };
        let spread = self.measured.spread;
        if let Some(state) = self.site(site) {
            state.in_flight += 1;
            state.counts.spread += u64::from(spread);
        }
        Ok(grant)
    }
}

/// Why a server did not take a request.
enum Refused {
    Full,
    /// It serves another site, or nobody.
    Gone,
}

/// Marsaglia's xorshift: enough to draw two servers, and a seed reproduces a run.
fn xorshift(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ x << 17
}
