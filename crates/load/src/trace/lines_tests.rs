//! Lines of each format, good ones and bad ones.

use super::*;
use proptest::prelude::*;

const LOG: &str = "83.149.9.216 - - [17/May/2015:10:05:03 +0000] \"GET /a/b.png?x=1 HTTP/1.1\" 200 \
                   203023 \"http://x/\" \"Mozilla/5.0 \\\"x\\\"\"";

fn rate(record: &Record) -> (f64, u64, Option<u64>) {
    match &record.what {
        What::Rates { width_ns, counts, size_bytes } => {
            (counts.iter().sum(), *width_ns, *size_bytes)
        }
        What::Request { .. } => panic!("these are rates: {record:?}"),
    }
}

fn asked(record: &Record) -> (Option<&str>, Option<u64>, u64) {
    match &record.what {
        What::Request { url, size_bytes, resolution_ns } => {
            (url.as_deref(), *size_bytes, *resolution_ns)
        }
        What::Rates { .. } => panic!("this is a request: {record:?}"),
    }
}

#[test]
fn rates_are_read() {
    let record = minutes("1998-04-30 21:31,11,83090").unwrap();
    assert_eq!(rate(&record), (11.0, MINUTE_NS, Some(7_553)));
    assert_eq!(record.at_ns, 893_971_860 * SECOND_NS as i64);
    assert_eq!(rate(&minutes("1998-04-30 21:31,0,0").unwrap()).2, None);
    let record = rates("2.5,3,4", 500).unwrap();
    assert_eq!((rate(&record), record.at_ns), ((7.0, 500, None), 2_500_000_000));
    assert_eq!(one_count("52", 3, SECOND_NS).unwrap().at_ns, 3_000_000_000);
}

#[test]
fn requests_are_read() {
    let record = log(LOG).unwrap();
    assert_eq!(asked(&record), (Some("/a/b.png?x=1"), Some(203_023), SECOND_NS));
    let without = "h - - [17/May/2015:10:05:03 +0000] \"HEAD http://h.test/x HTTP/1.0\" 304 -";
    assert_eq!(asked(&log(without).unwrap()), (Some("/x"), None, SECOND_NS));
    let record = tokens("2023-11-16 18:15:46.6805900,374,44").unwrap();
    assert_eq!(asked(&record), (None, Some(44), 1));
    let columns = Columns::of("host\tlogname\ttime\tmethod\turl\tresponse\tbytes").unwrap();
    let line = "a.com\t-\t807256800\tGET\t/images/launch-logo.gif\t200\t1713\t\t";
    let record = request(line, columns).unwrap();
    assert_eq!(asked(&record), (Some("/images/launch-logo.gif"), Some(1_713), SECOND_NS));
    assert_eq!(record.at_ns, 807_256_800 * SECOND_NS as i64);
    let mut bytes = [0_u8; BINARY_BYTES];
    bytes[..4].copy_from_slice(&893_971_817_u32.to_be_bytes());
    bytes[11] = 7;
    bytes[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let record = binary(&bytes).unwrap();
    assert_eq!(asked(&record), (Some("/object/7"), None, SECOND_NS));
    assert_eq!(record.at_ns, 893_971_817 * SECOND_NS as i64);
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = |read: Read| read.unwrap_err();
    assert!(wrong(minutes("30.04.1998,1,2")).contains("no time"));
    assert!(wrong(minutes("1998-04-30 21:31,x,2")).contains("requests"));
    assert!(wrong(minutes("1998-04-30 21:31,1,2,3")).contains("more columns"));
    assert!(wrong(rates("1", 1)).contains("no column"));
    assert!(wrong(rates("1,-1", 1)).contains("requests"));
    assert!(wrong(one_count("nan", 0, 1)).contains("requests"));
    assert!(wrong(one_count("1", u64::MAX, 2)).contains("time"));
    assert!(wrong(tokens("2023-11-16 18:15:46,1,-4")).contains("generated"));
    assert!(wrong(log("x")).contains("brackets"));
    assert!(wrong(log(&LOG.replace("200", "OK"))).contains("status"));
    assert!(wrong(log(&LOG.replace("/a/b", "a/b"))).contains("URL"));
    assert!(Columns::of("host\ttime").is_none());
}

#[test]
fn urls_that_no_client_sends_are_refused() {
    assert_eq!(url_of("/a#b").as_deref(), Some("/a"));
    assert_eq!(url_of("http://a.test").as_deref(), Some("/"));
    assert_eq!(url_of("/go?to=http://b/").as_deref(), Some("/go?to=http://b/"));
    let long = format!("/{}", "x".repeat(URL_BYTES_MAX));
    for text in ["", "a", "*", "/a b", "/ä", "/a\r\nX: y", "/\0", &long] {
        assert_eq!(url_of(text), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_line_gives_a_record_or_a_reason(
        line in "(\\PC|\t|,|[0-9]|1998-04-30 21:30|17/May/2015:10:05:03 \\+0000|\\] \"| \\[){0,40}",
        width_ns in any::<u64>(), number in any::<u64>(), bytes in any::<[u8; BINARY_BYTES]>(),
    ) {
        let columns = Columns { time: 0, url: 1, bytes: Some(2) };
        let all = [
            minutes(&line), rates(&line, width_ns), one_count(&line, number, width_ns),
            tokens(&line), request(&line, columns), log(&line), binary(&bytes),
        ];
        for record in all.into_iter().flatten() {
            match record.what {
                What::Rates { counts, .. } => {
                    prop_assert!(counts.iter().all(|count| (0.0..=COUNT_MAX).contains(count)));
                }
                What::Request { url, .. } => {
                    prop_assert!(url.is_none_or(|url| http::Uri::try_from(url.as_str()).is_ok()));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_in_any_format(
        header in any::<Vec<u8>>(), piece in any::<Vec<u8>>(), number in any::<u64>(),
    ) {
        for format in Format::ALL {
            let mut reader = LineReader::new(format, SECOND_NS);
            let _ = reader.read_header(&header);
            let _ = reader.read(&piece, number);
        }
    }

    #[test]
    fn a_log_line_is_read_back(
        status in 100_u16..600, bytes in any::<u32>(), path in "/[a-zA-Z0-9/._~%?&=+-]{0,60}",
    ) {
        let request = format!("GET {path} HTTP/1.1");
        let line = format!("h - u [01/Jan/1970:00:00:09 +0000] \"{request}\" {status} {bytes}");
        let record = log(&line).unwrap();
        prop_assert_eq!(record.at_ns, 9 * SECOND_NS as i64);
        prop_assert_eq!(asked(&record), (Some(path.as_str()), Some(u64::from(bytes)), SECOND_NS));
    }
}
