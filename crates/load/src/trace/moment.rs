//! Times as traces write them, to nanoseconds since 1970. Pure; zones count, leap seconds do not.

const SECOND_NS: i64 = 1_000_000_000;
/// Years that fit nanoseconds in 64 bits.
const YEARS: std::ops::RangeInclusive<i64> = 1_900..=2_200;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `1998-04-30 21:30`, with seconds and a fraction if they are there.
pub(super) fn dashed(text: &str) -> Option<i64> {
    let (day, clock) = text.split_once([' ', 'T'])?;
    let mut day = day.split('-');
    let (year, month, date) = (digits(day.next()?)?, digits(day.next()?)?, digits(day.next()?)?);
    if day.next().is_some() {
        return None;
    }
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.split(':');
    let (hour, minute) = (digits(clock.next()?)?, digits(clock.next()?)?);
    let second = clock.next().map_or(Some(0), digits)?;
    if clock.next().is_some() {
        return None;
    }
    let at_s = seconds(year, month, date)? + clock_s(hour, minute, second)?;
    Some(at_s * SECOND_NS + fraction_ns(fraction)?)
}

/// `17/May/2015:10:05:03 +0000`, as logs of web servers have it.
pub(super) fn logged(text: &str) -> Option<i64> {
    let (text, zone) = text.split_once(' ')?;
    let mut parts = text.split(['/', ':']);
    let date = digits(parts.next()?)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = digits(parts.next()?)?;
    let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let second = digits(parts.next()?)?;
    if parts.next().is_some() {
        return None;
    }
    let at_s = seconds(year, month, date)? + clock_s(hour, minute, second)? - zone_s(zone)?;
    Some(at_s * SECOND_NS)
}

/// Seconds with a fraction: `807256800` or `12.5`.
pub(super) fn plain_seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    digits(whole)?.checked_mul(SECOND_NS)?.checked_add(fraction_ns(fraction)?)
}

/// `+0200`.
fn zone_s(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let rest = zone.get(1..)?;
    if rest.len() != 4 {
        return None;
    }
    let (hours, minutes) = (digits(rest.get(..2)?)?, digits(rest.get(2..)?)?);
    Some(sign * (hours * 3_600 + minutes * 60))
}

fn clock_s(hour: i64, minute: i64, second: i64) -> Option<i64> {
    // The 60th second is a leap second, which the next minute's first stands for.
    let fits = hour < 24 && minute < 60 && second <= 60;
    fits.then_some(hour * 3_600 + minute * 60 + second)
}

/// Midnight of a day of the Gregorian calendar.
fn seconds(year: i64, month: i64, date: i64) -> Option<i64> {
    let fits = YEARS.contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&date);
    if !fits {
        return None;
    }
    // Days from 1970 by counting years from March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + date - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some(days * 86_400)
}

/// Up to nine digits behind a point; further ones are below a nanosecond and left out.
fn fraction_ns(text: &str) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &text[..text.len().min(9)];
    let value: i64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    Some(value * 10_i64.pow(9 - u32::try_from(kept.len()).ok()?))
}

/// At most twelve digits and nothing else.
fn digits(text: &str) -> Option<i64> {
    let fits = (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_are_read() {
        assert_eq!(dashed("1970-01-01 00:00"), Some(0));
        assert_eq!(dashed("1998-04-30 21:30"), Some(893_971_800 * SECOND_NS));
        let azure = dashed("2023-11-16 18:15:46.6805900").unwrap();
        assert_eq!(azure, 1_700_158_546 * SECOND_NS + 680_590_000);
        assert_eq!(dashed("2000-02-29 00:00:01"), Some(951_782_401 * SECOND_NS));
        assert_eq!(logged("17/May/2015:10:05:03 +0000"), Some(1_431_857_103 * SECOND_NS));
        assert_eq!(logged("17/May/2015:12:05:03 +0200"), Some(1_431_857_103 * SECOND_NS));
        assert_eq!(plain_seconds("807256800"), Some(807_256_800 * SECOND_NS));
        assert_eq!(plain_seconds("0.25"), Some(250_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "1998", "1998-04-30", "1998-13-01 00:00", "1998-04-30 24:00", "9-9-9 1:1"]
        {
            assert_eq!(dashed(text), None, "{text}");
        }
        for text in ["", "17/Mai/2015:10:05:03 +0000", "17/May/2015:10:05:03", "1/May/2015:1:1:1 Z"]
        {
            assert_eq!(logged(text), None, "{text}");
        }
        for text in ["", "-1", "1e3", "99999999999999", "1.x"] {
            assert_eq!(plain_seconds(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = (dashed(&text), logged(&text), plain_seconds(&text));
        }

        #[test]
        fn every_minute_of_a_day_follows_the_one_before(
            year in 1_900_i64..=2_200, month in 1_u32..=12, date in 1_u32..=28,
            minute in 1_u32..1_440,
        ) {
            let at = |minute: u32| {
                let (hour, minute) = (minute / 60, minute % 60);
                let text = format!("{year}-{month:02}-{date:02} {hour:02}:{minute:02}");
                dashed(&text).unwrap()
            };
            prop_assert_eq!(at(minute) - at(minute - 1), 60 * SECOND_NS);
        }
    }
}
