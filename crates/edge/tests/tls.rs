//! TLS towards clients: certificates by name, client certificates, sessions, renewal, time-outs.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::dispatcher::Fixed;
use common::origin::Origin;
use common::tls::{Authority, Pair, TlsClient, config, write_key};
use common::{eventually, options};
use edge::{ClientCertificate, Edge, Options, Reason, SiteOptions, SiteTls};
use pool_model::SiteId;
use rustls::HandshakeKind;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Tells what it was sent.
fn telling() -> Origin {
    Origin::serving(|conn, seen| conn.answer("200 OK", seen.head.as_bytes()))
}

/// An edge with a plain address and one for TLS, its sites on one server.
fn start(sites: Vec<(&[&str], Option<SiteTls>)>, origin: &Origin, rest: Options) -> Edge {
    let mut fixed = Fixed::new(&[origin.address], 64);
    let mut all = Vec::new();
    for (index, (hosts, tls)) in sites.into_iter().enumerate() {
        let id = SiteId::from_index(index).unwrap();
        if index > 0 {
            fixed = fixed.with_site(id, origin.address);
        }
        let site = SiteOptions::new(id, &format!("site{index}"), hosts);
        all.push(SiteOptions { tls, ..site });
    }
    let tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    Edge::start(Options { sites: all, tls_listen, ..rest }, &fixed).unwrap()
}

fn demanding(pair: &Pair, authority: &Authority, mode: ClientCertificate) -> SiteTls {
    SiteTls { client_ca: Some(authority.ca()), client_certificate: mode, ..pair.site() }
}

#[test]
fn the_server_name_chooses_the_certificate() {
    let authority = Authority::new("ca");
    let one = authority.certify("one", &["a.example"]);
    let two = authority.certify("two", &["*.b.example"]);
    let origin = telling();
    let sites = || {
        vec![
            (&["plain.example"][..], None),
            (&["a.example"][..], Some(one.site())),
            (&["*.b.example"][..], Some(two.site())),
        ]
    };
    let default = SiteId::from_index(2).unwrap();
    for default_site in [None, Some(default)] {
        let edge = start(sites(), &origin, Options { default_site, ..options() });
        let address = edge.tls_addresses()[0];
        let rest = if default_site.is_some() { &two } else { &one };
        let asked = [
            ("a.example", "a.example", &one),
            ("A.Example", "a.example", &one),
            ("x.b.example", "x.b.example", &two),
            ("deep.x.b.example", "deep.x.b.example", &two),
            ("plain.example", "plain.example", rest),
            ("elsewhere.example", "a.example", rest),
            ("127.0.0.1", "a.example", rest),
        ];
        for (name, host, pair) in asked {
            let mut client = TlsClient::new(address, name, &config(None, &[]));
            let (status, seen) = client.get(host, "").unwrap();
            assert_eq!(status, 200);
            assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");
            assert_eq!(client.shown(), pair.der(), "{name}");
        }
        let plain = Client::new(edge.addresses()[0]).get("/").text();
        assert!(plain.contains("x-forwarded-proto: http\r\n"), "{plain}");
        assert_eq!(edge.metrics().tls_handshakes, 7);
    }
}

#[test]
fn bodies_of_any_length_pass_both_ways() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let origin = Origin::echo();
    let edge = start(vec![(&["a.example"], Some(pair.site()))], &origin, options());
    let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &config(None, &[]));
    for length in [0_usize, 1, 20_000, 3_000_000, 5] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let tcp = client.stream.sock.try_clone().unwrap();
        tcp.set_nonblocking(false).unwrap();
        let head = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
        client.stream.write_all(head.as_bytes()).unwrap();
        client.stream.write_all(&body).unwrap();
        let (status, _, echoed) = client.reply().unwrap();
        assert_eq!((status, echoed == body), (200, true), "{length}");
    }
}

#[test]
fn a_broken_response_does_not_end_as_if_it_were_whole() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let origin = Origin::new(|mut conn, _| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        }
    });
    let edge = start(vec![(&["a.example"], Some(pair.site()))], &origin, options());
    let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &config(None, &[]));
    // HTTP/1.0 has no chunks: the end of the connection would be the end of the body.
    client.stream.write_all(b"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").unwrap();
    let mut got = Vec::new();
    client.stream.read_to_end(&mut got).unwrap_err();
}

#[test]
fn a_demanded_certificate_cannot_be_passed_by() {
    let authority = Authority::new("ca");
    let stranger = Authority::new("other");
    let (one, two) = (authority.certify("one", &["a"]), authority.certify("two", &["b"]));
    let (alice, mallory) = (authority.certify("alice", &[]), stranger.certify("mallory", &[]));
    let origin = telling();
    let guarded = demanding(&two, &authority, ClientCertificate::Required);
    let sites = vec![(&["a.example"][..], Some(one.site())), (&["b.example"][..], Some(guarded))];
    let edge = start(sites, &origin, options());
    let address = edge.tls_addresses()[0];

    let mut client = TlsClient::new(address, "b.example", &config(Some(&alice), &[]));
    let forged = "X-Client-Cert-Subject: CN=root\r\nX_Client_Cert_Subject: CN=root\r\n";
    let (status, seen) = client.get("b.example", forged).unwrap();
    assert_eq!(status, 200);
    assert_eq!(seen.matches("CN=").count(), 1, "{seen}");
    assert!(seen.contains("x-client-cert-subject: CN=alice"), "{seen}");
    // Another site learns nothing of it.
    assert!(!client.get("a.example", forged).unwrap().1.contains("CN="));

    for identity in [None, Some(&mallory)] {
        let mut client = TlsClient::new(address, "b.example", &config(identity, &[]));
        assert!(client.get("b.example", "").is_err(), "{identity:?}");
    }
    for identity in [None, Some(&alice)] {
        let mut client = TlsClient::new(address, "a.example", &config(identity, &[]));
        assert_eq!(client.get("b.example", "").unwrap().0, 421);
        assert_eq!(client.get("a.example", "").unwrap().0, 200, "the connection lives on");
    }
    let mut plain = Client::new(edge.addresses()[0]);
    let reply = plain.ask("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!((reply.status, reply.reason()), (421, Some("no-certificate")));
    eventually("it is counted", || {
        edge.metrics().sites.iter().map(|site| site.refused(Reason::NoCertificate)).sum::<u64>()
            == 3
    });
}

#[test]
fn an_optional_certificate_is_checked_if_it_is_shown() {
    let authority = Authority::new("ca");
    let stranger = Authority::new("other");
    let pair = authority.certify("one", &["a.example"]);
    let (alice, mallory) = (authority.certify("alice", &[]), stranger.certify("mallory", &[]));
    let origin = telling();
    let tls = demanding(&pair, &authority, ClientCertificate::Optional);
    let edge = start(vec![(&["a.example"], Some(tls))], &origin, options());
    let ask = |identity| {
        let mut client =
            TlsClient::new(edge.tls_addresses()[0], "a.example", &config(identity, &[]));
        client.get("a.example", "")
    };
    assert!(!ask(None).unwrap().1.contains("cert"));
    assert!(ask(Some(&alice)).unwrap().1.contains("x-client-cert-subject: CN=alice"));
    assert!(ask(Some(&mallory)).is_err());
}

fn kind(client: &TlsClient) -> HandshakeKind {
    client.stream.conn.handshake_kind().unwrap()
}

#[test]
fn sessions_are_resumed_but_not_past_new_demands() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let alice = authority.certify("alice", &[]);
    let origin = telling();
    let threads = Options { threads: 2, ..options() };
    let edge = start(vec![(&["a.example"], Some(pair.site()))], &origin, threads);
    let client_config = config(Some(&alice), &[]);
    let connect = || {
        let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &client_config);
        let answer = client.get("a.example", "").unwrap();
        (kind(&client), answer)
    };
    assert_eq!(connect().0, HandshakeKind::Full);
    // Whichever thread they come to.
    for _ in 0..6 {
        assert_eq!(connect().0, HandshakeKind::Resumed);
    }
    let id = SiteId::MIN;
    let renew = |tls| {
        let site = SiteOptions { tls: Some(tls), ..SiteOptions::new(id, "site0", &["a.example"]) };
        edge.renew_certificates(&[site]).unwrap();
    };
    renew(pair.site());
    assert_eq!(connect().0, HandshakeKind::Resumed, "nothing has changed");
    renew(demanding(&pair, &authority, ClientCertificate::Required));
    let (kind, (status, seen)) = connect();
    assert_eq!((kind, status), (HandshakeKind::Full, 200));
    assert!(seen.contains("CN=alice"), "{seen}");
    let (kind, (_, seen)) = connect();
    assert_eq!(kind, HandshakeKind::Resumed);
    assert!(seen.contains("CN=alice"), "a resumed session keeps its certificate: {seen}");
}

#[test]
fn certificates_change_while_the_edge_runs() {
    let authority = Authority::new("ca");
    let (old, new) = (authority.certify("old", &["a"]), authority.certify("new", &["a"]));
    let origin = telling();
    let edge = start(vec![(&["a.example"], Some(old.site()))], &origin, options());
    let address = edge.tls_addresses()[0];
    let mut kept = TlsClient::new(address, "a.example", &config(None, &[]));
    assert_eq!(kept.get("a.example", "").unwrap().0, 200);
    let renew = |tls| {
        let site = SiteOptions::new(SiteId::MIN, "site0", &["a.example"]);
        edge.renew_certificates(&[SiteOptions { tls: Some(tls), ..site }])
    };
    let shown = || {
        let mut client = TlsClient::new(address, "a.example", &config(None, &[]));
        client.get("a.example", "").unwrap();
        client.shown()
    };
    // A mistake changes nothing.
    let broken = SiteTls { key: new.certificate.clone(), ..old.site() };
    write_key(&new.certificate.with_extension("copy"), "no key", 0o600);
    assert!(renew(broken).is_err());
    assert_eq!(shown(), old.der());
    renew(new.site()).unwrap();
    assert_eq!(shown(), new.der());
    assert_eq!(kept.get("a.example", "").unwrap().0, 200, "old connections live on");
    // The same files with other contents.
    std::fs::copy(&old.certificate, &new.certificate).unwrap();
    std::fs::copy(&old.key, &new.key).unwrap();
    edge.renew_certificates(&[]).unwrap();
    assert_eq!(shown(), old.der());
}

/// A demand that comes while a connection is open counts for its next request.
#[test]
fn new_demands_reach_old_connections() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let origin = telling();
    let edge = start(vec![(&["a.example"], Some(pair.site()))], &origin, options());
    let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &config(None, &[]));
    assert_eq!(client.get("a.example", "").unwrap().0, 200);
    let tls = Some(demanding(&pair, &authority, ClientCertificate::Required));
    let site = SiteOptions::new(SiteId::MIN, "site0", &["a.example"]);
    edge.renew_certificates(&[SiteOptions { tls, ..site }]).unwrap();
    assert_eq!(client.get("a.example", "").unwrap().0, 421);
}

#[test]
fn mistakes_name_the_file() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let other = authority.certify("two", &["a.example"]);
    let key = std::fs::read_to_string(&pair.key).unwrap();
    let open = authority.folder().join("open.key");
    write_key(&open, &key, 0o644);
    let empty = authority.folder().join("empty");
    write_key(&empty, "", 0o600);
    let missing = authority.folder().join("missing");
    let fixed = Fixed::new(&[], 1);
    let words = |tls: Option<SiteTls>| {
        let mut bad = options();
        bad.sites[0].tls = tls;
        bad.tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        Edge::start(bad, &fixed).expect_err("it must not start").to_string()
    };
    let with_key = |key: &std::path::Path| SiteTls { key: key.to_owned(), ..pair.site() };
    let exposed = words(Some(with_key(&open)));
    assert!(exposed.contains("open.key") && exposed.contains("chmod"), "{exposed}");
    for (tls, file) in [
        (with_key(&missing), "missing"),
        (with_key(&empty), "empty"),
        (with_key(&other.key), "two.key"),
        (SiteTls { certificate: pair.key.clone(), ..pair.site() }, "one.key"),
        (
            SiteTls {
                client_ca: Some(empty),
                ..demanding(&pair, &authority, ClientCertificate::Required)
            },
            "empty",
        ),
    ] {
        let words = words(Some(tls));
        assert!(words.contains(file), "{words}");
    }
    let nobody = SiteTls { client_certificate: ClientCertificate::Optional, ..pair.site() };
    assert!(words(Some(nobody)).contains("client_ca"));
    assert!(words(None).contains("no site has a certificate"));
}

#[test]
fn who_does_not_finish_a_handshake_is_shut_out() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let origin = telling();
    let limits = Options { header_timeout_ms: 200, ..options() };
    let edge = start(vec![(&["a.example"], Some(pair.site()))], &origin, limits);
    // The start of a ClientHello, then nothing; nothing at all; something else.
    for begin in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"", b"GET / HTTP/1.1\r\n\r\n"] {
        let start = Instant::now();
        let mut tcp = TcpStream::connect(edge.tls_addresses()[0]).unwrap();
        tcp.set_read_timeout(Some(common::PATIENCE)).unwrap();
        tcp.write_all(begin).unwrap();
        let mut rest = Vec::new();
        let _ = tcp.read_to_end(&mut rest);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    eventually("all are gone", || edge.metrics().connections_open == 0);
    let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &config(None, &[]));
    assert_eq!(client.get("a.example", "").unwrap().0, 200);
    // The time for a head holds here too.
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: a.ex").unwrap();
    assert_eq!(client.reply().unwrap().0, 408);
}
