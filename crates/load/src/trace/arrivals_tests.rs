//! What becomes of records: rates, order, sites, windows.

use super::*;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn request(at_s: f64, url: Option<&str>) -> Record {
    let url = url.map(str::to_owned);
    let what = What::Request { url, size_bytes: Some(7), resolution_ns: SECOND_NS };
    Record { at_ns: (at_s * 1e9) as i64, what }
}

fn rates(at_s: u64, counts: &[f64]) -> Record {
    let (width_ns, counts) = (10 * SECOND_NS, counts.to_vec());
    let at_ns = (at_s * SECOND_NS) as i64;
    Record { at_ns, what: What::Rates { width_ns, counts, size_bytes: Some(50) } }
}

fn rule(prefix: Option<&str>) -> SiteRule {
    SiteRule { prefix: prefix.map(str::to_owned) }
}

fn all(records: Vec<Record>, window: TraceWindow, rules: &[SiteRule]) -> Vec<Arrival> {
    window.check().unwrap();
    let origin_ns = records.first().map_or(0, |record| record.at_ns);
    let mut records = records.into_iter();
    let next = || Ok(records.next());
    let mut arrivals = Arrivals::new(next, window, rules.to_vec(), None, origin_ns);
    let all: Vec<Arrival> = std::iter::from_fn(|| arrivals.read().unwrap()).collect();
    assert!(all.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns), "times never go back");
    all
}

#[test]
fn rates_become_a_poisson_process_of_that_rate() {
    let records: Vec<Record> = (0..100).map(|number| rates(10 * number, &[100.0])).collect();
    let window = TraceWindow { compress: 10.0, ..TraceWindow::default() };
    let arrivals = all(records.clone(), window, &[rule(None), rule(None)]);
    // 10,000 in the mean, with a deviation of 100.
    assert!((9_500..10_500).contains(&arrivals.len()), "{}", arrivals.len());
    assert!(arrivals.last().unwrap().at_ns <= 100 * SECOND_NS);
    let gaps: Vec<f64> =
        arrivals.windows(2).map(|pair| (pair[1].at_ns - pair[0].at_ns) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let variation = variance.sqrt() / mean;
    assert!((0.9..1.1).contains(&variation), "exponential gaps vary by their mean: {variation}");
    let first = arrivals.iter().filter(|arrival| arrival.site == 0).count();
    assert!(first.abs_diff(arrivals.len() / 2) <= 1, "sites take turns");
    assert_eq!(all(records.clone(), window, &[rule(None), rule(None)]), arrivals);
    let other = TraceWindow { seed: 2, ..window };
    assert_ne!(all(records, other, &[rule(None), rule(None)]), arrivals);
}

/// A file whose intervals went back in time, found by noise, gave arrivals that did so too; whoever
/// sends them waits for each, and took the rest for late.
#[test]
fn intervals_that_go_back_leave_in_order() {
    let records = vec![rates(0, &[20.0]), rates(50, &[20.0]), rates(0, &[20.0])];
    let arrivals = all(records, TraceWindow::default(), &[rule(None)]);
    assert!(arrivals.last().unwrap().at_ns >= 50 * SECOND_NS);
    assert!(arrivals.len() > 30, "none is lost: {}", arrivals.len());
}

#[test]
fn a_window_is_cut_out_and_columns_are_sites() {
    let records: Vec<Record> = (0..10).map(|number| rates(10 * number, &[30.0, 10.0])).collect();
    let window = TraceWindow {
        start_s: 35.0,
        duration_s: Some(20.0),
        scale: 10.0,
        ..TraceWindow::default()
    };
    let arrivals = all(records, window, &[rule(None), rule(None)]);
    assert!((650..950).contains(&arrivals.len()), "20 s of 40/s: {}", arrivals.len());
    assert!(arrivals.last().unwrap().at_ns < 20 * SECOND_NS);
    let first = arrivals.iter().filter(|arrival| arrival.site == 0).count() as f64;
    assert!((0.68..0.82).contains(&(first / arrivals.len() as f64)), "three of four: {first}");
}

#[test]
fn requests_are_sorted_spread_and_given_to_the_site_of_their_path() {
    let urls = ["/a/x", "/b/y", "/a/img/z", "/c"];
    // Sorted by the minute only.
    let records: Vec<Record> =
        (0..40).map(|n| request(f64::from((n * 7) % 40), Some(urls[n as usize % 4]))).collect();
    let rules = [rule(Some("/a")), rule(Some("/a/img")), rule(None)];
    let arrivals = all(records, TraceWindow::default(), &rules);
    assert_eq!(arrivals.len(), 40);
    let of = |site| arrivals.iter().filter(|arrival| arrival.site == site).collect::<Vec<_>>();
    assert_eq!((of(0).len(), of(1).len(), of(2).len()), (10, 10, 20));
    assert!(of(1).iter().all(|one| one.uri.as_ref().is_some_and(|uri| uri == "/a/img/z")));
    let seconds: Vec<u64> = arrivals.iter().map(|one| one.at_ns / SECOND_NS).collect();
    assert_eq!(seconds, (0..40).collect::<Vec<u64>>());
    assert!(arrivals.iter().any(|one| one.at_ns % SECOND_NS != 0), "spread within its second");
}

#[test]
fn a_path_may_be_made_of_the_traces_url_and_size() {
    let mut records = vec![request(0.0, Some("/x"))].into_iter();
    let (window, rules) = (TraceWindow::default(), vec![rule(None)]);
    let path = Some("/bytes/{size}?for={url}".to_owned());
    let mut arrivals = Arrivals::new(|| Ok(records.next()), window, rules, path, 0);
    let uri = arrivals.read().unwrap().unwrap().uri.unwrap();
    assert_eq!(uri.to_string(), "/bytes/7?for=/x");
}

#[test]
fn what_no_site_takes_is_counted_and_left_out() {
    let mut records = vec![request(0.0, Some("/x")), request(1.0, None)].into_iter();
    let rules = vec![rule(Some("/y"))];
    let window = TraceWindow::default();
    let mut arrivals = Arrivals::new(|| Ok(records.next()), window, rules, None, 0);
    assert_eq!(arrivals.read().unwrap(), None);
    assert_eq!(arrivals.unmatched(), 2);
}

#[test]
fn a_rate_beyond_all_measure_comes_to_its_end() {
    let mut far = rates(0, &[1e12]);
    far.at_ns = 300_000_000_000_000_000;
    let (start, duration_s) = (rates(0, &[0.0]), Some(3.0e8 + 0.01));
    let window = TraceWindow { duration_s, scale: 1e4, ..TraceWindow::default() };
    let arrivals = all(vec![start, far], window, &[rule(None)]);
    assert!((90_000..110_000).contains(&arrivals.len()), "{}", arrivals.len());
}

#[test]
fn windows_that_make_no_sense_are_refused() {
    let base = TraceWindow::default();
    let windows = [
        TraceWindow { compress: 0.0, ..base },
        TraceWindow { compress: f64::NAN, ..base },
        TraceWindow { scale: -1.0, ..base },
        TraceWindow { scale: 1e9, ..base },
        TraceWindow { start_s: f64::INFINITY, ..base },
        TraceWindow { duration_s: Some(0.0), ..base },
    ];
    assert!(windows.iter().all(|window| window.check().is_err()));
}

proptest! {
    #[test]
    fn any_records_give_times_in_order_and_known_sites(
        times in proptest::collection::vec((any::<i64>(), any::<bool>(), 0.0..50.0_f64), 0..40),
        scale in 0.01..3.0_f64, compress in 0.01..1e4_f64, start_s in 0.0..1e3_f64,
    ) {
        let records = times.into_iter().map(|(at_ns, is_request, count)| {
            let mut record =
                if is_request { request(0.0, Some("/x")) } else { rates(0, &[count, 1.0]) };
            record.at_ns = at_ns;
            record
        });
        let window = TraceWindow { scale, compress, start_s, ..TraceWindow::default() };
        // Between requests and rates there is no order to keep; each alone has one.
        let (requests, rates): (Vec<_>, Vec<_>) =
            records.partition(|record| matches!(record.what, What::Request { .. }));
        let arrivals = all(requests, window, &[rule(None), rule(Some("/x"))]);
        prop_assert!(arrivals.iter().all(|arrival| arrival.site == 1));
        let mut rates = rates;
        rates.sort_by_key(|record| record.at_ns);
        rates.dedup_by_key(|record| record.at_ns / (10 * SECOND_NS as i64));
        let origin_ns = rates.first().map_or(0, |record| record.at_ns);
        let mut rates = rates.into_iter();
        let rules = vec![rule(None), rule(None)];
        let mut arrivals = Arrivals::new(|| Ok(rates.next()), window, rules, None, origin_ns);
        while let Some(arrival) = arrivals.read().unwrap() {
            prop_assert!(arrival.site < 2);
        }
    }
}
