//! Upgraded connections over TLS: WebSocket by a client and a server that are not ours, and the
//! end that the edge gives it.

#![allow(clippy::unwrap_used)]

mod common;

use common::dispatcher::Fixed;
use common::tls::{Authority, TlsClient, config};
use common::{eventually, options};
use edge::{Edge, Options};
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

/// Sends messages back until the client closes.
fn server() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let Ok(mut socket) = tungstenite::accept(stream) else { return };
                while let Ok(message) = socket.read() {
                    if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// An edge with TLS before one server.
fn start(server: SocketAddr, rest: Options) -> (Edge, Fixed, Authority) {
    let authority = Authority::new("ca");
    let mut all = rest.sites.clone();
    all[0].tls = Some(authority.certify("one", &["a.example"]).site());
    let tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let fixed = Fixed::new(&[server], 64);
    let edge = Edge::start(Options { sites: all, tls_listen, ..rest }, &fixed).unwrap();
    (edge, fixed, authority)
}

/// A client over TLS; `protocols` are offered by ALPN.
fn tls(edge: &Edge, protocols: &[&str]) -> TlsClient {
    TlsClient::new(edge.tls_addresses()[0], "a.example", &config(None, protocols))
}

#[test]
fn a_websocket_passes_through_tls_both_ways() {
    let (edge, fixed, _authority) = start(server(), options());
    for protocols in [&[][..], &["http/1.1"]] {
        let stream = tls(&edge, protocols).stream;
        let (mut socket, response) = tungstenite::client("ws://a.example/echo", stream).unwrap();
        assert_eq!(response.status(), 101);
        let mut exchange = |message: Message| {
            socket.send(message.clone()).unwrap();
            assert_eq!(socket.read().unwrap(), message);
        };
        for length in [0, 1, 125, 126, 65_535, 65_536, 1 << 20] {
            exchange(Message::text("x".repeat(length)));
            exchange(Message::binary(vec![0xff; length]));
        }
        socket.send(Message::Ping(b"still there"[..].into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Pong(b"still there"[..].into()));
        socket.close(None).unwrap();
        let ended = loop {
            match socket.read() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, Error::ConnectionClosed), "{ended}");
    }
    eventually("both have ended", || edge.metrics().sites[0].upgraded_open == 0);
    let told = &edge.metrics().sites[0];
    assert_eq!(told.upgraded, 2);
    assert!(told.upgraded_bytes_in > 2 << 20 && told.upgraded_bytes_out > 2 << 20);
    assert_eq!(fixed.in_flight(), 0, "they hold no place");
}

#[test]
fn a_websocket_whose_node_leaves_gets_a_farewell_and_a_proper_end_of_tls() {
    let rest = Options { drain_max_ms: 100, ..options() };
    let (edge, fixed, _authority) = start(server(), rest);
    let stream = tls(&edge, &[]).stream;
    let (mut socket, _) = tungstenite::client("ws://a.example/echo", stream).unwrap();
    socket.send(Message::text("before")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("before"));
    fixed.leave(0);
    let Message::Close(Some(frame)) = socket.read().unwrap() else { panic!("no farewell") };
    assert_eq!(frame.code, CloseCode::Away);
    // An end of the connection without that of TLS would be an error.
    let mut rest = Vec::new();
    socket.get_mut().read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}
