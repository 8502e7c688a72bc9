//! Recorded load against a real pool: two sites, each with a trace of its own, by one clock.

#![allow(clippy::unwrap_used)]

mod common;

use common::pool::{PROGRAM, Recipe};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn two_traces_drive_the_two_sites_of_a_pool() {
    let pool = Recipe::new(&[("conv", ""), ("code", "")], 4).start();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../load/samples");
    let sample = |name: &str| samples.join(name).display().to_string();
    let output = Command::new(PROGRAM)
        .args(["load", "--trace", &sample("azure-llm-conv.csv")])
        .args(["--trace", &sample("azure-llm-code.csv"), "--host", "conv.test,code.test"])
        .args(["--to", &pool.edges[0].to_string(), "--compress", "60", "--scale", "3", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["trace_lines"], 82, "{result}");
    for site in ["conv.test", "code.test"] {
        assert_eq!(result["sites"][site]["ok"], 120, "{result}");
    }
    pool.finish();
}
