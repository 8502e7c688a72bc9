//! nginx and HAProxy as reverse proxies before one origin each.

use crate::IDLE_MS;
use crate::common::daemon::Daemon;
use std::net::SocketAddr;

/// A server gets longer than a client: its answer may wait for this machine.
const READ_MS: u64 = 3 * IDLE_MS;

pub(crate) fn nginx(origin: SocketAddr) -> Option<Daemon> {
    Daemon::nginx(|address| {
        format!(
            "client_max_body_size 0; server_tokens off;
             client_header_timeout {IDLE_MS}ms; client_body_timeout {IDLE_MS}ms;
             keepalive_timeout {IDLE_MS}ms; lingering_timeout {IDLE_MS}ms;
             upstream origin {{ server {origin} max_fails=0; keepalive 8; }}
             server {{
               listen {address}; server_name a.example;
               location / {{
                 proxy_pass http://origin; proxy_http_version 1.1; proxy_next_upstream off;
                 proxy_set_header Connection \"\"; proxy_set_header Host $host;
                 proxy_read_timeout {READ_MS}ms;
               }}
             }}"
        )
    })
}

pub(crate) fn haproxy(origin: SocketAddr) -> Option<Daemon> {
    Daemon::haproxy(|address| {
        format!(
            "bind {address}\n timeout client {IDLE_MS}ms\n timeout http-request {IDLE_MS}ms\n \
             timeout http-keep-alive {IDLE_MS}ms\n default_backend origin\n\
             backend origin\n timeout server {READ_MS}ms\n retries 0\n http-reuse always\n \
             server origin {origin}\n"
        )
    })
}
