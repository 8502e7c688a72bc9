//! `polder check FILE`.

use super::shares::{Share, shares};
use super::{CommandError, Output};
use crate::cli::CheckArguments;
use crate::settings::{Checked, Problems, Reads, Settings, SettingsError, Site};
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Checks a settings file. Its mistakes are the error; a summary and warnings are the output.
pub(super) fn run(arguments: &CheckArguments) -> Result<Output, CommandError> {
    let file = super::settings_file(arguments.settings.file.as_deref())?;
    let checked = crate::settings::load(&file, &arguments.settings.overrides);
    match checked {
        Ok(Checked { settings, warnings }) => {
            let text = if arguments.json {
                as_json(Some(&settings), &warnings)
            } else if arguments.show {
                settings.to_toml()
            } else {
                summary(&file.display().to_string(), &settings)
            };
            let aside = if arguments.json { String::new() } else { warnings.to_string() };
            Ok(Output { text, aside, has_failed: false })
        }
        Err(SettingsError::Wrong { problems, .. }) if arguments.json => {
            Err(CommandError::SettingsJson(as_json(None, &problems)))
        }
        Err(error) => Err(CommandError::Settings(error)),
    }
}

/// The settings are none where they can't be used.
fn as_json(settings: Option<&Settings>, problems: &Problems) -> String {
    let mut report = serde_json::json!({ "fine": settings.is_some(), "problems": problems.0 });
    if let Some((settings, shares)) = settings.and_then(|one| Some((one, shares_of(one)?))) {
        let site = |(site, share): (&Site, Share)| {
            let Share { alone, all_loaded } = share;
            serde_json::json!({ "name": site.name, "alone": alone, "all_loaded": all_loaded })
        };
        report["sites"] = settings.sites.iter().zip(shares).map(site).collect();
    }
    format!("{report}\n")
}

/// Who gets what under load, by the pool's policy.
fn shares_of(settings: &Settings) -> Option<Vec<Share>> {
    // The thresholds of settings that were checked are in order.
    let policy = crate::pool::policy(settings).ok()?;
    shares(settings, &*policy)
}

fn summary(file: &str, settings: &Settings) -> String {
    let mut text = format!(
        "{file} is fine: {}, {}, {}. Settings hash {}.\n",
        counted(settings.sites.len(), "site"),
        counted(settings.nodes.len(), "node"),
        counted(settings.edges.len(), "edge"),
        settings.pool_hash(),
    );
    let width = settings.sites.iter().map(|site| site.name.len()).max().unwrap_or(0);
    for site in &settings.sites {
        let max = match site.terms.guarantee.max {
            u16::MAX => "any number".to_owned(),
            max => format!("at most {max}"),
        };
        let hard = site.terms.guarantee.hard;
        let _ = writeln!(
            text,
            "  {:width$}  starts with {}, never below {hard}, {max}",
            site.name,
            counted(usize::from(site.nodes), "node"),
        );
    }
    let free = settings.first_assignment().iter().filter(|site| site.is_none()).count();
    if free > 0 {
        let _ = writeln!(text, "  {} free at the start", counted(free, "node"));
    }
    if settings.sites.len() > 1 {
        text.push_str(&under_load(settings));
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Who gets what under load, in the order of priorities.
fn under_load(settings: &Settings) -> String {
    let Some(shares) = shares_of(settings) else { return String::new() };
    let mut rows: Vec<(&Site, Share)> = settings.sites.iter().zip(shares).collect();
    rows.sort_by_key(|(site, _)| Reverse(site.terms.priority));
    let name = settings.pool.policy.name();
    let mut text = format!("Nodes of a loaded site, by policy `{name}`:\n");
    let width = rows.iter().map(|(site, _)| site.name.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(text, "  {:width$}  PRIORITY  HARD  SOFT  MAX  ALONE  ALL LOADED", "SITE");
    for (site, share) in &rows {
        let (terms, guarantee) = (&site.terms, site.terms.guarantee);
        let max =
            if guarantee.max == u16::MAX { "-".to_owned() } else { guarantee.max.to_string() };
        let _ = writeln!(
            text,
            "  {:width$}  {:>8}  {:>4}  {:>4}  {max:>3}  {:>5}  {:>10}",
            site.name,
            terms.priority.0,
            guarantee.hard,
            guarantee.soft,
            share.alone,
            share.all_loaded
        );
    }
    let soft: usize = rows.iter().map(|(site, _)| usize::from(site.terms.guarantee.soft)).sum();
    let nodes = settings.nodes.len();
    if soft > nodes && Reads::of(settings.pool.policy).soft {
        let _ = writeln!(
            text,
            "`soft` sums up to {soft}, and there are {nodes} nodes: when all are loaded, not every \
             site has its own, and those with the larger priority have it first."
        );
    }
    text
}
