//! `polder cache`: the parent asks all edges, each of which has a cache of its own.

use super::asking::{EDGE_PATIENCE, ask_all};
use super::options::tell_socket;
use super::parent::Parent;
use crate::control::{
    AskError, CacheExplainArguments, CacheExplained, CacheForgetArguments, CachePurgeArguments,
    CacheStored, Code, Refusal, Request, Response,
};
use crate::settings::{Settings, cache_mode_name};
use edge::{CacheControl, CachePurge, StoredResponses};
use pool_model::SiteId;
use writers::Client;

impl Parent {
    /// Has all edges forget, and the version tables.
    pub(super) async fn cache_purge(
        &self,
        request: &Request,
        arguments: &CachePurgeArguments,
    ) -> Result<Response, Refusal> {
        if let Some(tag) = &arguments.tag {
            self.invalidate(arguments.site.as_deref(), tag).await?;
        }
        self.edges_forget(request).await
    }

    /// Has all edges forget; those that leave still answer clients, and one that is about to take
    /// another's place answers some already, so they count too.
    pub(super) async fn edges_forget(&self, request: &Request) -> Result<Response, Refusal> {
        let mut edges = self.serving();
        edges.extend(self.still_leaving());
        edges.extend(self.coming.borrow().clone());
        let mut told = None;
        for (edge, answer) in ask_all(edges, request, EDGE_PATIENCE).await {
            match answer {
                Ok(response) => told = Some(response),
                Err(AskError::Refused(refusal)) => return Err(refusal),
                // With its process went its cache.
                Err(_) if edge.has_ended() => {}
                Err(error) => {
                    let text = format!(
                        "edge {} does not answer, and may hold what the others have forgotten: \
                         {error}",
                        edge.number()
                    );
                    return Err(Refusal::new(Code::Timeout, text));
                }
            }
        }
        told.ok_or_else(|| Refusal::new(Code::Timeout, "no edge answers; see its log"))
    }

    /// Responses of mode `strict` are proved by the version tables of their sites, so that a tag is
    /// forgotten there.
    async fn invalidate(&self, site: Option<&str>, tag: &str) -> Result<(), Refusal> {
        let sites = self.tables.borrow().iter().map(|table| table.site().to_owned()).collect();
        let sites: Vec<String> = sites;
        for name in sites.into_iter().filter(|name| site.is_none_or(|site| site == name)) {
            let (socket, tag) = (tell_socket(self.folder.path(), &name), tag.to_owned());
            let told = tokio::task::spawn_blocking(move || {
                Client::connect(&socket, EDGE_PATIENCE)?.invalidate(&[tag])
            });
            let why = match told.await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            let text = format!("the version table of site {name} was not told: {why}");
            return Err(Refusal::new(Code::Timeout, text));
        }
        Ok(())
    }

    /// What each edge holds for a URL.
    pub(super) async fn cache_explain(&self, request: &Request) -> Result<Response, Refusal> {
        let mut all = Vec::new();
        for (edge, answer) in ask_all(self.serving(), request, EDGE_PATIENCE).await {
            match answer {
                Ok(Response::CacheExplained(told)) => all.extend(told),
                Ok(_) => return Err(Refusal::new(Code::Internal, "an edge answered wrongly")),
                Err(AskError::Refused(refusal)) => return Err(refusal),
                Err(error) => {
                    let text = format!("edge {} does not answer: {error}", edge.number());
                    return Err(Refusal::new(Code::Timeout, text));
                }
            }
        }
        Ok(Response::CacheExplained(all))
    }
}

fn site(settings: &Settings, name: &str) -> Result<SiteId, Refusal> {
    let found = settings.site(name).map(|(id, _)| id);
    found.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no site {name:?}")))
}

fn site_of(cache: &CacheControl, url: &str) -> Result<SiteId, Refusal> {
    cache.site_of(url).ok_or_else(|| {
        let text = format!("{url:?} is no URL of a site: write it as `http://HOST/PATH`");
        Refusal::new(Code::NotFound, text)
    })
}

/// An edge forgets.
pub(super) fn purge(
    cache: &CacheControl,
    settings: &Settings,
    arguments: &CachePurgeArguments,
) -> Result<Response, Refusal> {
    let CachePurgeArguments { url, tag, site: name, all, soft } = arguments;
    let (purges, what) = match (url, tag, name, all) {
        (Some(url), None, None, false) => {
            (vec![CachePurge::Url(site_of(cache, url)?, url.clone())], url.clone())
        }
        (None, Some(tag), Some(name), false) => {
            let purge = CachePurge::Tag(site(settings, name)?, tag.clone());
            (vec![purge], format!("what carries {tag} of {name}"))
        }
        (None, Some(tag), None, false) => {
            let of = |site| CachePurge::Tag(site, tag.clone());
            (cache.sites().into_iter().map(of).collect(), format!("what carries {tag}"))
        }
        (None, None, Some(name), false) => {
            (vec![CachePurge::Site(site(settings, name)?)], format!("what they held of {name}"))
        }
        (None, None, None, true) => (vec![CachePurge::All], "what they held".to_owned()),
        _ => {
            let text = "a purge names a url, a tag, a site, a tag of a site, or all";
            return Err(Refusal::new(Code::Arguments, text));
        }
    };
    for purge in &purges {
        let is_one = if *soft { cache.purge_softly(purge) } else { cache.purge(purge) };
        if !is_one {
            let text = format!("{:?} is no absolute URL", url.as_deref().unwrap_or_default());
            return Err(Refusal::new(Code::Arguments, text));
        }
    }
    Ok(Response::done(match soft {
        true => format!("all edges hold as stale, or in mode strict have forgotten, {what}"),
        false => format!("all edges have forgotten {what}"),
    }))
}

/// An edge forgets what another one was told of over HTTP.
pub(super) fn forget(
    cache: &CacheControl,
    settings: &Settings,
    arguments: &CacheForgetArguments,
) -> Result<Response, Refusal> {
    let CacheForgetArguments { site: name, tags, urls, all, soft } = arguments;
    let id = site(settings, name)?;
    let tags = tags.iter().map(|tag| CachePurge::Tag(id, tag.clone()));
    let urls = urls.iter().map(|url| CachePurge::Url(id, url.clone()));
    let all = all.then_some(CachePurge::Site(id));
    for purge in tags.chain(urls).chain(all) {
        let is_one = if *soft { cache.purge_softly(&purge) } else { cache.purge(&purge) };
        if !is_one {
            return Err(Refusal::new(Code::Arguments, "a URL is none"));
        }
    }
    Ok(Response::done(format!("all edges have forgotten what was named of {name}")))
}

/// What an edge holds for a URL.
pub(super) async fn explain(
    cache: &CacheControl,
    settings: &Settings,
    edge: u32,
    arguments: &CacheExplainArguments,
) -> Result<Response, Refusal> {
    let url = &arguments.url;
    let id = site_of(cache, url)?;
    let Some(StoredResponses { responses, is_unread }) = cache.explain(id, url).await else {
        return Err(Refusal::new(Code::Arguments, format!("{url:?} is no absolute URL")));
    };
    let stored = responses.into_iter().map(|one| CacheStored {
        status: one.status,
        age_s: one.age_s,
        ttl_s: one.ttl_s,
        purged: one.purged,
        purged_softly: one.purged_softly,
        holds: one.holds,
        body_bytes: one.body_bytes,
        varies_by: one.varies_by,
        tags: one.tags,
        on_disk: one.on_disk,
    });
    let site = &settings.sites[id.index()];
    let (site, mode) = (site.name.clone(), cache_mode_name(site.cache.mode).to_owned());
    let told = CacheExplained { edge, site, mode, stored: stored.collect(), unread: is_unread };
    Ok(Response::CacheExplained(vec![told]))
}
