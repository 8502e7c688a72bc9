//! Load generators of others, `wrk` and `h2load` from Debian: whoever doubts our own load may look
//! at theirs. What they print is read here.

use crate::children::{Process, pinned, timed_output};
use anyhow::{Context as _, bail};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The Debian package of each program that a figure needs.
const PACKAGES: [(&str, &str); 7] = [
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("openssl", "openssl"),
    ("timeout", "coreutils"),
    ("varnishd", "varnish"),
];

/// Where programs of administrators are, which the `PATH` of users lacks.
const ADMIN_FOLDER: &str = "/usr/sbin";

/// Where a program is.
pub(crate) fn find(program: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(ADMIN_FOLDER)]);
    let found = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
    found.with_context(|| {
        let package = PACKAGES.iter().find(|(name, _)| *name == program);
        let package = package.map_or(program, |(_, package)| package);
        format!("`{program}` is missing; it is in Debian's package {package}: ./test installs it")
    })
}

/// What a program says of its version.
pub(crate) fn version(program: &str) -> String {
    let argument = match program {
        "h2load" => "--version",
        "varnishd" => "-V",
        _ => "-v",
    };
    let output = find(program).ok().and_then(|path| Command::new(path).arg(argument).output().ok());
    let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    format!("{program} {}", version_in(&text).unwrap_or("of unknown version"))
}

/// The first word with a number: `nginx/1.22.1`, `2.6.12-1+deb12u4`, `debian/4.1.0-3+b2`,
/// `(varnish-7.1.1`.
fn version_in(text: &str) -> Option<&str> {
    let words = text.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let words = words.map(|word| word.trim_start_matches("(varnish-"));
    words.into_iter().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// How load reaches a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// HTTP/1.1 in plain text.
    Http1,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 in plain text, by prior knowledge.
    Http2,
}

/// One run of load.
#[derive(Clone, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) core: usize,
    pub(crate) address: SocketAddr,
    pub(crate) host: &'a str,
    /// Whole seconds for wrk.
    pub(crate) lasts: Duration,
    /// Further header lines, `Name: value`.
    pub(crate) headers: &'a [String],
}

/// What a load generator counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    /// Complete good answers.
    pub(crate) requests: u64,
    /// Everything that was no good answer.
    pub(crate) failed: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// As many requests as go over `connections` connections, one at a time on each, by `wrk`.
pub(crate) fn wrk(load: &Load<'_>, front: Front, connections: u32) -> anyhow::Result<Counted> {
    let scheme = if front == Front::Tls { "https" } else { "http" };
    let mut arguments = vec![
        "--latency".to_owned(),
        "-t1".to_owned(),
        format!("-c{connections}"),
        format!("-d{}s", load.lasts.as_secs()),
        "-H".to_owned(),
        format!("Host: {}", load.host),
    ];
    arguments.extend(load.headers.iter().flat_map(|line| ["-H".to_owned(), line.clone()]));
    arguments.push(format!("{scheme}://{}/1k", load.address));
    let text = output(load.core, "wrk", &arguments, load.lasts)?.context("wrk does not end")?;
    parse_wrk(&text).with_context(|| format!("wrk said:\n{text}"))
}

/// One run of `wrk` over a list of paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLoad<'a> {
    pub(crate) core: usize,
    pub(crate) address: SocketAddr,
    pub(crate) host: &'a str,
    pub(crate) seconds: u32,
    pub(crate) connections: u32,
    /// As [`write_paths`] made it.
    pub(crate) script: &'a Path,
}

/// How long a request may take: with 200 threads on the application's core it takes seconds.
const PATH_TIMEOUT_S: u32 = 60;

/// As many requests as go, each with the next path of the list; and the CPU time of `wrk`.
pub(crate) fn wrk_paths(load: &PathLoad<'_>) -> anyhow::Result<(Counted, Duration)> {
    let arguments = [
        "--latency".to_owned(),
        "-t1".to_owned(),
        format!("-c{}", load.connections),
        format!("-d{}s", load.seconds),
        format!("--timeout={PATH_TIMEOUT_S}s"),
        format!("-s{}", load.script.display()),
        format!("-HHost: {}", load.host),
        format!("http://{}/", load.address),
    ];
    let mut command = pinned(load.core, find("wrk")?, arguments)?;
    let timed = timed_output(command.stdin(Stdio::null())).context("wrk")?;
    let counted = parse_wrk(&timed.0).with_context(|| format!("wrk said:\n{}", timed.0))?;
    Ok((counted, timed.1))
}

/// Writes a list of paths and the program that makes `wrk` ask for them, in their order, over and
/// over; where that program is.
pub(crate) fn write_paths(folder: &Path, name: &str, paths: &[String]) -> anyhow::Result<PathBuf> {
    let (list, script) = (folder.join(format!("{name}.paths")), folder.join(format!("{name}.lua")));
    fs::write(&list, paths.join("\n"))?;
    let text = format!(
        "local requests, last = {{}}, 0\n\
         function init()\n  for path in io.lines({:?}) do\n    \
         requests[#requests + 1] = wrk.format(\"GET\", path)\n  end\nend\n\
         function request()\n  last = last % #requests + 1\n  return requests[last]\nend\n",
        list.display().to_string()
    );
    fs::write(&script, text)?;
    Ok(script)
}

/// Shape of an `h2load` run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct H2load {
    pub(crate) front: Front,
    pub(crate) connections: u32,
    /// Requests at a time on each connection.
    pub(crate) streams: u32,
    /// Requests per second of each connection; as many as go when none.
    pub(crate) rate: Option<u32>,
}

/// How often a load is begun. A connection of h2load that comes up only when its time is over, as
/// happens with short loads on a busy machine, goes on for ever.
const H2LOAD_RUNS_MAX: usize = 3;

/// How long a load generator may go on after its time: it waits for the last answers.
const END_WITHIN: Duration = Duration::from_secs(10);

/// What `timeout` ends with when it has killed its program.
const TIMEOUT_KILLED: i32 = 137;

/// Load by `h2load`; what it tells of each request is kept in `folder` meanwhile.
pub(crate) fn h2load(load: &Load<'_>, shape: H2load, folder: &Path) -> anyhow::Result<Counted> {
    let log = folder.join("h2load.log");
    let scheme = if shape.front == Front::Tls { "https" } else { "http" };
    let mut arguments = vec![
        "-t1".to_owned(),
        format!("-c{}", shape.connections),
        format!("-m{}", shape.streams),
        format!("-D{}ms", load.lasts.as_millis()),
        format!("--log-file={}", log.display()),
        format!("--header=:authority: {}", load.host),
    ];
    if shape.front != Front::Http2 {
        arguments.push("--h1".to_owned());
    }
    arguments.extend(shape.rate.map(|rate| format!("--rps={rate}")));
    arguments.push(format!("{scheme}://{}/1k", load.address));
    for _ in 0..H2LOAD_RUNS_MAX {
        // It appends.
        let _ = fs::remove_file(&log);
        let Some(text) = output(load.core, "h2load", &arguments, load.lasts)? else { continue };
        let times = fs::read_to_string(&log).unwrap_or_default();
        return parse_h2load(&text, &times).with_context(|| format!("h2load said:\n{text}"));
    }
    bail!("h2load does not end, {H2LOAD_RUNS_MAX} times")
}

/// The protocol and cipher that a TLS front agrees on with OpenSSL's defaults.
pub(crate) fn cipher(address: SocketAddr, host: &str) -> anyhow::Result<String> {
    let connect = address.to_string();
    let arguments = ["s_client", "-connect", &connect, "-servername", host, "-brief"];
    let found = Command::new(find("openssl")?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start openssl")?;
    // It tells on its standard error.
    let text = String::from_utf8_lossy(&found.stderr).into_owned();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    };
    let agreed = field("Protocol version").zip(field("Ciphersuite"));
    let (protocol, cipher) = agreed.with_context(|| format!("openssl said:\n{text}"))?;
    Ok(format!("{protocol} {cipher}"))
}

/// What a load generator of others printed; none if it had to be killed, long after its load
/// should have ended.
fn output(
    core: usize,
    program: &str,
    arguments: &[String],
    lasts: Duration,
) -> anyhow::Result<Option<String>> {
    let limit = format!("--signal=KILL {}", (lasts + END_WITHIN).as_secs());
    let limit = limit.split(' ').map(str::to_owned);
    let found = find(program)?.display().to_string();
    let arguments = limit.chain([found]).chain(arguments.iter().cloned());
    let mut command = pinned(core, find("timeout")?, arguments)?;
    let done = command.stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot start {program}"))?;
    if done.status.code().is_none_or(|code| code == TIMEOUT_KILLED) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let wrong = String::from_utf8_lossy(&done.stderr);
        bail!("{program} failed ({}):\n{text}{wrong}", done.status);
    }
    Ok(Some(text))
}

/// Starts a server of others on a core; its standard output goes nowhere, its errors to `log`.
pub(crate) fn server(
    core: usize,
    program: &str,
    arguments: &[String],
    log: &Path,
) -> anyhow::Result<Process> {
    let log = fs::File::create(log).context("cannot write a log")?;
    let mut command = pinned(core, find(program)?, arguments)?;
    Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
}

fn parse_wrk(text: &str) -> Option<Counted> {
    let after = |start: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(start));
        line.map(|rest| rest.trim().to_owned())
    };
    let total = text.lines().find_map(|line| line.trim().split_once(" requests in "))?.0;
    let total: u64 = total.parse().ok()?;
    let errors = |line: String| {
        let numbers = line.split(',').filter_map(|part| part.split_whitespace().last());
        numbers.filter_map(|number| number.parse::<u64>().ok()).sum()
    };
    let refused: u64 = after("Non-2xx or 3xx responses:").map_or(Some(0), |n| n.parse().ok())?;
    Some(Counted {
        requests: total.saturating_sub(refused),
        failed: refused + after("Socket errors:").map_or(0, errors),
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50_us: duration(&after("50%")?)?.as_secs_f64() * 1e6,
        p99_us: duration(&after("99%")?)?.as_secs_f64() * 1e6,
    })
}

/// A time as wrk writes it: `870.00us`, `1.21ms`, `2.00s`.
fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let value: f64 = text[..end].parse().ok()?;
    let unit_s = match &text[end..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(value * unit_s).ok()
}

fn parse_h2load(text: &str, times: &str) -> Option<Counted> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let number = |line: &str, name: &str| {
        let part = line.split(',').find(|part| part.trim().ends_with(name))?;
        part.split_whitespace().next()?.parse::<u64>().ok()
    };
    let requests = line("requests: ")?;
    let codes = line("status codes: ")?;
    let good = number(codes, "2xx")?;
    let bad: Option<u64> =
        ["3xx", "4xx", "5xx"].into_iter().map(|class| number(codes, class)).sum();
    let broken = number(requests, "failed")?.max(number(requests, "errored")?);
    let speed = line("finished in ")?.split(',').nth(1)?;
    let mut us: Vec<f64> =
        times.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    us.sort_by(f64::total_cmp);
    let at = |share: f64| us.get(((us.len().max(1) - 1) as f64 * share) as usize).copied();
    Some(Counted {
        requests: good,
        failed: bad? + broken,
        per_second: speed.trim().strip_suffix(" req/s")?.parse().ok()?,
        p50_us: at(0.5)?,
        p99_us: at(0.99)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  \
        Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.21ms  300us  9ms  \
        80%\n    Req/Sec    49k  1k  50k  60%\n  Latency Distribution\n     50%  870.00us\n     \
        75%    1.00ms\n     90%    1.30ms\n     99%    5.10ms\n  49783 requests in 1.10s, 60.00MB \
        read\n  Socket errors: connect 0, read 2, write 0, timeout 1\n  Non-2xx or 3xx responses: \
        5\nRequests/sec:  45237.82\nTransfer/sec:     55.00MB\n";

    #[test]
    fn what_wrk_says_is_read() {
        let counted = parse_wrk(WRK).unwrap();
        assert_eq!((counted.requests, counted.failed), (49_778, 8));
        assert!((counted.per_second - 45_237.82).abs() < 1e-6);
        assert!((counted.p50_us - 870.0).abs() < 1e-6 && (counted.p99_us - 5_100.0).abs() < 1e-6);
        let clean = WRK.replace("Socket errors", "x").replace("Non-2xx", "x");
        assert_eq!(parse_wrk(&clean).unwrap().failed, 0);
        assert_eq!(parse_wrk("unable to connect"), None);
        assert_eq!(duration("1.00h"), None);
    }

    #[test]
    fn what_h2load_says_is_read() {
        let text = "finished in 1.00s, 30012.50 req/s, 35.00MB/s\nrequests: 30010 total, 30070 \
                    started, 30010 done, 30007 succeeded, 3 failed, 3 errored, 0 timeout\nstatus \
                    codes: 30007 2xx, 0 3xx, 0 4xx, 0 5xx\ntraffic: 1MB\n";
        let times = "1\t200\t100\n2\t200\t300\n3\t200\t200\n";
        let counted = parse_h2load(text, times).unwrap();
        assert_eq!((counted.requests, counted.failed), (30_007, 3));
        assert!((counted.per_second - 30_012.5).abs() < 1e-6);
        assert!((counted.p50_us - 200.0).abs() < 1e-6);
        assert_eq!(parse_h2load(text, ""), None, "without times there is no percentile");
        assert_eq!(parse_h2load("", times), None);
    }

    #[test]
    fn versions_are_found() {
        assert_eq!(version_in("nginx version: nginx/1.22.1\n"), Some("1.22.1"));
        assert_eq!(
            version_in("HAProxy version 2.6.12-1+deb12u4 2026/10/17"),
            Some("2.6.12-1+deb12u4")
        );
        assert_eq!(version_in("varnishd (varnish-7.1.1 revision 7)"), Some("7.1.1"));
        assert_eq!(version_in("no number"), None);
        assert_eq!(version("no-such-program"), "no-such-program of unknown version");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = find("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program"), "{error}");
        assert!(find("sh").is_ok());
    }
}
