//! `polder site`: the settings of sites, looked at and set while the pool runs.

use super::admin::ANSWER_TIMEOUT;
use super::{CommandError, Output, control_socket, find_pool};
use crate::cli::{
    PoolArguments, SiteArguments, SiteCommand, SiteListArguments, SiteSetArguments,
    SiteShowArguments,
};
use crate::control::{
    self, Request, Response, SetSiteArguments, SiteSet, SiteSettings, SitesArguments,
};
use crate::terminal::{Paint, Style};
use serde_json::Value;
use std::fmt::Write as _;

/// Columns of a key in `site show`: the longest key, and a blank.
const KEY_COLUMNS: usize = 20;

pub(super) fn run(arguments: &SiteArguments, style: Style) -> Result<Output, CommandError> {
    match &arguments.command {
        SiteCommand::List(arguments) => list(arguments, style),
        SiteCommand::Show(arguments) => show(arguments, style),
        SiteCommand::Set(arguments) => set(arguments),
    }
}

fn ask(pool: &PoolArguments, site: Option<&str>) -> Result<Vec<SiteSettings>, CommandError> {
    let socket = control_socket(&find_pool(pool)?);
    let request = Request::Sites(SitesArguments { site: site.map(str::to_owned) });
    match control::ask(&socket, &request, ANSWER_TIMEOUT)? {
        Response::Sites(sites) => Ok(sites),
        _ => Err(CommandError::WrongAnswer),
    }
}

pub(super) fn as_json(value: &impl serde::Serialize) -> Result<Output, CommandError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CommandError::Io { doing: "writing JSON", cause: error.into() })?;
    Ok(Output::from(format!("{text}\n")))
}

fn list(arguments: &SiteListArguments, style: Style) -> Result<Output, CommandError> {
    let sites = ask(&arguments.pool, None)?;
    if arguments.json {
        return as_json(&sites);
    }
    Ok(Output::from(list_text(&sites, style)))
}

fn show(arguments: &SiteShowArguments, style: Style) -> Result<Output, CommandError> {
    let mut sites = ask(&arguments.pool, Some(&arguments.site))?;
    let site = sites.pop().ok_or(CommandError::WrongAnswer)?;
    if arguments.json {
        return as_json(&site);
    }
    Ok(Output::from(show_text(&site, style)))
}

fn set(arguments: &SiteSetArguments) -> Result<Output, CommandError> {
    let SiteSetArguments { site, keys, dry_run, save, json, pool } = arguments;
    let socket = control_socket(&find_pool(pool)?);
    let (site, keys) = (site.clone(), keys.clone());
    let set = SetSiteArguments { site, keys, dry_run: *dry_run, save: *save };
    match control::ask(&socket, &Request::SetSite(set), ANSWER_TIMEOUT)? {
        Response::SiteSet(done) if *json => as_json(&done),
        Response::SiteSet(SiteSet { text, .. }) => Ok(Output::from(format!("{text}\n"))),
        _ => Err(CommandError::WrongAnswer),
    }
}

/// A line for each site: its promises, its hosts, and how many keys differ from the file.
fn list_text(sites: &[SiteSettings], style: Style) -> String {
    let columns = sites.iter().map(|site| site.name.len()).max().unwrap_or(0).max("SITE".len());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:columns$}  HARD   MAX  SET  HOSTS", "SITE");
    for site in sites {
        let key = |name: &str| site.keys.get(name).map_or("-".to_owned(), Value::to_string);
        let hosts = site.keys.get("hosts").and_then(Value::as_array);
        let hosts = hosts.into_iter().flatten().filter_map(Value::as_str);
        let hosts = hosts.collect::<Vec<_>>().join(" ");
        let set = format!("{:>3}", site.differs.len());
        let set = match site.differs.is_empty() {
            true => set,
            false => style.paint(Paint::Yellow, &set),
        };
        let (name, hard, max) = (&site.name, key("hard"), key("max"));
        let _ = writeln!(text, "{name:columns$}  {hard:>4}  {max:>4}  {set}  {hosts}");
    }
    text
}

/// All keys of a site as a settings file has them, and where that file says otherwise.
fn show_text(site: &SiteSettings, style: Style) -> String {
    let mut text = String::new();
    let mut put = |key: &str, value: &str| {
        let change = site.differs.iter().find(|change| change.key == key);
        let _ = write!(text, "{key:<KEY_COLUMNS$}= {value}");
        if let Some(change) = change {
            let from = change.from.as_deref().unwrap_or("not set");
            let note = format!("# until the next reload; the file says {from}");
            let _ = write!(text, "   {}", style.paint(Paint::Yellow, &note));
        }
        text.push('\n');
    };
    for (key, value) in &site.keys {
        put(key, &toml_text(value));
    }
    for change in site.differs.iter().filter(|change| change.to.is_none()) {
        put(&change.key, "# not set");
    }
    text
}

/// A value as it stands in a settings file.
fn toml_text(value: &Value) -> String {
    match toml::Value::try_from(value) {
        Ok(value) => value.to_string(),
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::KeyChange;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn site(name: &str, differs: Vec<KeyChange>) -> SiteSettings {
        let keys = BTreeMap::from([
            ("hosts".to_owned(), json!(["a.example", "b.example"])),
            ("hard".to_owned(), json!(3)),
            ("check".to_owned(), json!({ "tcp": true })),
        ]);
        SiteSettings { name: name.to_owned(), keys, differs }
    }

    fn change(key: &str, from: Option<&str>, to: Option<&str>) -> KeyChange {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        KeyChange { site: "shop".into(), key: key.into(), from: owned(from), to: owned(to) }
    }

    #[test]
    fn a_list_names_promises_hosts_and_what_was_set() {
        let sites = [site("shop", vec![change("hard", Some("1"), Some("3"))]), site("a", vec![])];
        let text = list_text(&sites, Style::PLAIN);
        assert_eq!(
            text,
            "SITE  HARD   MAX  SET  HOSTS\n\
             shop     3     -    1  a.example b.example\n\
             a        3     -    0  a.example b.example\n"
        );
    }

    #[test]
    fn a_site_is_shown_as_a_file_would_say_it() {
        let differs = vec![change("hard", Some("1"), Some("3")), change("max", Some("7"), None)];
        let text = show_text(&site("shop", differs), Style::PLAIN);
        assert_eq!(
            text,
            "check               = { tcp = true }\n\
             hard                = 3   # until the next reload; the file says 1\n\
             hosts               = [\"a.example\", \"b.example\"]\n\
             max                 = # not set   # until the next reload; the file says 7\n"
        );
    }
}
