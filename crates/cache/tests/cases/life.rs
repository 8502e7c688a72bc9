//! Requests from the client to the answer, with a server that says what a test makes it say.

use crate::world::{World, field, response};
use cache::{Mode, Purge};
use http::{Method, StatusCode};

#[test]
fn a_fresh_response_is_answered_and_says_so() {
    let mut world = World::new(Mode::Http);
    world.serves(response(&[("cache-control", "max-age=60"), ("a", "1"), ("age", "5")]));
    let first = world.get("/x", &[]);
    assert_eq!(field(&first, "cache-status"), "polder; fwd=uri-miss; stored; ttl=55");
    world.serves(response(&[("a", "2")])).wait_s(10);
    let second = world.get("/x", &[]);
    assert_eq!((world.count(), &second.body[..]), (1, &b"body"[..]));
    assert_eq!(field(&second, "a"), "1");
    assert_eq!(field(&second, "age"), "15");
    assert_eq!(field(&second, "content-length"), "4");
    assert_eq!(field(&second, "cache-status"), "polder; hit; ttl=45");
    let head = world.ask(&Method::HEAD, "/x", &[]);
    assert_eq!((field(&head, "content-length").as_str(), head.body.len()), ("4", 0));
    world.wait_s(45);
    let third = world.get("/x", &[]);
    assert_eq!((world.count(), field(&third, "a").as_str()), (2, "2"));
    assert!(field(&third, "cache-status").starts_with("polder; fwd=stale"));
}

#[test]
fn a_strict_hit_needs_its_proof() {
    let mut world = World::new(Mode::Strict);
    world.serves(response(&[("cache-control", "max-age=60"), ("surrogate-key", "t1 t2")]));
    world.get("/x", &[]);
    let hit = world.get("/x", &[]);
    assert_eq!(field(&hit, "cache-status"), "polder; hit; ttl=60; detail=acknowledged");
    assert_eq!(field(&hit, "cache-control"), "no-cache");
    assert_eq!(field(&hit, "surrogate-key"), "");
    assert_eq!(field(&hit, "etag").len(), 34);
    world.version = 2;
    assert!(!world.hits("/x", &[]));
    assert!(world.hits("/x", &[]));
    // Without tags there is no hit, whatever it says.
    world.serves(response(&[("cache-control", "max-age=60")]));
    assert!(!world.hits("/y", &[]) && !world.hits("/y", &[]));
}

#[test]
fn what_was_purged_while_it_was_fetched_is_not_stored() {
    let world = World::new(Mode::Http);
    let key = world.key("/x");
    let headers = http::HeaderMap::new();
    let request = crate::world::request(&Method::GET, "/x", &headers, world.now);
    let cache::Lookup::Fetch(fetch) = world.cache.lookup(&world.rules, &request) else {
        panic!("nothing is stored yet");
    };
    world.cache.purge(Purge::Url(key.borrowed()));
    let mut fields = http::HeaderMap::new();
    fields.insert("cache-control", "max-age=3600".parse().unwrap());
    let head = cache::Head { status: StatusCode::OK, headers: fields };
    let now = cache::UnixMs(world.now);
    let reply = world.cache.respond(&world.rules, fetch, head, now, |_| None);
    let cache::Reply::Pass { fill: Ok(fill), .. } = reply else { panic!("it may be stored") };
    let stored = world.cache.finish(&world.rules, *fill, now);
    assert_eq!(stored, Err(cache::NotStored::Purged));
    assert!(world.cache.explain(&key.borrowed()).is_empty());
}

#[test]
fn a_failure_is_kept_if_it_says_for_how_long() {
    let mut world = World::new(Mode::Http);
    world.serves(response(&[("cache-control", "max-age=9")]).status(503).body("later"));
    assert!(!world.hits("/x", &[]));
    let hit = world.get("/x", &[]);
    assert_eq!((world.count(), hit.status.as_u16(), &hit.body[..]), (1, 503, &b"later"[..]));
    world.serves(response(&[]).status(404));
    assert!(!world.hits("/y", &[]) && !world.hits("/y", &[]));
    // In mode strict it needs tags like any other.
    let mut world = World::new(Mode::Strict);
    world.serves(response(&[("xkey", "t")]).status(404));
    assert!(!world.hits("/y", &[]) && world.hits("/y", &[]));
    world.version += 1;
    assert!(!world.hits("/y", &[]));
}
