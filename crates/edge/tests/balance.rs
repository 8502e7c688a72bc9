//! Who goes to which server, and who goes nowhere: stickiness, slow start, ejections, rates;
//! through the edge with real sockets and the real dispatcher.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, Reply};
use common::eventually;
use common::origin::Origin;
use common::pool::{Plan, Pool, numbered};
use edge::dispatch::HealthOptions;
use edge::{HashBy, Rate, RateOptions, Reason, Sticky, StickyCookie};
use pool_model::NodeId;
use shared_state::words::Phase;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

/// One request over a connection of its own.
fn ask(pool: &Pool, fields: &str) -> Reply {
    Client::new(pool.edge.addresses()[0]).ask(get(fields))
}

/// The server that answered.
fn server(reply: &Reply) -> usize {
    assert_eq!(reply.status, 200, "{}", reply.head);
    reply.text().parse().unwrap()
}

fn addresses(origins: &[Origin]) -> Vec<SocketAddr> {
    origins.iter().map(|origin| origin.address).collect()
}

fn token(number: usize) -> String {
    format!("opaque{number}")
}

/// A plan whose first site sets a cookie.
fn with_cookie(nodes: usize) -> Plan {
    let node = |number: usize| (NodeId::new(number as u16).unwrap(), token(number));
    let tokens = (0..nodes).map(node).collect();
    let mut plan = Plan::default();
    plan.sites[0].sticky = Some(Sticky::Cookie(StickyCookie { name: "SRV".into(), tokens }));
    plan
}

fn with_hash(by: &str) -> Plan {
    let mut plan = Plan::default();
    plan.sites[0].sticky = Some(Sticky::Hash(HashBy::parse(by).unwrap()));
    plan
}

#[test]
fn a_cookie_keeps_a_client_at_its_server_while_that_serves_the_site() {
    let origins = numbered(3);
    let pool = with_cookie(3).start(&addresses(&origins));
    let first = ask(&pool, "");
    let own = server(&first);
    let line = format!("SRV={}; Path=/; HttpOnly; SameSite=Lax", token(own));
    assert_eq!(first.field("set-cookie"), Some(line.as_str()));
    let cookie = format!("Cookie: theme=dark; SRV={}\r\n", token(own));
    for _ in 0..20 {
        let reply = ask(&pool, &cookie);
        assert_eq!((server(&reply), reply.field("set-cookie")), (own, None));
    }
    // Its node moves to another site: it is gone for this one.
    pool.move_node(own, 1);
    let moved = ask(&pool, &cookie);
    let next = server(&moved);
    assert_ne!(next, own);
    assert!(moved.field("set-cookie").unwrap().contains(&token(next)));
    // Once it is back, who still has its cookie goes there.
    pool.move_node(own, 0);
    assert_eq!(server(&ask(&pool, &cookie)), own);
    let counts = pool.dispatch.counts()[0];
    assert_eq!((counts.sticky_kept, counts.sticky_anew), (21, 1));
}

#[test]
fn a_forged_cookie_is_no_choice_and_is_replaced() {
    let origins = numbered(2);
    let pool = with_cookie(2).start(&addresses(&origins));
    for forged in ["1", "127.0.0.1", "", "opaque", "opaque9"] {
        let reply = ask(&pool, &format!("Cookie: SRV={forged}\r\n"));
        let expected = token(server(&reply));
        assert!(reply.field("set-cookie").unwrap().contains(&expected), "{forged}");
    }
}

#[test]
fn a_client_whose_server_died_gets_another_within_the_same_request() {
    let origins = numbered(2);
    let mut servers = addresses(&origins);
    servers[0] = Origin::refusing();
    let pool = with_cookie(2).start(&servers);
    let cookie = format!("Cookie: SRV={}\r\n", token(0));
    let reply = ask(&pool, &cookie);
    assert_eq!(server(&reply), 1);
    assert!(reply.field("set-cookie").unwrap().contains(&token(1)));
    // After some failures it is ejected, and nobody tries it any more.
    for _ in 0..10 {
        assert_eq!(server(&ask(&pool, &cookie)), 1);
    }
    let failures = pool.edge.metrics().sites[0].connect_failures;
    assert_eq!(failures, u64::from(HealthOptions::default().failures_max));
}

#[test]
fn the_edges_own_answers_set_no_cookie_and_other_sites_neither() {
    let pool = with_cookie(1).start(&[Origin::refusing()]);
    let refused = ask(&pool, "");
    assert_eq!((refused.status, refused.field("set-cookie")), (502, None));
    let origins = numbered(1);
    let pool = with_cookie(1).start(&addresses(&origins));
    pool.move_node(0, 1);
    let mut client = Client::new(pool.edge.addresses()[0]);
    let reply = client.ask("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!((reply.status, reply.field("set-cookie")), (200, None));
}

#[test]
fn equal_headers_go_to_one_server_and_a_move_disturbs_only_its_share() {
    let origins = numbered(4);
    let pool = with_hash("header:x-user").start(&addresses(&origins));
    let place = |user: usize| server(&ask(&pool, &format!("X-User: u{user}\r\n")));
    let before: Vec<usize> = (0..60).map(place).collect();
    assert_eq!(before, (0..60).map(place).collect::<Vec<_>>());
    assert!((0..4).all(|number| before.contains(&number)), "{before:?}");
    pool.move_node(2, 1);
    for (user, &own) in before.iter().enumerate() {
        let now = place(user);
        assert!(now != 2 && (own == 2 || now == own), "u{user}: {own}, {now}");
    }
    pool.move_node(2, 0);
    assert_eq!(before, (0..60).map(place).collect::<Vec<_>>());
    // Who has no such header goes anywhere.
    let anywhere: Vec<usize> = (0..8).map(|_| server(&ask(&pool, ""))).collect();
    assert!((0..4).all(|number| anywhere.contains(&number)), "{anywhere:?}");
}

#[test]
fn one_address_is_one_client_whatever_its_connections() {
    let origins = numbered(4);
    let pool = with_hash("address").start(&addresses(&origins));
    let own = server(&ask(&pool, ""));
    assert!((0..20).all(|_| server(&ask(&pool, "")) == own));
}

/// Servers that answer when they are told to.
struct Held {
    origins: Vec<Origin>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Held {
    fn new(count: usize) -> Self {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let one = |number: usize| {
            let gate = Arc::clone(&gate);
            Origin::serving(move |conn, seen| {
                let opened = gate.0.lock().unwrap();
                let held = seen.line().contains("/held");
                drop(gate.1.wait_while(opened, |open| held && !*open).unwrap());
                conn.answer("200 OK", number.to_string().as_bytes());
            })
        };
        Self { origins: (0..count).map(one).collect(), gate: Arc::clone(&gate) }
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

#[test]
fn a_request_waits_for_its_full_server_for_a_while_and_then_takes_another() {
    let held = Held::new(2);
    let mut plan = with_cookie(2);
    plan.max_in_flight = 1;
    plan.rules[0].stick_wait = Duration::from_millis(300);
    let pool = plan.start(&addresses(&held.origins));
    let cookie = format!("Cookie: SRV={}\r\n", token(0));
    let mut busy = Client::new(pool.edge.addresses()[0]);
    busy.send(get(&cookie).replace("GET /", "GET /held"));
    eventually("its server is full", || pool.dispatch.totals().1 == 1);
    let mut waits = Client::new(pool.edge.addresses()[0]);
    waits.send(get(&cookie));
    eventually("it waits although another is idle", || pool.dispatch.totals() == (1, 1));
    let head = waits.head().unwrap();
    assert!(head.field("set-cookie").unwrap().contains(&token(1)), "{}", head.head);
    // Who finds its server free again in time stays there.
    let mut stays = Client::new(pool.edge.addresses()[0]);
    stays.send(get(&cookie));
    eventually("it waits", || pool.dispatch.totals().0 == 1);
    held.open();
    let head = stays.head().unwrap();
    assert_eq!((head.status, head.field("set-cookie")), (200, None));
    assert_eq!(busy.head().unwrap().status, 200);
}

#[test]
fn a_server_that_came_starts_slowly_where_that_is_set() {
    let origins = numbered(3);
    let mut plan = Plan::default();
    plan.rules[0].slow_start = Duration::from_secs(3_600);
    let pool = plan.start(&addresses(&origins));
    let share = |number: usize| {
        let mut client = Client::new(pool.edge.addresses()[0]);
        (0..60).filter(|_| server(&client.ask(get(""))) == number).count()
    };
    assert_eq!(share(2), 20, "it was there before the edge");
    pool.move_node(2, 1);
    assert_eq!(share(2), 0);
    pool.move_node(2, 0);
    assert!(share(2) <= 2, "an hour's slow start has just begun");
    assert_eq!(pool.dispatch.counts()[0].slow, 1);
    // It takes what nobody else can.
    pool.move_node(0, 1);
    pool.move_node(1, 1);
    assert_eq!(share(2), 60);
}

#[test]
fn so_many_failing_servers_are_left_out_and_beyond_that_none() {
    let origins = numbered(2);
    let mut servers = addresses(&origins);
    servers.extend([Origin::refusing(), Origin::refusing()]);
    let mut plan = Plan::default();
    plan.health.eject_for = Duration::from_secs(3_600);
    let pool = plan.start(&servers);
    let failures = || pool.edge.metrics().sites[0].connect_failures;
    for _ in 0..40 {
        server(&ask(&pool, ""));
    }
    let max = u64::from(HealthOptions::default().failures_max);
    assert_eq!(failures(), 2 * max, "two of four are left out for good");
    let counts = pool.dispatch.counts()[0];
    assert_eq!((counts.failing, counts.ejected, counts.spread), (2, 2, 0));
    // One of the good ones leaves the site: two of three fail, and all take their part again;
    // requests still come through, by their retries.
    pool.move_node(0, 1);
    for _ in 0..30 {
        assert_eq!(server(&ask(&pool, "")), 1);
    }
    assert!(failures() > 2 * max + 10, "{}", failures());
    let counts = pool.dispatch.counts()[0];
    assert!(counts.ejected == 0 && counts.spread >= 30, "{counts:?}");
}

#[test]
fn checks_decide_over_ejections() {
    let refusing = Origin::refusing();
    let origins = numbered(1);
    let mut plan = Plan::default();
    plan.health.eject_for = Duration::from_secs(3_600);
    let pool = plan.start(&[origins[0].address, refusing]);
    for _ in 0..20 {
        assert_eq!(server(&ask(&pool, "")), 0);
    }
    assert_eq!(pool.dispatch.counts()[0].ejected, 1);
    pool.set_phase(1, Phase::Failing);
    eventually("the agent's word is seen", || pool.dispatch.counts()[0].failing == 0);
    // The server comes back at its address; its agent sees it before any request does.
    let back = std::net::TcpListener::bind(refusing);
    let Ok(listener) = back else {
        eprintln!("skipped: somebody else has taken {refusing}");
        return;
    };
    pool.set_phase(1, Phase::Ready);
    let waits = std::thread::spawn(move || listener.accept().map(drop));
    eventually("it is asked in spite of its ejection", || {
        ask(&pool, "");
        waits.is_finished()
    });
    waits.join().unwrap().unwrap();
}

fn with_rate(rate: RateOptions) -> (Pool, Vec<Origin>) {
    let origins = numbered(1);
    let mut plan = Plan::default();
    plan.sites[0].rate = rate;
    (plan.start(&addresses(&origins)), origins)
}

fn rate(per_s: u32, burst: u32) -> Option<Rate> {
    Some(Rate { per_s, burst })
}

#[test]
fn a_client_that_asks_too_often_is_told_to_wait_over_a_connection_that_stays() {
    let (pool, origins) = with_rate(RateOptions { client: rate(1, 5), site: None });
    let mut client = Client::new(pool.edge.addresses()[0]);
    let replies: Vec<Reply> = (0..40).map(|_| client.ask(get(""))).collect();
    assert!(replies[..5].iter().all(|reply| reply.status == 200));
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 429).collect();
    // One more each second, however slow this machine is.
    assert!(!refused.is_empty() && replies.iter().all(|r| matches!(r.status, 200 | 429)));
    for reply in &refused {
        assert_eq!((reply.reason(), reply.field("retry-after")), (Some("client-rate"), Some("1")));
        assert_eq!(reply.field("connection"), None);
    }
    assert_eq!(origins[0].seen().len(), 40 - refused.len(), "no server is bothered");
    let counted = &pool.edge.metrics().sites[0];
    assert_eq!(counted.refused(Reason::ClientRate), refused.len() as u64);
    // Another address is another client, another site has its own limits.
    let mut other = Client::from_ip([127, 0, 0, 2], pool.edge.addresses()[0]);
    assert_eq!(other.ask(get("")).status, 200);
    pool.move_node(0, 1);
    for _ in 0..10 {
        let reply = client.ask("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
        assert_eq!(reply.status, 200);
    }
}

#[test]
fn a_site_that_is_asked_too_often_refuses_whoever_comes() {
    let (pool, _origins) = with_rate(RateOptions { client: None, site: rate(1, 3) });
    let ask_from = |last: u8| {
        let mut client = Client::from_ip([127, 0, 0, last], pool.edge.addresses()[0]);
        client.ask(get(""))
    };
    let replies: Vec<Reply> = (1..40).map(ask_from).collect();
    assert!(replies[..3].iter().all(|reply| reply.status == 200));
    let refused = replies.iter().filter(|reply| reply.status == 429);
    assert!(refused.clone().all(|reply| reply.reason() == Some("site-rate")));
    assert_eq!(pool.edge.metrics().sites[0].refused(Reason::SiteRate), refused.count() as u64);
}

#[test]
fn a_refused_requests_body_does_not_become_the_next_request() {
    let (pool, _origins) = with_rate(RateOptions { client: rate(1, 1), site: None });
    ask(&pool, "");
    let mut client = Client::new(pool.edge.addresses()[0]);
    let smuggled = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let head = format!("Content-Length: {}\r\n", smuggled.len());
    client.send(get(&head).replace("GET", "POST") + smuggled);
    let reply = client.head().unwrap();
    assert_eq!((reply.status, reply.field("connection")), (429, Some("close")));
    client.body(&reply).unwrap();
    assert!(client.head().is_none(), "one answer for one request");
}
