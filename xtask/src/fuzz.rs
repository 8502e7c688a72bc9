//! `cargo xtask fuzz`: builds the tests, runs fuzz targets two at a time, each for its seconds.
//!
//! A target is a test named `fuzz_NAME`, written with the crate `fuzzing`; what it does there, and
//! what its environment means, stands in that crate. The table here says where each one is.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::tidy::Problem;
use crate::tree::Tree;

/// Where a target's test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Beside the code.
    Lib,
    /// In a program of its own below `tests`.
    Test(&'static str),
}

/// One fuzz target.
#[derive(Debug, Clone, Copy)]
struct Target {
    name: &'static str,
    krate: &'static str,
    place: Place,
}

const fn target(name: &'static str, krate: &'static str, place: Place) -> Target {
    Target { name, krate, place }
}

const TARGETS: &[Target] = &[
    target("settings", "polder", Place::Lib),
    target("control", "polder", Place::Lib),
    target("agent_state", "agent", Place::Lib),
    target("node_record", "shared-state", Place::Lib),
    target("site_record", "shared-state", Place::Lib),
    target("version_table", "shared-state", Place::Lib),
    target("shm_frames", "remote-memory", Place::Test("fuzz")),
    target("tcp_messages", "remote-memory", Place::Test("fuzz")),
    target("tcp_service", "remote-memory", Place::Test("tcp")),
    target("tcp_owner", "remote-memory", Place::Test("tcp")),
    target("trace", "load", Place::Lib),
    target("request_heads", "edge", Place::Lib),
    target("hosts", "edge", Place::Lib),
    target("proxy_header", "edge", Place::Lib),
    target("access_log", "edge", Place::Lib),
    target("responses", "edge", Place::Lib),
    target("chunks", "edge", Place::Lib),
    target("purges", "edge", Place::Lib),
    target("http_requests", "edge", Place::Test("differential")),
    target("http_responses", "edge", Place::Test("differential")),
    target("cache_headers", "cache", Place::Test("cases")),
    target("writer_lines", "writers", Place::Lib),
];

/// Targets that run at the same time: machines that run tests have two cores or more.
const AT_ONCE: usize = 2;

/// How long each target runs, unless told otherwise.
const SECONDS: u64 = 10;

/// What the whole workspace's tests are built as, here and in `./test`: with the same crates, cargo
/// builds the same features, and nothing twice.
const ALL_CRATES: &[&str] = &["--workspace", "--exclude", "moves"];

/// How variables begin by which cargo tells a program of its own crate.
const OF_THIS_CRATE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The corpora of targets, within their crates.
const CORPUS: &str = "fuzz-corpus";

/// The crate of the harness. Its own tests have a corpus, which is no target's.
const HARNESS: &str = "crates/fuzzing/";

/// What the command line asks for.
#[derive(Debug, Default)]
struct Options {
    targets: Vec<Target>,
    seconds: Option<u64>,
    seed: Option<u64>,
    file: Option<PathBuf>,
    lists: bool,
}

pub(crate) fn run(top: &Path, arguments: &[&str]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("fuzz: {why}");
            return ExitCode::from(2);
        }
    };
    if options.lists {
        for target in TARGETS {
            println!("{}  ({})", target.name, target.krate);
        }
        return ExitCode::SUCCESS;
    }
    let programs = match build(top, &options) {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("fuzz: {why}");
            return ExitCode::from(2);
        }
    };
    let failed = run_all(top, &options, programs);
    println!("fuzz: {} targets, {failed} failed", options.targets.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut left = arguments.iter();
    while let Some(&argument) = left.next() {
        let mut value = || left.next().copied().ok_or(format!("{argument} needs a value"));
        let whole = |text: &str| text.parse().map_err(|_| format!("{text} is no whole number"));
        match argument {
            "--seconds" => options.seconds = Some(whole(value()?)?),
            "--seed" => options.seed = Some(whole(value()?)?),
            "--file" => {
                let path = std::path::absolute(value()?).map_err(|error| error.to_string())?;
                options.file = Some(path);
            }
            "--list" => options.lists = true,
            name => {
                let found = TARGETS.iter().find(|target| target.name == name);
                let unknown = || format!("no target {name}; `cargo xtask fuzz --list` has them");
                options.targets.push(*found.ok_or_else(unknown)?);
            }
        }
    }
    if options.file.is_some() && options.targets.len() != 1 {
        return Err("--file needs one target".to_owned());
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.to_vec();
    }
    Ok(options)
}

/// Builds the tests of the targets. Their programs, in the same order.
fn build(top: &Path, options: &Options) -> Result<Vec<PathBuf>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(top).args(["test", "--no-run", "--locked"]);
    cargo.arg("--message-format=json-render-diagnostics");
    // What `cargo run` has told this program of itself: build scripts of crates that look at it
    // would run again, and everything behind them would be built anew.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THIS_CRATE.iter().any(|of| name.starts_with(of))) {
            cargo.env_remove(name);
        }
    }
    if options.targets.len() == TARGETS.len() {
        cargo.args(ALL_CRATES);
    } else {
        // Each word once: cargo takes `--lib` a single time.
        let words = options.targets.iter().flat_map(|target| {
            let place = match target.place {
                Place::Lib => "--lib".to_owned(),
                Place::Test(name) => format!("--test={name}"),
            };
            [format!("--package={}", target.krate), place]
        });
        cargo.args(words.collect::<BTreeSet<_>>());
    }
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let program = |target: &Target| {
        let built = lines.lines().find_map(|line| program_of(line, target));
        built.ok_or_else(|| format!("cargo built no tests for {}", target.name))
    };
    options.targets.iter().map(program).collect()
}

/// The test program of a target, if this line of cargo's tells of it.
fn program_of(line: &str, target: &Target) -> Option<PathBuf> {
    let artifact: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| artifact[key].as_str();
    let manifest = format!("crates/{}/Cargo.toml", target.krate);
    if artifact["profile"]["test"] != true || !text("manifest_path")?.ends_with(&manifest) {
        return None;
    }
    let (kind, name) = (&artifact["target"]["kind"][0], &artifact["target"]["name"]);
    let fits = match target.place {
        Place::Lib => kind == "lib",
        Place::Test(test) => kind == "test" && name == test,
    };
    text("executable").filter(|_| fits).map(PathBuf::from)
}

/// Runs all targets; how many failed.
fn run_all(top: &Path, options: &Options, programs: Vec<PathBuf>) -> usize {
    let left: VecDeque<_> = options.targets.iter().zip(programs).collect();
    let (left, failed) = (Mutex::new(left), Mutex::new(0));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((target, program)) = next() {
                    let passed = run_one(top, options, *target, &program);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    *failed += usize::from(!passed);
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one target and prints what came of it; whether it passed.
fn run_one(top: &Path, options: &Options, target: Target, program: &Path) -> bool {
    let mut command = Command::new(program);
    command.current_dir(top.join("crates").join(target.krate));
    command.args([&format!("fuzz_{}", target.name), "--nocapture", "--test-threads=1"]);
    // Whatever the environment said before, the command line says it now.
    command.env("POLDER_FUZZ_S", options.seconds.unwrap_or(SECONDS).to_string());
    match options.seed {
        Some(seed) => command.env("POLDER_FUZZ_SEED", seed.to_string()),
        None => command.env_remove("POLDER_FUZZ_SEED"),
    };
    match &options.file {
        Some(file) => command.env("POLDER_FUZZ_FILE", file),
        None => command.env_remove("POLDER_FUZZ_FILE"),
    };
    match command.output() {
        Ok(output) => judge(target, &output),
        Err(error) => {
            println!("{}: FAILED: {} does not start: {error}", target.name, program.display());
            false
        }
    }
}

/// Prints the target's own lines, or everything if it failed.
fn judge(target: Target, output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stdout);
    // A name that no test bears would pass without having run.
    let ran = text.contains("test result: ok. 1 passed");
    if output.status.success() && ran {
        let own = format!("{}: ", target.name);
        let shown = |line: &&str| line.starts_with(&own) || line.starts_with("test result: ");
        let lines: String = text.lines().filter(shown).map(|line| format!("{line}\n")).collect();
        print!("{lines}");
        return true;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{}: FAILED ({})\n{text}{errors}", target.name, output.status);
    false
}

/// Each target of the table has its test and its corpus, and each test and corpus its target.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    check_with(tree, TARGETS)
}

fn check_with(tree: &Tree, targets: &[Target]) -> Vec<Problem> {
    const TABLE: &str = "xtask/src/fuzz.rs";
    let mut problems = Vec::new();
    for Target { name, krate, .. } in targets {
        let function = format!("fn fuzz_{name}()");
        let inside = format!("crates/{krate}/");
        let mut sources = tree.rust().filter(|file| file.path.starts_with(&inside));
        if !sources.any(|file| file.text().contains(&function)) {
            let text = format!("no test `fuzz_{name}` in {inside}; write it or remove the target");
            problems.push(Problem::new(TABLE, 1, text));
        }
        let corpus = format!("{inside}{CORPUS}/{name}");
        if !tree.exists(&corpus) {
            let text = format!("target `{name}` has no corpus; put small inputs into {corpus}");
            problems.push(Problem::new(TABLE, 1, text));
        }
    }
    let known = |krate: &str, name: &str| {
        targets.iter().any(|target| target.name == name && target.krate == krate)
    };
    for file in tree.files.iter().filter(|file| !file.path.starts_with(HARNESS)) {
        let parts: Vec<&str> = file.path.split('/').collect();
        let ["crates", krate, rest @ ..] = &parts[..] else { continue };
        if let [CORPUS, name, ..] = rest
            && !known(krate, name)
        {
            let text = format!("a corpus of no target; add `{name}` to {TABLE}");
            problems.push(Problem::new(&file.path, 1, text));
        }
        if !file.path.ends_with(".rs") {
            continue;
        }
        for (line, at) in file.text().lines().zip(1..) {
            let name =
                line.trim_start().strip_prefix("fn fuzz_").and_then(|l| l.strip_suffix("() {"));
            if let Some(name) = name.filter(|name| !known(krate, name)) {
                let text = format!("a fuzz target that nobody runs; add `{name}` to {TABLE}");
                problems.push(Problem::new(&file.path, at, text));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_targets_time_seed_and_file() {
        let options = parse(&["chunks", "--seconds", "60", "--seed", "7", "hosts"]).unwrap();
        let names: Vec<_> = options.targets.iter().map(|target| target.name).collect();
        assert_eq!((names, options.seconds), (vec!["chunks", "hosts"], Some(60)));
        assert_eq!(options.seed, Some(7));
        assert_eq!(parse(&[]).unwrap().targets.len(), TARGETS.len());
        assert!(parse(&["hosts", "--file", "x"]).unwrap().file.unwrap().is_absolute());
        for wrong in [&["nothing"][..], &["--seed"], &["--seconds", "x"], &["--file", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn programs_are_found_in_what_cargo_tells() {
        let line = |kind: &str, name: &str, krate: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": format!("x/crates/{krate}/Cargo.toml"),
                "target": { "kind": [kind], "name": name },
                "profile": { "test": test },
                "executable": "x/deps/program",
            })
            .to_string()
        };
        let lib = target("a", "edge", Place::Lib);
        let tcp = target("a", "edge", Place::Test("tcp"));
        assert!(program_of(&line("lib", "edge", "edge", true), &lib).is_some());
        assert!(program_of(&line("test", "tcp", "edge", true), &tcp).is_some());
        assert!(program_of(&line("lib", "edge", "edge", false), &lib).is_none());
        assert!(program_of(&line("lib", "agent", "agent", true), &lib).is_none());
        assert!(program_of(&line("test", "tcp", "edge", true), &lib).is_none());
        assert!(program_of(&line("test", "other", "edge", true), &tcp).is_none());
        assert!(program_of("Compiling edge", &lib).is_none());
    }

    #[test]
    fn targets_tests_and_corpora_belong_together() {
        let target = [target("heads", "edge", Place::Lib)];
        let source = |name: &str| format!("#[test]\n    fn fuzz_{name}() {{\n");
        let problems = |source: &str, corpus: &str| {
            let files = [
                ("crates/edge/src/a.rs", source),
                (corpus, "GET"),
                ("crates/fuzzing/fuzz-corpus/example/one", "x"),
            ];
            check_with(&Tree::of(&files), &target).len()
        };
        let good = "crates/edge/fuzz-corpus/heads/get";
        assert_eq!(problems(&source("heads"), good), 0);
        assert_eq!(problems(&source("tails"), good), 2, "one too few, one too many");
        assert_eq!(problems(&source("heads"), "crates/load/fuzz-corpus/heads/get"), 2);
        assert_eq!(problems(&source("heads"), "crates/edge/fuzz-corpus/tails/get"), 2);
    }
}
