//! Looks at the pool, asks the policy, and carries moves out by a protocol that anybody can finish.
