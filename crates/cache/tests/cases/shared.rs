//! Never shared: two users for each rule. The first gets a response of its own; the second must not
//! get the first one's, and gets it where the response or the site says that it may.

use cache::{Cookies, Lookup, Mode, NotStored, Unkeyed};
use http::Method;

use crate::world::{World, field, request, response};

type Lines<'a> = &'a [(&'static str, &'a str)];

/// Two users ask, one after the other; whether the second got the first one's response.
fn shared(rule: impl Fn(&mut World), said: Lines<'_>, users: [Lines<'_>; 2]) -> bool {
    let mut shared = [false, false];
    for (mode, shared) in [Mode::Http, Mode::Strict].into_iter().zip(&mut shared) {
        let mut world = World::new(mode);
        rule(&mut world);
        let tagged = [said, &[("surrogate-key", "t")]].concat();
        world.serves(response(&tagged).body("for the first"));
        world.get("/x", users[0]);
        world.serves(response(&tagged).body("for the second"));
        let asked = world.count();
        let second = world.get("/x", users[1]);
        *shared = second.body == "for the first";
        assert_eq!(*shared, world.count() == asked, "{mode:?}: whose body is it?");
    }
    assert_eq!(shared[0], shared[1], "both modes share alike");
    shared[0]
}

fn usual(_: &mut World) {}

const FRESH: (&str, &str) = ("cache-control", "max-age=60");
const NOBODY: Lines<'_> = &[];

#[test]
fn a_plain_page_is_shared() {
    assert!(shared(usual, &[FRESH], [NOBODY, NOBODY]));
}

#[test]
fn a_page_that_sets_a_cookie_is_not() {
    let cookie = ("set-cookie", "session=1");
    assert!(!shared(usual, &[FRESH, cookie], [NOBODY, NOBODY]));
    assert!(!shared(
        usual,
        &[("expires", "Fri, 01 Jan 2038 01:01:01 GMT"), cookie],
        [NOBODY, NOBODY]
    ));
    for says in ["max-age=60, public", "s-maxage=60", "max-age=60, no-cache=\"set-cookie\""] {
        assert!(shared(usual, &[("cache-control", says), cookie], [NOBODY, NOBODY]), "{says}");
    }
}

#[test]
fn a_cookie_that_is_not_to_be_kept_reaches_its_own_user_alone() {
    let mut world = World::new(Mode::Http);
    let says = ("cache-control", "max-age=60, private=\"set-cookie\"");
    world.serves(response(&[says, ("set-cookie", "session=1")]));
    assert_eq!(field(&world.get("/x", &[]), "set-cookie"), "session=1");
    assert_eq!(field(&world.get("/x", &[]), "set-cookie"), "");
    assert_eq!(world.count(), 1);
}

#[test]
fn a_page_for_an_authorised_user_is_not() {
    let first: Lines<'_> = &[("authorization", "Basic first")];
    let second: Lines<'_> = &[("authorization", "Basic second")];
    for users in [[first, second], [first, NOBODY], [first, first]] {
        assert!(!shared(usual, &[FRESH], users), "{users:?}");
    }
    for says in ["max-age=60, public", "s-maxage=60", "max-age=60, must-revalidate"] {
        assert!(shared(usual, &[("cache-control", says)], [first, second]), "{says}");
    }
}

#[test]
fn a_private_page_is_not() {
    for says in ["private, max-age=60", "max-age=60, Private", "no-store", "max-age=60, no-store"] {
        assert!(!shared(usual, &[("cache-control", says)], [NOBODY, NOBODY]), "{says}");
    }
    let cdn = ("cdn-cache-control", "private, max-age=60");
    assert!(!shared(usual, &[FRESH, cdn], [NOBODY, NOBODY]));
    let cdn = ("cdn-cache-control", "max-age=60");
    assert!(shared(usual, &[("cache-control", "private"), cdn], [NOBODY, NOBODY]));
}

#[test]
fn a_page_for_a_user_with_cookies_is_not() {
    let (first, second): (Lines<'_>, Lines<'_>) = (&[("cookie", "id=1")], &[("cookie", "id=2")]);
    let by_cookie = ("vary", "Cookie");
    for users in [[first, second], [first, NOBODY], [first, first]] {
        assert!(!shared(usual, &[FRESH], users), "{users:?}");
    }
    // By Vary, to the same cookies alone.
    assert!(!shared(usual, &[FRESH, by_cookie], [first, second]));
    assert!(!shared(usual, &[FRESH, by_cookie], [first, NOBODY]));
    assert!(!shared(usual, &[FRESH, by_cookie], [NOBODY, first]));
    assert!(shared(usual, &[FRESH, by_cookie], [first, first]));
    // A page that was made without cookies is nobody's.
    assert!(shared(usual, &[FRESH], [NOBODY, first]));
}

#[test]
fn cookies_do_what_the_site_says() {
    let (first, second): (Lines<'_>, Lines<'_>) =
        (&[("cookie", "lang=de; id=1")], &[("cookie", "id=2; lang=de")]);
    let other: Lines<'_> = &[("cookie", "lang=fr; id=1")];
    let set = |cookies: Cookies| move |world: &mut World| world.rules.cookies = cookies.clone();
    let keyed = set(Cookies::Keyed(vec!["lang".to_owned()]));
    assert!(shared(set(Cookies::Ignored), &[FRESH], [first, second]));
    assert!(shared(&keyed, &[FRESH], [first, second]));
    assert!(!shared(&keyed, &[FRESH], [first, other]));
    assert!(!shared(&keyed, &[FRESH], [first, NOBODY]));
    assert!(!shared(set(Cookies::Bypass), &[FRESH], [first, first]));
    // What the server does not see, its Vary cannot mean.
    let by_cookie = ("vary", "Cookie");
    assert!(shared(set(Cookies::Ignored), &[FRESH, by_cookie], [first, other]));
    assert!(shared(&keyed, &[FRESH, by_cookie], [first, second]));
    assert!(!shared(&keyed, &[FRESH, by_cookie], [first, other]));
    // What the server saw of them.
    for (cookies, seen) in [
        (Cookies::Ignored, None),
        (Cookies::Keyed(vec!["lang".to_owned()]), Some("lang=de")),
        (Cookies::ByVary, Some("lang=de; id=1")),
    ] {
        let mut world = World::new(Mode::Http);
        world.rules.cookies = cookies;
        world.serves(response(&[FRESH])).get("/x", first);
        let sent = world.asked[0].get("cookie").map(|value| value.to_str().unwrap());
        assert_eq!(sent, seen);
    }
}

#[test]
fn a_page_for_one_user_keeps_none_for_others_out() {
    let keyed = Cookies::Keyed(vec!["session".to_owned()]);
    let user: Lines<'_> = &[("cookie", "session=1")];
    let private = response(&[("cache-control", "private"), ("vary", "Cookie")]);
    let public = response(&[FRESH, ("vary", "Cookie")]);
    for (cookies, user) in [
        (Cookies::ByVary, user),
        (keyed.clone(), user),
        (Cookies::Ignored, &[("authorization", "Basic eDp5")]),
    ] {
        let mut world = World::new(Mode::Http);
        world.rules.cookies = cookies;
        world.serves(private.clone()).get("/x", user);
        world.serves(public.clone()).get("/x", NOBODY);
        assert!(world.hits("/x", NOBODY), "{:?}", world.stored);
    }
    // What the server said to nobody in particular it says to all, for a while.
    for (cookies, anybody) in [(keyed, &[("cookie", "other=1")][..]), (Cookies::Ignored, user)] {
        let mut world = World::new(Mode::Http);
        world.rules.cookies = cookies;
        world.serves(private.clone()).get("/x", anybody);
        world.serves(public.clone()).get("/x", NOBODY);
        assert!(!world.hits("/x", NOBODY));
        world.wait_s(11).get("/x", NOBODY);
        assert!(world.hits("/x", NOBODY));
    }
}

#[test]
fn nobody_waits_for_what_will_be_for_another() {
    let mut world = World::new(Mode::Http);
    world.rules.cookies = Cookies::Keyed(vec!["session".to_owned()]);
    let flight = |cookie: Option<&'static str>| {
        let mut headers = http::HeaderMap::new();
        headers.extend(cookie.map(|text| (http::header::COOKIE, text.parse().unwrap())));
        let request = request(&Method::GET, "/x", &headers, world.now);
        match world.cache.lookup(&world.rules, &request) {
            Lookup::Fetch(fetch) => fetch.flight(),
            other => panic!("{other:?}"),
        }
    };
    // Nothing is stored yet that would tell them apart.
    assert_eq!(flight(None), flight(Some("other=1")));
    assert_eq!(flight(Some("session=1")), flight(Some("other=1; session=1")));
    assert_ne!(flight(None), flight(Some("session=1")));
    assert_ne!(flight(Some("session=1")), flight(Some("session=2")));
}

#[test]
fn a_page_for_one_language_or_coding_is_not_for_others() {
    let said = [FRESH, ("vary", "Accept-Language")];
    let (german, french): (Lines<'_>, Lines<'_>) =
        (&[("accept-language", "de, en")], &[("accept-language", "fr")]);
    assert!(!shared(usual, &said, [german, french]));
    assert!(shared(usual, &said, [german, &[("accept-language", "EN,de")]]));
    // An encoded page is for those who can read it, whether or not it says so.
    let said = [FRESH, ("content-encoding", "gzip")];
    let (modern, plain): (Lines<'_>, Lines<'_>) =
        (&[("accept-encoding", "gzip, deflate, br")], &[("accept-encoding", "identity")]);
    assert!(!shared(usual, &said, [modern, plain]));
    assert!(shared(usual, &said, [modern, &[("accept-encoding", "br, GZIP;q=0.5")]]));
}

#[test]
fn a_field_that_the_server_believes_reaches_it_from_nobody() {
    let pretends: Lines<'_> = &[("x-forwarded-host", "evil.example"), ("x-original-url", "/admin")];
    for unkeyed in [Unkeyed::Removed, Unkeyed::Passed] {
        let mut world = World::new(Mode::Http);
        world.rules.unkeyed = unkeyed;
        world.serves(response(&[FRESH])).get("/x", pretends);
        assert_eq!(world.asked[0].len(), 0, "{:?}", world.asked[0]);
    }
    // Neither do responses depend on it.
    let said = [FRESH, ("vary", "X-Forwarded-Host, Range, Accept-Encoding")];
    let coded: Lines<'_> = &[("accept-encoding", "identity"), ("x-forwarded-host", "b.example")];
    for unkeyed in [Unkeyed::Removed, Unkeyed::Passed] {
        assert!(shared(|world| world.rules.unkeyed = unkeyed, &said, [pretends, coded]));
    }
    // Any other field is a client's word too.
    let mut world = World::new(Mode::Http);
    world.rules.unkeyed = Unkeyed::Removed;
    let own: Lines<'_> = &[("x-theme", "dark"), ("user-agent", "a"), ("x-request-id", "7")];
    world.serves(response(&[FRESH])).get("/x", own);
    assert_eq!(
        world.asked[0].keys().map(http::HeaderName::as_str).collect::<Vec<_>>(),
        ["x-request-id"]
    );
    world.rules.passed = vec![http::HeaderName::from_static("user-agent")];
    world.get("/y", own);
    assert_eq!(world.asked[1].len(), 2);
}

#[test]
fn a_keyed_field_has_a_page_for_each_of_its_values() {
    let (here, there): (Lines<'_>, Lines<'_>) =
        (&[("origin", "https://a.example")], &[("origin", "https://b.example")]);
    for unkeyed in [Unkeyed::Removed, Unkeyed::Passed] {
        let set = |world: &mut World| world.rules.unkeyed = unkeyed;
        assert!(!shared(set, &[FRESH], [here, there]));
        assert!(!shared(set, &[FRESH], [here, NOBODY]));
        assert!(!shared(set, &[FRESH], [NOBODY, there]));
        assert!(shared(set, &[FRESH], [here, here]));
    }
    let mut world = World::new(Mode::Http);
    world.rules.unkeyed = Unkeyed::Removed;
    world.serves(response(&[FRESH])).get("/x", here);
    assert_eq!(world.asked[0]["origin"], "https://a.example");
}

#[test]
fn a_field_that_vary_names_is_sent_from_then_on() {
    let mut world = World::new(Mode::Http);
    world.rules.unkeyed = Unkeyed::Removed;
    world.serves(response(&[FRESH, ("vary", "X-Theme")]));
    let (dark, light): (Lines<'_>, Lines<'_>) = (&[("x-theme", "dark")], &[("x-theme", "light")]);
    world.get("/x", dark);
    // Once without, and again with it.
    assert_eq!(world.count(), 2);
    assert_eq!(world.asked[1]["x-theme"], "dark");
    assert!(world.hits("/x", dark));
    assert!(!world.hits("/x", light));
    assert_eq!((world.count(), &world.asked[2]["x-theme"]), (3, &"light".parse().unwrap()));
    assert!(!world.hits("/y", light) && world.count() == 4);
}

#[test]
fn a_site_whose_responses_vary_by_too_much_is_not_asked_twice_for_ever() {
    let mut world = World::new(Mode::Http);
    world.rules.unkeyed = Unkeyed::Removed;
    for at in 0..40_usize {
        let name: &'static str = Box::leak(format!("x-{at}").into_boxed_str());
        world.serves(response(&[FRESH, ("vary", name)]));
        world.get("/x", &[(name, "1")]);
    }
    let stored = world.stored.unwrap();
    assert_eq!((stored, world.count()), (Err(NotStored::Vary), 40 + 32));
}

#[test]
fn a_write_is_never_answered_from_the_cache() {
    let mut world = World::new(Mode::Http);
    world.serves(response(&[FRESH]));
    world.get("/x", &[]);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE] {
        let before = world.count();
        let answer = world.ask(&method, "/x", &[]);
        assert_eq!(world.count(), before + 1, "{method}");
        assert_eq!(field(&answer, "cache-status"), "polder; fwd=method");
    }
}
