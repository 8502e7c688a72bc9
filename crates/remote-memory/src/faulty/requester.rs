//! The peer's side: submitting, answers, deadlines, breaking and connecting again.

use super::world::{Batch, BatchId, Connection, ConnectionId, Event, World, nanos};
use crate::region::RemoteKey;
use crate::remote::{
    Capabilities, Completion, ConnectionState, Op, OpError, OpResult, SubmitError, Ticket,
};

impl World {
    pub(super) fn connect(&mut self, capabilities: Capabilities) -> ConnectionId {
        self.connections.push(Connection {
            capabilities,
            state: ConnectionState::Up,
            generation: 0,
            owner_side_broken: false,
            outstanding_ops: 0,
            next_ticket: 0,
            done: std::collections::VecDeque::new(),
            closed: false,
        });
        ConnectionId(self.connections.len() - 1)
    }

    /// Sends a checked batch on its way and draws its fate.
    pub(super) fn submit(
        &mut self,
        id: ConnectionId,
        key: RemoteKey,
        ops: Vec<Op>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        let connection = self.connection(id);
        if connection.state != ConnectionState::Up {
            return Err(SubmitError::NotConnected { state: connection.state });
        }
        let ticket = Ticket(connection.next_ticket);
        connection.next_ticket += 1;
        connection.outstanding_ops += ops.len();
        let generation = connection.generation;
        let owner_side_broken = connection.owner_side_broken;
        let batch_id = BatchId(self.next_batch);
        self.next_batch += 1;

        let lost = self.random.chance(self.faults.lost_request_per_mille);
        if lost {
            self.statistics.requests_lost += 1;
        }
        let lives = !lost && !owner_side_broken;
        if lives {
            let way_ns = self.draw_request_way_ns();
            self.plan(way_ns, Event::Execute(batch_id));
        }
        let replies_lost_from = if self.random.chance(self.faults.lost_reply_per_mille) {
            self.random.between(0, ops.len() as u64 - 1) as usize
        } else {
            ops.len()
        };
        if self.random.chance(self.faults.break_per_mille) {
            let within_ns = nanos(self.faults.delay_max).saturating_mul(2);
            let in_ns = self.random.between(0, within_ns);
            self.plan(in_ns, Event::Break { connection: id, generation });
        }
        self.plan(deadline_ns, Event::Deadline(batch_id));
        let batch = Batch {
            connection: id,
            generation,
            ticket,
            key,
            next_op: 0,
            transfer: None,
            fetches: 0,
            last_reply_ns: 0,
            replies_lost_from,
            results: vec![None; ops.len()],
            ops,
            lives,
            reported: false,
        };
        self.batches.insert(batch_id, batch);
        Ok(ticket)
    }

    fn draw_request_way_ns(&mut self) -> u64 {
        let way_ns = self.draw_way_ns();
        if self.random.chance(self.faults.late_per_mille) {
            let late_max_ns = nanos(self.faults.late_max);
            way_ns.saturating_add(self.random.between(0, late_max_ns))
        } else {
            way_ns
        }
    }

    /// An answer has come; nobody waits for it if its batch was reported.
    pub(super) fn receive_reply(
        &mut self,
        id: BatchId,
        index: usize,
        result: Result<OpResult, OpError>,
    ) {
        let Some(batch) = self.batches.get_mut(&id).filter(|batch| !batch.reported) else {
            return;
        };
        let refused = result.is_err();
        batch.results[index] = Some(result);
        let connection = batch.connection;
        if refused || batch.results.iter().all(Option::is_some) {
            self.report(id, &OpError::Flushed);
        }
        if refused {
            self.break_connection(connection, &OpError::Flushed, false);
        }
    }

    pub(super) fn meet_deadline(&mut self, id: BatchId) {
        let Some(batch) = self.batches.get(&id).filter(|batch| !batch.reported) else { return };
        let connection = batch.connection;
        self.statistics.deadlines_met += 1;
        self.report(id, &OpError::TimedOut);
        if self.faults.timeout_breaks {
            // What is under way may land all the same: the owner knows nothing of our deadline.
            self.break_connection(connection, &OpError::Flushed, true);
        }
    }

    /// Breaks a connection: all its batches end, the oldest with `first`. What is under way
    /// still `lands`, or is dropped.
    pub(super) fn break_connection(&mut self, id: ConnectionId, first: &OpError, lands: bool) {
        let connection = self.connection(id);
        if connection.state != ConnectionState::Up {
            return;
        }
        connection.state = ConnectionState::Broken;
        self.statistics.breaks += 1;
        if !lands {
            self.drop_requests(id);
        }
        let waiting: Vec<BatchId> = self
            .batches
            .iter()
            .filter(|(_, batch)| batch.connection == id && !batch.reported)
            .map(|(batch_id, _)| *batch_id)
            .collect();
        for (position, batch_id) in waiting.into_iter().enumerate() {
            let error = if position == 0 { first } else { &OpError::Flushed };
            self.report(batch_id, error);
        }
    }

    /// Lets no request of the connection take effect any more, except zombies of an earlier one.
    pub(super) fn drop_requests(&mut self, id: ConnectionId) {
        let mine = |batch: &&mut Batch| batch.connection == id && !batch.reported;
        for batch in self.batches.values_mut().filter(mine) {
            batch.lives = false;
        }
    }

    /// Hands a completion to the peer: results as far as known, then `first`, then flushed.
    fn report(&mut self, id: BatchId, first: &OpError) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.reported = true;
        // Behind an error that the owner reported all else is flushed.
        let mut failed = false;
        let results = std::mem::take(&mut batch.results)
            .into_iter()
            .map(|result| {
                let missing = if failed { OpError::Flushed } else { first.clone() };
                let result = result.unwrap_or(Err(missing));
                failed |= result.is_err();
                result
            })
            .collect();
        batch.results = vec![None; batch.ops.len()];
        let completion = Completion { ticket: batch.ticket, results };
        let connection = batch.connection;
        self.mix(completion.ticket.0);
        let connection = self.connection(connection);
        if !connection.closed {
            connection.done.push_back(completion);
        }
        self.forget_if_over(id);
    }

    pub(super) fn reconnect(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        if connection.state != ConnectionState::Broken || connection.closed {
            return;
        }
        connection.state = ConnectionState::Connecting;
        let well = !self.random.chance(self.faults.reconnect_failure_per_mille);
        let round_trip_ns = self.draw_way_ns() + self.draw_way_ns();
        self.plan(round_trip_ns, Event::Connected { connection: id, well });
    }

    pub(super) fn connected(&mut self, id: ConnectionId, well: bool) {
        let connection = self.connection(id);
        if connection.closed {
            return;
        }
        if well {
            connection.state = ConnectionState::Up;
            connection.generation += 1;
            connection.owner_side_broken = false;
            self.statistics.reconnects += 1;
        } else {
            connection.state = ConnectionState::Broken;
        }
    }

    /// The queue pair was dropped: what it sent may still land, and nobody hears of it.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.connection(id).closed = true;
        self.break_connection(id, &OpError::Disconnected, true);
        let connection = self.connection(id);
        connection.state = ConnectionState::Broken;
        connection.done.clear();
    }
}
