//! Traces of real sites: samples that lie here, and whole ones where there are some.
//!
//! Whole ones are looked for in the folder that `POLDER_TRACES` names, else in
//! `../shared/data/web-traces` beside the checkout.

#![allow(clippy::unwrap_used)]

use load::generate::{Generator, GeneratorOptions, SiteTarget};
use load::stub::{NodeOptions, StubOptions, StubServer};
use load::trace::{
    Format, Record, Records, Replay, ReplayOptions, SiteRule, TraceError, TraceWindow, What,
};
use std::path::{Path, PathBuf};

const SECOND_NS: u64 = 1_000_000_000;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)
}

/// A whole trace; where it is missing, says so.
fn whole(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/web-traces");
    let folder = std::env::var_os("POLDER_TRACES").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: no {} (POLDER_TRACES names the folder of traces)", path.display());
    None
}

/// What a whole trace adds up to.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    format: Option<Format>,
    requests: u64,
    records: u64,
    bad_lines: u64,
    length_s: i64,
}

fn sum_of(path: &Path, take: u64) -> Result<Sum, TraceError> {
    let mut records = Records::open(path, None, SECOND_NS, 1_000)?;
    let mut sum = Sum { format: Some(records.format()), ..Sum::default() };
    let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
    while sum.records < take {
        let Some(Record { at_ns, what }) = records.read()? else { break };
        (first_ns, last_ns) = (first_ns.min(at_ns), last_ns.max(at_ns));
        sum.records += 1;
        sum.requests += match what {
            What::Request { .. } => 1,
            What::Rates { counts, .. } => counts.iter().sum::<f64>() as u64,
        };
    }
    sum.bad_lines = records.bad_lines().0;
    sum.length_s = (last_ns - first_ns) / SECOND_NS as i64;
    Ok(sum)
}

#[test]
fn samples_are_recognised_and_read_to_their_last_line() {
    let cases = [
        ("nasa-requests.tsv", Format::Requests, 40),
        ("combined.log", Format::Log, 40),
        ("azure-llm-code.csv", Format::Tokens, 40),
        ("azure-llm-conv.csv", Format::Tokens, 40),
        ("worldcup98-per-minute.csv", Format::Minutes, 240),
    ];
    for (name, format, records) in cases {
        let sum = sum_of(&sample(name), u64::MAX).unwrap();
        assert_eq!((sum.format, sum.records, sum.bad_lines), (Some(format), records, 0), "{name}");
    }
}

#[test]
fn whole_traces_add_up_to_what_is_known_of_them() {
    let cases = [
        ("worldcup98-per-minute.csv.gz", Format::Minutes, 125_300, 1_347_611_691, 7_500_000),
        ("nasa-http-1995-08-01-requests.tsv.gz", Format::Requests, 30_969, 30_969, 46_321),
        ("azure-llm-2023-conv.csv.gz", Format::Tokens, 19_366, 19_366, 3_500),
        ("azure-llm-2023-code.csv.gz", Format::Tokens, 8_819, 8_819, 3_400),
        ("semicomplete-2015-combined.log.gz", Format::Log, 10_000, 10_000, 280_000),
        ("worldcup98-test_log-1000req.bin.gz", Format::Binary, 1_000, 1_000, 1),
        ("azure-functions-2019-sample-invocations.csv.gz", Format::Functions, 1_440, 0, 86_340),
        ("azure-functions-2021-sample.csv.gz", Format::Ends, 199, 199, 1_000),
    ];
    for (name, format, records, requests, length_s) in cases {
        let Some(path) = whole(name) else { continue };
        let sum = sum_of(&path, u64::MAX).unwrap();
        assert_eq!(sum.format, Some(format), "{name}");
        assert_eq!(sum.records + sum.bad_lines, records, "{name}");
        assert!(sum.bad_lines <= 2 && sum.requests + sum.bad_lines >= requests, "{name}: {sum:?}");
        assert!(sum.length_s >= length_s, "{name}: {sum:?}");
    }
}

#[test]
fn a_trace_of_two_months_of_seconds_is_read_as_it_streams() {
    for name in ["nasa-http-per-second.tbz2", "twitter-stream-2021-08-per-second.tbz2"] {
        let Some(path) = whole(name) else { continue };
        let sum = sum_of(&path, 20_000).unwrap();
        assert_eq!((sum.format, sum.records, sum.bad_lines), (Some(Format::Counts), 20_000, 0));
        assert_eq!(sum.length_s, 19_999, "{name}");
    }
}

#[test]
fn the_same_seed_sends_the_same_requests_to_servers_and_each_is_counted() {
    let options = StubOptions::every_site_on_every_node(vec![NodeOptions::named("n1")], &["s"]);
    let stub = StubServer::start(&options).unwrap();
    let to = stub.address("n1", "s").unwrap();
    let sites = ["images.test", "rest.test"].map(SiteTarget::host).to_vec();
    let rule = |prefix: Option<&str>| SiteRule { prefix: prefix.map(str::to_owned) };
    let run = |scale: f64| {
        let replay = Replay::start(ReplayOptions {
            traces: vec![sample("nasa-requests.tsv")],
            format: None,
            interval_ns: SECOND_NS,
            bad_lines_max: 0,
            rules: vec![rule(Some("/images/")), rule(None)],
            path: None,
            window: TraceWindow { compress: 1_000.0, scale, ..TraceWindow::default() },
        });
        let mut generator = Generator::new(GeneratorOptions::new(vec![to], sites.clone())).unwrap();
        let report = generator.replay(replay.unwrap(), 64).unwrap();
        assert_eq!(report.traces.unwrap()[0].lines, 41);
        let total = report.constant.run.total();
        assert!(total.adds_up() && total.failures.total() == 0, "{}", total.failures);
        report.constant.run.sites.iter().map(|tally| tally.requests).collect::<Vec<_>>()
    };
    let all = run(1.0);
    assert_eq!(all.iter().sum::<u64>(), 40);
    assert!(all.iter().all(|&requests| requests > 0), "{all:?}");
    let half = run(0.5);
    assert_eq!(half, run(0.5));
    assert!((8..=32).contains(&half.iter().sum::<u64>()), "{half:?}");
    assert_eq!(run(3.0).iter().sum::<u64>(), 120);
}
