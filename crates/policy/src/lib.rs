//! Pure decisions: which site needs a node, who gives one, which server takes a request.
//!
//! Views in, answers out: no clock, no I/O, no randomness of its own. How long a need must last
//! before a node moves, and how the move is carried out, is decided a floor above. The policies
//! are siblings behind [`Policy`]; [`Kind`] has their names:
//!
//! - [`Rigid`]: nothing moves. Over-provisioning is `rigid` with more nodes.
//! - [`Reconf`]: the scheme of "Dynamic reconfigurability" (2004): a loaded site takes the least
//!   loaded node of a lightly loaded site, down to the donor's hard guarantee.
//! - [`ReconfP`]: the first extension of "Priorities and QoS": a loaded site also takes from lower
//!   priorities, however loaded they are.
//! - [`ReconfPq`]: the second: that only up to its soft guarantee, which it also gets back from
//!   equals; so nobody starves.
//! - [`Staged`]: the same where nodes are unlike: the fittest goes where it is needed, over other
//!   sites if need be.
//! - [`Slo`]: sites state an objective in the place of node counts.
//!
//! No policy gives a site a node that can't serve it (`SiteTerms::fitness_pct` is zero).
//!
//! [`choose`] picks the server of one request; [`decision`] is what figures time.

mod best;
mod candidate;
pub mod choose;
pub mod decision;
mod kind;
mod reconf;
mod reconf_p;
mod reconf_pq;
mod rigid;
mod slo;
mod staged;
mod thresholds;

pub use candidate::{CANDIDATES_MAX, Candidate, Policy, Stage};
pub use kind::Kind;
pub use reconf::Reconf;
pub use reconf_p::ReconfP;
pub use reconf_pq::ReconfPq;
pub use rigid::Rigid;
pub use slo::{GIVE_SHARE, NEED_SHARE, Slo};
pub use staged::{DONORS_MAX, SPARE_SHARE, STAGE_GAIN_PCT, Staged};
pub use thresholds::{Thresholds, ThresholdsError};

#[cfg(test)]
mod pools;
