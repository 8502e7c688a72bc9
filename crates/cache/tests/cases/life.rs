//! Requests from the client to the answer, with a server that says what a test makes it say.

use crate::world::{World, field, response};
use cache::{
    Collapse, CollapseLimits, Cookies, Landing, Lookup, Mode, NotStored, Purge, Role, Ticket, Wake,
};
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
    let Lookup::Fetch(fetch) = world.cache.lookup(&world.rules, &request) else {
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
    assert_eq!(stored, Err(NotStored::Purged));
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

#[test]
fn what_was_written_to_is_asked_for_anew() {
    for (method, status, location, hits) in [
        (Method::POST, 200, None, false),
        (Method::PUT, 201, None, false),
        (Method::DELETE, 302, None, false),
        (Method::from_bytes(b"M-SEARCH").unwrap(), 200, None, false),
        (Method::POST, 500, None, true),
        (Method::POST, 404, None, true),
        (Method::OPTIONS, 200, None, true),
        (Method::POST, 201, Some("/x"), false),
        (Method::POST, 201, Some("x"), false),
        (Method::POST, 201, Some("../dir/../x"), false),
        (Method::POST, 201, Some("HTTP://A.example:80/x"), false),
        (Method::POST, 201, Some("//a.example/x"), false),
        (Method::POST, 201, Some("https://a.example/x"), true),
        (Method::POST, 201, Some("http://b.example/x"), true),
        (Method::POST, 201, Some("/y"), true),
    ] {
        for name in ["location", "content-location"] {
            let mut world = World::new(Mode::Http);
            world.serves(response(&[("cache-control", "max-age=60")])).get("/x", &[]);
            let fields: Vec<_> = location.iter().map(|place| (name, *place)).collect();
            world.serves(response(&fields).status(status));
            let target = if location.is_some() { "/writer" } else { "/x" };
            world.ask(&method, target, &[]);
            assert_eq!(world.hits("/x", &[]), hits, "{method} {status} {name} {location:?}");
        }
    }
}

#[test]
fn conditions_of_clients_are_answered_here() {
    let mut world = World::new(Mode::Http);
    let tag = ("etag", "\"a\"");
    world.serves(response(&[("cache-control", "max-age=60"), tag, ("x", "1"), ("vary", "a")]));
    // Also by a response on its way: the server is never asked with the client's conditions.
    let first = world.get("/x", &[("if-none-match", "\"a\"")]);
    assert_eq!((first.status, first.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert!(!world.asked[0].contains_key("if-none-match"));
    let second = world.get("/x", &[("if-none-match", "W/\"a\", \"b\"")]);
    assert_eq!((second.status, second.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let says = |name| field(&second, name);
    assert_eq!((says("etag").as_str(), says("vary").as_str()), ("\"a\"", "a"));
    assert_eq!((says("x").as_str(), says("cache-control").as_str()), ("", "max-age=60"));
    let third = world.get("/x", &[("if-none-match", "\"b\"")]);
    assert_eq!((third.status, &third.body[..], world.count()), (StatusCode::OK, &b"body"[..], 1));
    // Those that only a server can judge go there.
    assert_eq!(
        field(&world.get("/x", &[("if-match", "\"a\"")]), "cache-status"),
        "polder; fwd=request"
    );
}

#[test]
fn an_entity_tag_of_ours_is_the_bodys() {
    let tag = |body: &'static str| {
        let mut world = World::new(Mode::Http);
        world.serves(response(&[("cache-control", "max-age=60")]).body(body));
        world.get("/x", &[]);
        field(&world.get("/x", &[]), "etag")
    };
    assert_eq!(tag("a"), tag("a"));
    assert_ne!(tag("a"), tag("b"));
    assert!(tag("a").starts_with('"') && tag("a").len() == 34);
}

#[test]
fn ranges_are_cut_from_the_whole() {
    let mut world = World::new(Mode::Http);
    let fields = [("cache-control", "max-age=60"), ("etag", "\"a\""), ("content-length", "10")];
    world.serves(response(&fields).body("0123456789"));
    for round in 0..2 {
        for (range, status, body, said) in [
            ("bytes=2-4", 206, "234", "bytes 2-4/10"),
            ("bytes=-3", 206, "789", "bytes 7-9/10"),
            ("bytes=10-", 416, "", "bytes */10"),
            ("bytes=0-1,5-6", 200, "0123456789", ""),
        ] {
            // At first while it comes from the server, which is asked for the whole.
            let path = if round == 0 { range } else { "bytes=2-4" };
            let answer = world.get(&format!("/{path}"), &[("range", range)]);
            assert_eq!(answer.status.as_u16(), status, "{range}");
            assert_eq!(answer.body, body, "{range}");
            assert_eq!(field(&answer, "content-range"), said, "{range}");
            let len = if status == 206 { body.len() } else { 10 };
            let len = if status == 416 { 0 } else { len };
            assert_eq!(field(&answer, "content-length"), len.to_string(), "{range}");
        }
    }
    assert_eq!(world.count(), 4);
    assert!(world.asked.iter().all(|asked| !asked.contains_key("range")));
    let other = world.get("/bytes=2-4", &[("range", "bytes=0-1"), ("if-range", "\"b\"")]);
    assert_eq!(other.status, StatusCode::OK);
}

#[test]
fn a_server_that_says_it_still_holds_renews_it() {
    let mut world = World::new(Mode::Http);
    let tag = ("etag", "\"a\"");
    world.serves(response(&[("cache-control", "max-age=10"), tag, ("x", "1"), ("y", "1")]));
    world.get("/x", &[]);
    world
        .wait_s(20)
        .serves(response(&[tag, ("cache-control", "max-age=30"), ("x", "2")]).status(304));
    let renewed = world.get("/x", &[]);
    assert_eq!(world.asked[1]["if-none-match"], "\"a\"");
    assert_eq!((renewed.status, &renewed.body[..]), (StatusCode::OK, &b"body"[..]));
    let said = "polder; fwd=stale; fwd-status=304; stored; ttl=30";
    assert_eq!(field(&renewed, "cache-status"), said);
    let hit = world.wait_s(29).get("/x", &[]);
    assert_eq!((world.count(), field(&hit, "x"), field(&hit, "y")), (2, "2".into(), "1".into()));
    assert_eq!(field(&hit, "content-length"), "4");
    // A 304 about something else is no answer: the server is asked again for the whole.
    world.wait_s(20).serves(response(&[("etag", "\"b\"")]).status(304));
    world.get("/x", &[]);
    assert_eq!(world.count(), 4);
    assert!(!world.asked[3].contains_key("if-none-match"));
}

#[test]
fn a_strict_renewal_keeps_tags_and_takes_a_new_proof() {
    let mut world = World::new(Mode::Strict);
    let fields = [("cache-control", "no-cache"), ("etag", "\"a\""), ("cache-tag", "t")];
    world.serves(response(&fields));
    world.get("/x", &[]);
    // `no-cache` asks the server each time, whatever the tags say.
    world.serves(response(&[("etag", "\"a\"")]).status(304));
    assert!(!world.hits("/x", &[]) && !world.hits("/x", &[]));
    world.serves(response(&[("etag", "\"a\""), ("cache-control", "max-age=9")]).status(304));
    assert!(!world.hits("/x", &[]) && world.hits("/x", &[]));
    let key = world.key("/x");
    let all = world.cache.explain(&key.borrowed());
    assert_eq!((all.len(), all[0].entry.tags().len()), (1, 1));
    assert_eq!(all[0].entry.proof(), Some(&crate::world::Version(1)));
    // After an update the server is asked for the whole: to it the new page may look like the old.
    world.version += 1;
    world.serves(response(&fields));
    assert!(!world.hits("/x", &[]));
    assert!(!world.asked.last().unwrap().contains_key("if-none-match"));
}

#[test]
fn strict_renewals_need_a_strong_entity_tag() {
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (mode, tag, asks) in [
        (Mode::Http, "W/\"a\"", ["if-none-match", "if-modified-since"].as_slice()),
        (Mode::Http, "\"a\"", &["if-none-match", "if-modified-since"]),
        (Mode::Strict, "W/\"a\"", &[]),
        (Mode::Strict, "\"a\"", &["if-none-match"]),
    ] {
        let mut world = World::new(mode);
        let fields = [("cache-control", "max-age=1"), ("etag", tag), ("xkey", "t"), modified];
        world.serves(response(&fields)).get("/x", &[]);
        world.wait_s(2).get("/x", &[]);
        for name in ["if-none-match", "if-modified-since"] {
            assert_eq!(world.asked[1].contains_key(name), asks.contains(&name), "{mode:?} {tag}");
        }
    }
}

#[test]
fn stale_responses_stand_in_where_the_site_allows_it() {
    for (allowed_ms, says, waits_s, stands_in) in [
        (0, "max-age=2", 3, false),
        (0, "max-age=2, stale-if-error=60", 3, false),
        (60_000, "max-age=2", 3, true),
        (60_000, "max-age=2", 70, false),
        (60_000, "max-age=2, stale-if-error=5", 3, true),
        (60_000, "max-age=2, stale-if-error=5", 10, false),
        (60_000, "max-age=2, must-revalidate", 3, false),
        (60_000, "s-maxage=2", 3, false),
        (60_000, "max-age=2, no-cache", 3, false),
    ] {
        for fails_with in [None, Some(503)] {
            let mut world = World::new(Mode::Http);
            world.rules.stale_if_error_ms = allowed_ms;
            world.serves(response(&[("cache-control", says), ("etag", "\"a\"")]));
            world.get("/x", &[]);
            world.wait_s(waits_s).server = fails_with.map(|status| response(&[]).status(status));
            let answer = world.get("/x", &[]);
            assert_eq!(answer.status.is_success(), stands_in, "{says} {waits_s} {fails_with:?}");
            let marked = field(&answer, "cache-status").contains("detail=stale-if-error");
            assert_eq!(marked, stands_in, "{says}");
        }
    }
}

#[test]
fn a_body_that_is_too_large_or_cut_short_is_not_stored() {
    let mut world = World::new(Mode::Http);
    world.rules.object_max_bytes = 8;
    world.serves(response(&[("cache-control", "max-age=60")]).body("012345678"));
    assert_eq!(world.get("/x", &[]).body, "012345678");
    assert_eq!(world.stored, Some(Err(NotStored::TooLarge)));
    world.serves(response(&[("cache-control", "max-age=60"), ("content-length", "5")]));
    world.get("/y", &[]);
    assert_eq!(world.stored, Some(Err(NotStored::Length)));
    world.serves(response(&[("cache-control", "max-age=60"), ("content-length", "9")]));
    world.get("/z", &[]);
    assert_eq!(world.stored, Some(Err(NotStored::TooLarge)));
    // What is known not to be stored is asked for as the client asks, for a while.
    let range = [("range", "bytes=0-1")];
    assert_eq!(field(&world.get("/z", &range), "cache-status"), "polder; fwd=bypass");
    assert!(world.asked[3].contains_key("range"));
    world.wait_s(10).get("/z", &range);
    assert!(!world.asked[4].contains_key("range"));
}

#[test]
fn purges_reach_what_they_name() {
    for (what, hits) in [("url", false), ("tag", false), ("other", true), ("site", false)] {
        let mut world = World::new(Mode::Http);
        let site = world.key("/x").site();
        world.serves(response(&[("cache-control", "max-age=60"), ("xkey", "t1 t2")]));
        world.get("/x", &[]);
        let key = world.key("/x");
        world.cache.purge(match what {
            "url" => Purge::Url(key.borrowed()),
            "tag" => Purge::Tag(site, b"t2"),
            "other" => Purge::Tag(site, b"t3"),
            _ => Purge::Site(site),
        });
        assert_eq!(world.hits("/x", &[]), hits, "{what}");
        assert!(world.hits("/x", &[]), "{what}: what came after is not purged");
    }
}

#[test]
fn a_stale_page_may_be_used_while_it_is_asked_for() {
    let mut world = World::new(Mode::Http);
    world.rules.stale_while_revalidate = true;
    world.serves(response(&[("cache-control", "max-age=1, stale-while-revalidate=4")]));
    world.get("/x", &[]);
    world.wait_s(3);
    let headers = http::HeaderMap::new();
    let request = crate::world::request(&Method::GET, "/x", &headers, world.now);
    let Lookup::Hit(mut hit) = world.cache.lookup(&world.rules, &request) else {
        panic!("it may be used for two seconds more");
    };
    assert!(hit.take_refresh().is_some());
    let answer = world.cache.hit(&world.rules, &request, &hit);
    assert_eq!(field(&answer, "cache-status"), "polder; hit; ttl=-2; detail=stale");
    world.wait_s(2);
    assert!(!world.hits("/x", &[]));
    // Never in mode strict.
    world.rules.mode = Mode::Strict;
    world.serves(response(&[
        ("cache-control", "max-age=1, stale-while-revalidate=4"),
        ("xkey", "t"),
    ]));
    world.get("/y", &[]);
    assert!(!world.wait_s(3).hits("/y", &[]));
}

#[test]
fn memory_is_bounded_and_counted() {
    let limits = cache::Limits { memory_bytes: 1 << 20, entries_expected: 64, name: "p".into() };
    let mut world = World::new(Mode::Http);
    world.cache = cache::Cache::new(&limits);
    let body: &'static str = Box::leak("x".repeat(50_000).into_boxed_str());
    world.serves(response(&[("cache-control", "max-age=60")]).body(body));
    for at in 0..100 {
        world.get(&format!("/{at}"), &[]);
    }
    let stats = world.cache.stats();
    assert_eq!((stats.stored, stats.not_stored, stats.hits), (100, 0, 0));
    assert!(stats.bytes <= limits.memory_bytes && stats.urls <= 20, "{stats:?}");
    assert_eq!(stats.urls + stats.evicted, 100, "{stats:?}");
    assert_eq!(stats.forwarded.iter().map(|(_, count)| count).sum::<u64>(), 100);
    world.cache.purge(Purge::All);
    let stats = world.cache.stats();
    assert_eq!((stats.urls, stats.bytes, stats.purges), (0, 0, 1));
}

#[test]
fn variants_of_one_url_are_bounded() {
    let mut world = World::new(Mode::Http);
    world.serves(response(&[("cache-control", "max-age=60"), ("vary", "a")]));
    for at in 0..100 {
        assert!(!world.hits("/x", &[("a", &at.to_string())]));
    }
    let key = world.key("/x");
    assert_eq!(world.cache.explain(&key.borrowed()).len(), 32);
    assert!(world.hits("/x", &[("a", "99")]) && world.hits("/x", &[("a", "70")]));
    assert!(!world.hits("/x", &[("a", "0")]));
}

#[test]
fn who_waits_is_given_nothing_that_an_update_before_its_arrival_made_old() {
    let world = World::new(Mode::Strict);
    let mut collapse = Collapse::new(CollapseLimits::default());
    let headers = http::HeaderMap::new();
    let mut request = crate::world::request(&Method::GET, "/x", &headers, world.now);
    let fetch = |request: &cache::Request<'_>| match world.cache.lookup(&world.rules, request) {
        Lookup::Fetch(fetch) => fetch,
        Lookup::Hit(hit) => {
            assert_eq!(hit.proof(), Some(&crate::world::Version(1)), "the version before");
            // The tag was updated since, so it does not hold.
            match world.cache.refused(&world.rules, request, hit) {
                Lookup::Fetch(fetch) => fetch,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    let first = fetch(&request);
    let flight = first.flight();
    assert!(first.is_shared());
    assert_eq!(collapse.arrive(flight, Ticket(1), 0), Role::Lead);
    // The leader read version 1 and asked the server; then a writer made it 2, then this came.
    let second = fetch(&request);
    assert_eq!(collapse.arrive(second.flight(), Ticket(2), 0), Role::Wait);
    let mut fields = http::HeaderMap::new();
    fields.insert("xkey", "t".parse().unwrap());
    let head = cache::Head { status: StatusCode::OK, headers: fields };
    let now = cache::UnixMs(world.now);
    let prove = |_: &cache::Tags| Some(crate::world::Version(1));
    let reply = world.cache.respond(&world.rules, first, head, now, prove);
    let cache::Reply::Pass { fill: Ok(fill), .. } = reply else { panic!("it may be stored") };
    let stored = world.cache.finish(&world.rules, *fill, now);
    let wake = collapse.landed(flight, Landing::of(stored));
    assert_eq!(wake, Wake::LookUp(vec![Ticket(2)]));
    // It finds the response, and that it does not hold: so it leads a flight of its own.
    request.waited = true;
    let again = fetch(&request);
    assert_eq!(collapse.arrive(again.flight(), Ticket(2), 1), Role::Lead);
}

#[test]
fn who_has_a_response_of_its_own_neither_waits_nor_leads() {
    for (cookies, lines, shared) in [
        (Cookies::ByVary, &[][..], true),
        (Cookies::ByVary, &[("cookie", "a=1")], false),
        (Cookies::Ignored, &[("cookie", "a=1")], true),
        (Cookies::Keyed(vec!["a".to_owned()]), &[("cookie", "a=1")], true),
        (Cookies::ByVary, &[("authorization", "Basic x")], false),
    ] {
        let mut world = World::new(Mode::Http);
        world.rules.cookies = cookies.clone();
        let headers = lines.iter().map(|(name, value): &(&str, &str)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
        });
        let headers: http::HeaderMap = headers.collect();
        let request = crate::world::request(&Method::GET, "/x", &headers, world.now);
        let Lookup::Fetch(fetch) = world.cache.lookup(&world.rules, &request) else {
            panic!("nothing is stored");
        };
        assert_eq!(fetch.is_shared(), shared, "{cookies:?} {lines:?}");
    }
}

#[test]
fn a_page_of_a_static_server_has_the_tags_of_its_file() {
    let mut world = World::new(Mode::Strict);
    world.rules.files_at = Some("/assets".to_owned());
    world.serves(response(&[]));
    for path in ["/assets/a/b.html?x", "/other", "/assets/%zz"] {
        world.get(path, &[]);
    }
    let entries = world.cache.explain(&world.key("/assets/a/b.html?x").borrowed());
    let tags = entries[0].entry.tags().iter();
    let tags: Vec<_> = tags.map(|tag| String::from_utf8(tag.to_vec()).unwrap()).collect();
    assert_eq!(tags, ["file:/a/b.html", "files:/", "files:/a/", "files:/a/b.html/"]);
    assert!(world.hits("/assets/a/b.html?x", &[]));
    assert!(!world.hits("/other", &[]) && !world.hits("/assets/%zz", &[]), "no tag, no hit");
    world.rules.mode = Mode::Http;
    world.get("/assets/c", &[]);
    assert!(world.cache.explain(&world.key("/assets/c").borrowed()).is_empty());
}
