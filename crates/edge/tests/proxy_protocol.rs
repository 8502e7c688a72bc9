//! The PROXY protocol, from a proxy before the edge and to servers behind it: on raw sockets, and
//! with HAProxy and nginx on either side.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::client::Client;
use common::daemon::Daemon;
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Options, ProxyVersion};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Loopback must begin with a header.
fn behind_a_proxy() -> Options {
    Options { proxy_protocol: vec!["127.0.0.0/8".parse().unwrap()], ..options() }
}

/// Servers are told.
fn announcing(version: ProxyVersion) -> Options {
    let mut options = options();
    options.sites[0].proxy_protocol_out = Some(version);
    options
}

fn v2(source: [u8; 4], entries: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    header.extend((12 + entries.len() as u16).to_be_bytes());
    header.extend(source);
    header.extend([10, 0, 0, 1, 0x9c, 0x40, 0, 80]);
    header.extend(entries);
    header
}

#[test]
fn the_header_says_who_the_client_is() {
    let origin = Origin::echo();
    let (edge, _) = edge(behind_a_proxy(), &[origin.address]);
    let long_entries = [&[4, 0x0a, 0][..], &[0; 0x0a00]].concat();
    let headers = [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 80\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 40000 80\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2([192, 0, 2, 8], &[]), "192.0.2.8"),
        (v2([192, 0, 2, 9], &long_entries), "192.0.2.9"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0".to_vec(), "127.0.0.1"),
    ];
    for (number, (header, client)) in headers.iter().enumerate() {
        // At once, and with the end of the header in another packet than its start.
        for cut in [0, 1, header.len() / 2, header.len() - 1] {
            let mut connection = Client::new(edge.addresses()[0]);
            connection.send(&header[..cut]);
            if cut > 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            connection.send([&header[cut..], GET.as_bytes()].concat());
            assert_eq!(connection.reply().unwrap().status, 200, "header {number} cut at {cut}");
            assert_eq!(connection.get("/more").status, 200, "the connection goes on");
            let seen = origin.seen();
            for request in &seen[seen.len() - 2..] {
                assert_eq!(request.field("x-forwarded-for"), Some(*client), "{number}, {cut}");
            }
        }
    }
    assert_eq!(edge.metrics().proxy_headers_refused, 0);
}

#[test]
fn without_a_header_there_is_no_service() {
    let origin = Origin::echo();
    let hasty = Options { header_timeout_ms: 300, ..behind_a_proxy() };
    let (edge, _) = edge(hasty, &[origin.address]);
    let broken_sum = v2([192, 0, 2, 8], &[3, 0, 4, 0, 0, 0, 0]);
    for bad in [GET.as_bytes(), b"PROXY TCP4 1.2.3.4\r\n", b"PROXY TCP4 1.2", b"\r\n", &broken_sum]
    {
        let mut connection = Client::new(edge.addresses()[0]);
        connection.send(bad);
        let (answer, _) = connection.until_end();
        assert!(answer.is_empty(), "{:?}", String::from_utf8_lossy(&answer));
    }
    // A check that only connects is no fault.
    let check = Client::new(edge.addresses()[0]);
    check.finish_sending();
    drop(check);
    eventually("they are counted", || edge.metrics().proxy_headers_refused == 5);
    eventually("they are closed", || edge.metrics().connections_open == 0);
    assert_eq!(origin.seen().len(), 0);
    assert_eq!(edge.metrics().proxy_headers_refused, 5);
}

#[test]
fn from_others_a_header_is_no_request() {
    let origin = Origin::echo();
    let elsewhere = vec!["10.0.0.0/8".parse().unwrap()];
    let (edge, _) = edge(Options { proxy_protocol: elsewhere, ..options() }, &[origin.address]);
    let mut honest = Client::new(edge.addresses()[0]);
    assert_eq!(honest.get("/").status, 200);
    for header in [b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 80\r\n".to_vec(), v2([1; 4], &[])] {
        let mut liar = Client::new(edge.addresses()[0]);
        liar.send([&header[..], GET.as_bytes()].concat());
        assert_eq!(liar.reply().unwrap().status, 400);
    }
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_connection_that_waits_for_its_header_does_not_hold_up_a_drain() {
    let (edge, _) = edge(behind_a_proxy(), &[]);
    let mut waiting = Client::new(edge.addresses()[0]);
    waiting.send("PROXY ");
    eventually("it is accepted", || edge.metrics().connections_open == 1);
    edge.drain();
    let start = Instant::now();
    edge.join();
    assert!(start.elapsed() < Duration::from_secs(5), "it waits for no header");
    assert!(waiting.until_end().0.is_empty());
}

/// What HAProxy tells of the client that it saw.
fn haproxy_with(version: &str, server: SocketAddr) -> Option<Daemon> {
    Daemon::haproxy(|address| {
        format!("bind {address}\n default_backend b\nbackend b\n server s {server} {version}")
    })
}

#[test]
fn haproxy_before_the_edge() {
    let origin = Origin::echo();
    let (edge, _) = edge(behind_a_proxy(), &[origin.address]);
    let with_checksum = "send-proxy-v2 proxy-v2-options crc32c,unique-id,ssl";
    for version in ["send-proxy", "send-proxy-v2", with_checksum] {
        let Some(haproxy) = haproxy_with(version, edge.addresses()[0]) else { return };
        // HAProxy itself comes from 127.0.0.1.
        let mut client = Client::from_ip([127, 0, 0, 9], haproxy.address);
        assert_eq!(client.get("/").status, 200, "{version}");
        assert_eq!(origin.seen().last().unwrap().field("x-forwarded-for"), Some("127.0.0.9"));
    }
    assert_eq!(edge.metrics().proxy_headers_refused, 0);
}

#[test]
fn haproxy_behind_the_edge() {
    let tells =
        "http-request return status 200 content-type text/plain lf-string \"%[src] %[src_port]\"";
    let frontend = |address| format!("bind {address} accept-proxy\n {tells}");
    let Some(haproxy) = Daemon::haproxy(frontend) else { return };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        // The edge itself stands behind a proxy: the server hears of the client's own address.
        let told =
            Options { proxy_protocol: behind_a_proxy().proxy_protocol, ..announcing(version) };
        let (edge, _) = edge(told, &[haproxy.address]);
        for port in [40_000, 40_001] {
            let mut client = Client::new(edge.addresses()[0]);
            client.send(format!("PROXY TCP4 192.0.2.7 10.0.0.1 {port} 80\r\n"));
            for _ in 0..3 {
                assert_eq!(client.get("/").text(), format!("192.0.2.7 {port}"), "{version:?}");
            }
        }
        let counts = edge.metrics();
        assert_eq!((counts.upstream_opened, counts.upstream_reused), (2, 4), "one for a client");
    }
}

#[test]
fn nginx_behind_the_edge_learns_of_the_client() {
    let server = |address| {
        format!(
            "server {{ listen {address} proxy_protocol;
             location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port\"; }} }}"
        )
    };
    let Some(nginx) = Daemon::nginx(server) else { return };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let (edge, _) = edge(announcing(version), &[nginx.address]);
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(edge.addresses()[0])).collect();
        // In turn, so that a connection made for another client would be at hand.
        for _ in 0..3 {
            for client in &mut clients {
                let own = client.stream.local_addr().unwrap();
                assert_eq!(client.get("/").text(), format!("127.0.0.1 {}", own.port()));
            }
        }
        assert_eq!(edge.metrics().upstream_opened, 3, "{version:?}");
    }
}

#[test]
fn connections_made_for_clients_that_left_make_room() {
    let origin = Origin::serving(|conn, seen| {
        assert!(seen.head.starts_with("PROXY TCP4 127.") || seen.line().starts_with("GET"));
        conn.answer("200 OK", b"");
    });
    let narrow = Options { upstream_idle_max: 2, ..announcing(ProxyVersion::V1) };
    let (edge, fixed) = edge(narrow, &[origin.address]);
    for _ in 0..4 {
        let mut client = Client::new(edge.addresses()[0]);
        assert_eq!((client.get("/").status, client.get("/").status), (200, 200));
    }
    eventually("permits are back", || fixed.in_flight() == 0);
    let counts = edge.metrics();
    assert_eq!((counts.upstream_opened, counts.upstream_reused), (4, 4));
}
