//! From a server's head to what is stored of it.

use http::StatusCode;
use http::header::HeaderMap;

use crate::conditional::Validators;
use crate::directives::Directives;
use crate::entry;
use crate::fetch::Fetch;
use crate::files;
use crate::freshness::{self, Freshness, Times};
use crate::key::Key;
use crate::moment::UnixMs;
use crate::options::{Mode, Rules};
use crate::respond::Head;
use crate::rules::{Judged, NotStored};
use crate::tags::{Tags, TooManyTags};
use crate::vary::Selected;

/// Everything about a response that is to be stored but its body.
#[derive(Debug)]
pub(crate) struct Draft<P> {
    pub(crate) key: Key,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) hidden: HeaderMap,
    pub(crate) validators: Validators,
    pub(crate) freshness: Freshness,
    pub(crate) stale_if_error_ms: Option<u64>,
    pub(crate) selected: Selected,
    pub(crate) tags: Tags,
    pub(crate) proof: Option<P>,
    pub(crate) stamp: u64,
    /// The fields of the request, by which it replaces what is stored.
    pub(crate) client: HeaderMap,
}

/// A server's answer to a fetch.
pub(crate) struct Answered<'a, P> {
    rules: &'a Rules,
    fetch: &'a Fetch<P>,
    head: &'a Head,
    directives: Directives,
    times: Times,
}

impl<'a, P> Answered<'a, P> {
    pub(crate) fn new(rules: &'a Rules, fetch: &'a Fetch<P>, head: &'a Head, now: UnixMs) -> Self {
        let directives = Directives::of_response(&head.headers);
        let times = Times { requested_at: fetch.requested_at, received_at: now };
        Self { rules, fetch, head, directives, times }
    }

    /// What is to be stored, or why nothing is.
    pub(crate) fn draft(
        &self,
        prove: impl FnOnce(&Tags) -> Option<P>,
    ) -> Result<Draft<P>, NotStored> {
        let judged = Judged {
            rules: self.rules,
            method: &self.fetch.method,
            request: &self.fetch.client,
            status: self.head.status,
            headers: &self.head.headers,
            directives: &self.directives,
        };
        judged.check()?;
        let strict = self.rules.mode == Mode::Strict;
        let tags = if strict { self.tags_and_files()? } else { Tags::of(&self.head.headers)? };
        if strict && tags.is_empty() {
            return Err(NotStored::Untagged);
        }
        let freshness = self.freshness(!tags.is_empty());
        judged.check_use(&freshness)?;
        let selected = Selected::of(self.rules, &self.fetch.client, &self.head.headers);
        let selected = selected.map_err(|_| NotStored::Vary)?;
        let proof = if strict { prove(&tags) } else { None };
        if strict && proof.is_none() {
            return Err(NotStored::NotProved);
        }
        Ok(self.with(freshness, selected, tags, proof))
    }

    /// The tags that the server names, and those of the file that the path leads to.
    fn tags_and_files(&self) -> Result<Tags, TooManyTags> {
        let at = self.rules.files_at.as_deref();
        let key = self.fetch.key.borrowed();
        let files = at.and_then(|at| files::tags_of_request(at, key.path_and_query()).ok());
        let files = files.unwrap_or_default();
        Tags::of_and(&self.head.headers, files.iter().map(String::as_bytes))
    }

    /// The same for one answer alone, of what may not be stored.
    pub(crate) fn unkept(&self) -> Draft<P> {
        self.with(self.freshness(false), Selected::default(), Tags::default(), None)
    }

    fn freshness(&self, tagged: bool) -> Freshness {
        let Head { status, headers } = self.head;
        freshness::judge(self.rules, *status, headers, &self.directives, self.times, tagged)
    }

    fn with(
        &self,
        freshness: Freshness,
        selected: Selected,
        tags: Tags,
        proof: Option<P>,
    ) -> Draft<P> {
        let (headers, hidden) = entry::kept(self.rules, &self.head.headers, &self.directives);
        let stale_if_error_s = self.directives.stale_if_error;
        Draft {
            key: self.fetch.key.clone(),
            status: self.head.status,
            headers,
            hidden,
            validators: Validators::of(&self.head.headers),
            freshness,
            stale_if_error_ms: stale_if_error_s.map(|seconds| seconds.saturating_mul(1_000)),
            selected,
            tags,
            proof,
            stamp: self.fetch.stamp,
            client: self.fetch.client.clone(),
        }
    }
}
