//! `polder check FILE`.

use super::{CommandError, Output};
use crate::cli::CheckArguments;
use crate::settings::{Checked, Problems, Settings, SettingsError};
use std::fmt::Write as _;

/// Checks a settings file. Its mistakes are the error; a summary and warnings are the output.
pub(super) fn run(arguments: &CheckArguments) -> Result<Output, CommandError> {
    let file = super::settings_file(arguments.settings.file.as_deref())?;
    let checked = crate::settings::load(&file, &arguments.settings.overrides);
    match checked {
        Ok(Checked { settings, warnings }) => {
            let text = if arguments.json {
                as_json(true, &warnings)
            } else if arguments.show {
                settings.to_toml()
            } else {
                summary(&file.display().to_string(), &settings)
            };
            let aside = if arguments.json { String::new() } else { warnings.to_string() };
            Ok(Output { text, aside, has_failed: false })
        }
        Err(SettingsError::Wrong { problems, .. }) if arguments.json => {
            Err(CommandError::SettingsJson(as_json(false, &problems)))
        }
        Err(error) => Err(CommandError::Settings(error)),
    }
}

fn as_json(fine: bool, problems: &Problems) -> String {
    let report = serde_json::json!({ "fine": fine, "problems": problems.0 });
    format!("{report}\n")
}

fn summary(file: &str, settings: &Settings) -> String {
    let counted = |count: usize, what: &str| {
        if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
    };
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
    text
}
