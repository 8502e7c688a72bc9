//! Noise for traces: any bytes become records, or bad lines, and records become arrivals in order.

use super::arrivals::{Arrivals, SiteRule, TraceWindow};
use super::format::Format;
use super::records::{Record, Records, What};
use super::source::{Source, TraceError};
use fuzzing::{Random, Target};
use std::io::Cursor;
use std::path::Path;

/// Bad lines that one input may have: both ends of the bound are met.
const BAD_LINES_MAX: u64 = 5;

/// Arrivals that are drawn of one input: a line can announce more than a lifetime can draw.
const ARRIVALS_MAX: usize = 300;

const SECOND_NS: u64 = 1_000_000_000;

/// The first line names the format; where it does not, the format is to be found out.
fn opened(bytes: &[u8]) -> Result<Records, TraceError> {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let format = str::from_utf8(line).ok().and_then(Format::named);
    let rest =
        if format.is_some() { bytes.get(line.len() + 1..).unwrap_or_default() } else { bytes };
    let source = Source::plain(Path::new("trace"), Cursor::new(rest.to_vec()));
    Records::of(source, format, SECOND_NS, BAD_LINES_MAX)
}

fn check_record(record: &Record) {
    match &record.what {
        What::Request { url, .. } => {
            let sane =
                |url: &String| url.starts_with('/') && url.bytes().all(|b| b.is_ascii_graphic());
            assert!(url.as_ref().is_none_or(sane), "{url:?}");
        }
        What::Rates { width_ns, counts, .. } => {
            assert!(*width_ns > 0 && !counts.is_empty());
            assert!(counts.iter().all(|count| count.is_finite() && *count >= 0.0), "{counts:?}");
        }
    }
}

fn check_arrivals(records: Vec<Record>, random: &mut Random) {
    let window = TraceWindow {
        start_s: [0.0, 0.5, 90.0][random.below(3)],
        duration_s: [None, Some(1.0), Some(1e6)][random.below(3)],
        compress: [1.0, 0.01, 1e6][random.below(3)],
        scale: [1.0, 0.3, 2.5][random.below(3)],
        seed: random.next(),
    };
    assert!(window.check().is_ok());
    let prefixes = [None, Some("/a"), Some("/")];
    let rule = |prefix: &Option<&str>| SiteRule { prefix: prefix.map(str::to_owned) };
    let rules: Vec<SiteRule> = prefixes[..1 + random.below(3)].iter().map(rule).collect();
    let path = [None, Some("{url}"), Some("/x?n={size}")][random.below(3)].map(str::to_owned);
    let (sites, origin_ns) = (rules.len(), records.first().map_or(0, |record| record.at_ns));
    let mut records = records.into_iter();
    let mut arrivals = Arrivals::new(|| Ok(records.next()), window, rules, path, origin_ns);
    let mut last_ns = 0;
    for _ in 0..ARRIVALS_MAX {
        let Some(arrival) = arrivals.read().expect("no record is an error") else { break };
        assert!(arrival.at_ns >= last_ns && arrival.site < sites, "{arrival:?}");
        assert!(arrival.uri.as_ref().is_none_or(|uri| uri.path().starts_with('/')), "{arrival:?}");
        last_ns = arrival.at_ns;
    }
}

#[test]
fn fuzz_trace() {
    let check = |bytes: &[u8], random: &mut Random| {
        let Ok(mut records) = opened(bytes) else { return (None, false, 0) };
        let (mut read, mut failed) = (Vec::new(), false);
        // Each read takes some of the input, or is the last one.
        for _ in 0..bytes.len() + 2 {
            match records.read() {
                Ok(Some(record)) => read.push(record),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, TraceError::BadLines { .. }), "{error}");
                    failed = true;
                    break;
                }
            }
        }
        assert!(failed || matches!(records.read(), Ok(None)), "no end");
        read.iter().for_each(check_record);
        let (count, bad) = records.bad_lines();
        assert!(count >= bad.len() as u64 && failed == (count > BAD_LINES_MAX));
        assert!(!bad.iter().any(|line| line.text.contains(char::is_control)), "{bad:?}");
        let kind = (Some(records.format() as u8), failed, read.len().min(4));
        check_arrivals(read, random);
        kind
    };
    let tokens = [
        "timestamp,num_request,size\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "time_s,shop,blog\n",
        "host\ttime\turl\tbytes\n",
        "HashOwner,HashApp,HashFunction,Trigger,1,2\n",
        "app,func,end_timestamp,duration\n",
        "functions\n",
        "ends\n",
        "o,a,f,q,",
        "minutes\n",
        "rates\n",
        "counts\n",
        "requests\n",
        "tokens\n",
        "log\n",
        "binary\n",
        "1998-04-30 21:30",
        "2200-12-31 23:59:60.999999999",
        "1900-01-01 00:00",
        "h - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n",
        "-9999] \"",
        "999999999999.5",
        "1e12",
        "1e308",
        "inf",
        "-0",
        "http://a.example/x",
        "#",
        "\t",
        "\r\n",
        ",",
    ];
    Target::new("trace", env!("CARGO_MANIFEST_DIR")).tokens(&tokens).run(check);
}
