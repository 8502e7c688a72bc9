//! Before load comes: caches are filled, and each answers as it should.

use super::mixes::{Mix, page, paths};
use super::peers::Target;
use super::plan::Scheme;
use crate::ask::{Answer, Question, ask};
use anyhow::ensure;
use load::generate::{Generator, GeneratorOptions, SiteTarget};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests at a time while caches are filled.
const FILL_IN_FLIGHT: usize = 16;
/// A single page, with nothing else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks for each path once.
pub(super) fn fill(
    scheme: Scheme,
    address: SocketAddr,
    host: &str,
    all: &[String],
) -> anyhow::Result<()> {
    if matches!(scheme, Scheme::StrictTcp | Scheme::StrictTcpFifo) {
        // While an edge seeks the table over TCP, answers are not kept.
        let deadline = Instant::now() + PATIENCE;
        while !is_hit(&get(address, host, &page(1))?) {
            ensure!(Instant::now() < deadline, "the version table is not read over TCP");
        }
    }
    let mut options = GeneratorOptions::new(vec![address], vec![SiteTarget::host(host)]);
    options.paths = all.to_vec();
    options.in_flight = FILL_IN_FLIGHT;
    let report = Generator::new(options)?.burst(0, all.len() as u64)?;
    let failed = report.tally.failures.total();
    ensure!(failed == 0, "{failed} of {} pages failed: {}", all.len(), report.tally.failures);
    Ok(())
}

/// Whether an edge says that it answered from its cache.
fn is_hit(answer: &Answer) -> bool {
    answer.header("cache-status").is_some_and(|status| status.contains("; hit"))
}

fn get(address: SocketAddr, host: &str, path: &str) -> anyhow::Result<Answer> {
    let answer =
        ask(&Question { address, method: "GET", host, path, headers: &[], patience: PATIENCE })?;
    ensure!(answer.status == 200, "{path} was answered {}", answer.status);
    Ok(answer)
}

/// Whether it answers as its scheme says: from its cache, or not.
pub(super) fn check(scheme: Scheme, target: &Target) -> anyhow::Result<()> {
    let path = if scheme == Scheme::NginxStatic { static_path(1) } else { page(1) };
    for &edge in &target.addresses {
        let answer = get(edge, &target.host, &path)?;
        ensure!(answer.header("content-length").is_some(), "it answers without a length");
        let says = |name, what: &str| answer.header(name).is_some_and(|text| text.contains(what));
        let is_right = match scheme {
            Scheme::NoCache => !is_hit(&answer),
            Scheme::Strict | Scheme::StrictTcp | Scheme::StrictTcpFifo => {
                is_hit(&answer) && says("cache-status", "linearizable")
            }
            Scheme::Unvalidated => is_hit(&answer),
            Scheme::NginxAsks => says("x-cache", "REVALIDATED"),
            Scheme::NginxHit => says("x-cache", "HIT"),
            // The number of this request, and that of the one that fetched the page.
            Scheme::VarnishHit => says("x-varnish", " "),
            Scheme::VarnishAsks => !says("x-varnish", " "),
            Scheme::NginxStatic => true,
        };
        ensure!(is_right, "it answers otherwise than it should: {:?}", answer.headers());
    }
    Ok(())
}

fn static_path(id: usize) -> String {
    format!("/{id}.html")
}

/// Writes pages as files; their paths in the order in which pages are asked for.
pub(super) fn write_files(folder: &Path, application: SocketAddr) -> anyhow::Result<Vec<String>> {
    fs::create_dir(folder)?;
    let body = get(application, "localhost", &page(1))?.body;
    let all = paths(Mix::Pages)?;
    let file = |path: &String| {
        let id = path.rsplit('=').next().and_then(|id| id.parse().ok()).unwrap_or(1);
        static_path(id)
    };
    for path in &all.all {
        fs::write(folder.join(file(path).trim_start_matches('/')), &body)?;
    }
    Ok(all.asked.iter().map(file).collect())
}
