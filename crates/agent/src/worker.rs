//! The thread that has hands: it starts, signals and buries processes and checks servers, as the
//! supervisor orders, and reports. It sleeps in `poll` until something happens.

use crate::check::Probe;
use crate::command::{self, Place};
use crate::inbox::Inbox;
use crate::lifecycle::{Action, News, Process, Run};
use crate::options::{Options, ServerKind, ServerSpec, ms};
use crate::process::{self, Held, timespec};
use crate::supervisor::{Order, Report};
use pool_model::SiteId;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause after `poll` failed, which on valid descriptors only a lack of memory makes it do.
const POLL_PAUSE: Duration = Duration::from_millis(10);

enum Command {
    Do(Order),
    /// Watch over a process of an earlier agent.
    Hold {
        site: SiteId,
        run: Run,
        held: Held,
    },
    /// Empty the logs that have grown too long.
    TrimLogs,
    End,
}

/// The worker's handle. It ends with its thread's [`Worker::end`]; processes go on.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    bell: OwnedFd,
}

impl Shared {
    fn send(&self, commands: impl IntoIterator<Item = Command>) {
        let mut queue = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        queue.extend(commands);
        drop(queue);
        // The counter of an eventfd that is read at each turn is never full.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(options: &Options, inbox: Arc<Inbox>) -> std::io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { commands: Mutex::default(), bell });
        let hands = Hands {
            shared: Arc::clone(&shared),
            inbox,
            node: options.name.clone(),
            host: options.host,
            log_dir: options.log_dir.clone(),
            state_file: options.state_file.clone(),
            check_timeout: ms(options.health.check_timeout_ms),
            specs: options.servers.iter().map(|spec| (spec.site, spec.clone())).collect(),
            processes: Vec::new(),
            probes: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name("agent-worker".to_owned()).spawn(|| hands.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over what the supervisor ordered. Does not block.
    pub(crate) fn send(&self, orders: Vec<Order>) {
        if !orders.is_empty() {
            self.shared.send(orders.into_iter().map(Command::Do));
        }
    }

    /// Watches over a process of an earlier agent.
    pub(crate) fn hold(&self, site: SiteId, run: Run, held: Held) {
        self.shared.send([Command::Hold { site, run, held }]);
    }

    /// Empties logs that have grown too long.
    pub(crate) fn trim_logs(&self) {
        self.shared.send([Command::TrimLogs]);
    }

    /// Ends the thread and waits for it.
    pub(crate) fn end(&mut self) {
        self.shared.send([Command::End]);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it already.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

/// What the thread owns.
struct Hands {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    node: String,
    host: Ipv4Addr,
    log_dir: PathBuf,
    state_file: PathBuf,
    check_timeout: Duration,
    specs: BTreeMap<SiteId, ServerSpec>,
    /// At most one for each site, and one more that is being replaced.
    processes: Vec<Watched>,
    /// At most one for each run.
    probes: Vec<Check>,
}

struct Watched {
    site: SiteId,
    run: Run,
    held: Held,
}

struct Check {
    site: SiteId,
    run: Run,
    quiet: bool,
    probe: Probe,
}

/// Which descriptors were found ready, in the order of the lists.
struct Ready {
    processes: Vec<bool>,
    probes: Vec<bool>,
}

impl Hands {
    fn run(mut self) {
        // One turn for each order, exit and step of a check; ends when told to.
        loop {
            match self.poll() {
                Ok(ready) => {
                    self.bury_dead(ready.processes);
                    self.advance_checks(ready.probes);
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot watch processes and checks");
                    std::thread::sleep(POLL_PAUSE);
                }
            }
            if !self.obey() {
                return;
            }
        }
    }

    fn poll(&self) -> Result<Ready, Errno> {
        let mut fds = Vec::with_capacity(1 + self.processes.len() + self.probes.len());
        fds.push(PollFd::new(&self.shared.bell, PollFlags::IN));
        fds.extend(
            self.processes.iter().map(|p| PollFd::from_borrowed_fd(p.held.fd(), PollFlags::IN)),
        );
        fds.extend(
            self.probes.iter().map(|c| PollFd::from_borrowed_fd(c.probe.fd(), c.probe.events())),
        );
        let ends = self.probes.iter().map(|check| check.probe.ends).min();
        let timeout = ends.map(|ends| timespec(ends.saturating_duration_since(Instant::now())));
        rustix::event::poll(&mut fds, timeout.as_ref())?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            let mut counter = [0_u8; 8];
            // Empty already: then there is nothing to reset.
            let _ = rustix::io::read(self.shared.bell.as_fd(), &mut counter);
        }
        let processes = ready.by_ref().take(self.processes.len()).collect();
        Ok(Ready { processes, probes: ready.collect() })
    }

    fn bury_dead(&mut self, ready: Vec<bool>) {
        let mut ready = ready.into_iter();
        for Watched { site, run, held } in
            self.processes.extract_if(.., |_| ready.next() == Some(true))
        {
            let how = held.bury();
            self.inbox.push(Report { site, run, news: News::Exited(how) }, true);
        }
    }

    fn advance_checks(&mut self, ready: Vec<bool>) {
        let now = Instant::now();
        let mut ready = ready.into_iter();
        let timeout = self.check_timeout;
        self.probes.retain_mut(|Check { site, run, quiet, probe }| {
            let result = match ready.next() {
                Some(true) => probe.advance(),
                _ => None,
            };
            let late = || (now >= probe.ends).then(|| Err(probe.timed_out(timeout)));
            let Some(result) = result.or_else(late) else { return true };
            let loud = !*quiet || result.is_err();
            let report = Report { site: *site, run: *run, news: News::Checked(result) };
            self.inbox.push(report, loud);
            false
        });
    }

    /// Carries out what was ordered; false at the end.
    fn obey(&mut self) -> bool {
        let mut queue = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = std::mem::take(&mut *queue);
        drop(queue);
        for command in commands {
            match command {
                Command::Do(Order { site, run, action }) => self.act(site, run, action),
                Command::Hold { site, run, held } => {
                    self.processes.push(Watched { site, run, held });
                }
                Command::TrimLogs => {
                    for spec in self.specs.values().filter(|spec| spec.is_command()) {
                        process::trim_log_at(&self.log_of(spec));
                    }
                }
                Command::End => return false,
            }
        }
        true
    }

    fn act(&mut self, site: SiteId, run: Run, action: Action) {
        match action {
            Action::Start => {
                let news = match self.start(site, run) {
                    Ok(process) => News::Started(process),
                    Err(error) => News::StartFailed(error),
                };
                self.inbox.push(Report { site, run, news }, true);
            }
            Action::Check { address, quiet } => self.check(site, run, address, quiet),
            Action::Terminate => {
                self.signal(site, run, Signal::TERM);
                // A stopped process takes its signal when it goes on.
                self.signal(site, run, Signal::CONT);
            }
            Action::Kill => self.signal(site, run, Signal::KILL),
        }
    }

    fn log_of(&self, spec: &ServerSpec) -> PathBuf {
        self.log_dir.join(format!("{}-{}.log", self.node, spec.name))
    }

    fn start(&mut self, site: SiteId, run: Run) -> Result<Process, String> {
        let spec = self.specs.get(&site).ok_or("the site has no server here")?;
        let ServerKind::Command(program) = &spec.kind else {
            return Err("the site's server is only an address".to_owned());
        };
        let address = process::free_port(self.host)
            .map_err(|error| format!("no free port on {}: {error}", self.host))?;
        let place = Place { address, node: &self.node, site: &spec.name };
        let filled = command::fill_in(program, place);
        let (held, process) =
            process::start(&filled, address, &self.log_of(spec), &self.state_file)
                .map_err(|error| format!("cannot start {}: {error}", filled.argv[0]))?;
        self.processes.push(Watched { site, run, held });
        Ok(process)
    }

    fn check(&mut self, site: SiteId, run: Run, address: SocketAddrV4, quiet: bool) {
        let Some(spec) = self.specs.get(&site) else { return };
        match Probe::begin(address, &spec.check, self.check_timeout) {
            Ok(probe) => self.probes.push(Check { site, run, quiet, probe }),
            Err(error) => {
                self.inbox.push(Report { site, run, news: News::Checked(Err(error)) }, true);
            }
        }
    }

    fn signal(&self, site: SiteId, run: Run, signal: Signal) {
        // One that has just ended is reported as such.
        if let Some(watched) = self.processes.iter().find(|p| p.site == site && p.run == run) {
            watched.held.signal(signal);
        }
    }
}
