//! What is measured, how often, in which order. Pure.

use crate::tools::Front;
use serde::Serialize;

/// Who stands between load and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Proxy {
    Polder,
    Nginx,
    Haproxy,
}

impl Proxy {
    pub(crate) const ALL: [Self; 3] = [Self::Polder, Self::Nginx, Self::Haproxy];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Polder => "Polder",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
        }
    }
}

/// What the load looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// HTTP/1.1, 64 connections, as fast as they go.
    Saturated,
    /// The same number of requests per second for all, about half of what the slowest can.
    FixedRate,
    /// As saturated, with the header lines of a browser.
    Headers,
    /// As saturated, over TLS.
    Tls,
    /// HTTP/2 without TLS, 16 connections with 8 streams each, as fast as they go.
    Http2,
}

impl Kind {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Saturated => "HTTP/1.1, saturated",
            Self::FixedRate => "HTTP/1.1, fixed rate",
            Self::Headers => "HTTP/1.1, 12 header lines",
            Self::Tls => "TLS in front",
            Self::Http2 => "HTTP/2 in front",
        }
    }

    pub(crate) const fn front(self) -> Front {
        match self {
            Self::Saturated | Self::FixedRate | Self::Headers => Front::Http1,
            Self::Tls => Front::Tls,
            Self::Http2 => Front::Http2,
        }
    }
}

/// Connections of the saturated loads by wrk.
pub(crate) const CONNECTIONS: u32 = 64;
/// Connections of the fixed rate.
pub(crate) const FIXED_CONNECTIONS: u32 = 60;
/// Of what the slowest can, so much is asked at the fixed rate.
pub(crate) const FIXED_SHARE: f64 = 0.5;
/// Connections of HTTP/2, and the streams of each.
pub(crate) const HTTP2_SHAPE: (u32, u32) = (16, 8);

/// Lines that a browser sends, besides Host.
pub(crate) const BROWSER_LINES: [&str; 12] = [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-GB,en;q=0.7,nl;q=0.3",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Referer: http://front.test/catalogue?page=3",
    "Cookie: session=4f1c0e5b9a7d42e88d0c6a1f; consent=all; theme=light",
    "DNT: 1",
    "Upgrade-Insecure-Requests: 1",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: same-origin",
    "Priority: u=0, i",
];

/// One kind of load and who takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) proxies: &'static [Proxy],
}

/// All of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) cell_s: u32,
    pub(crate) rows: Vec<Row>,
}

/// The short form asks HAProxy only where a number needs it.
const TWO: &[Proxy] = &[Proxy::Polder, Proxy::Nginx];

pub(crate) fn plan(quick: bool) -> Plan {
    let row = |kind, proxies| Row { kind, proxies };
    if quick {
        let rows =
            vec![row(Kind::Saturated, &Proxy::ALL), row(Kind::Tls, TWO), row(Kind::Http2, TWO)];
        return Plan { rounds: 5, cell_s: 1, rows };
    }
    let kinds = [Kind::Saturated, Kind::FixedRate, Kind::Headers, Kind::Tls, Kind::Http2];
    Plan { rounds: 7, cell_s: 2, rows: kinds.map(|kind| row(kind, &Proxy::ALL)).to_vec() }
}

/// One round of the short form's rows.
pub(crate) fn least() -> Plan {
    Plan { rounds: 1, ..plan(true) }
}

impl Plan {
    /// How the loads reach the proxies.
    pub(crate) fn fronts(&self) -> Vec<Front> {
        let wanted = |front: &Front| self.rows.iter().any(|row| row.kind.front() == *front);
        [Front::Http1, Front::Tls, Front::Http2].into_iter().filter(wanted).collect()
    }

    /// Seconds of load.
    pub(crate) fn expected_s(&self) -> f64 {
        let cells: usize = self.rows.iter().map(|row| row.proxies.len()).sum();
        f64::from(self.cell_s) * (cells * self.rounds) as f64
    }
}

/// Who is when in a round: it begins with another one each time, and every other round runs
/// backwards, so that nobody always follows the same one.
pub(crate) fn order(proxies: &[Proxy], round: usize) -> Vec<Proxy> {
    let mut order = proxies.to_vec();
    if let Some(first) = round.checked_rem(order.len()) {
        order.rotate_left(first);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_changes_and_loses_nobody() {
        let orders: Vec<_> = (0..6).map(|round| order(&Proxy::ALL, round)).collect();
        for order in &orders {
            assert!(Proxy::ALL.iter().all(|proxy| order.contains(proxy)));
        }
        let firsts = |proxy| orders.iter().filter(|order| order[0] == proxy).count();
        assert_eq!(Proxy::ALL.map(firsts), [2, 2, 2]);
        assert!(order(&[], 3).is_empty());
    }

    #[test]
    fn the_short_form_is_short_and_has_what_its_numbers_need() {
        let quick = plan(true);
        assert!(quick.expected_s() <= 40.0 && quick.rounds >= 5);
        assert!(quick.rows.iter().all(|row| row.kind != Kind::FixedRate));
        let row = |kind| quick.rows.iter().find(|row| row.kind == kind).unwrap();
        assert_eq!(row(Kind::Saturated).proxies, Proxy::ALL);
        for kind in [Kind::Tls, Kind::Http2] {
            assert_eq!(row(kind).proxies, TWO);
        }
        assert!(plan(false).rows.len() > quick.rows.len());
    }
}
