//! HTTP's dates (RFC 9110, 5.6.7): the usual form and the two old ones, and nothing else.
//!
//! Letters may be of either case; widths, separators and the zone are as written in the RFC, since
//! a date that is not one makes a response stale.

use http::HeaderValue;

/// The three-letter names, as they stand in all forms.
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// Days from 1970 to a day of the proleptic Gregorian calendar, by Howard Hinnant's method.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Seconds since 1970 of a date; `now_seconds` decides the century of two-digit years.
pub(crate) fn parse(value: &HeaderValue, now_seconds: u64) -> Option<u64> {
    let text = value.to_str().ok()?;
    usual(text).or_else(|| rfc850(text, now_seconds)).or_else(|| asctime(text))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn usual(text: &str) -> Option<u64> {
    let (day, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let date = (parts.next()?, parts.next()?, parts.next()?);
    let (time, zone) = (parts.next()?, parts.next()?);
    let known = DAYS.iter().any(|name| name[..3].eq_ignore_ascii_case(day));
    if !known || parts.next().is_some() || !zone.eq_ignore_ascii_case("GMT") {
        return None;
    }
    seconds(digits(date.2, 4)?, month(date.1)?, digits(date.0, 2)?, time)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now_seconds: u64) -> Option<u64> {
    let (day, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let (date, time, zone) = (parts.next()?, parts.next()?, parts.next()?);
    let known = DAYS.iter().any(|name| name.eq_ignore_ascii_case(day));
    if !known || parts.next().is_some() || !zone.eq_ignore_ascii_case("GMT") {
        return None;
    }
    let mut date = date.split('-');
    let (day, name, year) = (date.next()?, date.next()?, date.next()?);
    if date.next().is_some() {
        return None;
    }
    let now_year = 1970 + i64::try_from(now_seconds / 31_556_952).ok()?;
    let year = digits(year, 2)? + now_year / 100 * 100;
    // A year that seems to be more than 50 years ahead was in the past.
    let year = if year > now_year + 50 { year - 100 } else { year };
    seconds(year, month(name)?, digits(day, 2)?, time)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<u64> {
    if !text.is_ascii() || text.len() != 24 {
        return None;
    }
    let known = DAYS.iter().any(|name| name[..3].eq_ignore_ascii_case(&text[..3]));
    let gaps = [3, 7, 10, 19].iter().all(|&at| text.as_bytes()[at] == b' ');
    if !known || !gaps {
        return None;
    }
    let day = text[8..10]
        .strip_prefix(' ')
        .map_or_else(|| digits(&text[8..10], 2), |day| digits(day, 1))?;
    seconds(digits(&text[20..], 4)?, month(&text[4..7])?, day, &text[11..19])
}

fn month(name: &str) -> Option<i64> {
    let at = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))?;
    i64::try_from(at).ok().map(|at| at + 1)
}

/// A number of exactly so many digits.
fn digits(text: &str, width: usize) -> Option<i64> {
    let all = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// A date's seconds since 1970; `None` before, and where a number is out of range.
fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<u64> {
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = digits(parts.next()?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let fits = (1..=days).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !fits || parts.next().is_some() {
        return None;
    }
    let all = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20, when a two-digit 50 is 2050.
    const NOW: u64 = 1_795_000_000;

    fn of(text: &str) -> Option<u64> {
        parse(&HeaderValue::from_str(text).unwrap(), NOW)
    }

    #[test]
    fn three_forms_name_the_same_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sUN, 06 NOV 1994 08:49:37 gmt",
        ] {
            assert_eq!(of(text), Some(784_111_777), "{text}");
        }
        assert_eq!(of("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(of("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(of("Sun, 21 Nov 2286 04:46:39 GMT"), Some(10_000_039_599));
        assert_eq!(of("Thursday, 18-Aug-50 02:01:18 GMT"), Some(2_544_400_878));
        assert_eq!(of("Thu Aug  8 02:01:18 2050"), Some(2_543_536_878));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "0",
            "",
            "foo",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18",
            "Xyz, 18 Aug 2050 02:01:18 GMT",
            "Thu, 31 Feb 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 18 Aug 1950 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT ",
            "Thu, +8 Aug 2050 02:01:18 GMT",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
