//! Upgraded connections on raw sockets: what is passed on, what is not, and how they end.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, End};
use common::dispatcher::Fixed;
use common::origin::{Conn, Origin};
use common::{edge, eventually, options};
use edge::{Edge, Options, Reason, Verdict};
use std::time::{Duration, Instant};

const OFFER: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n";

/// A frame of text, as a server sends it.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&[0x81, payload.len() as u8], payload].concat()
}

/// Switches, then runs what follows.
fn switching(then: impl Fn(&mut Conn) + Send + Sync + 'static) -> Origin {
    Origin::new(move |mut conn, _| {
        let Some(head) = conn.head() else { return };
        conn.saw(&head);
        conn.send(ANSWER);
        then(&mut conn);
    })
}

/// Sends back whatever comes, until its end.
fn echo(conn: &mut Conn) {
    loop {
        let bytes = conn.some();
        if bytes.is_empty() {
            return;
        }
        conn.send(bytes);
    }
}

fn upgraded(edge: &Edge) -> Client {
    let mut client = Client::new(edge.addresses()[0]);
    client.send(OFFER);
    assert_eq!(client.head().unwrap().status, 101);
    client
}

fn open(edge: &Edge) -> u64 {
    edge.metrics().sites[0].upgraded_open
}

#[test]
fn bytes_go_both_ways_and_each_end_by_itself() {
    let origin = Origin::new(|mut conn, _| {
        let head = conn.head().unwrap();
        conn.saw(&head);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(conn.buffered(), b"", "what follows the request waits for the 101");
        conn.send([ANSWER.as_bytes(), b"first"].concat());
        let mut seen = Vec::new();
        loop {
            match conn.some() {
                some if some.is_empty() => break,
                some => seen.extend(some),
            }
        }
        conn.saw(&format!("{} bytes", seen.len()));
        // The client has finished, the server has not.
        conn.send(&seen);
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send([OFFER.as_bytes(), b"early"].concat());
    let head = client.head().unwrap();
    assert_eq!((head.status, head.field("upgrade")), (101, Some("websocket")));
    assert_eq!(head.field("connection"), Some("upgrade"));
    assert_eq!(head.head.to_ascii_lowercase().matches("\nconnection:").count(), 1, "{}", head.head);
    assert_eq!(
        (head.field("sec-websocket-accept"), head.field("content-length")),
        (Some("a"), None)
    );
    assert_eq!(client.exactly(5).unwrap(), b"first");
    eventually("its room is given back", || fixed.in_flight() == 0);
    assert_eq!((open(&edge), edge.metrics().upgraded_by_node.values().sum::<u64>()), (1, 1));
    let much: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    client.send(&much);
    client.finish_sending();
    let (back, end) = client.until_end();
    assert_eq!((back.len(), end), (5 + much.len(), End::Closed));
    assert!(back[..5] == *b"early" && back[5..] == much);
    eventually("it is counted out", || open(&edge) == 0);
    let metrics = edge.metrics();
    let site = &metrics.sites[0];
    assert_eq!((site.upgraded, site.requests[1], site.in_flight), (1, 1, 0));
    assert_eq!((site.upgraded_bytes_in, site.upgraded_bytes_out), (3_000_005, 3_000_010));
    assert!(metrics.upgraded_by_node.is_empty());
    let seen = origin.seen();
    let request = &seen[0];
    assert_eq!(
        (request.field("upgrade"), request.field("connection")),
        (Some("websocket"), Some("upgrade"))
    );
    assert_eq!(request.field("sec-websocket-key"), Some("k"));
    assert_eq!(fixed.verdicts(), [(0, Verdict::Answered)]);
}

#[test]
fn a_server_that_declines_answers_an_ordinary_request() {
    let origin = Origin::echo();
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    // What might have been meant for the other protocol is the next request.
    client.send([OFFER, "GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat());
    assert_eq!(client.reply().unwrap().status, 200);
    assert_eq!(client.reply().unwrap().status, 200);
    assert_eq!(client.get("/third").status, 200);
    let seen = origin.seen();
    assert_eq!((seen[0].field("upgrade"), seen[1].field("upgrade")), (Some("websocket"), None));
    assert_eq!((origin.connections(), edge.metrics().sites[0].upgraded), (1, 0));
}

#[test]
fn offers_that_are_not_passed_on_leave_an_ordinary_request() {
    let origin = Origin::echo();
    let (plain, _) = edge(options(), &[origin.address]);
    let (off, _) = edge(Options { upgrades: false, ..options() }, &[origin.address]);
    let offer = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let h2c = "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    for (edge, request) in [
        (&off, format!("GET / HTTP/1.1\r\nHost: a.example\r\n{offer}\r\n")),
        (&plain, format!("GET / HTTP/1.1\r\nHost: a.example\r\n{h2c}\r\n")),
        (&plain, "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n".to_owned()),
        (&plain, format!("GET / HTTP/1.0\r\nHost: a.example\r\n{offer}\r\n")),
        (
            &plain,
            format!("POST / HTTP/1.1\r\nHost: a.example\r\n{offer}Content-Length: 4\r\n\r\nbody"),
        ),
        (
            &plain,
            format!(
                "POST / HTTP/1.1\r\nHost: a.example\r\n{offer}\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
    ] {
        let mut client = Client::new(edge.addresses()[0]);
        assert_eq!(client.ask(&request).status, 200, "{request}");
        let seen = origin.seen().last().unwrap().clone();
        for name in ["upgrade", "connection", "http2-settings"] {
            assert!(seen.field(name).is_none(), "{name} of {request}");
        }
    }
}

#[test]
fn a_switch_that_nobody_asked_for_is_a_bad_response() {
    let answers = [
        ANSWER.to_owned(),
        ANSWER.replace("websocket", "h2c"),
        ANSWER.replace("Upgrade: websocket\r\n", ""),
        ANSWER.replace("Connection: upgrade\r\n", ""),
        ANSWER.replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n"),
    ];
    let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for (number, answer) in answers.into_iter().enumerate() {
        let request = if number == 0 { get } else { OFFER };
        let origin = Origin::new(move |mut conn, _| {
            while let Some(head) = conn.head() {
                conn.saw(&head);
                conn.send(&answer);
            }
        });
        let (edge, fixed) = edge(options(), &[origin.address]);
        let reply = Client::new(edge.addresses()[0]).ask(request);
        assert_eq!((reply.status, reply.reason()), (502, Some("bad-response")), "{number}");
        eventually("its room is given back", || fixed.in_flight() == 0);
        assert_eq!(edge.metrics().sites[0].upgraded, 0);
    }
}

#[test]
fn an_offer_goes_to_another_server_like_any_request() {
    let dead = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let origin = switching(echo);
    let (edge, fixed) = edge(options(), &[dead, origin.address]);
    if fixed.next_turn() != 0 {
        fixed.skip_turn();
    }
    let mut client = upgraded(&edge);
    client.send("ping");
    assert_eq!(client.exactly(4).unwrap(), b"ping");
    assert_eq!(edge.metrics().sites[0].retries, 1);
}

#[test]
fn silence_ends_an_upgraded_connection_and_traffic_keeps_it() {
    let origin = switching(echo);
    let idle = Options { upgrade_idle_ms: 400, body_idle_timeout_ms: 50, ..options() };
    let (edge, _) = edge(idle, &[origin.address]);
    let mut client = upgraded(&edge);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(900) {
        client.send("x");
        assert_eq!(client.exactly(1).unwrap(), b"x");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (bytes, end) = client.until_end();
    assert_eq!((bytes.len(), end), (0, End::Closed));
    eventually("the server's side is closed too", || open(&edge) == 0);
}

#[test]
fn there_is_a_most_of_them() {
    let origin = switching(echo);
    let (edge, _) = edge(Options { upgraded_max: 1, ..options() }, &[origin.address]);
    let first = upgraded(&edge);
    let mut second = Client::new(edge.addresses()[0]);
    let reply = second.ask(OFFER);
    assert_eq!((reply.status, reply.reason()), (503, Some("upgrades-full")));
    assert_eq!(edge.metrics().sites[0].refused(Reason::UpgradesFull), 1);
    first.reset();
    eventually("it is over", || open(&edge) == 0);
    second.send(OFFER);
    assert_eq!(second.head().unwrap().status, 101, "the refused client's connection is still good");
}

#[test]
fn either_side_that_vanishes_takes_the_other_with_it() {
    let origin = switching(|conn| {
        conn.send("hello");
        let got = conn.some();
        if got == b"reset" {
            socket2::SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO)).unwrap();
        } else {
            conn.wait_closed();
        }
    });
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = upgraded(&edge);
    client.exactly(5).unwrap();
    client.reset();
    eventually("the server's side is closed", || open(&edge) == 0);
    let mut client = upgraded(&edge);
    client.exactly(5).unwrap();
    client.send("reset");
    assert!(client.until_end().0.is_empty());
    eventually("nothing is left", || open(&edge) == 0 && edge.metrics().connections_open == 0);
}

/// A server that closes without having read everything resets the connection: what it said
/// before must reach the client nevertheless.
#[test]
fn the_last_words_of_a_server_that_listens_no_more_come_through() {
    let origin = switching(|conn| {
        conn.some();
        conn.send(vec![b'w'; 300_000]);
        conn.stream.shutdown(std::net::Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        socket2::SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = upgraded(&edge);
    client.send("x");
    client.exactly(1).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    client.send("nobody reads this");
    client.send("nor this");
    let (words, end) = client.until_end();
    assert_eq!((words.len(), end), (299_999, End::Closed));
}

/// An edge whose only node leaves its site.
fn leaving(origin: &Origin, drain_max_ms: u64) -> (Edge, Fixed, Client) {
    let (edge, fixed) = edge(Options { drain_max_ms, ..options() }, &[origin.address]);
    let mut client = upgraded(&edge);
    client.send("x");
    (edge, fixed, client)
}

#[test]
fn a_node_that_leaves_its_site_ends_them_between_two_frames() {
    let origin = switching(|conn| {
        conn.some();
        conn.send(frame(b"hi"));
        let rest = conn.some();
        // The client's bytes are no whole frame: nothing may be put behind them.
        conn.saw(&format!("{rest:?}"));
    });
    let (edge, fixed, mut client) = leaving(&origin, 500);
    assert_eq!(client.exactly(4).unwrap(), frame(b"hi"));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(open(&edge), 1, "as long as the node serves the site");
    let start = Instant::now();
    fixed.leave(0);
    let (farewell, end) = client.until_end();
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!((farewell, end), (vec![0x88, 0x02, 0x03, 0xe9], End::Closed));
    eventually("it is over", || open(&edge) == 0);
    assert_eq!(origin.seen()[1].head, "[]");
}

#[test]
fn a_server_gets_a_masked_farewell() {
    let origin = switching(|conn| {
        let mut seen = Vec::new();
        loop {
            match conn.some() {
                some if some.is_empty() => break,
                some => seen.extend(some),
            }
        }
        conn.saw(&format!("{seen:?}"));
    });
    let (edge, fixed) = edge(Options { drain_max_ms: 50, ..options() }, &[origin.address]);
    let mut client = upgraded(&edge);
    let whole = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
    client.send(whole);
    eventually("it went on", || edge.metrics().sites[0].upgraded_bytes_in == 8);
    fixed.leave(0);
    assert_eq!(client.until_end(), (vec![0x88, 0x02, 0x03, 0xe9], End::Closed));
    eventually("the server has read it", || origin.seen().len() == 2);
    let seen: Vec<u8> = serde_json::from_str(&origin.seen()[1].head).unwrap();
    let farewell = &seen[8..];
    assert_eq!((&seen[..8], &farewell[..2], farewell.len()), (&whole[..], &[0x88, 0x82][..], 8));
    let code = [farewell[6] ^ farewell[2], farewell[7] ^ farewell[3]];
    assert_eq!(u16::from_be_bytes(code), 1001);
}

/// The rest of a frame is passed on and nothing behind it; a frame that never ends gets no
/// farewell, but an end and no reset.
#[test]
fn a_frame_that_is_under_way_is_not_broken_into() {
    for completes in [true, false] {
        let origin = switching(move |conn| {
            conn.some();
            conn.send(&frame(b"12345")[..4]);
            conn.some();
            std::thread::sleep(Duration::from_millis(500));
            if completes {
                conn.send([&b"345"[..], &frame(b"never")].concat());
            }
            conn.wait_closed();
        });
        let (edge, fixed, mut client) = leaving(&origin, 0);
        assert_eq!(client.exactly(4).unwrap(), &frame(b"12345")[..4]);
        client.send("y");
        fixed.leave(0);
        let (rest, end) = client.until_end();
        let expected = if completes { &b"345\x88\x02\x03\xe9"[..] } else { b"" };
        assert_eq!((&rest[..], end), (expected, End::Closed), "completes: {completes}");
        drop(edge);
    }
}

#[test]
fn a_drain_leaves_them_their_time_and_ends_them_properly() {
    let origin = switching(|conn| {
        conn.some();
        conn.send(frame(b"hi"));
        conn.wait_closed();
    });
    let (edge, _, mut client) = leaving(&origin, 600);
    assert_eq!(client.exactly(4).unwrap(), frame(b"hi"));
    let start = Instant::now();
    let joined = std::thread::spawn(move || edge.join());
    let (farewell, end) = client.until_end();
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!((farewell, end), (vec![0x88, 0x02, 0x03, 0xe9], End::Closed));
    drop(client);
    joined.join().unwrap();
}

#[test]
fn other_protocols_just_end() {
    let origin = Origin::new(|mut conn, _| {
        conn.head();
        conn.send(ANSWER.replace("websocket", "irc/6.9"));
        conn.send("data");
        conn.wait_closed();
    });
    let (edge, fixed) = edge(Options { drain_max_ms: 0, ..options() }, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send(OFFER.replace("websocket", "irc/6.9, h2c"));
    assert_eq!(client.head().unwrap().field("upgrade"), Some("irc/6.9"));
    assert_eq!(client.exactly(4).unwrap(), b"data");
    // It does not read this; it is no reason for a reset.
    client.send("unread");
    fixed.leave(0);
    assert_eq!(client.until_end(), (Vec::new(), End::Closed));
}
