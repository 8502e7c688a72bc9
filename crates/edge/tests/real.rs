//! Real programs on both sides: curl before the edge, nginx behind it. Each test is skipped, and
//! says so, where its program is not installed.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::origin::Origin;
use common::{PATIENCE, edge, eventually, options};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What curl printed, and the status.
fn curl(address: SocketAddr, arguments: &[&str]) -> Option<(u16, Vec<u8>)> {
    let output = Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--header", "Host: a.example"])
        .args(["--max-time", &PATIENCE.as_secs().to_string(), "--write-out", "%{http_code}"])
        .args(arguments)
        .arg(format!("http://{address}/file"))
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: no curl ({error})");
            return None;
        }
    };
    let mut body = output.stdout;
    let status = body.split_off(body.len() - 3);
    Some((String::from_utf8(status).unwrap().parse().unwrap(), body))
}

#[test]
fn curl_up_and_down() {
    let origin = Origin::echo();
    let (edge, _) = edge(options(), &[origin.address]);
    let address = edge.addresses()[0];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("upload");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let file = file.to_str().unwrap();
    let expect = ["--header", "Expect: 100-continue", "--upload-file", file];
    let chunked = ["--header", "Transfer-Encoding: chunked", "--upload-file", file];
    let old = ["--http1.0", "--upload-file", file];
    for arguments in [&expect[..], &chunked, &old, &["--upload-file", file]] {
        let Some((status, body)) = curl(address, arguments) else { return };
        assert_eq!((status, body == content), (200, true), "{arguments:?}");
    }
    assert_eq!(origin.seen()[0].field("expect"), Some("100-continue"));
}

struct Nginx(Child, SocketAddr);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Nginx {
    fn start(directory: &Path) -> Option<Self> {
        let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let place = directory.display();
        let settings = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/log;
             events {{ }}
             http {{ access_log off; client_max_body_size 1k; root {place};
             client_body_temp_path {place}/a; proxy_temp_path {place}/b;
             fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
             server {{ listen {address}; }} }}"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let run = Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        match run {
            Ok(child) => {
                let nginx = Self(child, address);
                eventually("nginx listens", || TcpStream::connect(address).is_ok());
                Some(nginx)
            }
            Err(error) => {
                println!("skipped: no nginx ({error})");
                None
            }
        }
    }
}

#[test]
fn nginx_behind_the_edge() {
    let directory = tempfile::tempdir().unwrap();
    let content = vec![b'n'; 5_000_000];
    std::fs::write(directory.path().join("file"), &content).unwrap();
    let Some(nginx) = Nginx::start(directory.path()) else { return };
    let (edge, fixed) = edge(options(), &[nginx.1]);
    let address = edge.addresses()[0];
    let Some((status, body)) = curl(address, &[]) else { return };
    assert_eq!((status, body == content), (200, true));
    assert_eq!(curl(address, &["--head"]).unwrap().0, 200);
    let range = curl(address, &["--range", "10-19"]).unwrap();
    assert_eq!((range.0, range.1.len()), (206, 10));
    // nginx answers before it has read the body, then closes: nothing of that may get lost.
    let file = directory.path().join("file");
    let file = file.to_str().unwrap();
    for expect in ["Expect: 100-continue", "Expect:"] {
        let (status, body) = curl(address, &["--header", expect, "--upload-file", file]).unwrap();
        assert_eq!(status, 413, "{expect}");
        assert!(String::from_utf8(body).unwrap().contains("nginx"), "it is nginx's answer");
    }
    eventually("permits are back", || fixed.in_flight() == 0);
}
