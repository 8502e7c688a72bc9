//! `polder site`: keys of one site, looked at and set while the pool runs.
//!
//! A set goes the way of a reload: the same reader, the same checks, the same typed changes, a yes
//! of each edge before anything changes. It starts from what the file said when it was read last,
//! so that an edit that is not finished takes no part, and it lasts until the file is read again.

use super::guarantee::Kept;
use super::parent::Parent;
use super::reload::{ANSWER_WITHIN, Origin, Plan, unusable};
use super::save;
use crate::control::{
    Code, Refusal, Response, SetSiteArguments, SiteSet, SiteSettings, SitesArguments,
};
use crate::settings::{self, KeyChange, Live, Settings, Site, did_you_mean, one_of};
use pool_model::SiteId;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a set waits for the end of another change. Most take milliseconds.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Between two tries.
const TURN_POLL: Duration = Duration::from_millis(5);

impl Parent {
    /// The settings in force of one site, or of all.
    pub(super) fn sites(&self, arguments: &SitesArguments) -> Result<Response, Refusal> {
        let settings = self.settings();
        let wanted = arguments.site.as_deref().map(|name| known(&settings, name)).transpose()?;
        let differs = self.differs();
        let told = |site: &Site| SiteSettings {
            name: site.name.clone(),
            keys: json_keys(&settings, site),
            differs: differs.iter().filter(|one| one.site == site.name).cloned().collect(),
        };
        let sites = settings.sites.iter().enumerate();
        let sites = sites.filter(|(index, _)| wanted.is_none_or(|id| id.index() == *index));
        Ok(Response::Sites(sites.map(|(_, site)| told(site)).collect()))
    }

    /// What differs from the file as it was read last.
    pub(super) fn differs(&self) -> Vec<KeyChange> {
        if *self.live.borrow() == Live::default() {
            return Vec::new();
        }
        let settings = self.settings();
        let Ok(file) = self.settings_with(&Live::default()) else { return Vec::new() };
        let of = |site: &Site| settings::site_changes(&file, &settings, &site.name);
        settings.sites.iter().flat_map(of).collect()
    }

    /// The file as it was read last, with these keys over it.
    fn settings_with(&self, live: &Live) -> Result<Settings, Refusal> {
        let source = self.source.borrow();
        let overrides: Vec<String> =
            source.overrides.iter().cloned().chain(live.overrides()).collect();
        let checked = settings::check_running(&source.file, &source.text, &overrides);
        checked.map_err(|error| unusable(&error))
    }

    /// Sets keys of a site; answers when that holds in all edges.
    pub(super) async fn ask_set_site(
        parent: &Rc<Self>,
        arguments: SetSiteArguments,
    ) -> Result<Response, Refusal> {
        if arguments.dry_run {
            let (plan, changes) = parent.plan_set(&arguments)?;
            let text = told(&plan, &parent.settings(), &changes, "");
            let answer = SiteSet { changes, holds: false, saved: None, text };
            return Ok(Response::SiteSet(answer));
        }
        parent.turn("site set").await?;
        let setting = Rc::clone(parent);
        let task = tokio::task::spawn_local(async move {
            let outcome = setting.set_site(&arguments).await;
            let text = outcome.as_ref().map(|set| set.text.clone()).map_err(Clone::clone);
            setting.end(&text);
            outcome
        });
        match tokio::time::timeout(ANSWER_WITHIN, task).await {
            Ok(Ok(outcome)) => outcome.map(Response::SiteSet),
            Ok(Err(_)) => Err(Refusal::new(Code::Internal, "the change panicked; see the log")),
            Err(_) => {
                let text = "it is not known yet whether this holds: `polder status` tells";
                Err(Refusal::new(Code::Timeout, text))
            }
        }
    }

    /// Waits until no other change is under way, for a while.
    async fn turn(&self, what: &str) -> Result<(), Refusal> {
        let started = Instant::now();
        loop {
            match self.begin(what) {
                Err(_) if started.elapsed() < TURN_WITHIN => tokio::time::sleep(TURN_POLL).await,
                outcome => return outcome,
            }
        }
    }

    async fn set_site(&self, arguments: &SetSiteArguments) -> Result<SiteSet, Refusal> {
        let (plan, changes) = self.plan_set(arguments)?;
        let old = self.settings();
        let mut kept = Kept::default();
        if !changes.is_empty() {
            self.agree(&plan).await?;
            self.carry_out(&plan, &old).await?;
            kept = self.guarantees_hold(&old, &plan.new).await;
        }
        let mut text = told(&plan, &old, &changes, &kept.text());
        let mut saved = None;
        if arguments.save {
            let done = self.save(arguments).map_err(|why| {
                let text = format!("{text}\nbut the file stays as it is: {why}");
                Refusal::new(Code::Settings, text)
            })?;
            text = format!("{text}\nthe file {} says so now", done.display());
            saved = Some(done);
        } else if !self.differs().is_empty() {
            text.push_str("\nuntil the next reload; the file says otherwise");
        }
        Ok(SiteSet { changes, holds: !kept.is_late, saved, text })
    }

    /// Finds out what a set would do. Nothing has changed afterwards.
    fn plan_set(&self, arguments: &SetSiteArguments) -> Result<(Plan, Vec<KeyChange>), Refusal> {
        let SetSiteArguments { site: name, keys, save, .. } = arguments;
        let old = self.settings();
        known(&old, name)?;
        let mut live = self.live.borrow().clone();
        if let Some(key) = keys.iter().find(|key| *save && key.trim_end().ends_with('=')) {
            let text = format!("`{key}` takes back what was set: that can't be saved");
            return Err(Refusal::new(Code::Settings, text));
        }
        for key in keys {
            live.set(name, key).map_err(|error| {
                Refusal::new(Code::Settings, format!("{error}; nothing has changed"))
            })?;
        }
        let plan = self.plan(self.settings_with(&live)?, Origin::Set(live))?;
        let own = format!("sites.{name}.");
        if !plan.lines.iter().all(|line| line.starts_with(&own)) {
            let text = format!("only keys of {name} can be set here; nothing has changed");
            return Err(Refusal::new(Code::Refused, text));
        }
        let changes = settings::site_changes(&old, &plan.new, name);
        Ok((plan, changes))
    }

    /// Writes the keys into the file too, and says which it is.
    fn save(&self, arguments: &SetSiteArguments) -> Result<std::path::PathBuf, save::SaveError> {
        let (file, overrides, text) = {
            let source = self.source.borrow();
            (source.file.clone(), source.overrides.clone(), source.text.clone())
        };
        let SetSiteArguments { site, keys, .. } = arguments;
        save::save(&file, &overrides, site, keys)?;
        // What was read last says it too: then it is no difference any more.
        if let Ok(text) = save::edited(&text, site, keys) {
            let mut live = self.live.borrow().clone();
            for key in keys {
                live.forget(site, key.split('=').next().unwrap_or_default().trim());
            }
            let before = std::mem::replace(&mut self.source.borrow_mut().text, text);
            if self.settings_with(&live).is_ok_and(|new| new == *self.settings()) {
                self.live.replace(live);
            } else {
                self.source.borrow_mut().text = before;
            }
        }
        Ok(file)
    }
}

/// A site by its name.
fn known(settings: &Settings, name: &str) -> Result<SiteId, Refusal> {
    if let Some((id, _)) = settings.site(name) {
        return Ok(id);
    }
    let names = || settings.sites.iter().map(|site| site.name.as_str());
    let help =
        did_you_mean(name, names()).unwrap_or_else(|| format!("the sites are {}", one_of(names())));
    Err(Refusal::new(Code::NotFound, format!("there is no site {name:?}; {help}")))
}

fn json_keys(settings: &Settings, site: &Site) -> BTreeMap<String, serde_json::Value> {
    let keys = settings::site_keys(settings, site).into_iter();
    keys.filter_map(|(key, value)| Some((key, serde_json::to_value(value).ok()?))).collect()
}

/// What a set does, in words.
fn told(plan: &Plan, old: &Settings, changes: &[KeyChange], behind: &str) -> String {
    if changes.is_empty() {
        return "the settings are the same".to_owned();
    }
    format!("{}{behind}", plan.text(old))
}
