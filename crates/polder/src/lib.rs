//! Polder: many sites on one pool of nodes that move to where the load is, in milliseconds.
