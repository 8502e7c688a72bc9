//! What values of fields mean the same, and which do not.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

#[test]
fn names_are_read_and_a_star_is_for_nobody_else() {
    let of = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("vary", *line)).collect();
        let names = names(&map(&lines))?;
        Ok(names.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(of(&["Foo, bar", "FOO,,"]), Ok(vec!["foo".to_owned(), "bar".to_owned()]));
    assert_eq!(of(&[]), Ok(vec![]));
    for star in ["*", "*, *", ", *", "*, Foo", "Foo, *", "a b", "ä"] {
        assert_eq!(of(&[star]), Err(ForNobodyElse), "{star}");
    }
    assert_eq!(of(&["", "*"]), Err(ForNobodyElse));
    let many: Vec<String> = (0..=NAMES_MAX).map(|at| format!("x-{at}")).collect();
    assert_eq!(of(&[&many.join(",")]), Err(ForNobodyElse));
}

#[test]
fn values_that_mean_the_same_are_for_the_same_response() {
    let same = |name: &'static str, stored: &[&str], asked: &[&str]| {
        let lines = |values: &[&str]| {
            let lines: Vec<_> = values.iter().map(|value| (name, *value)).collect();
            map(&lines)
        };
        let response = map(&[("vary", name)]);
        let selected = Selected::of(&Rules::default(), &lines(stored), &response).unwrap();
        selected.is_for(&Rules::default(), &lines(asked))
    };
    for (name, stored, asked, expected) in [
        ("foo", &["1"][..], &["1"][..], true),
        ("foo", &["1"], &["2"], false),
        ("foo", &["1"], &[], false),
        ("foo", &[], &["1"], false),
        ("foo", &[], &[], true),
        ("foo", &["1, 2"], &["1", "2"], true),
        ("foo", &["1,2"], &[" 1, 2 "], true),
        ("foo", &["1"], &["1", "1"], false),
        ("foo", &["a"], &["A"], false),
        ("accept-language", &["en, de"], &["DE , en"], true),
        ("accept-language", &["en, de"], &["en;q=0.5, de"], false),
        ("accept-language", &["en"], &["en;q=1.0"], true),
        ("accept-encoding", &["gzip, br"], &["br;q=0.1, x-gzip, deflate"], true),
        ("accept-encoding", &["gzip"], &["*"], true),
        ("accept-encoding", &["gzip;q=0"], &["identity"], true),
        ("accept-encoding", &["gzip;q=0, *"], &[], true),
        ("accept-encoding", &["gzip"], &[], false),
        ("cookie", &["a=1, b"], &["a=1,b"], false),
    ] {
        assert_eq!(same(name, stored, asked), expected, "{name} {stored:?} {asked:?}");
    }
}

#[test]
fn keyed_cookies_are_taken_in_the_order_of_the_setting() {
    let keyed = ["a".to_owned(), "b".to_owned()];
    let of = |lines: &[(&'static str, &str)]| keyed_cookies(&map(lines), &keyed);
    assert_eq!(of(&[("cookie", "b=2; x=3;a=1"), ("cookie", "a=4")]), Some(b"a=1; a=4; b=2".into()));
    assert_eq!(of(&[("cookie", "aa=1; A=2; =3")]), None);
    assert_eq!(of(&[]), None);
}

proptest! {
    /// Whatever a request carries, its own response is for it.
    #[test]
    fn a_response_is_for_its_own_request(
        lines in prop::collection::vec((0_usize..5, "[ -~]{0,12}"), 0..6),
    ) {
        let names = ["foo", "accept-encoding", "accept-language", "cookie", "bar"];
        let lines: Vec<_> = lines.iter().map(|(at, value)| (names[*at], value.trim())).collect();
        let request = map(&lines);
        for cookies in [Cookies::ByVary, Cookies::Ignored, Cookies::Keyed(vec!["a".to_owned()])] {
            let rules = Rules { cookies, ..Rules::default() };
            let response = map(&[("vary", &names.join(", ")), ("content-encoding", "br")]);
            let selected = Selected::of(&rules, &request, &response).unwrap();
            prop_assert!(selected.is_for(&rules, &request));
            prop_assert!(selected.names().count() >= names.len());
        }
    }
}
