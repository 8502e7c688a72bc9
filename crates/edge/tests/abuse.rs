//! Abuse of HTTP/2 costs the edge and its servers a bounded amount, and then the connection.

#![allow(clippy::unwrap_used)]

mod common;

use common::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, INITIAL_WINDOW,
    PING, RST_STREAM, SETTINGS, frame, request,
};
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::Options;
use std::time::Duration;

const REFUSED_STREAM: u32 = 7;
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

fn plain() -> Options {
    Options { http2_plain: true, ..options() }
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", &[]))
}

/// Memory of this process, edge included, in KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CVE-2023-44487: each stream is reset as soon as it is opened, so that no number of streams at
/// once bounds them. Both ways are bounded: reset before the edge looks at it, and after.
#[test]
fn rapid_resets_end_the_connection() {
    for pause in [Duration::ZERO, Duration::from_millis(2)] {
        let origin = Origin::new(|mut conn, _| {
            if conn.head().is_some() {
                conn.wait_closed();
            }
        });
        let limits = Options { http2_resets_max: 50, ..plain() };
        let (edge, fixed) = edge(limits, &[origin.address]);
        let mut client = FrameClient::new(edge.addresses()[0], &[]);
        for stream in (1..20_000).step_by(2) {
            let mut both = get(stream);
            if pause > Duration::ZERO {
                client.send(&both);
                std::thread::sleep(pause);
                both.clear();
            }
            both.extend(frame(RST_STREAM, 0, stream, &CANCEL));
            if !client.send(&both) {
                break;
            }
        }
        assert!(client.goodbye().is_some(), "the connection ends, and says so");
        assert!(origin.connections() <= 60, "servers saw {} of them", origin.connections());
        eventually("all permits are back", || fixed.in_flight() == 0);
        eventually("nothing is left", || edge.metrics().connections_open == 0);
    }
}

/// Who gives up some requests, and takes the answers to others, is no abuser.
#[test]
fn some_resets_are_forgiven() {
    let origin = Origin::echo();
    let limits = Options { http2_resets_max: 5, ..plain() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    for stream in (1..200).step_by(4) {
        // A body that does not come keeps the request open until it is reset.
        client.send(frame(HEADERS, END_HEADERS, stream, &request("PUT", &[])));
        eventually("it is at the server", || fixed.in_flight() == 1);
        client.send(frame(RST_STREAM, 0, stream, &CANCEL));
        client.send(get(stream + 2));
        assert_eq!(client.end_of(stream + 2), None);
        eventually("the permit is back", || fixed.in_flight() == 0);
    }
    assert!(client.is_alive());
}

/// CVE-2024-27316 and its like: a head without an end.
#[test]
fn a_head_without_an_end_is_cut() {
    let origin = Origin::echo();
    let (edge, _) = edge(plain(), &[origin.address]);
    for (filler, rounds) in [(vec![b'x'; 16_000], 100), (Vec::new(), 100_000)] {
        let mut client = FrameClient::new(edge.addresses()[0], &[]);
        client.send(frame(HEADERS, END_STREAM, 1, &request("GET", &[])));
        // A literal whose name and value take the whole frame, or nothing at all.
        let mut block = Vec::new();
        if !filler.is_empty() {
            block.extend([0, 1, b'x', 127, 0x81, 0x7c]);
            block.extend(&filler);
        }
        let before = resident_kib();
        let sent =
            (0..rounds).take_while(|_| client.send(frame(CONTINUATION, 0, 1, &block))).count();
        assert!(client.goodbye().is_some(), "after {sent} frames");
        assert!(resident_kib() < before + 16 * 1024, "memory grows with the head");
    }
    assert!(origin.seen().is_empty());
}

#[test]
fn too_many_fields_and_too_long_ones_are_refused() {
    let origin = Origin::echo();
    let (edge, _) = edge(Options { headers_max: 20, ..plain() }, &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    let many: Vec<_> = (0..30).map(|_| ("x-a", "b")).collect();
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &many)));
    assert_eq!(client.end_of(1), None);
    let told = client.log.iter().find(|frame| frame.kind == DATA).unwrap();
    assert_eq!(told.payload, b"The request has too many header lines.\n");
    let long = "x".repeat(10_000);
    let fields = [("x-a", &*long), ("x-b", &*long), ("x-c", &*long), ("x-d", &*long)];
    let block = request("GET", &fields);
    let (first, rest) = block.split_at(16_000);
    client.send(frame(HEADERS, END_STREAM, 3, first));
    let (second, third) = rest.split_at(16_000);
    client.send(frame(CONTINUATION, 0, 3, second));
    client.send(frame(CONTINUATION, END_HEADERS, 3, third));
    let _ = client.end_of(3);
    assert!(client.is_alive());
    assert!(origin.seen().is_empty());
}

/// Each of them is answered; a client that does not take the answers is read no further.
#[test]
fn floods_of_pings_and_settings_are_not_stored() {
    let origin = Origin::echo();
    let limits = Options { body_idle_timeout_ms: 500, keep_alive_idle_ms: 500, ..plain() };
    for flood in [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9])] {
        let (edge, _) = edge(limits.clone(), &[origin.address]);
        let mut client = FrameClient::new(edge.addresses()[0], &[]);
        client.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let before = resident_kib();
        let piece = flood.repeat(4_096);
        // Far more than the sockets' buffers hold.
        let sent = (0..2_000).take_while(|_| client.send(&piece)).count();
        assert!(sent < 2_000, "the edge read all of it");
        assert!(resident_kib() < before + 16 * 1024, "the answers are stored");
        drop(client);
        eventually("the connection is gone", || edge.metrics().connections_open == 0);
    }
}

/// Small DATA frames that nobody reads: each would take more memory than it has bytes.
#[test]
fn tiny_frames_are_bounded() {
    let origin = Origin::new(|mut conn, _| {
        if conn.head().is_some() {
            // It reads nothing of the body.
            conn.wait_closed();
        }
    });
    let (edge, fixed) = edge(plain(), &[origin.address]);
    let before = resident_kib();
    for payload in [&b""[..], b"x"] {
        let mut client = FrameClient::new(edge.addresses()[0], &[]);
        client.send(frame(HEADERS, END_HEADERS, 1, &request("PUT", &[])));
        let piece = frame(DATA, 0, 1, payload).repeat(1_000);
        client.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let _ = (0..1_000).take_while(|_| client.send(&piece)).count();
        assert!(resident_kib() < before + 32 * 1024, "memory grows with the frames");
        drop(client);
        eventually("the permit is back", || fixed.in_flight() == 0);
    }
}

#[test]
fn streams_at_once_are_bounded() {
    let origin = Origin::new(|mut conn, _| {
        if conn.head().is_some() {
            conn.wait_closed();
        }
    });
    let limits = Options { http2_streams_max: 8, ..plain() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    // Before the client has seen the limit, it may be above it: those are refused, no more.
    for stream in (1..=39).step_by(2) {
        client.send(get(stream));
    }
    let refused = (0..12)
        .filter_map(|_| client.find(|frame| matches!(frame.kind, RST_STREAM | GOAWAY)))
        .take_while(|frame| frame.kind == RST_STREAM && frame.code() == REFUSED_STREAM)
        .count();
    assert_eq!(refused, 12);
    eventually("the others are at servers", || fixed.in_flight() == 8);
    assert!(client.is_alive());
}

/// Many responses that nobody takes: each holds a piece of its own, and no more.
#[test]
fn shut_windows_cost_little() {
    let origin = Origin::new(|mut conn, _| {
        if conn.head().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
            let piece = [b'x'; 65_536];
            while conn.try_send(&piece) {}
        }
    });
    let limits = Options { body_idle_timeout_ms: 1_500, ..plain() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let before = resident_kib();
    let mut client = FrameClient::new(edge.addresses()[0], &[(INITIAL_WINDOW, 0)]);
    for stream in (1..100).step_by(2) {
        client.send(get(stream));
    }
    eventually("all are at servers", || fixed.in_flight() == 50);
    std::thread::sleep(Duration::from_millis(300));
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 50 * 512, "{grown} KiB for 50 responses");
    for stream in (1..100).step_by(2) {
        assert!(client.end_of(stream).is_some());
    }
    eventually("all permits are back", || fixed.in_flight() == 0);
    assert!(client.is_alive());
}
