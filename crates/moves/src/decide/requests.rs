//! What persons ask for, and what is only logged.

use super::{Core, Input, REQUEST_WAIT_NS, REQUESTS_MAX, RequestsFull};
use crate::plan::{Asked, Plan, Try};
use crate::protocol::Refusal;
use crate::record::Ending;
use policy::Candidate;
use pool_model::{NodeId, SiteId};

impl Core {
    /// Asks for a node to be moved to a site, or to be set free. The answer is the record that
    /// carries `id`.
    pub fn request(
        &mut self,
        now_ns: u64,
        id: u64,
        node: NodeId,
        to: Option<SiteId>,
    ) -> Result<(), RequestsFull> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(RequestsFull);
        }
        self.requests.push_back(Asked { id, node, to, since_ns: now_ns, tried: false });
        Ok(())
    }

    pub(super) fn requested_plan(&mut self, input: &Input<'_>) -> Option<Plan> {
        let asked = self.requests.iter_mut().find(|asked| !asked.tried)?;
        asked.tried = true;
        let asked = *asked;
        let donor = input.seen.assign(asked.node).and_then(|assign| assign.site);
        let candidate = Candidate { node: asked.node, donor };
        let mut plan = Plan::requested(asked.id, candidate, asked.to, input.now_ns);
        let known = asked.node.index() < usize::from(self.options.nodes);
        if known && input.seen.assign(asked.node).is_some() && donor == asked.to {
            plan.refusal = Refusal::AlreadyThere;
            self.refused(&plan, input.now_ns);
            return self.requested_plan(input);
        }
        Some(plan)
    }

    pub(super) fn expire_requests(&mut self, now_ns: u64) {
        let old = |asked: &Asked| now_ns.saturating_sub(asked.since_ns) >= REQUEST_WAIT_NS;
        while let Some(place) = self.requests.iter().position(old) {
            let Some(asked) = self.requests.remove(place) else { return };
            let candidate = Candidate { node: asked.node, donor: None };
            let plan = Plan::requested(asked.id, candidate, asked.to, asked.since_ns);
            self.push(plan.record(now_ns, Ending::TimedOut));
        }
    }

    /// Logs what would be tried, and starts those timers anew as a move would.
    pub(super) fn observe(&mut self, input: &Input<'_>) {
        while self.start_plan(input) {
            let Some(mut plan) = self.round.plan.take() else { return };
            let unset = |refusal| matches!(refusal, Refusal::FloorUnset | Refusal::TakerUnset);
            // Where all edges only observe, nobody opens the record: the policy's word counts.
            if plan.advance(input.seen) == Try::Exhausted && !unset(plan.refusal) {
                self.refused(&plan, input.now_ns);
                continue;
            }
            self.push(plan.record(input.now_ns, Ending::WouldMove));
            if let Some(id) = plan.request {
                self.requests.retain(|asked| asked.id != id);
            }
            for site in [plan.taker, plan.stage_of].into_iter().flatten() {
                self.events.restart(site);
            }
        }
    }
}
