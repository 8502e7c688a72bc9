//! nginx and HAProxy as their operators would set them up for this work: one thread, connections
//! kept on both sides, time-outs, no access log.

use super::plan::Proxy;
use crate::children::Process;
use crate::tools::{Front, find, server};
use anyhow::{Context as _, bail};
use polder::rig::HeldPort;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a peer may take until it listens.
const READY_PATIENCE: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(10);

/// A certificate and its key, both PEM files.
pub(super) struct Certificate {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// Both in one, as HAProxy wants them.
    both: PathBuf,
}

/// Makes a certificate of its own for `host`: elliptic curve P-256, as most sites have.
pub(super) fn certificate(folder: &Path, host: &str) -> anyhow::Result<Certificate> {
    let [certificate, key, both] = ["cert.pem", "key.pem", "both.pem"].map(|n| folder.join(n));
    let subject = format!("/CN={host}");
    let names = format!("subjectAltName=DNS:{host}");
    let made = Command::new(find("openssl")?)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", &subject, "-addext", &names])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stdin(Stdio::null())
        .output()
        .context("cannot start openssl")?;
    if !made.status.success() {
        bail!("openssl makes no certificate: {}", String::from_utf8_lossy(&made.stderr));
    }
    fs::write(&both, [fs::read(&certificate)?, fs::read(&key)?].concat())?;
    Ok(Certificate { certificate, key, both })
}

/// A running peer.
pub(super) struct Peer {
    // In the order in which they go: the process, then its ports.
    process: Process,
    ports: [HeldPort; 3],
}

impl Peer {
    /// Starts nginx or HAProxy on a core and waits until it listens.
    pub(super) fn start(
        proxy: Proxy,
        core: usize,
        origin: SocketAddr,
        certificate: &Certificate,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let ports = [HeldPort::take()?, HeldPort::take()?, HeldPort::take()?];
        let addresses = [&ports[0], &ports[1], &ports[2]].map(HeldPort::address);
        let (program, text, arguments) = match proxy {
            Proxy::Nginx => ("nginx", nginx(addresses, origin, certificate, folder), ["-q", "-c"]),
            Proxy::Haproxy => ("haproxy", haproxy(addresses, origin, certificate), ["-db", "-f"]),
            Proxy::Polder => bail!("Polder is no peer of itself"),
        };
        let file = folder.join(format!("{program}.conf"));
        let log = folder.join(format!("{program}.log"));
        fs::write(&file, text)?;
        let arguments = [arguments[0].into(), arguments[1].into(), file.display().to_string()];
        let process = server(core, program, &arguments, &log)?;
        let mut peer = Self { process, ports };
        peer.wait(program, &log)?;
        Ok(peer)
    }

    fn wait(&mut self, program: &str, log: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        for front in [Front::Http1, Front::Tls, Front::Http2] {
            while TcpStream::connect(self.address(front)).is_err() {
                if self.process.has_ended() || Instant::now() > deadline {
                    let text = fs::read_to_string(log).unwrap_or_default();
                    bail!("{program} does not listen; its log says:\n{text}");
                }
                sleep(READY_POLL);
            }
        }
        Ok(())
    }

    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn address(&self, front: Front) -> SocketAddr {
        let place = match front {
            Front::Http1 => 0,
            Front::Tls => 1,
            Front::Http2 => 2,
        };
        self.ports[place].address()
    }
}

fn nginx(
    [plain, tls, http2]: [SocketAddr; 3],
    origin: SocketAddr,
    pem: &Certificate,
    folder: &Path,
) -> String {
    let folder = folder.display();
    let (certificate, key) = (pem.certificate.display(), pem.key.display());
    format!(
        "daemon off; master_process off; worker_processes 1;\n\
         pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         access_log off; tcp_nodelay on; server_tokens off;\n\
         keepalive_timeout 600s; keepalive_requests 1000000000;\n\
         client_header_timeout 10s; client_body_timeout 30s; send_timeout 30s;\n\
         proxy_connect_timeout 1s; proxy_read_timeout 60s; proxy_send_timeout 30s;\n\
         client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;\n\
         fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
         ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         upstream origin {{\n\
         server {origin};\n\
         keepalive 256; keepalive_requests 1000000000; keepalive_timeout 600s; keepalive_time 1d;\n\
         }}\n\
         server {{\n\
         listen {plain}; listen {tls} ssl; listen {http2} http2;\n\
         location / {{\n\
         proxy_pass http://origin; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\n\
         proxy_set_header X-Forwarded-Host $host;\n\
         }} }} }}\n"
    )
}

fn haproxy([plain, tls, http2]: [SocketAddr; 3], origin: SocketAddr, pem: &Certificate) -> String {
    let both = pem.both.display();
    format!(
        "global\n  nbthread 1\n  maxconn 4000\n\
         defaults\n  mode http\n  timeout connect 1s\n  timeout client 600s\n\
         \x20 timeout server 60s\n  timeout http-request 10s\n  timeout http-keep-alive 600s\n\
         \x20 http-reuse always\n  option forwardfor\n\
         frontend f\n  bind {plain}\n  bind {tls} ssl crt {both}\n  bind {http2} proto h2\n\
         \x20 http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}\n\
         \x20 http-request set-header X-Forwarded-Proto http if !{{ ssl_fc }}\n\
         \x20 http-request set-header X-Forwarded-Host %[req.hdr(Host)]\n\
         \x20 default_backend b\n\
         backend b\n  server s {origin} pool-max-conn 1000 pool-purge-delay 600s\n"
    )
}
