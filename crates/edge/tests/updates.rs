//! Options that change while the edge serves, and sockets that outlive it.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::dispatcher::Fixed;
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Edge, Listening, Options, Reason, UpdateError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn ask_for(client: &mut Client, host: &str) -> u16 {
    client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status
}

#[test]
fn hosts_and_limits_change_on_open_connections() {
    let origin = Origin::echo();
    let (edge, _) = edge(Options { threads: 2, ..options() }, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    assert_eq!((ask_for(&mut client, "a.example"), ask_for(&mut client, "b.example")), (200, 421));
    let mut changed = Options { threads: 2, uri_bytes_max: 16, ..options() };
    changed.sites[0].hosts = vec!["b.example".to_owned()];
    edge.update(changed.clone()).unwrap();
    assert_eq!((ask_for(&mut client, "a.example"), ask_for(&mut client, "b.example")), (421, 200));
    let long = client.ask("GET /0123456789abcdef HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!(long.reason(), Some(Reason::UriTooLong.name()));
    assert_eq!(origin.connections(), 1, "connections to servers are kept");
    // A wrong change is none at all.
    let wrong = Options { retries_max: 99, ..changed.clone() };
    assert!(matches!(edge.update(wrong), Err(UpdateError::Refused(_))));
    let elsewhere = Options { listen: Vec::new(), ..changed.clone() };
    assert!(matches!(edge.check_update(elsewhere), Err(UpdateError::Fixed("listen"))));
    changed.sites[0].name = "two".to_owned();
    assert!(matches!(edge.update(changed.clone()), Err(UpdateError::Fixed("sites"))));
    assert_eq!(ask_for(&mut Client::new(edge.addresses()[0]), "b.example"), 200);
    edge.join();
}

#[test]
fn fewer_clients_are_let_in_once_others_have_left() {
    let origin = Origin::echo();
    let (edge, _) = edge(Options { connections_max: 4, ..options() }, &[origin.address]);
    let enter = || {
        let mut client = Client::new(edge.addresses()[0]);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client
    };
    let mut clients: Vec<Client> = (0..3).map(|_| enter()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().unwrap().status, 200));
    edge.update(Options { connections_max: 1, ..options() }).unwrap();
    assert_eq!(clients[2].get("/").status, 200, "who is in stays in");
    // The edge was about to let one more in; then the new number holds.
    assert_eq!(enter().reply().unwrap().status, 200);
    drop(clients);
    eventually("all have left", || edge.metrics().connections_open == 0);
    let mut inside = enter();
    assert_eq!(inside.reply().unwrap().status, 200);
    let mut waits = enter();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(edge.metrics().connections_open, 1, "there is room for one");
    edge.update(Options { connections_max: 2, ..options() }).unwrap();
    assert_eq!(waits.reply().unwrap().status, 200);
    drop((inside, waits));
    edge.join();
}

#[test]
fn no_request_fails_while_options_change_all_the_time() {
    let origin = Origin::echo();
    let (edge, fixed) = edge(Options { threads: 2, ..options() }, &[origin.address]);
    let address = edge.addresses()[0];
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            std::thread::spawn(move || {
                let mut client = Client::new(address);
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/").status, 200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for number in 0..100 {
        edge.update(Options { threads: 2, retries_max: number % 3, ..options() }).unwrap();
    }
    eventually("they are served", || served.load(Ordering::Relaxed) > 100);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(fixed.in_flight(), 0);
    edge.join();
}

#[test]
fn an_edge_takes_over_the_sockets_of_another() {
    let origin = Origin::echo();
    let fixed = Fixed::new(&[origin.address], 64);
    let wanted = SocketAddr::from(([127, 0, 0, 1], 0));
    let kept = Listening::open(wanted, 2, false).unwrap();
    let address = kept.address().unwrap();
    let start = |threads| {
        let options = Options { listen: vec![wanted], threads, ..options() };
        let edge = Edge::start_on(options, &fixed, vec![kept.try_clone().unwrap()]).unwrap();
        assert_eq!(edge.addresses(), [address]);
        edge
    };
    let first = start(2);
    assert_eq!(Client::new(address).get("/").status, 200);
    first.join();
    // Nobody accepts now; who comes waits.
    let mut waits: Vec<Client> = (0..8).map(|_| Client::new(address)).collect();
    for threads in [1, 3] {
        let next = start(threads);
        waits.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
        next.join();
        waits = (0..8).map(|_| Client::new(address)).collect();
    }
}
