//! Varnish from Debian, with a program in its own language (VCL).

use crate::children::Process;
use crate::tools::server;
use anyhow::bail;
use polder::rig::HeldPort;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long it may take until it listens: it compiles its VCL by the C compiler first.
const READY_PATIENCE: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(20);
/// Where Debian puts the modules: one folder for each kind of machine.
const LIBRARY_FOLDER: &str = "/usr/lib";
/// What a tuned Varnish on one core has: one pool whose threads are there before load comes, and
/// memory for every figure's documents.
const ARGUMENTS: [&str; 9] =
    ["-F", "-s", "malloc,512m", "-p", "thread_pools=1", "-p", "thread_pool_min=80", "-T", "none"];

/// A running Varnish. Its cache is a child of the process that is started.
pub(crate) struct Varnish {
    // In the order in which they go: the process, then its port.
    process: Process,
    port: HeldPort,
}

impl Varnish {
    /// Starts it on a core, with its files in `folder`, and waits until it listens. `parameters`
    /// are further arguments.
    pub(crate) fn start(
        core: usize,
        vcl: &str,
        parameters: &[&str],
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let port = HeldPort::take()?;
        let (file, log) = (folder.join("varnish.vcl"), folder.join("varnish.log"));
        fs::write(&file, vcl)?;
        let text = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let mut arguments = text(&ARGUMENTS);
        arguments.extend(text(parameters));
        // Its jail would give up root for a user who may not enter this private folder.
        arguments.extend(text(&["-j", "none", "-n"]));
        arguments.push(folder.join("varnish").display().to_string());
        arguments.extend(["-a".to_owned(), port.address().to_string()]);
        arguments.extend(["-f".to_owned(), file.display().to_string()]);
        let process = server(core, "varnishd", &arguments, &log)?;
        let mut varnish = Self { process, port };
        varnish.wait(&log)?;
        Ok(varnish)
    }

    fn wait(&mut self, log: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            if self.process.has_ended() || Instant::now() > deadline {
                let text = fs::read_to_string(log).unwrap_or_default();
                bail!("varnishd does not listen; its log says:\n{text}");
            }
            sleep(READY_POLL);
        }
        Ok(())
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

/// Says what is missing for a VCL that imports `module`.
pub(crate) fn need_module(module: &str) -> anyhow::Result<()> {
    let name = format!("libvmod_{module}.so");
    let folders = fs::read_dir(LIBRARY_FOLDER).into_iter().flatten().flatten();
    let mut places = folders.map(|folder| folder.path().join("varnish/vmods").join(&name));
    if places.any(|path| path.is_file()) {
        return Ok(());
    }
    bail!("`{name}` is missing; it is in Debian's package varnish-modules: ./test installs it")
}

/// Lets Varnish compile a VCL, and run nothing.
#[cfg(test)]
pub(crate) fn check(vcl: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("check.vcl");
    fs::write(&file, vcl)?;
    let done = std::process::Command::new(crate::tools::find("varnishd")?)
        .args(["-C", "-j", "none", "-n"])
        .arg(folder.path().join("work"))
        .arg("-f")
        .arg(&file)
        .stdin(std::process::Stdio::null())
        .output()?;
    if !done.status.success() {
        bail!("{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
