//! How long things take and how often they go wrong. Times are drawn evenly between two bounds.

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// Requests of a run, and the mean time between two.
pub(super) const REQUESTS: u64 = 1_500;
pub(super) const REQUEST_EVERY_NS: u64 = 2 * MS;

/// Between two operations of a thread, and between its decisions.
pub(super) const STEP_NS: (u64, u64) = (20, 200);
pub(super) const FLEETING_NS: (u64, u64) = (100, 2_000);
/// One in so many operations finds its thread without a processor for a while.
pub(super) const PREEMPTED: u64 = 200;
pub(super) const PREEMPTED_NS: (u64, u64) = (10 * US, 10 * MS);
/// A message on its way.
pub(super) const WIRE_NS: (u64, u64) = (20 * US, 2 * MS);
/// The origin from row to row: as long as a page that takes a second is to an update each minute.
pub(super) const RENDER_NS: (u64, u64) = (MS, 20 * MS);
/// A response's body, from part to part.
pub(super) const BODY_NS: (u64, u64) = (50 * US, 3 * MS);
/// From the wish to commit until it is done.
pub(super) const COMMIT_NS: (u64, u64) = (500 * US, 15 * MS);
/// One in so many takes longer: it waits for locks.
pub(super) const COMMIT_WAITS: u64 = 8;
pub(super) const SLOW_COMMIT_NS: (u64, u64) = (20 * MS, 120 * MS);
/// Until a database notices that a client is gone, and rolls back.
pub(super) const NOTICED_NS: (u64, u64) = (MS, 20 * MS);
/// Between two looks of a settler.
pub(super) const SETTLE_EVERY_NS: (u64, u64) = (2 * MS, 12 * MS);
/// How long a process is down.
pub(super) const DOWN_NS: (u64, u64) = (5 * MS, 60 * MS);
/// Until an edge has heard of a new table, or lets an old one go.
pub(super) const ATTACH_NS: (u64, u64) = (MS, 25 * MS);
/// After the last fault, until all is as before.
pub(super) const HEALED_NS: u64 = 1_500 * MS;
/// Between the requests that are made then: before what is fresh for a second is stale.
pub(super) const PROBE_EVERY_NS: u64 = 200 * MS;
/// A wrong edge's verdict is good for so long.
pub(super) const VERDICT_NS: u64 = 5 * MS;

/// One client in so many goes away before its answer.
pub(super) const CLIENT_LEAVES: u64 = 40;
/// One answer of the origin in so many is none.
pub(super) const ORIGIN_FAILS: u64 = 80;
/// One operation in so many on a table elsewhere is never answered.
pub(super) const LOST_BATCH: u64 = 300;
/// One step of a writer in so many is its last.
pub(super) const WRITER_DIES: u64 = 700;
/// One writer in so many dies when it has just asked for its commit.
pub(super) const DIES_IN_COMMIT: u64 = 12;
/// One step of a settler in so many is its last.
pub(super) const SETTLER_DIES: u64 = 2_000;
/// One transaction in so many is rolled back.
pub(super) const ROLLED_BACK: u64 = 10;

/// Questions to the origin for one request: as at the edge.
pub(super) const QUESTIONS_MAX: usize = 4;
/// Rounds of one settler.
pub(super) const SETTLE_ROUNDS: u16 = 20;
/// Violations that are kept.
pub(super) const KEPT_MAX: usize = 5;
