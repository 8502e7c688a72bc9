//! Real servers as peers: nginx and HAProxy with a few lines of settings each.

use super::eventually;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running server; dropping it stops it.
pub struct Daemon {
    child: Child,
    pub address: SocketAddr,
    _place: TempDir,
}

impl Daemon {
    /// nginx with these `server` blocks; none, and a word about it, where it is not installed.
    pub fn nginx(servers: impl Fn(SocketAddr) -> String) -> Option<Self> {
        Self::start("nginx", |place, address| {
            let place = place.path().display();
            format!(
                "daemon off; master_process off; pid {place}/pid; error_log {place}/log;
                 events {{ }}
                 http {{ access_log off; client_body_temp_path {place}/a;
                 proxy_temp_path {place}/b; fastcgi_temp_path {place}/c;
                 uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
                 {} }}",
                servers(address)
            )
        })
    }

    /// HAProxy with this frontend, and what may follow it.
    pub fn haproxy(frontend: impl Fn(SocketAddr) -> String) -> Option<Self> {
        Self::start("haproxy", |_, address| {
            format!(
                "defaults\n mode http\n timeout connect 20s\n timeout client 20s\n \
                 timeout server 20s\nfrontend f\n {}\n",
                frontend(address)
            )
        })
    }

    fn start(program: &str, settings: impl Fn(&TempDir, SocketAddr) -> String) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let file = place.path().join("settings");
        std::fs::write(&file, settings(&place, address)).unwrap();
        let flag = if program == "nginx" { "-c" } else { "-f" };
        let paths = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.arg(flag).arg(&file).env("PATH", paths).stdin(Stdio::null());
        let child = match command.stderr(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: no {program} ({error})");
                return None;
            }
        };
        let daemon = Self { child, address, _place: place };
        eventually("it listens", || TcpStream::connect(address).is_ok());
        Some(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
