//! One-sided reads, writes and atomics on 8-byte words of another process's memory.
