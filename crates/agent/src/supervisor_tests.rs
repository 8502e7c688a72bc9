//! The supervisor against a world of processes that the test makes up.

use super::*;
use crate::lifecycle::START_CHECK_MAX;
use crate::options::{Check, Program, ServerKind, ServerSpec, Start};
use pool_model::NodeId;
use proptest::prelude::*;
use shared_state::words::Epoch;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

fn program(start: Start) -> ServerKind {
    ServerKind::Command(Program { argv: vec!["serve".to_owned()], env: Vec::new(), start })
}

fn address(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Site 1 is warm, site 2 starts on assignment, site 3 is an address.
fn options() -> Options {
    let mut options = Options::new(NodeId::MIN, "n", Path::new("/nowhere"));
    let kinds =
        [program(Start::Warm), program(Start::OnAssignment), ServerKind::Address(address(9_003))];
    for (kind, number) in kinds.into_iter().zip(1..) {
        let name = format!("site-{number}");
        options.servers.push(ServerSpec { site: site(number), name, kind, check: Check::Tcp });
    }
    options.health.fall = 2;
    options
}

/// A node under a supervisor: processes that start, answer, hang and die as the test says.
struct World {
    supervisor: Supervisor,
    rules: Health,
    now_ms: u64,
    assign: Assign,
    drained: bool,
    stopping: bool,
    processes: BTreeMap<SiteId, Running>,
    news: Vec<Report>,
    /// What was ordered, with its time in ms.
    log: Vec<(u64, SiteId, Action)>,
    died_ms: BTreeMap<SiteId, u64>,
}

#[derive(Clone, Debug)]
struct Running {
    run: Run,
    terminated: bool,
}

impl World {
    fn new(options: &Options) -> Self {
        Self {
            supervisor: Supervisor::new(options),
            rules: options.health,
            now_ms: 0,
            assign: Assign::FREE,
            drained: false,
            stopping: false,
            processes: BTreeMap::new(),
            news: Vec::new(),
            log: Vec::new(),
            died_ms: BTreeMap::new(),
        }
    }

    fn tell(&mut self, number: u16, run: Run, news: News) {
        self.news.push(Report { site: site(number), run, news });
    }

    /// One turn; every order is checked against what really runs.
    fn turn(&mut self) -> Vec<Order> {
        let look = Look {
            now: ms(self.now_ms),
            site: self.assign.site,
            drained: self.drained,
            watched: true,
            stopping: self.stopping,
        };
        let news = std::mem::take(&mut self.news);
        let orders = self.supervisor.turn(&look, Some(self.assign), news);
        for Order { site, run, action } in &orders {
            self.log.push((self.now_ms, *site, *action));
            match action {
                Action::Start => {
                    let running = Running { run: *run, terminated: false };
                    let other = self.processes.insert(*site, running);
                    assert!(other.is_none(), "{site:?} has two processes");
                    assert!(!self.stopping, "{site:?} starts while the agent stops");
                    if let Some(died_ms) = self.died_ms.remove(site) {
                        let pause = self.now_ms - died_ms;
                        assert!(pause >= self.rules.restart_min_ms, "{site:?} after {pause} ms");
                    }
                }
                Action::Terminate => {
                    let running = self.processes.get_mut(site).expect("TERM goes to a process");
                    assert_eq!(running.run, *run);
                    running.terminated = true;
                }
                Action::Kill => {
                    let running = self.processes.get(site).expect("KILL goes to a process");
                    assert!(running.terminated && running.run == *run, "KILL before TERM");
                }
                Action::Check { .. } => {
                    assert!(site.get() == 3 || self.processes.contains_key(site));
                }
            }
        }
        orders
    }

    fn started(&mut self, number: u16) {
        let run = self.processes[&site(number)].run;
        let address = address(9_000 + number);
        let process = Process { pid: 100 + run.0 as u32, start_ticks: 1, address };
        self.tell(number, run, News::Started(process));
    }

    fn exits(&mut self, number: u16) {
        if let Some(running) = self.processes.remove(&site(number)) {
            if !running.terminated {
                self.died_ms.insert(site(number), self.now_ms);
            }
            self.tell(number, running.run, News::Exited("killed by signal 9".to_owned()));
        }
    }

    fn checked(&mut self, number: u16, result: Result<(), String>) {
        let run = self.processes.get(&site(number)).map_or(Run(0), |running| running.run);
        self.tell(number, run, News::Checked(result));
    }

    fn word(&self, number: u16) -> words::Server {
        let (_, server) = self.supervisor.servers().find(|(s, _)| *s == site(number)).unwrap();
        Supervisor::word(server)
    }

    fn server(&self, number: u16) -> &Server {
        self.supervisor.servers().find(|(s, _)| *s == site(number)).unwrap().1
    }

    /// Starts the server of a site and lets its first check pass.
    fn bring_up(&mut self, number: u16) {
        self.turn();
        self.started(number);
        self.turn();
        self.checked(number, Ok(()));
        self.turn();
        assert!(self.word(number).is_ready());
    }

    fn pass_ms(&mut self, ms: u64) -> Vec<Order> {
        self.now_ms += ms;
        self.turn()
    }
}

fn assigned(number: u16, version: u32) -> Assign {
    Assign { site: Some(site(number)), stamp: Epoch::ZERO, version }
}

fn count(world: &World, number: u16, action: &Action) -> usize {
    world.log.iter().filter(|(_, s, a)| *s == site(number) && a == action).count()
}

#[test]
fn a_warm_server_is_published_once_its_check_passes() {
    let mut world = World::new(&options());
    world.turn();
    assert_eq!(count(&world, 1, &Action::Start), 1);
    assert_eq!(count(&world, 2, &Action::Start), 0, "not assigned");
    world.started(1);
    world.turn();
    assert_eq!((world.word(1).phase, world.server(1).is_warm()), (Phase::Starting, false));
    world.checked(1, Err("no connection".to_owned()));
    world.turn();
    assert_eq!(world.word(1).phase, Phase::Starting, "a start takes its time");
    assert_eq!(world.server(1).last_error, None, "and is no error");
    let due = world.supervisor.next_due(ms(world.now_ms)).unwrap();
    assert!(due <= ms(world.now_ms) + ms(50), "the next check comes soon");
    world.checked(1, Ok(()));
    world.turn();
    assert_eq!((world.word(1).port, world.word(1).phase), (9_001, Phase::Ready));
    assert!(world.server(1).is_warm());
    world.assign = assigned(1, 5);
    world.turn();
    assert_eq!(world.supervisor.ready(), Ready { version: 5, phase: Phase::Ready });
}

#[test]
fn a_server_that_dies_is_cold_at_once_and_starts_again() {
    let mut world = World::new(&options());
    world.bring_up(1);
    world.exits(1);
    world.turn();
    assert!(!world.server(1).is_warm());
    assert_eq!(world.word(1).phase, Phase::Failing);
    assert_eq!(world.server(1).last_error.as_deref(), Some("killed by signal 9"));
    world.pass_ms(99);
    assert_eq!(count(&world, 1, &Action::Start), 1, "too early");
    world.pass_ms(1);
    assert_eq!(count(&world, 1, &Action::Start), 2);
    world.started(1);
    world.turn();
    world.checked(1, Ok(()));
    world.turn();
    assert_eq!((world.word(1).phase, world.word(1).restarts), (Phase::Ready, 1));
}

#[test]
fn the_pause_doubles_with_each_death_and_shrinks_after_a_calm_time() {
    let mut world = World::new(&options());
    world.turn();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        world.started(1);
        world.turn();
        world.exits(1);
        world.turn();
        let due = world.server(1).next_due().unwrap();
        pauses.push(due.as_millis() as u64 - world.now_ms);
        world.now_ms = due.as_millis() as u64;
        world.turn();
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    assert_eq!(world.word(1).phase, Phase::Failing, "it keeps dying");
    world.started(1);
    world.turn();
    world.checked(1, Ok(()));
    world.turn();
    world.now_ms += 10_000;
    world.exits(1);
    world.turn();
    assert_eq!(world.server(1).next_due(), Some(ms(world.now_ms + 100)));
}

#[test]
fn a_server_that_hangs_fails_and_comes_back() {
    let mut world = World::new(&options());
    world.bring_up(1);
    world.checked(1, Err("no response within 1000 ms".to_owned()));
    world.turn();
    assert!(world.word(1).is_ready(), "one failure is none");
    world.checked(1, Err("no response within 1000 ms".to_owned()));
    world.turn();
    assert_eq!((world.word(1).phase, world.server(1).is_warm()), (Phase::Failing, false));
    world.checked(1, Ok(()));
    world.turn();
    assert!(world.word(1).is_ready());
    assert_eq!(count(&world, 1, &Action::Terminate), 0);
}

#[test]
fn a_server_that_never_answers_is_replaced() {
    let mut world = World::new(&options());
    world.turn();
    world.started(1);
    world.turn();
    world.checked(1, Err("no connection".to_owned()));
    let orders = world.pass_ms(30_000);
    assert!(orders.iter().any(|o| o.site == site(1) && o.action == Action::Terminate));
    assert_eq!(world.word(1).phase, Phase::Failing);
    let error = world.server(1).last_error.clone().unwrap();
    assert!(error.contains("30000 ms") && error.contains("no connection"), "{error}");
    world.pass_ms(5_000);
    assert_eq!(count(&world, 1, &Action::Kill), 1);
    world.exits(1);
    world.turn();
    world.pass_ms(100);
    assert_eq!(count(&world, 1, &Action::Start), 2);
}

#[test]
fn a_server_on_assignment_comes_with_its_site_and_goes_when_drained() {
    let mut world = World::new(&options());
    world.turn();
    world.assign = assigned(2, 1);
    world.bring_up(2);
    assert_eq!(world.supervisor.ready(), Ready { version: 1, phase: Phase::Ready });
    assert!(!world.server(2).is_warm(), "only its version says that it answers");
    world.assign = assigned(1, 2);
    world.pass_ms(1);
    world.pass_ms(1_000);
    assert!(world.server(2).is_draining());
    assert_eq!(count(&world, 2, &Action::Terminate), 0, "requests of the last site go on");
    world.drained = true;
    world.pass_ms(1);
    assert_eq!(count(&world, 2, &Action::Terminate), 1);
    assert_eq!(world.word(2).phase, Phase::Stopping);
    // The node comes back before the process has ended: it is started anew.
    world.assign = assigned(2, 3);
    world.pass_ms(1);
    assert_ne!(world.supervisor.ready().phase, Phase::Ready);
    world.exits(2);
    world.bring_up(2);
    assert_eq!(world.supervisor.ready(), Ready { version: 3, phase: Phase::Ready });
    assert_eq!(world.word(2).restarts, 0, "a stop that was asked for is no death");
}

#[test]
fn draining_ends_after_its_time_and_when_the_site_comes_back() {
    let mut world = World::new(&options());
    world.assign = assigned(2, 1);
    world.bring_up(2);
    world.assign = assigned(1, 2);
    world.pass_ms(1);
    world.pass_ms(20_000);
    world.assign = assigned(2, 3);
    world.pass_ms(1);
    assert_eq!(world.supervisor.ready(), Ready { version: 3, phase: Phase::Ready });
    world.assign = assigned(1, 4);
    world.pass_ms(1);
    world.pass_ms(29_999);
    assert_eq!(count(&world, 2, &Action::Terminate), 0, "the time starts anew");
    world.pass_ms(1);
    assert_eq!(count(&world, 2, &Action::Terminate), 1);
}

#[test]
fn a_server_that_was_taken_over_drains_blindly() {
    let mut world = World::new(&options());
    let process = Process { pid: 7, start_ticks: 1, address: address(9_002) };
    let run = world.supervisor.adopt(site(2), process, 4, ms(0)).unwrap();
    world.processes.insert(site(2), Running { run, terminated: false });
    assert!(!world.supervisor.is_settled());
    world.drained = true;
    world.turn();
    world.checked(2, Ok(()));
    world.turn();
    assert!(world.supervisor.is_settled());
    assert_eq!((world.word(2).phase, world.word(2).restarts), (Phase::Ready, 4));
    world.pass_ms(29_000);
    assert_eq!(count(&world, 2, &Action::Terminate), 0, "its edges are unknown here");
    world.pass_ms(1_000);
    assert_eq!(count(&world, 2, &Action::Terminate), 1);
}

#[test]
fn an_address_is_only_checked() {
    let mut world = World::new(&options());
    world.turn();
    assert_eq!(world.word(3).phase, Phase::Starting);
    world.checked(3, Err("refused".to_owned()));
    world.turn();
    assert_eq!(world.word(3).phase, Phase::Failing);
    world.checked(3, Ok(()));
    world.turn();
    assert!(world.word(3).is_ready() && world.server(3).is_warm());
    world.pass_ms(100_000);
    assert_eq!(count(&world, 3, &Action::Start) + count(&world, 3, &Action::Terminate), 0);
}

#[test]
fn late_news_of_an_earlier_run_change_nothing() {
    let mut world = World::new(&options());
    world.bring_up(1);
    let old = world.processes[&site(1)].run;
    world.exits(1);
    world.turn();
    world.pass_ms(100);
    world.started(1);
    world.turn();
    world.tell(1, old, News::Checked(Ok(())));
    world.tell(1, old, News::Exited("late".to_owned()));
    world.turn();
    assert_eq!(world.word(1).phase, Phase::Starting);
}

#[test]
fn a_check_that_never_comes_back_stops_the_beat() {
    let mut world = World::new(&options());
    world.turn();
    world.started(1);
    world.turn();
    assert!(!world.supervisor.is_overdue(ms(6_000)));
    assert!(world.supervisor.is_overdue(ms(6_001)));
}

/// What may happen between two turns.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Pass(u64),
    Started(u16),
    StartFails(u16),
    Exits(u16),
    Checked(u16, bool),
    Assigned(Option<u16>),
    Drained(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    let number = 1_u16..=3;
    prop_oneof![
        4 => (0_u64..2_000).prop_map(Happening::Pass),
        1 => (0_u64..40_000).prop_map(Happening::Pass),
        4 => number.clone().prop_map(Happening::Started),
        1 => number.clone().prop_map(Happening::StartFails),
        2 => number.clone().prop_map(Happening::Exits),
        6 => (number, any::<bool>()).prop_map(|(n, ok)| Happening::Checked(n, ok)),
        2 => proptest::option::of(1_u16..=3).prop_map(Happening::Assigned),
        1 => any::<bool>().prop_map(Happening::Drained),
    ]
}

impl World {
    fn happen(&mut self, happening: Happening) {
        let launching = |world: &Self, n| world.server(n).state == State::Launching;
        match happening {
            Happening::Pass(ms) => self.now_ms += ms,
            Happening::Started(n) if launching(self, n) => self.started(n),
            Happening::StartFails(n) if launching(self, n) => {
                let run = self.processes.remove(&site(n)).unwrap().run;
                self.died_ms.insert(site(n), self.now_ms);
                self.tell(n, run, News::StartFailed("no such file".to_owned()));
            }
            // The worker reports an exit only after it reported the start.
            Happening::Exits(n) if !launching(self, n) => self.exits(n),
            Happening::Checked(n, ok) => {
                self.checked(n, if ok { Ok(()) } else { Err("refused".to_owned()) });
            }
            Happening::Assigned(number) => {
                self.assign = self.assign.moved(number.map(site), Epoch::ZERO);
            }
            Happening::Drained(drained) => self.drained = drained,
            _ => {}
        }
    }

    /// What must hold after every turn, whatever happened.
    fn check(&self, orders: &[Order]) {
        for (site, server) in self.supervisor.servers() {
            let runs = self.processes.contains_key(&site) || site.get() == 3;
            assert!(!server.is_warm() || runs, "{site:?} is warm without a process");
            let wanted = site.get() != 2 || self.assign.site == Some(site);
            let absent = server.state == State::Absent;
            assert!(self.stopping || !wanted || !absent, "{site:?} is wanted and absent");
            // Nobody is forgotten: something is under way, planned, or reported by the worker.
            let waits = match server.state {
                State::Absent => !wanted || self.stopping,
                State::Launching | State::Up { .. } => true,
                State::Waiting => server.next_due().is_some(),
                State::Stopping { killed, .. } => killed || server.next_due().is_some(),
            };
            assert!(waits, "{site:?} is stuck in {:?}", server.state);
        }
        let mut sites: Vec<_> = orders.iter().map(|order| order.site).collect();
        sites.dedup();
        assert_eq!(sites.len(), orders.len(), "one order for a server in a turn");
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_leads_to_an_impossible_state(
        happenings in proptest::collection::vec(happening(), 1..120)
    ) {
        let mut world = World::new(&options());
        for happening in happenings {
            world.happen(happening);
            let orders = world.turn();
            world.check(&orders);
        }
        // Whatever came before, a stop ends everything.
        world.stopping = true;
        world.died_ms.clear();
        for number in 1..=2 {
            if world.server(number).state == State::Launching {
                world.started(number);
            }
        }
        world.turn();
        world.turn();
        world.pass_ms(10_000);
        for (&site, running) in &world.processes {
            assert!(running.terminated, "{site:?} was never told to end");
        }
        for number in 1..=2 {
            world.exits(number);
        }
        world.turn();
        prop_assert!(world.supervisor.is_stopped());
        prop_assert_eq!(world.supervisor.next_due(ms(world.now_ms)).is_some(), true);
    }
}

#[test]
fn the_pause_between_checks_of_a_start_is_bounded() {
    let mut world = World::new(&options());
    world.turn();
    world.started(1);
    world.turn();
    for _ in 0..20 {
        world.checked(1, Err("refused".to_owned()));
        world.turn();
        let due = world.server(1).next_due().unwrap();
        assert!(due <= ms(world.now_ms) + START_CHECK_MAX);
        world.now_ms = due.as_millis() as u64;
        world.turn();
    }
}
