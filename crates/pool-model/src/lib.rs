//! The nouns that a decision reads and writes: ids, guarantees, views of nodes and sites, moves.
//!
//! Nothing here does I/O, reads a clock or draws a random number. A [`PoolView`] is what one look
//! at the pool saw; a [`Move`] is what a policy asks for. How the view came to be, and how the
//! move is carried out, is the business of higher floors.

mod ids;
mod stock;
mod terms;
mod view;

pub use ids::{EdgeId, IdOutOfRange, NodeId, SiteId};
pub use stock::{Kinds, Stock};
pub use terms::{Classes, Guarantee, GuaranteeError, NodeTraits, Objective, Priority, SiteTerms};
pub use view::{Move, NodeView, PoolView, Reason, SiteView};
