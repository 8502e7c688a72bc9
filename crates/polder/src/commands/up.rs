//! `polder up`: a whole pool from one settings file.

use super::{CommandError, Output, settings_file};
use crate::cli::SettingsArguments;
use crate::pool::up::{self, UpOptions, Watcher};
use crate::settings::{self, Settings};
use crate::status::StatusReport;
use crate::terminal::{Paint, Style};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Runs the pool until SIGTERM, SIGINT or `stop`. Blocks; tells on standard output when it is
/// ready.
pub(super) fn run(
    arguments: &SettingsArguments,
    log_level: Option<&str>,
    style: Style,
) -> Result<Output, CommandError> {
    let file = settings_file(arguments.file.as_deref())?;
    let text = settings::read_text(&file)?;
    let checked = settings::check_text(&file, &text, &arguments.overrides)?;
    let warnings = checked.warnings.to_string();
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
    let io = |doing, cause| CommandError::Io { doing, cause };
    let options = UpOptions {
        file: std::path::absolute(&file).map_err(|e| io("finding the settings file", e))?,
        text,
        overrides: arguments.overrides.clone(),
        log_level: log_level.map(str::to_owned),
        program: std::env::current_exe().map_err(|e| io("finding this program", e))?,
    };
    let mut teller = Teller { settings: checked.settings.clone(), style };
    up::run(&checked.settings, &options, &mut teller)
        .map_err(|error| CommandError::Pool(format!("{error:#}")))?;
    Ok(Output::default())
}

/// Tells a person what goes on.
struct Teller {
    settings: Settings,
    style: Style,
}

/// Prints; a reader that is gone is no reason to stop a pool.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

impl Watcher for Teller {
    fn ready(&mut self, report: &StatusReport, missing: &[String], after: Duration) {
        say(&ready_text(&self.settings, report, missing, after, self.style));
    }

    fn stopping(&mut self) {
        say("Draining: requests in flight finish, then the servers stop.\n");
    }
}

fn ready_text(
    settings: &Settings,
    report: &StatusReport,
    missing: &[String],
    after: Duration,
    style: Style,
) -> String {
    let mut text = String::new();
    let name = &settings.pool.name;
    let (sites, nodes) = (settings.sites.len(), settings.nodes.len());
    let state = if missing.is_empty() {
        style.paint(Paint::Green, "is ready")
    } else {
        style.paint(Paint::Yellow, "is up, but not complete")
    };
    let seconds = after.as_secs_f64();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Pool {name} {state} after {seconds:.1} s: {sites} sites on {nodes} nodes, {} edges.",
        report.edges.len()
    );
    for what in missing {
        let _ = writeln!(text, "  missing: {what}");
    }
    let first = report.edges.iter().flat_map(|edge| &edge.listen).next();
    let is_tls = settings.edges.first().is_some_and(|edge| edge.listen.is_empty());
    for (site, seen) in settings.sites.iter().zip(&report.sites) {
        let host = site.hosts.first().map_or("", String::as_str);
        let (name, nodes) = (&site.name, seen.nodes);
        let try_it = first.map_or_else(String::new, |address| match is_tls {
            false => format!("   curl -H 'Host: {host}' http://{address}/"),
            true => format!("   curl -k --connect-to ::{address} https://{host}/"),
        });
        let _ = writeln!(text, "  {name:<16} {nodes:>3} nodes{try_it}");
    }
    if let Some(metrics) = &report.pool.metrics {
        let _ = writeln!(text, "Metrics: http://{metrics}/metrics");
    }
    let _ = writeln!(text, "Look at it with `polder status --watch`; Ctrl-C drains and stops it.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    #[test]
    fn a_ready_pool_says_where_it_is_and_what_to_do() {
        let text = "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\n\
                    [[nodes]]\nname = 'n1'\nservers = { shop = '127.0.0.1:9001' }\n";
        let settings = settings::parse("x.toml", text, &[]).unwrap().settings;
        let after = Duration::from_millis(1_234);
        let told = ready_text(&settings, &example(), &[], after, Style::PLAIN);
        assert!(told.starts_with("Pool pool is ready after 1.2 s: 1 sites on 1 nodes"), "{told}");
        assert!(told.contains("curl -H 'Host: shop.localhost' http://127.0.0.1:8080/"), "{told}");
        assert!(told.contains("http://127.0.0.1:9100/metrics"), "{told}");
        let missing = ["node n1 is waiting".to_owned()];
        let told = ready_text(&settings, &example(), &missing, after, Style::PLAIN);
        assert!(told.contains("not complete") && told.contains("missing: node n1"), "{told}");
    }
}
