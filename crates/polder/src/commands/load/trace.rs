//! `polder load --trace`: recorded load of real sites.

use super::{Row, elapsed_ms, interruptible, result, tell_late, with_bar};
use crate::commands::{CommandError, Output};
use crate::terminal::Style;
use ::load::generate::{GeneratorOptions, OUTSTANDING_MAX, ReplayReport, SiteTarget};
use ::load::trace::{
    BAD_LINES_MAX, Format, Replay, ReplayOptions, SiteRule, TraceSummary, TraceWindow,
};
use clap::Args;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `load --trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Replay a trace (- for standard input; .gz, .bz2, .xz and their .tar are decompressed). More
    /// than one: one for each --host, by one clock
    #[arg(long = "trace", value_name = "FILE", required = true)]
    pub traces: Vec<PathBuf>,

    /// How it is written, if that is not recognised: minutes, rates, counts, requests, tokens,
    /// log, binary, functions or ends
    #[arg(long, value_name = "NAME", value_parser = format_named)]
    pub format: Option<Format>,

    /// The interval of `counts` and `rates`; seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub interval_s: f64,

    /// Addresses of edges; connections are spread over them
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',')]
    pub to: Vec<SocketAddr>,

    /// Host names of sites: one for each column or trace, else in turn. With =/PREFIX it gets the
    /// requests whose path begins so
    #[arg(long = "host", value_name = "NAME[=/PREFIX]", required = true, value_delimiter = ',')]
    pub hosts: Vec<String>,

    /// The path to ask for, with {url} and {size} for what the trace says [default: the trace's,
    /// or /]
    #[arg(long)]
    pub path: Option<String>,

    /// Seconds (or 10m, 2h, 1d) of the trace in one second
    #[arg(long, value_name = "N", default_value = "1", value_parser = time_s)]
    pub compress: f64,

    /// Where to begin, from the trace's first record: 90, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time_s)]
    pub start: f64,

    /// How much of the trace to replay [default: all]
    #[arg(long, value_name = "TIME", value_parser = time_s)]
    pub duration: Option<f64>,

    /// Requests for each of the trace's
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub scale: f64,

    /// Decides every draw: the same seed gives the same requests at the same times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Bad lines that are accepted in a trace
    #[arg(long, value_name = "N", default_value_t = BAD_LINES_MAX)]
    pub bad_lines_max: u64,

    /// Most requests in flight; those due beyond it wait, and their wait counts
    #[arg(long, value_name = "N", default_value_t = OUTSTANDING_MAX)]
    pub in_flight_max: usize,

    /// A request without a complete response for so long has failed
    #[arg(long, value_name = "MS", default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

pub(in crate::commands) fn format_named(name: &str) -> Result<Format, String> {
    let known = || Format::ALL.map(Format::name).join(", ");
    Format::named(name).ok_or_else(|| format!("known formats: {}", known()))
}

/// `90`, `1.5`, `10m`, `2h`, `1d`: seconds.
pub(in crate::commands) fn time_s(text: &str) -> Result<f64, String> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3_600.0), ('d', 86_400.0)];
    let unit = units.into_iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.trim_end_matches(unit), factor),
        None => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| "a time as 90, 10m, 2h or 1d".to_owned())?;
    Ok(number * factor)
}

/// `NAME` or `NAME=/PREFIX`.
fn site(text: &str) -> Result<(SiteTarget, SiteRule), CommandError> {
    let (host, prefix) = match text.split_once('=') {
        Some((host, prefix)) => (host, Some(prefix.to_owned())),
        None => (text, None),
    };
    if prefix.as_ref().is_some_and(|prefix| !prefix.starts_with('/')) {
        let text = format!("--host {text}: the prefix of a path begins with /");
        return Err(CommandError::Argument(text));
    }
    Ok((SiteTarget::host(host), SiteRule { prefix }))
}

pub(super) fn run(arguments: &TraceArguments, style: Style) -> Result<Output, CommandError> {
    let sites: Result<Vec<_>, _> = arguments.hosts.iter().map(|host| site(host)).collect();
    let (targets, rules): (Vec<SiteTarget>, Vec<SiteRule>) = sites?.into_iter().unzip();
    let hosts: Vec<String> = targets.iter().map(|target| target.host.clone()).collect();
    let interval_ns = arguments.interval_s * 1e9;
    if !(1e6..=1e15).contains(&interval_ns) {
        return Err(CommandError::Argument("--interval-s: 0.001 to 1,000,000".into()));
    }
    let window = TraceWindow {
        start_s: arguments.start,
        duration_s: arguments.duration,
        compress: arguments.compress,
        scale: arguments.scale,
        seed: arguments.seed,
    };
    let mut options = GeneratorOptions::new(arguments.to.clone(), targets);
    if let Some(path) = &arguments.path {
        // So that a path that is none is refused before anything is sent.
        options.path = path.replace("{url}", "/").replace("{size}", "0");
    }
    options.timeout = Duration::from_millis(arguments.timeout_ms);
    let mut generator = interruptible(options)?;
    let replay = Replay::start(ReplayOptions {
        traces: arguments.traces.clone(),
        format: arguments.format,
        interval_ns: interval_ns as u64,
        bad_lines_max: arguments.bad_lines_max,
        rules,
        path: arguments.path.clone(),
        window,
    })?;
    let length_ms = window.duration_s.map(|seconds| (seconds / window.compress * 1e3) as u64);
    let bar = with_bar(&mut generator, length_ms, style, elapsed_ms);
    let report = generator.replay(replay, arguments.in_flight_max).map_err(CommandError::Load)?;
    bar.finish_and_clear();
    let is_full = report.constant.peak_in_flight >= arguments.in_flight_max;
    told(report, &hosts, arguments.json, is_full)
}

fn told(
    report: ReplayReport,
    hosts: &[String],
    is_json: bool,
    is_full: bool,
) -> Result<Output, CommandError> {
    let ReplayReport { constant, traces } = report;
    let traces = traces?;
    let run = constant.run;
    let rows: Vec<Row<'_>> =
        hosts.iter().zip(&run.sites).map(|(host, tally)| Row { host, tally }).collect();
    let sum = |part: fn(&TraceSummary) -> u64| traces.iter().map(part).sum::<u64>();
    let extra = [
        ("late", constant.late),
        ("trace_lines", sum(|trace| trace.lines)),
        ("trace_bad_lines", sum(|trace| trace.bad_lines)),
        ("trace_unmatched", sum(|trace| trace.unmatched)),
    ];
    let mut output = result(&rows, run.seconds(), is_json, &extra)?;
    if !is_json {
        tell_late(&mut output, constant.late, is_full);
        for trace in &traces {
            tell_trace(&mut output, trace);
        }
    }
    Ok(output)
}

fn tell_trace(output: &mut Output, trace: &TraceSummary) {
    let TraceSummary { path, format, lines, bad_lines, first_bad, unmatched } = trace;
    let _ = write!(output.text, "{} ({format}): {lines} lines", path.display());
    if *bad_lines > 0 {
        let _ = write!(output.text, ", {bad_lines} bad");
    }
    if *unmatched > 0 {
        let _ = write!(output.text, ", {unmatched} requests for no site");
    }
    let _ = writeln!(output.text);
    for bad in first_bad {
        let _ = writeln!(output.text, "  line {}: {}: {}", bad.number, bad.why, bad.text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::LoadArguments;
    use super::*;
    use ::load::stub::{NodeOptions, StubOptions, StubServer};
    use clap::Parser;
    use serde_json::Value;
    use std::fs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArguments,
    }

    fn run_line(words: &[&str]) -> Result<Output, CommandError> {
        let line = Line::try_parse_from([&["load"], words].concat()).unwrap();
        super::super::run(&line.load, Style::PLAIN)
    }

    fn stub() -> (StubServer, String) {
        let options = StubOptions::every_site_on_every_node(vec![NodeOptions::named("n1")], &["s"]);
        let stub = StubServer::start(&options).unwrap();
        let to = stub.address("n1", "s").unwrap().to_string();
        (stub, to)
    }

    #[test]
    fn a_log_is_replayed_with_its_paths_and_its_bad_lines_are_named() {
        let (stub, to) = stub();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let line = |second: u32, path: &str| {
            let time = format!("17/May/2015:10:05:{second:02} +0000");
            format!("h - - [{time}] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"x\"\n")
        };
        let text: String = (0..20)
            .map(|second| match second {
                7 => "not a line\n".to_owned(),
                _ => line(second, if second % 2 == 0 { "/a/x" } else { "/b" }),
            })
            .collect();
        fs::write(&path, text).unwrap();
        let trace = path.display().to_string();
        let words =
            ["--trace", &trace, "--to", &to, "--host", "a=/a,rest", "--compress", "100", "--json"];
        let output = run_line(&words).unwrap();
        assert!(!output.has_failed, "{}", output.text);
        let result: Value = serde_json::from_str(&output.text).unwrap();
        assert_eq!((&result["ok"], &result["trace_bad_lines"]), (&19.into(), &1.into()));
        assert_eq!(result["sites"]["a"]["requests"], 10);
        assert_eq!(result["sites"]["rest"]["requests"], 9);
        assert_eq!(stub.node("n1").unwrap().record().served, 19);
        let output = run_line(&words[..8]).unwrap();
        assert!(output.text.contains("(log): 20 lines, 1 bad"), "{}", output.text);
        assert!(output.text.contains("line 8: no time in brackets"), "{}", output.text);
        let strict = [&words[..8], &["--bad-lines-max", "0"]].concat();
        assert!(matches!(run_line(&strict), Err(CommandError::Trace(_))));
    }

    #[test]
    fn columns_of_rates_are_sites_and_a_path_may_say_the_size() {
        let (_stub, to) = stub();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.csv");
        fs::write(&path, "time_s,shop,blog\n0,300,0\n1,0,300\n").unwrap();
        let trace = path.display().to_string();
        let words = ["--trace", &trace, "--to", &to, "--host", "shop,blog", "--compress", "4"];
        let more = ["--path", "/bytes/{size}", "--seed", "3", "--json"];
        let output = run_line(&[&words[..], &more].concat()).unwrap();
        let result: Value = serde_json::from_str(&output.text).unwrap();
        for site in ["shop", "blog"] {
            let requests = result["sites"][site]["requests"].as_u64().unwrap();
            assert!((220..380).contains(&requests), "{site}: {requests}");
        }
        assert_eq!(result["failed"], 0);
    }

    #[test]
    fn arguments_of_a_replay_do_not_mix_with_shapes() {
        let parse = |words: &[&str]| Line::try_parse_from([&["load"], words].concat());
        assert!(parse(&["--trace", "x"]).is_err(), "a host is missing");
        assert!(parse(&["--host", "x"]).is_err(), "a trace is missing");
        assert!(parse(&["--trace", "x", "--host", "a", "constant", "--host", "a"]).is_err());
        assert!(parse(&["--trace", "x", "--host", "a", "--format", "xml"]).is_err());
        assert!(parse(&["constant", "--host", "a", "--rate", "5"]).is_ok());
        let line = parse(&["--trace", "x", "--host", "a", "--start", "2h"]).unwrap();
        assert_eq!(line.load.trace.unwrap().start, 7_200.0);
        assert!(matches!(
            run_line(&["--trace", "/none", "--host", "a=b"]),
            Err(CommandError::Argument(_))
        ));
        assert!(matches!(
            run_line(&["--trace", "/none", "--host", "a"]),
            Err(CommandError::Trace(_))
        ));
        for (text, seconds) in [("90", 90.0), ("1.5m", 90.0), ("1d", 86_400.0), ("2s", 2.0)] {
            assert_eq!(time_s(text), Ok(seconds));
        }
        assert!(time_s("h").is_err() && time_s("5w").is_err());
    }
}
