//! `polder cache`: what edges keep of responses.

use super::admin::{ANSWER_TIMEOUT, order};
use super::site::as_json;
use super::{CommandError, Output, control_socket, find_pool, tell};
use crate::cli_cache::{
    CacheArguments, CacheCommand, CacheExplainArguments, CachePurgeArguments, CacheStatsArguments,
};
use crate::control::{self, CacheExplained, CacheStored, Request, Response};
use crate::status::CacheStatus;
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) fn run(arguments: &CacheArguments) -> Result<Output, CommandError> {
    match &arguments.command {
        CacheCommand::Stats(arguments) => stats(arguments),
        CacheCommand::Purge(arguments) => purge(arguments),
        CacheCommand::Explain(arguments) => explain(arguments),
        CacheCommand::Pending(arguments) => tell::pending(arguments),
        CacheCommand::Settle(arguments) => tell::settle(arguments),
    }
}

fn stats(arguments: &CacheStatsArguments) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(&arguments.pool)?);
    let Response::Status(report) = control::ask(&socket, &Request::Status, ANSWER_TIMEOUT)? else {
        return Err(CommandError::WrongAnswer);
    };
    let caches: BTreeMap<u32, &CacheStatus> =
        report.edges.iter().filter_map(|edge| Some((edge.edge, edge.cache.as_ref()?))).collect();
    if arguments.json {
        return as_json(&caches);
    }
    if caches.is_empty() {
        return Ok(Output::from("no site has a cache\n".to_owned()));
    }
    let text = |(edge, cache): (u32, &CacheStatus)| {
        format!("edge {edge}: {}\n{}", cache.line(), cache.lines())
    };
    Ok(Output::from(caches.into_iter().map(text).collect::<String>()))
}

fn purge(arguments: &CachePurgeArguments) -> Result<Output, CommandError> {
    let CachePurgeArguments { url, tag, site, all, soft, pool } = arguments;
    let (url, tag, site, all, soft) = (url.clone(), tag.clone(), site.clone(), *all, *soft);
    order(pool, &Request::CachePurge(control::CachePurgeArguments { url, tag, site, all, soft }))
}

fn explain(arguments: &CacheExplainArguments) -> Result<Output, CommandError> {
    let socket = control_socket(&find_pool(&arguments.pool)?);
    let url = arguments.url.clone();
    let request = Request::CacheExplain(control::CacheExplainArguments { url });
    match control::ask(&socket, &request, ANSWER_TIMEOUT)? {
        Response::CacheExplained(all) if arguments.json => as_json(&all),
        Response::CacheExplained(all) => {
            Ok(Output::from(all.iter().map(explained).collect::<String>()))
        }
        _ => Err(CommandError::WrongAnswer),
    }
}

fn explained(told: &CacheExplained) -> String {
    let CacheExplained { edge, site, mode, stored, unread } = told;
    let mut text = format!("edge {edge}: {site}, mode {mode}: ");
    // Writing to a string does not fail.
    let _ = match stored.len() {
        0 if *unread => writeln!(text, "something lies on the disk, which has not said what"),
        0 => writeln!(text, "nothing is stored"),
        1 => writeln!(text, "1 response"),
        count => writeln!(text, "{count} responses"),
    };
    for one in stored {
        let _ = writeln!(text, "  {}", line(one));
    }
    text
}

fn line(stored: &CacheStored) -> String {
    let CacheStored { status, age_s, ttl_s, purged, holds, body_bytes, .. } = stored;
    let state = match (purged, *ttl_s) {
        (true, _) => "purged".to_owned(),
        (false, _) if *holds == Some(false) => "a tag has changed".to_owned(),
        (false, left @ 1..) => format!("fresh for {left} s"),
        (false, left) if stored.purged_softly => {
            format!("stale for {} s, purged softly", left.unsigned_abs())
        }
        (false, left) => format!("stale for {} s", left.unsigned_abs()),
    };
    let place = if stored.on_disk { ", on disk" } else { "" };
    let mut text = format!("{status}, {body_bytes} bytes{place}, {age_s} s old, {state}");
    for (name, list) in [("found by", &stored.varies_by), ("tags", &stored.tags)] {
        if !list.is_empty() {
            let _ = write!(text, ", {name} {}", list.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_response_is_told_in_a_line() {
        let mut stored = CacheStored {
            status: 200,
            age_s: 3,
            ttl_s: 57,
            purged: false,
            purged_softly: false,
            holds: None,
            body_bytes: 1_024,
            varies_by: vec!["accept-language".into()],
            tags: vec!["t1".into(), "t2".into()],
            on_disk: false,
        };
        assert_eq!(
            line(&stored),
            "200, 1024 bytes, 3 s old, fresh for 57 s, found by accept-language, tags t1 t2"
        );
        (stored.ttl_s, stored.varies_by, stored.tags) = (-2, Vec::new(), Vec::new());
        assert_eq!(line(&stored), "200, 1024 bytes, 3 s old, stale for 2 s");
        stored.purged_softly = true;
        assert_eq!(line(&stored), "200, 1024 bytes, 3 s old, stale for 2 s, purged softly");
        stored.holds = Some(false);
        assert_eq!(line(&stored), "200, 1024 bytes, 3 s old, a tag has changed");
        stored.purged = true;
        assert_eq!(line(&stored), "200, 1024 bytes, 3 s old, purged");
        stored.on_disk = true;
        assert_eq!(line(&stored), "200, 1024 bytes, on disk, 3 s old, purged");
    }

    #[test]
    fn what_the_disk_has_not_told_is_told_as_that() {
        let mut told = CacheExplained {
            edge: 1,
            site: "red".into(),
            mode: "http".into(),
            stored: Vec::new(),
            unread: false,
        };
        assert_eq!(explained(&told), "edge 1: red, mode http: nothing is stored\n");
        told.unread = true;
        let text = explained(&told);
        assert!(text.contains("something lies on the disk"), "{text}");
    }
}
