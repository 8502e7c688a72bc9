//! Soft purges by the cache's public face: what they void goes on as far as stale responses may.

use cache::{Lookup, Mode, Purge, UnixMs};
use http::{HeaderMap, Method};
use pool_model::SiteId;

use crate::world::{World, field, request, response};

fn site() -> SiteId {
    SiteId::new(1).unwrap()
}

fn purge_softly(world: &World) {
    world.cache.purge_softly(Purge::Tag(site(), b"t"), UnixMs(world.now));
}

/// A site with a page that allows to be used stale for ten seconds while it is asked for.
fn with_page(allows: bool) -> World {
    let mut world = World::new(Mode::Http);
    world.rules.stale_while_revalidate = allows;
    let says = "max-age=600, stale-while-revalidate=10";
    world.serves(response(&[("cache-control", says), ("xkey", "t")]));
    world.get("/x", &[]);
    assert!(world.wait_s(100).hits("/x", &[]));
    world
}

#[test]
fn what_is_purged_softly_is_stale_at_once_and_asked_for() {
    let mut world = with_page(false);
    purge_softly(&world);
    let answer = world.get("/x", &[]);
    assert!(field(&answer, "cache-status").starts_with("polder; fwd=stale;"), "{answer:?}");
    assert_eq!(world.count(), 2, "fresh as it was");
    assert!(world.hits("/x", &[]), "what came after is not purged");
    world.cache.purge_softly(Purge::Tag(site(), b"other"), UnixMs(world.now));
    assert!(world.hits("/x", &[]));
}

#[test]
fn it_is_used_for_as_long_as_it_may_since_the_purge() {
    let mut world = with_page(true);
    purge_softly(&world);
    for (waits_s, ttl_s) in [(0, 0), (3, -3), (6, -9)] {
        world.wait_s(waits_s);
        let headers = HeaderMap::new();
        let request = request(&Method::GET, "/x", &headers, world.now);
        let Lookup::Hit(mut hit) = world.cache.lookup(&world.rules, &request) else {
            panic!("it may be used: {ttl_s}");
        };
        assert!(hit.take_refresh().is_some());
        let answer = world.cache.hit(&world.rules, &request, &hit);
        let said = format!("polder; hit; ttl={ttl_s}; detail=stale");
        assert_eq!(field(&answer, "cache-status"), said);
    }
    // A second purge makes nothing younger.
    purge_softly(&world);
    assert!(!world.wait_s(1).hits("/x", &[]));
    assert!(world.hits("/x", &[]));
}

#[test]
fn a_purge_that_is_not_soft_comes_before_and_after_one() {
    for softly_first in [true, false] {
        let mut world = with_page(true);
        if softly_first {
            purge_softly(&world);
        }
        world.cache.purge(Purge::Tag(site(), b"t"));
        if !softly_first {
            purge_softly(&world);
        }
        assert!(!world.hits("/x", &[]), "{softly_first}");
        assert!(world.hits("/x", &[]), "{softly_first}");
    }
}

#[test]
fn in_mode_strict_it_is_a_purge_like_others() {
    let mut world = World::new(Mode::Strict);
    world.rules.stale_if_error_ms = 60_000;
    let says = "max-age=600, stale-while-revalidate=10";
    world.serves(response(&[("cache-control", says), ("etag", "\"a\""), ("xkey", "t")]));
    world.get("/x", &[]);
    let key = world.key("/x");
    world.cache.purge_softly(Purge::Url(key.borrowed()), UnixMs(world.now));
    let explained = world.cache.explain(&key.borrowed());
    assert!(explained[0].purged && explained[0].stale_since.is_none());
    world.server = None;
    assert_eq!(world.get("/x", &[]).status, 502, "it stands in for nothing");
    assert!(!world.asked[1].contains_key("if-none-match"));
}

#[test]
fn only_the_very_bytes_are_renewed_after_one() {
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (tag, asks) in [("\"a\"", &["if-none-match"][..]), ("W/\"a\"", &[])] {
        let mut world = World::new(Mode::Http);
        let fields = [("cache-control", "max-age=600"), ("etag", tag), ("xkey", "t"), modified];
        world.serves(response(&fields)).get("/x", &[]);
        purge_softly(&world);
        if !asks.is_empty() {
            world.serves(response(&[("etag", tag)]).status(304));
        }
        let answer = world.get("/x", &[]);
        for name in ["if-none-match", "if-modified-since"] {
            assert_eq!(world.asked[1].contains_key(name), asks.contains(&name), "{tag}");
        }
        assert_eq!(answer.body, "body");
        assert!(world.hits("/x", &[]), "what was renewed is not purged");
    }
}

#[test]
fn it_stands_in_for_a_failed_server_for_as_long_as_it_may() {
    for (waits_s, stands_in) in [(5, true), (25, false)] {
        let mut world = with_page(false);
        world.rules.stale_if_error_ms = 20_000;
        purge_softly(&world);
        world.wait_s(waits_s).server = None;
        let answer = world.get("/x", &[]);
        assert_eq!(answer.status.is_success(), stands_in, "{waits_s}");
        let said = format!("ttl=-{waits_s}; detail=stale-if-error");
        assert_eq!(field(&answer, "cache-status").contains(&said), stands_in, "{answer:?}");
    }
}

#[test]
fn other_variants_stay_and_stand_in_too() {
    let mut world = World::new(Mode::Http);
    world.rules.stale_if_error_ms = 20_000;
    let fields = [("cache-control", "max-age=600"), ("vary", "accept-language"), ("xkey", "t")];
    world.serves(response(&fields));
    for language in ["de", "nl"] {
        world.get("/x", &[("accept-language", language)]);
    }
    purge_softly(&world);
    world.get("/x", &[("accept-language", "de")]);
    world.wait_s(1).server = None;
    assert!(world.hits("/x", &[("accept-language", "de")]));
    let answer = world.get("/x", &[("accept-language", "nl")]);
    assert!(field(&answer, "cache-status").contains("stale-if-error"), "{answer:?}");
}

#[test]
fn what_was_asked_for_before_one_is_not_kept() {
    let mut world = with_page(true);
    let headers = HeaderMap::new();
    let request = request(&Method::GET, "/y", &headers, world.now);
    let Lookup::Fetch(fetch) = world.cache.lookup(&world.rules, &request) else { panic!("new") };
    let mut head = cache::Head { status: http::StatusCode::OK, headers: HeaderMap::new() };
    head.headers.insert("cache-control", "max-age=600".parse().unwrap());
    head.headers.insert("xkey", "t".parse().unwrap());
    purge_softly(&world);
    let reply = world.cache.respond(&world.rules, fetch, head, UnixMs(world.now), |_| None);
    let cache::Reply::Pass { fill, .. } = reply else { panic!("{reply:?}") };
    let stored = world.cache.finish(&world.rules, *fill.unwrap(), UnixMs(world.now));
    assert_eq!(stored, Err(cache::NotStored::Purged));
    assert!(!world.hits("/y", &[]));
}

#[test]
fn explain_says_since_when() {
    let world = with_page(true);
    purge_softly(&world);
    let explained = world.cache.explain(&world.key("/x").borrowed());
    assert_eq!(explained[0].stale_since, Some(UnixMs(world.now)));
    assert!(!explained[0].purged);
    world.cache.purge(Purge::Tag(site(), b"t"));
    assert!(world.cache.explain(&world.key("/x").borrowed())[0].purged);
}
