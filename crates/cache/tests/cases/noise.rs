//! Noise in the heads of requests and responses: nothing panics, and what must never be answered
//! from the cache is not, whatever else the heads say.

use cache::{Cookies, Mode, Unkeyed};
use fuzzing::Target;
use http::{HeaderMap, Method};

use crate::world::{World, field, response};

const TOKENS: [&str; 60] = [
    "\n",
    "\n\n",
    "cache-control: ",
    "max-age=",
    "s-maxage=60",
    "no-store",
    "no-cache",
    "no-cache=\"a, set-cookie\"",
    "private",
    "private=\"",
    "public",
    "must-revalidate",
    "must-understand",
    "stale-while-revalidate=9",
    "stale-if-error=99999999999999999999",
    "cdn-cache-control: max-age=60",
    ";a=b",
    "=?1",
    ":YQ==:",
    "pragma: no-cache",
    "only-if-cached",
    "max-stale",
    "min-fresh=",
    "expires: ",
    "date: ",
    "last-modified: ",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Fri, 20 Nov 2026 07:33:20 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "age: ",
    "18446744073709551616",
    "vary: ",
    "*",
    "cookie",
    "cookie: a=1; b=2",
    "set-cookie: a=1",
    "authorization: Basic x",
    "accept-encoding: gzip;q=0.5, *;q=0",
    "accept-language: de, en;q=0.1",
    "content-encoding: gzip",
    "content-length: ",
    "etag: ",
    "W/\"a\"",
    "\"a\"",
    "if-none-match: ",
    "if-modified-since: ",
    "if-range: ",
    "range: bytes=",
    "0-1",
    "-1",
    "connection: a, etag",
    "surrogate-key: a b",
    "cache-tag: a, b",
    "xkey: a",
    "location: ../x?y",
    "content-location: //a.example/x",
    "transfer-encoding: chunked",
    "\u{80}",
    "=",
];

/// Lines `name: value` up to an empty one; those that HTTP knows not are left out.
fn head<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()).take(40) {
        let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        let name = http::HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn world(first: u8) -> World {
    let mut world = World::new(if first & 1 == 0 { Mode::Http } else { Mode::Strict });
    let rules = &mut world.rules;
    rules.unkeyed = if first & 2 == 0 { Unkeyed::Passed } else { Unkeyed::Removed };
    rules.client_directives = first & 4 != 0;
    rules.stale_while_revalidate = first & 8 != 0;
    rules.stale_if_error_ms = u64::from(first & 16) * 1_000;
    rules.tags_to_clients = first & 32 != 0;
    rules.cookies = match first >> 6 {
        0 => Cookies::ByVary,
        1 => Cookies::Ignored,
        2 => Cookies::Keyed(vec!["a".to_owned()]),
        _ => Cookies::Bypass,
    };
    world
}

#[test]
fn fuzz_cache_headers() {
    Target::new("cache_headers", env!("CARGO_MANIFEST_DIR")).tokens(&TOKENS).run(|bytes, _| {
        let (&first, rest) = bytes.split_first()?;
        let mut lines = rest.split(|&byte| byte == b'\n');
        let (user, said, other) = (head(&mut lines), head(&mut lines), head(&mut lines));
        let status = [200, 200, 404, 503, 204, 206, 304, 299][usize::from(first >> 5)];
        let mut world = world(first);
        let mut server = response(&[]).status(status);
        server.more = said.clone();
        world.serves(server);
        world.send(&Method::GET, "/x", &user);
        let stored = world.stored;
        world.wait_s(u64::from(first & 7)).version += u64::from(first & 1);
        let asked = world.count();
        let answer = world.send(&Method::GET, "/x", &other);
        let hit = world.count() == asked && answer.status != 504;
        if hit {
            check_hit(&world, &user, &said, &other);
            assert_ne!(field(&answer, "cache-status"), "");
            for name in ["connection", "transfer-encoding"] {
                assert_eq!(field(&answer, name), "", "{name}");
            }
        }
        world.send(&Method::HEAD, "/x", &other);
        world.send(&Method::POST, "/x", &other);
        world.rules.client_directives = false;
        let asked = world.count();
        let after = world.get("/x", &[]);
        let written = status < 400 && world.rules.mode != Mode::Off;
        assert!(!written || world.count() > asked || after.status == 504, "written to, and a hit");
        Some((hit, stored, answer.status))
    });
}

/// What no head can make a hit.
fn check_hit(world: &World, user: &HeaderMap, said: &HeaderMap, other: &HeaderMap) {
    let says = |headers: &HeaderMap, name: &str, word: &str| {
        let mut lines = headers.get_all(name).iter();
        lines.any(|line| {
            String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase().contains(word)
        })
    };
    let cdn = said.contains_key("cdn-cache-control");
    let allows = ["public", "s-maxage", "must-revalidate", "no-cache", "private"]
        .iter()
        .any(|word| says(said, "cache-control", word));
    let free = cdn || allows;
    assert!(free || !said.contains_key("set-cookie"), "a cookie is shared");
    assert!(free || !user.contains_key("authorization"), "an authorised page is shared");
    let by_vary = world.rules.cookies == Cookies::ByVary && user.contains_key("cookie");
    assert!(!by_vary || says(said, "vary", "cookie"), "a page for cookies is shared");
    let same = |name: &str| user.get_all(name).iter().eq(other.get_all(name).iter());
    let varies = says(said, "vary", "cookie") && world.rules.cookies == Cookies::ByVary;
    assert!(!varies || same("cookie"), "a page for other cookies is shared");
    let tags = ["surrogate-key", "cache-tag", "x-cache-tags", "xkey"];
    let tagged = tags.iter().any(|name| said.contains_key(*name));
    assert!(world.rules.mode == Mode::Http || tagged, "a strict hit without tags");
    assert!(world.rules.mode == Mode::Http || world.version == 1, "a strict hit without a proof");
}
