//! Looks at the pool, asks the policy, and carries moves out by a protocol that anybody can finish.
//!
//! # How a shell drives it
//!
//! [`protocol`] holds the machines: pure, one operation on one word at a time. A shell answers
//! operations, from mapped memory inline or over a transport. [`Core`] is the decision core of one
//! edge: it takes looks in and says which machine to run. Neither reads a clock, does I/O or draws
//! a random number; a simulator drives them with virtual time and a faulty transport.
//!
//! ```
//! use moves::protocol::{Look, Machine, Next, Op, Reply, Seen};
//! use moves::{Core, Input, Mode, Options, Timing, Work};
//! # use pool_model::{EdgeId, PoolView, SiteTerms};
//! # let mut memory = |_op: Op| Reply::Value(0);     // the shell's only I/O
//! # let clock = || 0u64;
//! # let random = || 7u32;
//! let mut core = Core::new(Options {
//!     edge: EdgeId::new(0)?,
//!     timing: Timing::default(),
//!     sites: vec![SiteTerms::default(); 3],          // sites 1..=3
//!     nodes: 8,                                      // nodes 0..=7
//!     settings_version: 1,
//!     mode: Mode::Move,
//! });
//! let mut seen = Seen::new(3, 8);                    // made once, reused
//! let mut view = PoolView::default();
//! # let mut looks = 0;
//! loop {
//!     let mut look = Look::new(&seen);
//!     look.drive(&mut seen, &mut memory);            // HomeLost: use another home
//!     // Here: fill seen.counted and view from the nodes' records.
//!     let policy = policy::Rigid;
//!     let input = |seen, view| Input {
//!         now_ns: clock(), seen, view, policy: &policy, op_time_ns: 50, nonce: random(),
//!         is_unready: &|_node, _site| false,
//!     };
//!     core.looked(&input(&seen, &view), |node| view.node(node).is_some_and(|n| n.movable));
//!     let again = loop {
//!         match core.next(&input(&seen, &view)) {
//!             Work::Run(mut task) => {
//!                 let outcome = task.drive(&mut memory);
//!                 // Outcome::Moved: requests may go to the node from here on.
//!                 core.ended(clock(), &outcome);
//!             }
//!             Work::LookAgain => break true,
//!             Work::Rest => break false,
//!         }
//!     };
//!     if !again { /* sleep until the next absolute deadline */ }
//! #   looks += 1;
//! #   if looks > 3 { break; }
//! }
//! # Ok::<(), pool_model::IdOutOfRange>(())
//! ```
//!
//! [`Core::next`] is asked again after each task with a fresh `now_ns`, because a claim that the
//! edge slept on is dropped by its own clock. Records of moves are in [`Core::records`].

mod decide;
mod events;
pub mod looper;
mod plan;
pub mod protocol;
mod record;
mod round;

pub use decide::{Core, Input, Mode, Options, REQUEST_WAIT_NS, REQUESTS_MAX, RequestsFull, Work};
pub use events::{Events, Need, Timing};
pub use record::{Counters, Ending, MoveRecord, RECORDS_MAX, Records};
