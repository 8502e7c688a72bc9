//! The Azure pair, where its traces are: a policy beside all static splits.
#![allow(clippy::unwrap_used)]

use policy::{Kind, Thresholds};
use sim::scenario::azure::{self, Pace};
use std::path::PathBuf;

/// Where the traces are, if they are.
fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/web-traces");
    let folder = std::env::var_os("POLDER_TRACES").map_or(beside, PathBuf::from);
    azure::FILES.iter().all(|name| folder.join(name).exists()).then_some(folder)
}

#[test]
fn moving_nodes_for_objectives_is_better_than_the_best_static_split() {
    let Some(folder) = folder() else {
        println!("skipped: no {} (POLDER_TRACES names its folder)", azure::FILES[0]);
        return;
    };
    let arrivals = azure::traces(&folder).unwrap();
    assert_eq!(arrivals.len(), 8_819 - 1 + 19_366 - 1 + 2, "headers, and no last newline");
    let slo = Kind::Slo.build(Thresholds::default());
    let compared = azure::compare(&arrivals, Pace::default(), slo).unwrap();
    println!("{compared:?}");
    assert_eq!(compared.statics.len(), 7);
    assert!(compared.moves > 0);
    assert!(compared.ratio < 0.6, "{compared:?}");
}
