//! Looks at the pool, asks the policy, and carries moves out by a protocol that anybody can finish.
//!
//! # How a shell drives it
//!
//! [`protocol`] holds the machines: pure, one operation on one word at a time. A shell answers
//! operations, from mapped memory inline or over a transport:
//!
//! ```
//! use moves::protocol::{Look, Machine, Next, Op, Reply, Seen};
//! # let mut memory = |_op: Op| Reply::Value(0);
//! let mut seen = Seen::new(3, 8);                 // sites 1..=3, nodes 0..=7; made once
//! let mut look = Look::new(&seen);
//! while let Next::Op(op) = look.next() {
//!     let reply = memory(op);                     // the only I/O there is
//!     look.reply(&mut seen, reply);               // or look.drive(&mut seen, memory)
//! }
//! ```
pub mod protocol;
