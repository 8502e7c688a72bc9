//! A shop in three tiers behind a pool: what people bought is in the database, whatever moves.

#![allow(clippy::unwrap_used)]

mod common;

use common::pool::{Pool, Recipe, Servers};
use lab::{Shop, ShopOptions};
use load::generate::{Generator, GeneratorOptions, RunReport, SiteTarget};
use std::net::SocketAddr;
use std::thread::{sleep, spawn};
use std::time::Duration;

const SITES: [&str; 2] = ["books", "toys"];
/// How long people buy.
const BUY_FOR: Duration = Duration::from_secs(4);
/// Between two moves.
const MOVE_EVERY: Duration = Duration::from_millis(400);

/// The shop, or why there is none here.
fn shop() -> Option<Shop> {
    let options = ShopOptions { children: 4, payment: Duration::from_millis(10) };
    match Shop::start(options) {
        Err(error) if error.is_lack() => {
            eprintln!("skipped: {error}");
            None
        }
        started => Some(started.unwrap()),
    }
}

/// Two sites on four nodes, one edge.
fn pool(shop: &Shop) -> Pool {
    let lines = "nodes = 2\ncheck = { path = \"/healthz\" }";
    let mut recipe = Recipe::new(&SITES.map(|site| (site, lines)), 4);
    recipe.servers = Servers::Command(shop.command());
    (recipe.max_in_flight, recipe.edges) = (4, 1);
    // Only the test moves nodes, so that it knows where each is.
    recipe.pool = "policy = \"rigid\"".to_owned();
    recipe.start()
}

/// Keeps orders of one site in flight for a while; blocks until the last is answered.
fn buy(edge: SocketAddr, site: &str) -> RunReport {
    let target = SiteTarget::served_as(format!("{site}.test"), site);
    let mut options = GeneratorOptions::new(vec![edge], vec![target]);
    options.method = http::Method::POST;
    Shop::ORDER_PATH.clone_into(&mut options.path);
    options.in_flight = 12;
    Generator::new(options).unwrap().closed(0, BUY_FOR).unwrap()
}

#[test]
fn nodes_move_while_people_buy_and_no_order_is_lost() {
    let Some(shop) = shop() else { return };
    let pool = pool(&shop);
    let edge = pool.edges[0];
    let buyers = SITES.map(|site| spawn(move || buy(edge, site)));
    let mut moves = 0;
    while buyers.iter().any(|buyer| !buyer.is_finished()) {
        // Away and back: a node is left by a site that is busy, and comes to one.
        pool.ask_move("n2", SITES[1 - moves % 2]);
        moves += 1;
        sleep(MOVE_EVERY);
    }
    assert!(moves > 4, "{moves} moves");
    for (site, buyer) in SITES.iter().zip(buyers) {
        let run = buyer.join().unwrap();
        let total = run.total();
        assert!(total.adds_up() && total.ok > 50, "{site}: {}", total.ok);
        assert_eq!(total.failures.total(), 0, "{site}: {}", total.failures);
        assert_eq!(shop.orders(Some(site)).unwrap(), total.ok, "{site}: orders, and answers 201");
    }
    pool.finish();
}
