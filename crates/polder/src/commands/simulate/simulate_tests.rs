//! The command as a user sees it.

use super::*;
use clap::Parser;
use serde_json::Value;
use std::fs;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    simulate: SimulateArguments,
}

fn run_line(words: &[&str]) -> Result<Output, CommandError> {
    let line = Line::try_parse_from([&["simulate"], words].concat()).unwrap();
    run(&line.simulate, Style::PLAIN)
}

fn json_of(words: &[&str]) -> Value {
    let output = run_line(&[words, &["--json"]].concat()).unwrap();
    serde_json::from_str(&output.text).unwrap()
}

/// Two sites that are loaded in turn: a node serves 200 in a second.
const WAVE: &[&str] = &[
    "--rate",
    "a=50@5s,700@5s",
    "--rate",
    "b=700@5s,50@5s",
    "--in-flight",
    "1",
    "--duration",
    "20",
];

#[test]
fn nodes_that_move_do_what_more_that_stay_would() {
    let found = json_of(&[WAVE, &["--policy", "reconf,rigid", "--nodes", "4..10"]].concat());
    let fewest = |policy: &str| found["fewest_nodes"][policy].as_u64();
    let (moving, staying) = (fewest("reconf").unwrap(), fewest("rigid").unwrap());
    // Either needs 3.5 nodes for 700 in a second, rigid twice that.
    assert!(moving < staying && staying >= 8, "{moving} and {staying}");
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 14);
    assert_eq!(runs[0]["policy"], "reconf");
    assert!(runs[0]["moves"].as_u64().unwrap() > 0);
    assert_eq!(runs[13]["moves"], 0);
    for run in runs {
        for site in ["a", "b"] {
            let site = &run["sites"][site];
            assert_eq!(site["below_hard_ms"], 0.0);
            let number = |key: &str| site[key].as_f64().unwrap();
            let ended = number("served") + number("refused") + number("left");
            assert_eq!(number("requests"), ended, "{site}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history_and_rates_come_close_to_requests() {
    let one = [WAVE, &["--nodes", "8"]].concat();
    let (first, again) = (json_of(&one), json_of(&one));
    assert_eq!(first, again);
    let other = json_of(&[&one[..], &["--seed", "2"]].concat());
    assert_ne!(first["runs"][0]["history"], other["runs"][0]["history"]);
    let fluid = json_of(&[&one[..], &["--fluid"]].concat());
    let requests = |of: &Value| of["runs"][0]["sites"]["a"]["requests"].as_f64().unwrap();
    assert!((requests(&first) / requests(&fluid) - 1.0).abs() < 0.1);
    assert_eq!(fluid["runs"][0]["sites"]["a"]["latency_us_p99"], Value::Null);
}

#[test]
fn traces_become_sites_and_pictures_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let lines = (0..400).map(|n| format!("2023-11-16 18:00:{:02}.{:02},1,1\n", n / 40, n % 40));
        let text =
            format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{}", lines.collect::<String>());
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (first, second) = (write("chat.csv"), write("code.csv"));
    let svg = folder.path().join("pool.svg");
    let named = format!("{second}=codes");
    let words =
        ["--trace", &first, "--trace", &named, "--nodes", "2", "--svg", svg.to_str().unwrap()];
    let output = run_line(&words).unwrap();
    for word in ["chat", "codes", "800 requests", "2 nodes are enough", "reconf on 2 nodes"] {
        assert!(output.text.contains(word), "no {word:?} in\n{}", output.text);
    }
    assert!(fs::read_to_string(&svg).unwrap().contains("requests/s"));
    let fluid = json_of(&["--trace", &first, "--fluid", "--nodes", "2"]);
    assert_eq!(fluid["runs"][0]["sites"]["chat"]["requests"], 400.0);
}

#[test]
fn settings_give_sites_and_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("polder.toml");
    let site = |name: &str, more: &str| {
        let hosts = format!("hosts = [\"{name}.localhost\"]\ncommand = [\"server\", \"{{port}}\"]");
        format!("[[sites]]\nname = \"{name}\"\n{hosts}\n{more}\n")
    };
    let text = format!(
        "[pool]\nname = \"p\"\npolicy = \"rigid\"\n{}{}[[nodes]]\nname = \"n\"\ncount = 4\n",
        site("shop", "nodes = 3\nhard = 2"),
        site("blog", "nodes = 1")
    );
    fs::write(&file, text).unwrap();
    let settings = file.display().to_string();
    let words = ["--settings", &settings, "--rate", "shop=100", "--duration", "2"];
    let output = run_line(&words).unwrap();
    assert!(output.text.contains("rigid on 4 nodes: 0 moves"), "{}", output.text);
    let found = json_of(&words);
    let nodes = &found["runs"][0]["sites"]["shop"]["nodes"];
    assert!(nodes.as_array().unwrap().iter().all(|nodes| nodes == 3.0), "{nodes}");
    let error = run_line(&["--settings", &settings, "--rate", "mail=1"]).unwrap_err();
    assert!(error.to_string().contains("no site \"mail\": shop, blog"), "{error}");
}

#[test]
fn mistakes_are_named() {
    for (words, what) in [
        (&["--nodes", "4"][..], "--trace FILE=SITE or --rate"),
        (&["--rate", "a"], "write SITE=RATE"),
        (&["--rate", "a=1", "--rate", "a=2"], "given twice for a"),
        (&["--rate", "a=1", "--hard", "b=2"], "the sites are a"),
        (&["--rate", "a=1", "--hard", "x"], "--hard x"),
        (&["--rate", "a=1", "--hard", "3", "--soft", "2"], "hard = 3, soft = 2"),
        (&["--rate", "a=1", "--hard", "3", "--nodes", "2"], "sum of hard is 3"),
        (&["--trace", "/nowhere/x.log"], "/nowhere/x.log"),
    ] {
        let error = run_line(words).unwrap_err().to_string();
        assert!(error.contains(what), "{words:?}: {error}");
    }
    let line = |words: &[&str]| Line::try_parse_from([&["simulate"], words].concat());
    let error = line(&["--rate", "a=1", "--policy", "best"]).unwrap_err().to_string();
    assert!(error.contains("known policies: rigid, reconf"), "{error}");
    assert!(line(&["--rate", "a=1", "--nodes", "9..4"]).is_err());
    assert!(line(&["--faults", "3", "--nodes", "4"]).is_err());
}

#[test]
fn a_seed_of_faults_is_replayed() {
    let words = ["--faults", "10", "--seed", "17"];
    let output = run_line(&words).unwrap();
    assert!(!output.has_failed && output.text.contains("every property held"), "{}", output.text);
    let (first, again) = (json_of(&words), json_of(&words));
    assert_eq!(first["history"], again["history"]);
    assert_eq!(first["faults"], 10);
}

#[test]
fn a_seed_of_caches_is_replayed_and_seeds_are_summed() {
    let words = ["--cache", "--seed", "17"];
    let output = run_line(&words).unwrap();
    assert!(!output.has_failed && output.text.contains("no answer was older"), "{}", output.text);
    let (first, again) = (json_of(&words), json_of(&words));
    assert_eq!(first["history"], again["history"]);
    assert!(first["requests"].as_u64().unwrap() >= 1_000 && first["broken"] == 0);
    let three = json_of(&["--cache", "--seed", "16", "--seeds", "3"]);
    assert!(three["operations"].as_u64() > first["operations"].as_u64());
    assert_eq!(three["seeds"], 3);
    let line = |words: &[&str]| Line::try_parse_from([&["simulate"], words].concat());
    assert!(line(&["--seeds", "3", "--rate", "a=1"]).is_err());
    assert!(line(&["--cache", "--faults", "3"]).is_err());
}
