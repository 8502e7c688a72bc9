//! `/metrics` and `/healthz`, on loopback: a status report in the form that Prometheus reads.

mod families;
mod server;

pub use families::{CONTENT_TYPE, text};
pub use server::{MetricsServer, Snapshot};
