//! The tier that clients reach: listeners, sites, queues, balancing, drain, retries.
