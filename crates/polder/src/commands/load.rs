//! `polder load`: requests to edges, each counted once.

mod trace;

pub use trace::TraceArguments;
pub(super) use trace::{format_named, time_s};

use super::interrupt::Interrupt;
use super::{CommandError, Output};
use crate::terminal::Style;
use ::load::generate::{
    BurstReport, ConstantOptions, Generator, GeneratorOptions, IN_FLIGHT_DEFAULT, OUTSTANDING_MAX,
    Progress, SiteTarget, Spacing, Tally,
};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// How often the bar moves.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

const TRACES: &str = "\
Traces, recognised by their beginning or named by --format:
  log       access logs of web servers, common or combined
  requests  tab-separated, with a header that has time (seconds), url and perhaps bytes
  tokens    TIMESTAMP,ContextTokens,GeneratedTokens (Azure LLM inference)
  binary    records of 20 bytes (World Cup 1998)
  ends      app,func,end_timestamp,duration (Azure Functions 2021)
  minutes   timestamp,num_request,size of each minute (World Cup 1998)
  rates     time_s,NAME,NAME...: requests of each interval, a column for each site
  counts    requests of each interval, separated by white space (NASA, Twitter)
  functions invocations of each minute, a line for each function (Azure Functions 2019)
The first five leave as recorded; of the others each interval becomes a Poisson process of its
rate. All requests are GET.

Examples:
  polder load --trace access.log.gz --host shop.localhost --compress 1h
  polder load --trace conv.csv --trace code.csv --host a.localhost,b.localhost --compress 60
  polder load --trace worldcup.csv.gz --start 68d --duration 6h --compress 10m --scale 0.1 \\
      --host shop.localhost";

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = TRACES
)]
pub struct LoadArguments {
    /// The shape of the load.
    #[command(subcommand)]
    pub shape: Option<Shape>,

    /// Recorded load instead.
    #[command(flatten)]
    pub trace: Option<TraceArguments>,
}

/// The shapes of load.
#[derive(Debug, Subcommand)]
pub enum Shape {
    /// Requests at set times, answered or not; latency counts from the set time
    Constant(Constant),
    /// Bursts to one site after the other, a set number of requests in flight
    Burst(Burst),
}

/// Where requests go.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Addresses of edges; connections are spread over them
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',')]
    pub to: Vec<SocketAddr>,

    /// Host names of sites, which get requests in turn
    #[arg(long = "host", value_name = "NAME", required = true, value_delimiter = ',')]
    pub hosts: Vec<String>,

    /// The path to ask for
    #[arg(long, default_value = "/")]
    pub path: String,

    /// A request without a complete response for so long has failed
    #[arg(long, value_name = "MS", default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `load constant`.
#[derive(Debug, Args)]
pub struct Constant {
    /// Where to.
    #[command(flatten)]
    pub target: Target,

    /// Requests per second, all sites together
    #[arg(long, value_name = "N")]
    pub rate: f64,

    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,

    /// Most requests in flight; those due beyond it wait, and their wait counts
    #[arg(long, value_name = "N", default_value_t = OUTSTANDING_MAX)]
    pub in_flight_max: usize,
}

/// Arguments of `load burst`.
#[derive(Debug, Args)]
pub struct Burst {
    /// Where to.
    #[command(flatten)]
    pub target: Target,

    /// Requests of one burst
    #[arg(long, value_name = "N", default_value_t = 4_096,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub requests: u64,

    /// How often each site gets a burst
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,

    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = IN_FLIGHT_DEFAULT)]
    pub in_flight: usize,
}

/// Runs the load. Blocks until the last response, or until Ctrl-C and the last response after it.
pub(super) fn run(arguments: &LoadArguments, style: Style) -> Result<Output, CommandError> {
    match (&arguments.shape, &arguments.trace) {
        (Some(Shape::Constant(constant)), _) => run_constant(constant, style),
        (Some(Shape::Burst(burst)), _) => run_bursts(burst, style),
        (None, Some(replayed)) => trace::run(replayed, style),
        (None, None) => Err(CommandError::Argument("load needs a shape, or --trace FILE".into())),
    }
}

fn generator(target: &Target, in_flight: usize) -> Result<Generator, CommandError> {
    let sites = target.hosts.iter().map(SiteTarget::host).collect();
    let mut options = GeneratorOptions::new(target.to.clone(), sites);
    options.path.clone_from(&target.path);
    options.timeout = Duration::from_millis(target.timeout_ms);
    options.in_flight = in_flight;
    interruptible(options)
}

/// A generator that Ctrl-C stops.
fn interruptible(options: GeneratorOptions) -> Result<Generator, CommandError> {
    let cancel = options.cancel.clone();
    Interrupt::new()?.on_signal(move || cancel.cancel())?;
    Generator::new(options).map_err(CommandError::Load)
}

/// A bar on standard error, where somebody watches; `position` says how far a run is. Without a
/// length it shows that it moves.
fn with_bar(
    generator: &mut Generator,
    length: Option<u64>,
    style: Style,
    mut position: impl FnMut(&Progress<'_>) -> u64 + 'static,
) -> ProgressBar {
    if !style.is_terminal {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), "{bar:40} {percent:>3} %  {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {elapsed}  {msg}"),
    };
    if let Ok(look) = ProgressStyle::with_template(template) {
        bar.set_style(look);
    }
    let moved = bar.clone();
    let show = move |progress: &Progress<'_>| {
        let mut recent = ::load::stats::Latency::default();
        progress.recent.iter().for_each(|latency| recent.add(latency));
        let failed: u64 = progress.sites.iter().map(|tally| tally.failures.total()).sum();
        moved.set_message(format!(
            "p50 {}, p99 {}, failed {failed}",
            time(recent.p50_us()),
            time(recent.p99_us())
        ));
        moved.set_position(position(progress));
    };
    generator.on_progress(PROGRESS_EVERY, Box::new(show));
    bar
}

fn elapsed_ms(progress: &Progress<'_>) -> u64 {
    progress.elapsed_ns / 1_000_000
}

fn run_constant(constant: &Constant, style: Style) -> Result<Output, CommandError> {
    if !(constant.seconds > 0.0 && constant.seconds <= 1e6) {
        return Err(CommandError::Argument("--seconds: between 0 and 1,000,000".into()));
    }
    let duration = Duration::from_secs_f64(constant.seconds);
    let hosts = &constant.target.hosts;
    let mut generator = generator(&constant.target, IN_FLIGHT_DEFAULT)?;
    let length = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let bar = with_bar(&mut generator, Some(length), style, elapsed_ms);
    let options = ConstantOptions {
        rate_per_second: constant.rate,
        duration,
        sites: (0..hosts.len()).collect(),
        outstanding_max: constant.in_flight_max,
        spacing: Spacing::Even,
    };
    let report = generator.constant(&options).map_err(CommandError::Load)?;
    bar.finish_and_clear();
    let rows: Vec<Row<'_>> =
        hosts.iter().zip(&report.run.sites).map(|(host, tally)| Row { host, tally }).collect();
    let (seconds, late) = (report.run.seconds(), report.late);
    let mut output = result(&rows, seconds, constant.target.json, &[("late", late)])?;
    if !constant.target.json {
        let is_full = report.peak_in_flight >= constant.in_flight_max;
        tell_late(&mut output, late, is_full);
    }
    Ok(output)
}

/// `is_full`: as many requests were in flight as may be.
fn tell_late(output: &mut Output, late: u64, is_full: bool) {
    if late > 0 {
        let why = if is_full {
            "as many were in flight as --in-flight-max allows"
        } else {
            "this machine was too busy to send them in time"
        };
        let _ = writeln!(output.text, "{late} requests left late: {why}");
    }
}

fn run_bursts(burst: &Burst, style: Style) -> Result<Output, CommandError> {
    let hosts = &burst.target.hosts;
    let mut generator = generator(&burst.target, burst.in_flight)?;
    let bursts = u64::from(burst.rounds).saturating_mul(hosts.len() as u64);
    let done = std::rc::Rc::new(std::cell::Cell::new(0u64));
    let done_before = std::rc::Rc::clone(&done);
    let length = bursts.saturating_mul(burst.requests);
    let bar = with_bar(&mut generator, Some(length), style, move |progress| {
        let present: u64 = progress.sites.iter().map(|tally| tally.requests).sum();
        done_before.get() + present
    });
    let mut tallies = vec![Tally::default(); hosts.len()];
    let mut seconds = 0.0;
    let places: Vec<usize> = (0..hosts.len()).collect();
    let mut after_each = |report: &BurstReport| {
        done.set(done.get() + report.tally.requests);
        tallies[report.site].merge(&report.tally);
        seconds += report.seconds();
    };
    let rounds = usize::try_from(burst.rounds).unwrap_or(usize::MAX);
    generator
        .rotate(&places, burst.requests, rounds, &mut after_each)
        .map_err(CommandError::Load)?;
    bar.finish_and_clear();
    let rows: Vec<Row<'_>> =
        hosts.iter().zip(&tallies).map(|(host, tally)| Row { host, tally }).collect();
    result(&rows, seconds, burst.target.json, &[])
}

struct Row<'a> {
    host: &'a str,
    tally: &'a Tally,
}

/// The result as text or JSON. Failed requests fail the command, so that a script notices.
fn result(
    rows: &[Row<'_>],
    seconds: f64,
    is_json: bool,
    extra: &[(&str, u64)],
) -> Result<Output, CommandError> {
    let mut total = Tally::default();
    rows.iter().for_each(|row| total.merge(row.tally));
    if !total.adds_up() {
        return Err(CommandError::Argument("the generator lost count of its requests".into()));
    }
    let text = if is_json {
        let mut object = json_of(&total, seconds);
        let sites = rows.iter().map(|row| (row.host.to_owned(), json_of(row.tally, seconds)));
        object["sites"] = Value::Object(sites.collect());
        for (name, value) in extra {
            object[*name] = (*value).into();
        }
        format!("{object}\n")
    } else {
        table(rows, &total, seconds)
    };
    Ok(Output { text, aside: String::new(), has_failed: total.failures.total() > 0 })
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn json_of(tally: &Tally, seconds: f64) -> Value {
    json!({
        "requests": tally.requests,
        "ok": tally.ok,
        "failed": tally.failures.total(),
        "failures": tally.failures.to_string(),
        "seconds": seconds,
        "ok_per_s": per_second(tally.ok, seconds),
        "latency_us_p50": tally.latency.p50_us(),
        "latency_us_p99": tally.latency.p99_us(),
        "latency_us_p999": tally.latency.p999_us(),
        "latency_us_max": tally.latency.max_us(),
    })
}

fn table(rows: &[Row<'_>], total: &Tally, seconds: f64) -> String {
    let width = rows.iter().map(|row| row.host.chars().count()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  FAILED\n",
        "HOST", "REQUESTS", "OK/S", "P50", "P99", "MAX"
    );
    let all = Row { host: "total", tally: total };
    let with_total = if rows.len() > 1 { Some(&all) } else { None };
    for Row { host, tally } in rows.iter().chain(with_total) {
        let latency = &tally.latency;
        let _ = writeln!(
            text,
            "{host:width$}  {:>9}  {:>9.0}  {:>9}  {:>9}  {:>9}  {}",
            tally.requests,
            per_second(tally.ok, seconds),
            time(latency.p50_us()),
            time(latency.p99_us()),
            time(latency.max_us()),
            tally.failures,
        );
    }
    let _ = writeln!(text, "in {seconds:.2} s");
    text
}

fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::load::stub::{NodeOptions, StubOptions, StubServer};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArguments,
    }

    fn run_line(words: &[&str]) -> Result<Output, CommandError> {
        let line = Line::try_parse_from([&["load"], words].concat()).unwrap();
        run(&line.load, Style::PLAIN)
    }

    fn stub() -> StubServer {
        let options = StubOptions::every_site_on_every_node(vec![NodeOptions::named("n1")], &["s"]);
        StubServer::start(&options).unwrap()
    }

    #[test]
    fn a_burst_is_counted() {
        let stub = stub();
        let to = stub.address("n1", "s").unwrap().to_string();
        let line = ["burst", "--to", &to, "--host", "a,b", "--requests", "20", "--rounds", "2"];
        let output = run_line(&line).unwrap();
        assert!(!output.has_failed);
        let words: Vec<Vec<&str>> =
            output.text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1][..2], ["a", "40"]);
        assert_eq!(words[3][..2], ["total", "80"]);
        assert_eq!(stub.node("n1").unwrap().record().served, 80);
    }

    #[test]
    fn a_constant_load_speaks_json() {
        let stub = stub();
        let to = stub.address("n1", "s").unwrap().to_string();
        let line =
            ["constant", "--to", &to, "--host", "a", "--rate", "200", "--seconds", "0.2", "--json"];
        let output = run_line(&line).unwrap();
        let result: Value = serde_json::from_str(&output.text).unwrap();
        assert_eq!(result["ok"], 40);
        assert_eq!(result["sites"]["a"]["requests"], 40);
        assert!(result["latency_us_p50"].as_u64().unwrap() >= 2_000, "{result}");
    }

    #[test]
    fn failures_fail_the_command() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = free.local_addr().unwrap().to_string();
        drop(free);
        let output = run_line(&["burst", "--to", &to, "--host", "a", "--requests", "3"]).unwrap();
        assert!(output.has_failed);
        assert!(output.text.contains("3 (3 connect)"), "{}", output.text);
    }

    #[test]
    fn times_are_short() {
        assert_eq!((&*time(999), &*time(1_500), &*time(2_000_000)), ("999 us", "1.5 ms", "2.00 s"));
    }
}
