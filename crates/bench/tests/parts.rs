//! The least form of figures as whole processes: peers start, load runs, numbers come out.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock};

/// Figures that need the machine for themselves have this alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a figure's least form beside others; nothing where a program of others is missing here.
fn least(figure: &str) -> Option<Value> {
    let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    run(figure)
}

fn run(figure: &str) -> Option<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["part", figure])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(why) = log.lines().find(|line| {
        line.contains("is missing; it is in") || line.contains("the Debian package is")
    }) {
        println!("skipped: {why}");
        return None;
    }
    assert!(output.status.success(), "{log}");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    Some(serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn assert_above_zero(summary: &Value, names: &[&str]) {
    for name in names {
        assert!(summary[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {summary}");
    }
}

#[test]
fn proxies_take_turns_and_answer_every_request() {
    let Some(summary) = least("proxy") else { return };
    assert_above_zero(&summary, &["cpu_over_nginx", "cpu_over_haproxy"]);
    assert_above_zero(&summary, &["tls_cpu_over_nginx", "h2_cpu_over_nginx"]);
    assert_eq!(summary["failed_requests"], 0, "{summary}");
}

#[test]
fn a_record_is_read_whatever_its_owner_does() {
    let Some(summary) = least("memory") else { return };
    let names = ["shm_read_ns", "shm_read_ns_200_threads", "tcp_over_pingpong"];
    assert_above_zero(&summary, &names);
    assert_above_zero(&summary, &["tcp_us_200_threads", "shm_read_ns_stopped"]);
    assert_eq!(summary["tcp_answers_when_stopped"], false, "{summary}");
}

#[test]
fn edges_share_servers_or_share_nothing() {
    let Some(summary) = least("edges") else { return };
    assert_above_zero(&summary, &["p99_4_edges_over_1", "p99_independent_over_1"]);
    assert_eq!(summary["failed_requests"], 0, "{summary}");
}

#[test]
fn idle_connections_are_opened_counted_and_asked_again() {
    let Some(summary) = least("idle") else { return };
    assert_eq!(summary["idle_connections"], 400, "{summary}");
    assert_eq!(summary["failed_requests"], 0, "{summary}");
    assert!(summary["idle_connection_bytes"].as_f64().is_some(), "{summary}");
}

#[test]
fn guarantees_hold_and_equal_sites_keep_their_nodes() {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    // A stall of the machine that hits one site may move a node; it does not come each time.
    for is_last in [false, false, true] {
        let Some(summary) = run("qos") else { return };
        assert_eq!(summary["hard_met_pct"], 100.0, "{summary}");
        assert_above_zero(&summary, &["moves"]);
        assert_eq!(summary["failed_requests"], 0, "{summary}");
        if summary["moves_after_first_second"] == 0 {
            return;
        }
        assert!(!is_last, "{summary}");
    }
}

#[test]
fn a_fill_race_is_won_where_a_purge_loses_it() {
    let Some(summary) = least("fillrace") else { return };
    assert_eq!(summary["stale_ours"], 0, "{summary}");
    assert_eq!(summary["hits_ours_pct"], 100.0, "{summary}");
    assert_eq!(summary["stale_varnish"], summary["races"], "{summary}");
}

#[test]
fn caches_answer_while_the_application_is_busy() {
    let Some(summary) = least("cache") else { return };
    // The least form is too short for what takes a second for an answer.
    let names = ["strict_over_unvalidated_own", "strict_over_varnish_hit", "strict_over_nginx_hit"];
    assert_above_zero(&summary, &names);
    assert_above_zero(&summary, &["validation_share_pct_200", "tags100_ns", "tcp_over_pingpong"]);
    assert_eq!(summary["failed_requests"], 0, "{summary}");
}

#[test]
fn the_simulator_runs_its_largest_pool_and_breaks_no_property() {
    let Some(summary) = least("simulate") else { return };
    assert_above_zero(&summary, &["seconds_for_large_pool", "node_reads", "decision_us", "moves"]);
    assert_eq!(summary["seeds"], 2, "{summary}");
    assert_eq!(summary["violations"], 0, "{summary}");
    assert_eq!(summary["equal_sites_late_moves"], 0, "{summary}");
}
