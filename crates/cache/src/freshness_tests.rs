//! Lifetimes and ages: the published cases, and a naive twin for all others.

use proptest::prelude::*;

use super::*;
use crate::options::Limits;

/// Sun, 06 Nov 1994 08:49:37 GMT.
const BASE_S: u64 = 784_111_777;

/// A date of the day of `BASE_S`.
fn date_at(seconds: i64) -> String {
    let of_day = 8 * 3_600 + 49 * 60 + 37 + seconds;
    let (day, left) = (6 + of_day.div_euclid(86_400), of_day.rem_euclid(86_400));
    assert!((1..=30).contains(&day), "within the month");
    let (hour, minute, second) = (left / 3_600, left / 60 % 60, left % 60);
    format!("Sun, {day:02} Nov 1994 {hour:02}:{minute:02}:{second:02} GMT")
}

fn judged(rules: &Rules, lines: &[(&'static str, &str)]) -> Freshness {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    let directives = Directives::of_response(&headers);
    let at = UnixMs(BASE_S * 1_000);
    let times = Times { requested_at: at, received_at: at };
    judge(rules, StatusCode::OK, &headers, &directives, times, false)
}

fn http() -> Rules {
    Rules { mode: Mode::Http, ..Rules::default() }
}

/// Seconds of freshness that are left at once.
fn left_s(lines: &[(&'static str, &str)]) -> i64 {
    judged(&http(), lines).ttl_s(UnixMs(BASE_S * 1_000))
}

#[test]
fn the_first_of_s_maxage_max_age_and_expires_counts() {
    let (past, soon) = (&*date_at(-10), &*date_at(300));
    let now = ("date", &*date_at(0));
    for (lines, expected) in [
        (&[("cache-control", "max-age=60")][..], 60),
        (&[("cache-control", "max-age=1, s-maxage=60")], 60),
        (&[("cache-control", "s-maxage=1, max-age=60")], 1),
        (&[("cache-control", "max-age=60"), ("expires", past)], 60),
        (&[("cache-control", "max-age=0"), ("expires", soon)], 0),
        (&[("expires", soon), now], 300),
        (&[("expires", soon)], 300),
        (&[("expires", soon), ("date", "foo")], 300),
        (&[("expires", past), now], 0),
        (&[("expires", "0"), now], 0),
        (&[("expires", soon), ("expires", past)], 0),
        (&[("expires", soon), ("date", &date_at(400))], 0),
        (&[("cdn-cache-control", "max-age=5"), ("cache-control", "max-age=60")], 5),
        (&[("cdn-cache-control", "no-store"), ("expires", soon)], 0),
        (&[("cdn-cache-control", "&&"), ("expires", soon)], 300),
        (&[], 0),
    ] {
        assert_eq!(left_s(lines), expected, "{lines:?}");
    }
}

#[test]
fn ages_are_read_as_the_suite_asks() {
    for (age, fresh) in [
        ("abc", true),
        ("-7200", true),
        ("7200.0", true),
        ("2147483648", false),
        ("99999999999999999999999999", false),
        ("7200, 0", false),
        ("0, 7200", true),
        ("", true),
    ] {
        let lines = [("cache-control", "max-age=3600"), ("age", age), ("date", &*date_at(0))];
        let is = judged(&http(), &lines).is_fresh(UnixMs(BASE_S * 1_000));
        assert_eq!(is, fresh, "{age:?}");
    }
    let lines = [("cache-control", "max-age=3600"), ("age", "7200"), ("age", "0")];
    assert!(left_s(&lines) < 0);
    // A date in the past is an age too.
    assert_eq!(left_s(&[("cache-control", "max-age=60"), ("date", &*date_at(-20))]), 40);
}

#[test]
fn what_says_nothing_is_fresh_for_a_tenth_of_its_age() {
    let modified = date_at(-1_000);
    let lines = [("last-modified", &*modified), ("date", &*date_at(0))];
    assert_eq!(left_s(&lines), 100);
    assert_eq!(judged(&Rules { heuristics: false, ..http() }, &lines).lifetime_ms, 0);
    let long_ago = [("last-modified", "Sun, 06 Nov 1904 08:49:37 GMT")];
    assert_eq!(left_s(&long_ago), 0, "before what can be counted");
    let long_ago = [("last-modified", "Sun, 06 Nov 1974 08:49:37 GMT")];
    assert_eq!(left_s(&long_ago), 86_400, "no longer than a day");
}

#[test]
fn nothing_is_fresh_for_longer_than_the_site_allows() {
    let rules = Rules { lifetime_max_ms: 5_000, ..http() };
    assert_eq!(judged(&rules, &[("cache-control", "max-age=60")]).lifetime_ms, 5_000);
    assert!(Limits::default().memory_bytes > Rules::default().object_max_bytes);
}

#[derive(Debug, Clone)]
struct Said {
    max_age: Option<u64>,
    s_maxage: Option<u64>,
    expires: Option<i64>,
    date: Option<i64>,
    age: Option<u64>,
    delay_ms: u64,
    later_ms: u64,
}

fn said() -> impl Strategy<Value = Said> {
    let seconds = || prop::option::of(prop_oneof![0_u64..100, any::<u64>()]);
    let date = || prop::option::of(-300_i64..300);
    (seconds(), seconds(), date(), date(), seconds(), 0_u64..5_000, 0_u64..200_000).prop_map(
        |(max_age, s_maxage, expires, date, age, delay_ms, later_ms)| Said {
            max_age,
            s_maxage,
            expires,
            date,
            age,
            delay_ms,
            later_ms,
        },
    )
}

/// RFC 9111, 4.2, word for word, in numbers that nothing overflows. Times in milliseconds after
/// `BASE_S`; the response comes at 300 s.
fn twin_is_fresh(said: &Said) -> bool {
    let received = 300_000_i128;
    let year = i128::from(Rules::default().lifetime_max_ms);
    let seconds = |value: u64| i128::from(value) * 1_000;
    let date_value = said.date.map(|date| i128::from(date) * 1_000);
    let freshness_lifetime = if let Some(s_maxage) = said.s_maxage {
        seconds(s_maxage)
    } else if let Some(max_age) = said.max_age {
        seconds(max_age)
    } else if let Some(expires) = said.expires {
        i128::from(expires) * 1_000 - date_value.unwrap_or(received)
    } else {
        0
    };
    let apparent_age = date_value.map_or(0, |date| (received - date).max(0));
    let age_value = said.age.map_or(0, seconds);
    let corrected_age_value = age_value + i128::from(said.delay_ms);
    let corrected_initial_age = apparent_age.max(corrected_age_value);
    let current_age = corrected_initial_age + i128::from(said.later_ms);
    freshness_lifetime.min(year) > current_age
}

proptest! {
    #[test]
    fn freshness_is_that_of_the_twin(said in said()) {
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: String| {
            headers.append(name, value.parse().unwrap());
        };
        if let Some(seconds) = said.max_age {
            add("cache-control", format!("max-age={seconds}"));
        }
        if let Some(seconds) = said.s_maxage {
            add("cache-control", format!("public, s-maxage={seconds}"));
        }
        if let Some(seconds) = said.expires {
            add("expires", date_at(seconds));
        }
        if let Some(seconds) = said.date {
            add("date", date_at(seconds));
        }
        if let Some(seconds) = said.age {
            add("age", seconds.to_string());
        }
        let received = BASE_S * 1_000 + 300_000;
        let requested_at = UnixMs(received - said.delay_ms);
        let times = Times { requested_at, received_at: UnixMs(received) };
        let directives = Directives::of_response(&headers);
        let freshness = judge(&http(), StatusCode::OK, &headers, &directives, times, false);
        let now = UnixMs(received + said.later_ms);
        prop_assert_eq!(freshness.is_fresh(now), twin_is_fresh(&said), "{:?}", freshness);
        if freshness.is_fresh(now) {
            prop_assert!(freshness.ttl_s(now) >= 0);
        }
    }
}
