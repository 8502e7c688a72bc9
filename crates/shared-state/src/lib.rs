//! What lies where in shared memory, byte for byte, and how each word is read and written.

pub mod words;
