//! Real clients before the edge's TLS and HTTP/2: curl, nghttp, h2load, openssl. Each is skipped,
//! and says so, where its program is not installed.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::dispatcher::Fixed;
use common::origin::Origin;
use common::tls::{Authority, Pair};
use common::{PATIENCE, options};
use edge::{ClientCertificate, Edge, Options, SiteTls};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// What a program printed, or none where it is not installed. It must end well.
fn run(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("skipped: no {program} ({error})");
            return None;
        }
    };
    // Kept open: a client that reads its end goes at once.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}\n{text}\n{errors}");
    Some(text)
}

struct Front {
    edge: Edge,
    authority: Authority,
    alice: Pair,
    origin: Origin,
}

/// One site with a certificate, also by an address without TLS.
fn front(origin: Origin, mode: ClientCertificate) -> Front {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let alice = authority.certify("alice", &[]);
    let mut sites = options().sites;
    let client_ca = Some(authority.ca());
    sites[0].tls = Some(SiteTls { client_ca, client_certificate: mode, ..pair.site() });
    let tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let default_site = Some(sites[0].id);
    let rest = Options { sites, default_site, tls_listen, http2_plain: true, ..options() };
    let edge = Edge::start(rest, &Fixed::new(&[origin.address], 64)).unwrap();
    Front { edge, authority, alice, origin }
}

impl Front {
    /// curl to the site, by its name and with its certificate checked.
    fn curl(&self, arguments: &[&str]) -> Option<String> {
        let (plain, tls) = (self.edge.addresses()[0], self.edge.tls_addresses()[0]);
        let ca = self.authority.ca();
        let mut all = vec!["--silent", "--show-error", "--noproxy", "*", "--max-time"];
        let seconds = PATIENCE.as_secs().to_string();
        let resolve: Vec<String> =
            [plain, tls].map(|address| format!("a.example:{}:127.0.0.1", address.port())).into();
        all.extend([&*seconds, "--cacert", ca.to_str().unwrap()]);
        all.extend(["--resolve", &*resolve[0], "--resolve", &*resolve[1]]);
        all.extend(arguments);
        run("curl", &all, "")
    }

    fn https(&self) -> String {
        format!("https://a.example:{}/", self.edge.tls_addresses()[0].port())
    }

    fn http(&self) -> String {
        format!("http://a.example:{}/", self.edge.addresses()[0].port())
    }
}

const VERSION: &str = "\n%{http_version} %{http_code}";

#[test]
fn curl_by_every_way() {
    let front = front(Origin::echo(), ClientCertificate::Off);
    let file = front.authority.folder().join("upload");
    let content = "0123456789".repeat(100_000);
    std::fs::write(&file, &content).unwrap();
    let file = file.to_str().unwrap();
    let (http, https) = (front.http(), front.https());
    for (how, url, version) in [
        ("--http1.1", &http, "1.1"),
        ("--http2-prior-knowledge", &http, "2"),
        ("--http1.1", &https, "1.1"),
        ("--http2", &https, "2"),
        ("--tls-max=1.2", &https, "2"),
    ] {
        let how: Vec<&str> = how.split('=').collect();
        for more in [&["--upload-file", file][..], &["-T", file, "-H", "Expect: 100-continue"]] {
            let arguments = [&how[..], more, &["--write-out", VERSION, url]].concat();
            let Some(printed) = front.curl(&arguments) else { return };
            let (body, told) = printed.rsplit_once('\n').unwrap();
            assert_eq!((told, body == content), (&*format!("{version} 200"), true), "{how:?}");
        }
    }
    let seen = front.origin.seen();
    let proto = |at: usize| seen[at].field("x-forwarded-proto").map(str::to_owned);
    assert_eq!((proto(0).unwrap(), proto(9).unwrap()), ("http".into(), "https".into()));
}

#[test]
fn curl_with_a_client_certificate() {
    let origin = Origin::serving(|conn, seen| conn.answer("200 OK", seen.head.as_bytes()));
    let front = front(origin, ClientCertificate::Required);
    let (key, certificate) = (&front.alice.key, &front.alice.certificate);
    let own = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    for how in ["--http1.1", "--http2"] {
        let Some(seen) = front.curl(&[&own[..], &[how, &front.https()]].concat()) else { return };
        assert!(seen.contains("x-client-cert-subject: CN=alice"), "{seen}");
    }
    // Without TLS there is no certificate, and so no page.
    let told = front.curl(&["--write-out", VERSION, &front.http()]).unwrap();
    assert!(told.ends_with("1.1 421"), "{told}");
}

#[test]
fn openssl_with_a_client_certificate() {
    let origin = Origin::serving(|conn, seen| conn.answer("200 OK", seen.head.as_bytes()));
    let front = front(origin, ClientCertificate::Optional);
    let address = front.edge.tls_addresses()[0].to_string();
    let ca = front.authority.ca();
    let base = ["s_client", "-quiet", "-verify_return_error", "-servername"];
    let to = ["a.example", "-connect", &address, "-CAfile", ca.to_str().unwrap()];
    let (key, certificate) = (&front.alice.key, &front.alice.certificate);
    let own = ["-cert", certificate.to_str().unwrap(), "-key", key.to_str().unwrap()];
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let arguments = [&base[..], &to, &own, &[version]].concat();
        let Some(seen) = run("openssl", &arguments, request) else { return };
        assert!(seen.contains("x-client-cert-subject: CN=alice"), "{seen}");
        let seen = run("openssl", &[&base[..], &to, &[version]].concat(), request).unwrap();
        assert!(seen.contains("200 OK") && !seen.contains("cert-subject"), "{seen}");
    }
}

#[test]
fn nghttp_and_h2load() {
    let origin = Origin::serving(|conn, _| conn.answer("200 OK", &[b'x'; 50_000]));
    let front = front(origin, ClientCertificate::Off);
    let plain = format!("http://{}/", front.edge.addresses()[0]);
    let tls = format!("https://{}/", front.edge.tls_addresses()[0]);
    for url in [&plain, &tls] {
        // A small window, so that it must be opened many times.
        let [one, two, three] = ["1", "2", "3"].map(|path| format!("{url}{path}"));
        let got = run("nghttp", &["--window-bits=10", "--no-dep", &one, &two, &three], "");
        let Some(got) = got else { return };
        assert_eq!(got.len(), 3 * 50_000, "{url}");
        let load = ["--requests=400", "--clients=8", "--max-concurrent-streams=10", url];
        let told = run("h2load", &load, "").unwrap();
        assert!(told.contains("400 succeeded, 0 failed"), "{told}");
    }
}
