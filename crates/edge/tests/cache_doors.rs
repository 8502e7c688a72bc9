//! A site's cache by each way in: HTTP/1.1 and HTTP/2, with and without a certificate; and in mode
//! `strict` over a version table of this process.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use cache::{Mode, Rules};
use common::client::Client;
use common::frames::{DATA, END_HEADERS, END_STREAM, Frame, FrameClient, HEADERS, frame, request};
use common::origin::Origin;
use common::tls::{Authority, TlsClient, config};
use common::versions::table;
use common::{edge, options};
use edge::{ClientCertificate, Options, SiteTls, Versions, url_tag};
use shared_state::versions::WriterId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers each request with its number, tagged, for an hour.
fn counting() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::serving(move |conn, _| {
        let body = (count.fetch_add(1, Ordering::SeqCst) + 1).to_string();
        let length = body.len();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nCache-Tag: a\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ));
    })
}

fn cached(mode: Mode) -> Options {
    let mut options = Options { http2_plain: true, ..options() };
    options.sites[0].cache = Some(Arc::new(Rules { mode, ..Rules::default() }));
    options
}

fn by_http1(address: SocketAddr) -> String {
    Client::new(address).get("/").text()
}

fn by_http2(address: SocketAddr) -> String {
    let mut client = FrameClient::new(address, &[]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &[])));
    assert_eq!(client.end_of(1), None);
    let data = |frame: &&Frame| frame.kind == DATA && frame.stream == 1;
    let bytes = client.log.iter().filter(data).flat_map(|frame| frame.payload.clone()).collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn both_protocols_share_what_is_stored_and_hear_of_each_change() {
    let origin = counting();
    let table = table();
    let mut options = cached(Mode::Strict);
    options.sites[0].versions = Some(Versions::Near(table.clone()));
    let (edge, _) = edge(options, &[origin.address]);
    let address = edge.addresses()[0];
    assert_eq!(by_http2(address), "1");
    assert_eq!((by_http1(address), by_http2(address)), ("1".into(), "1".into()));
    let key = cache::KeyRef::of_url(common::site(), "http://a.example/").unwrap().to_key();
    for (round, tag) in [b"a".to_vec(), edge::SITE_TAG.to_vec(), url_tag(&key)].iter().enumerate() {
        let update = table.begin(WriterId(1), &[table.slot(tag)]).unwrap();
        let pending = by_http2(address);
        assert_ne!(pending, by_http1(address), "nothing is kept while it may change");
        table.end(update).unwrap();
        let new = by_http1(address);
        assert_eq!(new, (3 * round + 4).to_string());
        assert_eq!(by_http2(address), new);
    }
    assert_eq!(origin.seen().len(), 10);
}

#[test]
fn without_a_table_a_strict_site_has_no_hits() {
    let origin = counting();
    let (edge, _) = edge(cached(Mode::Strict), &[origin.address]);
    let address = edge.addresses()[0];
    assert_eq!((by_http1(address), by_http1(address)), ("1".into(), "2".into()));
}

#[test]
fn who_shows_a_certificate_goes_past_the_cache() {
    let authority = Authority::new("ca");
    let (pair, alice) = (authority.certify("one", &["a.example"]), authority.certify("alice", &[]));
    let origin = counting();
    let mut options = cached(Mode::Http);
    options.sites[0].tls = Some(SiteTls {
        client_ca: Some(authority.ca()),
        client_certificate: ClientCertificate::Optional,
        ..pair.site()
    });
    options.tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let (edge, _) = edge(options, &[origin.address]);
    let ask = |identity| {
        let config = config(identity, &[]);
        let mut client = TlsClient::new(edge.tls_addresses()[0], "a.example", &config);
        client.get("a.example", "").unwrap().1
    };
    assert_eq!((ask(None), ask(None)), ("1".into(), "1".into()));
    assert_eq!((ask(Some(&alice)), ask(Some(&alice))), ("2".into(), "3".into()));
    assert_eq!(ask(None), "1", "nor is what was made for her given to others");
}
