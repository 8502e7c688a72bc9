//! What each application says, and what is made of it.

use super::*;
use http::HeaderMap;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn asked(method: &str, path: &str, lines: &[(&'static str, &str)]) -> Result<Asked, Wrong> {
    let method: Method = method.parse().unwrap();
    assert!(is_spoken(&method, path), "{method} {path}");
    read("shop", &method, path, &headers(lines), b"")
}

fn tags(tags: &[&str]) -> Result<Asked, Wrong> {
    Ok(Asked::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()))
}

#[test]
fn each_application_is_understood() {
    // Varnish's module xkey, API Platform, Shopware.
    assert_eq!(asked("PURGE", "/", &[("xkey", "a b,c")]), tags(&["a", "b", "c"]));
    assert_eq!(asked("PURGE", "/", &[("xkey-purge", "a"), ("xkey-purge", "b")]), tags(&["a", "b"]));
    assert_eq!(asked("PURGE", "/", &[("xkey-softpurge", "a")]), tags(&["a"]));
    // FOSHttpCache with Varnish, by ban and by key; its filters say everything.
    let all = [("x-host", ".*"), ("x-url", ".*"), ("x-content-type", ".*")];
    let ban = [&all[..], &[("x-cache-tags", r"(^|,)(post\-1|menu)(,|$)")]].concat();
    assert_eq!(asked("BAN", "/", &ban), tags(&["post-1", "menu"]));
    assert_eq!(asked("BAN", "/", &all), Ok(Asked::Everything));
    assert_eq!(asked("PURGEKEYS", "/", &[("xkey-softpurge", "a b")]), tags(&["a", "b"]));
    // FOSHttpCache with Symfony's own proxy.
    assert_eq!(asked("PURGETAGS", "/", &[("x-cache-tags", "a(b),c")]), tags(&["a(b)", "c"]));
    assert_eq!(asked("PURGE", "/", &[("clear-cache", "true")]), Ok(Asked::Everything));
    // Magento.
    let magento = "((^|,)cat_p_1(,|$))|((^|,)cat_p_2(,|$))";
    let field = "x-magento-tags-pattern";
    assert_eq!(asked("PURGE", "/", &[(field, magento)]), tags(&["cat_p_1", "cat_p_2"]));
    assert_eq!(asked("PURGE", "/", &[(field, ".*")]), Ok(Asked::Everything));
    // Drupal.
    assert_eq!(asked("BAN", "/", &[("cache-tags", "node:1|user:2")]), tags(&["node:1", "user:2"]));
    assert_eq!(asked("BAN", "/", &[("purge-cache-tags", "node:1")]), tags(&["node:1"]));
    assert_eq!(asked("BAN", "/", &[("cache-tag", "a b,c")]), tags(&["a b", "c"]));
    // API Platform.
    let banned = [("apiplatform-ban-regex", r"(/books/1|/books)($|\,)")];
    assert_eq!(asked("BAN", "/", &banned), tags(&["/books/1", "/books"]));
    // Everybody, and plugins of WordPress.
    assert_eq!(asked("PURGE", "/a?b", &[]), Ok(Asked::Url));
    assert_eq!(asked("PURGE", "/a", &[("x-purge-method", "default")]), Ok(Asked::Url));
    assert_eq!(asked("PURGE", "/.*", &[("x-purge-method", "regex")]), Ok(Asked::Everything));
}

#[test]
fn the_interface_of_a_cdn_is_understood() {
    assert_eq!(asked("POST", "/service/shop/purge/node%3a1", &[]), tags(&["node:1"]));
    assert_eq!(asked("POST", "/service/shop/purge/a/b", &[]), tags(&["a/b"]));
    assert_eq!(
        asked("POST", "/service/shop/purge", &[("surrogate-key", "a b")]),
        tags(&["a", "b"])
    );
    assert_eq!(asked("POST", "/service/shop/purge_all", &[]), Ok(Asked::Everything));
    for (path, wrong) in [
        ("/service/blog/purge/a", Wrong::Service),
        ("/service//purge_all", Wrong::Service),
        ("/service/shop/purge", Wrong::NoKeys),
        ("/service/shop/purge/", Wrong::BadTag),
        ("/service/shop/purge/a%2", Wrong::BadKey),
        ("/service/shop/purge/a%zz", Wrong::BadKey),
        ("/service/shop/purge/%0a", Wrong::BadTag),
        ("/service/shop/purge/%ff", Wrong::BadTag),
        ("/service/shop/purge/%20a", Wrong::BadTag),
    ] {
        assert_eq!(asked("POST", path, &[]), Err(wrong), "{path}");
    }
}

#[test]
fn keys_come_in_a_body_too() {
    let post = |path: &str, lines: &[(&'static str, &str)], body: &str| {
        let headers = headers(lines);
        let counts = wants_body(&Method::POST, path, &headers);
        let body = if counts { body.as_bytes() } else { b"" };
        read("shop", &Method::POST, path, &headers, body)
    };
    let (path, body) = ("/service/shop/purge", r#"{"surrogate_keys": ["c", "node:1"]}"#);
    assert_eq!(post(path, &[], body), tags(&["c", "node:1"]));
    let (key, json) = (("surrogate-key", "a b"), ("content-type", "application/json"));
    assert_eq!(post(path, &[key, json], body), tags(&["a", "b", "c", "node:1"]));
    assert_eq!(post(path, &[key, json], ""), tags(&["a", "b"]));
    assert_eq!(post(path, &[key], "what forms send"), tags(&["a", "b"]));
    assert_eq!(post(path, &[json], ""), Err(Wrong::NoKeys));
    assert!(matches!(post(path, &[json], "{"), Err(Wrong::Body(_))));
    assert!(matches!(post(path, &[key, json], "{"), Err(Wrong::Body(_))));
    assert_eq!(post(path, &[], r#"{"surrogate_keys": ["a", ""]}"#), Err(Wrong::BadTag));
    assert_eq!(post(path, &[], r#"{"surrogate_keys": ["a\nb"]}"#), Err(Wrong::BadTag));
    let many = |count| serde_json::json!({ "surrogate_keys": vec!["t"; count] }).to_string();
    assert_eq!(post(path, &[], &many(TAGS_MAX)), tags(&["t"; TAGS_MAX]));
    assert_eq!(post(path, &[], &many(TAGS_MAX + 1)), Err(Wrong::TooManyTags));
    // These have said it all.
    assert_eq!(post("/service/shop/purge/a", &[json], body), tags(&["a"]));
    assert_eq!(post("/service/shop/purge_all", &[json], body), Ok(Asked::Everything));
    assert!(!wants_body(&"PURGE".parse().unwrap(), "/service/shop/purge", &headers(&[json])));
}

#[test]
fn soft_purges_are_known() {
    let soft = |lines: &[(&'static str, &str)], asked: &Asked| is_soft(&headers(lines), asked);
    let tag = Asked::Tags(vec!["a".to_owned()]);
    let fastly = ("fastly-soft-purge", "1");
    assert!(soft(&[fastly], &tag) && soft(&[fastly], &Asked::Url));
    assert!(!soft(&[("fastly-soft-purge", "0")], &tag) && !soft(&[], &tag));
    assert!(!soft(&[fastly, ("fastly-soft-purge", "0")], &tag), "one of two doubts");
    assert!(!soft(&[fastly], &Asked::Everything), "nothing is left of that at Fastly either");
    assert!(soft(&[("xkey-softpurge", "a")], &tag));
    assert!(!soft(&[("xkey-softpurge", "a"), ("xkey-purge", "b")], &tag));
    assert!(!soft(&[("xkey-purge", "a")], &tag) && !soft(&[("xkey", "a")], &tag));
}

#[test]
fn other_requests_are_the_applications() {
    for (method, path) in [
        ("GET", "/service/shop/purge/a"),
        ("POST", "/service/shop"),
        ("POST", "/service/shop/purged"),
        ("POST", "/a/service/shop/purge"),
        ("DELETE", "/"),
        ("REFRESH", "/"),
        ("purge", "/"),
    ] {
        assert!(!is_spoken(&method.parse().unwrap(), path), "{method} {path}");
    }
}

#[test]
fn what_is_not_understood_is_refused_and_nothing_of_it_counts() {
    let pattern = |value| asked("BAN", "/", &[("x-cache-tags", value)]);
    assert_eq!(pattern("post-.*"), Err(Wrong::Pattern("x-cache-tags")));
    assert_eq!(asked("BAN", "/", &[]), Err(Wrong::Nothing));
    assert_eq!(asked("BAN", "/", &[("x-host", ".*")]), Err(Wrong::Nothing));
    assert_eq!(asked("PURGETAGS", "/", &[]), Err(Wrong::Nothing));
    assert_eq!(asked("BAN", "/", &[("x-url", "^/a")]), Err(Wrong::Narrowing("x-url")));
    let two = [("xkey", "a"), ("x-host", "^b$")];
    assert_eq!(asked("BAN", "/", &two), Err(Wrong::Narrowing("x-host")));
    assert_eq!(asked("PURGE", "/", &[("xkey", " ")]), Err(Wrong::NoTag("xkey")));
    assert_eq!(asked("PURGE", "/", &[("xkey", "a"), ("xkey", "")]), Err(Wrong::NoTag("xkey")));
    assert_eq!(asked("PURGE", "/a.*", &[("x-purge-method", "regex")]), Err(Wrong::PurgeMethod));
    let many = vec!["a"; TAGS_MAX].join(" ");
    assert!(asked("PURGE", "/", &[("xkey", &many)]).is_ok());
    let more = [("xkey", many.as_str()), ("cache-tag", "b")];
    assert_eq!(asked("PURGE", "/", &more), Err(Wrong::TooManyTags));
    let long = vec!["a".repeat(TAG_BYTES_MAX); TAGS_BYTES_MAX / TAG_BYTES_MAX].join(" ");
    assert!(asked("PURGE", "/", &[("xkey", &long)]).is_ok());
    assert_eq!(asked("PURGE", "/", &[("xkey", &(long + " b"))]), Err(Wrong::TooManyTags));
    let longer = "a".repeat(TAG_BYTES_MAX + 1);
    assert_eq!(asked("PURGE", "/", &[("xkey", &longer)]), Err(Wrong::BadTag));
    let broken = [("xkey", HeaderValue::from_bytes(b"a\xff").unwrap())].into_iter();
    let broken = broken.map(|(name, value)| (HeaderName::from_static(name), value)).collect();
    assert_eq!(read("shop", &"PURGE".parse().unwrap(), "/", &broken, b""), Err(Wrong::BadTag));
}

/// What is said of a tag in a response and in a purge must mean the same tag.
#[test]
fn lists_are_split_as_those_of_responses() {
    for field in ["xkey", "surrogate-key", "cache-tag"] {
        let lines = headers(&[(field, "b  a,c ,b")]);
        let stored = cache::tags::Tags::of(&lines).unwrap();
        let Ok(Asked::Tags(mut purged)) = read("shop", &"PURGE".parse().unwrap(), "/", &lines, b"")
        else {
            panic!("{field}");
        };
        purged.sort();
        purged.dedup();
        assert!(stored.iter().eq(purged.iter().map(String::as_bytes)), "{field}");
    }
}
