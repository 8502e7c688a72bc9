//! The nouns that a decision reads and writes: ids, views of nodes and sites, guarantees, moves.
