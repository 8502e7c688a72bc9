//! Tests of the lines: their form, the calendar against a naive twin, and that no value breaks
//! out of its place.

use super::*;
use proptest::prelude::*;

const AT: Duration = Duration::new(1_795_269_336, 123_456_789);

fn line<'a>(target: &'a Uri, agent: &'a [u8], method: &'a Method) -> Line<'a> {
    Line {
        at: AT,
        client: "192.0.2.7".parse().unwrap(),
        site: Some("one"),
        class: Some("gold"),
        cache: Some("uri-miss"),
        host: Some(b"a.example"),
        method,
        target,
        version: Version::HTTP_11,
        status: 200,
        bytes: 1_024,
        bytes_in: 7,
        duration: Duration::from_micros(1_004),
        first_byte: Some(Duration::from_micros(812)),
        node: Some("n1"),
        retries: 1,
        request_id: Some(b"abc"),
        trace_id: Some(b"def"),
        is_tls: false,
        agent: Some(agent),
        referer: None,
        reason: None,
    }
}

fn written(line: &Line<'_>, format: LogFormat) -> String {
    let mut bytes = Vec::new();
    line.write(format, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_is_the_combined_format_and_our_fields() {
    let target = Uri::from_static("/x?y=1");
    let expected = "192.0.2.7 - - [21/Nov/2026:13:55:36 +0000] \"GET /x?y=1 HTTP/1.1\" 200 1024 \
        \"-\" \"curl/8\" host=\"a.example\" site=one node=n1 retries=1 first_byte_us=812 \
        duration_us=1004 bytes_in=7 over=plain request_id=abc trace_id=def reason=- \
        class=gold cache=uri-miss\n";
    assert_eq!(written(&line(&target, b"curl/8", &Method::GET), LogFormat::Text), expected);
}

#[test]
fn json_has_the_same_fields() {
    let target = Uri::from_static("http://a.example/x");
    let mut line = line(&target, b"a \"b\" \\ \xff\xe2\x80\xa8", &Method::POST);
    line.reason = Some("queue-full");
    line.first_byte = None;
    let text = written(&line, LogFormat::Json);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["time"], "2026-11-21T13:55:36.123Z");
    assert_eq!(
        (&value["target"], &value["method"]),
        (&"http://a.example/x".into(), &"POST".into())
    );
    assert_eq!(value["agent"], "a \"b\" \\ \u{fffd}\u{2028}");
    assert_eq!((&value["referer"], &value["first_byte_us"]), (&().into(), &().into()));
    assert_eq!((&value["status"], &value["duration_us"]), (&200.into(), &1_004.into()));
    assert_eq!((&value["reason"], &value["version"]), (&"queue-full".into(), &"HTTP/1.1".into()));
    assert_eq!(value.as_object().unwrap().len(), 22);
    assert_eq!(value["class"], "gold");
    assert_eq!(text.matches('\n').count(), 1);
}

#[test]
fn a_gap_is_told() {
    let mut to = Vec::new();
    gap(LogFormat::Text, 3, &mut to);
    gap(LogFormat::Json, 4, &mut to);
    let text = String::from_utf8(to).unwrap();
    assert_eq!(text, "# 3 lines were dropped: the log was too slow\n{\"dropped_lines\":4}\n");
}

#[test]
fn long_values_are_cut() {
    let target = Uri::from_static("/");
    let agent = vec![b'x'; VALUE_BYTES_MAX + 1];
    for format in [LogFormat::Text, LogFormat::Json] {
        let text = written(&line(&target, &agent, &Method::GET), format);
        assert!(text.contains("xxx...\"") && text.len() < VALUE_BYTES_MAX + 600);
    }
}

/// Counts the calendar day by day.
fn naive_date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut month, mut day) = (1970, 1, 1);
    for _ in 0..days {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day += 1;
        if day > length {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
    (year, month, day)
}

/// Takes a line apart as a reader would: words, and quotes with their escapes.
fn fields(line: &str) -> Vec<Vec<u8>> {
    let (mut fields, mut field, mut in_quotes) = (Vec::new(), Vec::new(), false);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_quotes = !in_quotes,
            b' ' if !in_quotes => fields.push(std::mem::take(&mut field)),
            b'\\' => {
                assert_eq!(bytes.next(), Some(b'x'));
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                let digits = str::from_utf8(&digits).unwrap();
                field.push(u8::from_str_radix(digits, 16).unwrap());
            }
            byte => field.push(byte),
        }
    }
    assert!(!in_quotes);
    fields.push(field);
    fields
}

proptest! {
    #[test]
    fn the_calendar_is_that_of_a_naive_count(days in 0_u64..60_000, second in 0_u64..86_400) {
        let date = Date::of(Duration::from_secs(days * 86_400 + second));
        prop_assert_eq!((date.year, date.month, date.day), naive_date(days));
        prop_assert_eq!(date.hour * 3_600 + date.minute * 60 + date.second, second);
    }

    #[test]
    fn no_value_breaks_out_of_its_place(
        agent in prop::collection::vec(any::<u8>(), 0..200),
        host in prop::collection::vec(prop::sample::select(&b"a\"\\\n\r \x00\x7f\xff="[..]), 0..20),
        path in "/[!-~&&[^#?]]{0,40}",
    ) {
        let Ok(target) = path.parse::<Uri>() else { return Ok(()) };
        let mut line = line(&target, &agent, &Method::GET);
        (line.host, line.referer) = (Some(&host[..]), Some(&host[..]));
        let text = written(&line, LogFormat::Text);
        let body = text.strip_suffix('\n').unwrap();
        prop_assert!(body.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let fields = fields(body);
        prop_assert_eq!(fields.len(), 23, "{}", body);
        prop_assert_eq!(&fields[8], &host);
        prop_assert_eq!(&fields[9], &agent);
        prop_assert_eq!(&fields[10], &[b"host=", &host[..]].concat());
        let request = format!("GET {path} HTTP/1.1");
        prop_assert_eq!(&fields[5], request.as_bytes());
        let json = written(&line, LogFormat::Json);
        prop_assert_eq!(json.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(value["agent"].as_str().unwrap(), String::from_utf8_lossy(&agent));
    }
}
