//! nginx and HAProxy as reverse proxies before one origin each, on loopback.

use crate::IDLE_MS;
use crate::common::eventually;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that runs as long as this lives.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    child: Child,
    _directory: tempfile::TempDir,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

/// Starts a program with its settings in a file; none, and a word why, if it is not installed.
fn start(name: &'static str, settings: impl Fn(SocketAddr, &Path) -> String) -> Option<Peer> {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let file = directory.path().join("settings");
    std::fs::write(&file, settings(address, directory.path())).unwrap();
    let mut command = Command::new(name);
    match name {
        "nginx" => command.arg("-c").arg(&file),
        _ => command.arg("-db").arg("-f").arg(&file),
    };
    // Both of them may lie where only root's PATH leads.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin")).stdin(Stdio::null());
    match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => {
            let peer = Peer { name, address, child, _directory: directory };
            eventually(name, || TcpStream::connect(address).is_ok());
            Some(peer)
        }
        Err(error) => {
            println!("skipped: no {name} ({error})");
            None
        }
    }
}

pub(crate) fn nginx(origin: SocketAddr) -> Option<Peer> {
    start("nginx", |address, directory| {
        let place = directory.display();
        format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/log crit;
             events {{ }}
             http {{
               access_log off; client_max_body_size 0; server_tokens off;
               client_header_timeout {IDLE_MS}ms; client_body_timeout {IDLE_MS}ms;
               keepalive_timeout {IDLE_MS}ms; lingering_timeout {IDLE_MS}ms;
               client_body_temp_path {place}/a; proxy_temp_path {place}/b;
               fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
               upstream origin {{ server {origin} max_fails=0; keepalive 8; }}
               server {{
                 listen {address}; server_name a.example;
                 location / {{
                   proxy_pass http://origin; proxy_http_version 1.1; proxy_next_upstream off;
                   proxy_set_header Connection \"\"; proxy_set_header Host $host;
                   proxy_read_timeout {read}ms; proxy_intercept_errors off;
                 }}
               }}
             }}\n",
            read = 3 * IDLE_MS
        )
    })
}

pub(crate) fn haproxy(origin: SocketAddr) -> Option<Peer> {
    start("haproxy", |address, _| {
        format!(
            "global\n  maxconn 200\n  nbthread 1\n\
             defaults\n  mode http\n  timeout connect 2s\n  timeout client {IDLE_MS}ms\n  \
             timeout http-request {IDLE_MS}ms\n  timeout http-keep-alive {IDLE_MS}ms\n  \
             timeout server {read}ms\n  retries 0\n  http-reuse always\n\
             frontend clients\n  bind {address}\n  default_backend origin\n\
             backend origin\n  server origin {origin}\n",
            read = 3 * IDLE_MS
        )
    })
}
