//! The application's node: Apache httpd, PHP-FPM and MariaDB, the three of `examples/shop`, with
//! pages of this figure, and threads that compute on the same core.
//!
//! All of it is one process tree in one session: the kernel, which may share a core out by
//! sessions (`sched_autogroup_enabled`), then lets each busy thread compete with each process of
//! the application one to one, as on a node of its own.

use crate::ask::{Question, ask};
use crate::children::{Helper, Process, say, told};
use crate::cores::family;
use crate::memory::owner::Work;
use anyhow::{Context as _, bail, ensure};
use lab::{Shop, ShopExtras, ShopOptions};
use polder::rig::HeldPort;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where it listens, each time at the same port: each node of a pool has a server of its own.
pub(crate) const HOSTS: [Ipv4Addr; 3] =
    [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
/// The hidden sub-command.
pub(crate) const APPLICATION_PROCESS: &str = "cache-application-process";
/// What it is told to end.
const END: &str = "end";
/// Requests that PHP serves at once: more than a core can compute, and what a small server has.
const PHP_PROCESSES: u16 = 16;
/// How long Apache and PHP may take until they answer.
const READY_PATIENCE: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(20);
/// Pages of the figure, in the site's folder.
const PAGES: [(&str, &str); 2] =
    [("page.php", include_str!("site/page.php")), ("update.php", include_str!("site/update.php"))];
/// Their table.
const SCHEMA: &str = include_str!("site/pages.sql");

/// Where the application serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    /// All its processes are scheduled as one group.
    pub(crate) is_flat: bool,
}

/// The application in its own process.
pub(crate) struct Application {
    helper: Helper,
    pub(crate) serving: Serving,
}

impl Application {
    /// Begins to start it on a core.
    pub(crate) fn start(core: usize) -> anyhow::Result<Starting> {
        Ok(Starting(Helper::start(core, APPLICATION_PROCESS, &[])?))
    }

    /// From now on so many threads compute on its core.
    pub(crate) fn compute(&mut self, threads: u32) -> anyhow::Result<()> {
        let started: u32 = self.helper.ask(&format!("compute {threads}"))?;
        ensure!(started == threads, "{started} threads compute, not {threads}");
        Ok(())
    }
}

impl Drop for Application {
    /// So that the database writes what it has, and its folder goes.
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.helper.ask::<u32>(END);
    }
}

/// An application that starts.
pub(crate) struct Starting(Helper);

impl Starting {
    /// Its process, which starts all others.
    pub(crate) fn process(&self) -> u32 {
        self.0.process().id()
    }

    /// Waits until it serves: some seconds.
    pub(crate) fn wait(mut self) -> anyhow::Result<Application> {
        let serving: Result<Serving, String> = self.0.hear()?;
        let serving = serving.map_err(anyhow::Error::msg)?;
        Ok(Application { helper: self.0, serving })
    }
}

/// Serves until its input ends; each line is what else it shall do.
pub(crate) fn process() -> anyhow::Result<()> {
    let started = start();
    say(&started.as_ref().map(|parts| parts.0).map_err(|error| format!("{error:#}")))?;
    let Ok((_, server, shop)) = started else { return Ok(()) };
    let mut work = Work::default();
    while let Some(line) = told()?.filter(|line| line != END) {
        work.end();
        work = Work::start(&line)?;
        say(&work.threads())?;
    }
    work.end();
    // In this order: servers need the database.
    drop(server);
    drop(shop);
    say(&0)
}

fn start() -> anyhow::Result<(Serving, Process, Shop)> {
    let options = ShopOptions { children: PHP_PROCESSES, payment: Duration::ZERO };
    let extras = ShopExtras { pages: &PAGES, schema: SCHEMA };
    let shop = Shop::start_with(options, extras)?;
    let port = HeldPort::take()?;
    let mut server = serve(&shop, port.address())?;
    let question = Question {
        address: port.address(),
        method: "GET",
        host: "localhost",
        path: "/page.php?id=1",
        headers: &[],
        patience: READY_PATIENCE,
    };
    let deadline = Instant::now() + READY_PATIENCE;
    loop {
        match ask(&question) {
            Ok(answer) if answer.status == 200 => break,
            answer if server.has_ended() || Instant::now() > deadline => {
                let answer = answer.map(|answer| answer.status);
                let log = shop.folder().join("servers/n1-pages");
                let read = |name| fs::read_to_string(log.join(name)).unwrap_or_default();
                bail!("no page: {answer:?}\n{}{}", read("apache.log"), read("php.log"));
            }
            _ => sleep(READY_POLL),
        }
    }
    let own = group_of(std::process::id());
    let is_flat = family(std::process::id()).into_iter().all(|one| group_of(one) == own);
    Ok((Serving { address: port.address(), is_flat }, server, shop))
}

/// The shop's server, in a process group of its own, for Apache ends all of its group.
fn serve(shop: &Shop, address: SocketAddr) -> anyhow::Result<Process> {
    let hosts = HOSTS.map(|host| host.to_string()).join(" ");
    let fill = |word: &String| {
        let word = word.replace("{host}", &hosts);
        let word = word.replace("{port}", &address.port().to_string());
        word.replace("{node}", "n1").replace("{site}", "pages")
    };
    let words: Vec<String> = shop.command().iter().map(fill).collect();
    let (program, arguments) = words.split_first().context("a command has a program")?;
    // It ends with the thread that starts it: the main one.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", program]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Process::start(&mut command)
}

/// How the kernel calls the group that a process is scheduled in: by its session, where it does so.
fn group_of(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/autogroup")).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}
