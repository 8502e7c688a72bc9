//! Pure decisions: which site needs a node, who gives one, which server takes a request.
//!
//! Views in, answers out: no clock, no I/O, no randomness of its own. How long a need must last
//! before a node moves, and how the move is carried out, is decided a floor above. The policies
//! are siblings behind [`Policy`]:
//!
//! - [`Rigid`]: nothing moves. Over-provisioning is `rigid` with more nodes.
//! - [`Reconf`]: the scheme of "Dynamic reconfigurability" (2004): a loaded site takes the least
//!   loaded node of a lightly loaded site, down to the donor's hard guarantee.
//!
//! [`choose`] picks the server of one request.

mod candidate;
pub mod choose;
mod reconf;
mod rigid;

pub use candidate::{CANDIDATES_MAX, Candidate, Policy};
pub use reconf::{Reconf, Thresholds, ThresholdsError};
pub use rigid::Rigid;
