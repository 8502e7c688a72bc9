//! MediaWiki behind a pool of two edges, as `examples/wiki` says: who is not logged in gets pages
//! from a cache that no edit leaves old, and nobody gets what was made for somebody else.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::eventually;
use common::pool::{Pool, Recipe, Servers};
use common::wiki::{Visitor, Wiki};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../../examples/wiki/polder.toml");
const MAIN: &str = "/wiki/Main_Page";
const NO_PAGE: &str = "There is currently no text in this page";
/// Edits under readers, and how long a reader waits between two looks.
const EDITS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// As MediaWiki counts time.
const A_SECOND: Duration = Duration::from_millis(1_100);

/// The site has what the example says of its cache and of who may purge.
fn start(wiki: &Wiki) -> Pool {
    let example: toml::Table = EXAMPLE.parse().unwrap();
    let said = &example["sites"][0];
    // Not a page of MediaWiki's, which sees no request before it knows its edges.
    let check = "check = { path = \"/healthz.php\" }";
    let lines = format!("{check}\ncache = {}\npurge = {}", said["cache"], said["purge"]);
    let mut recipe = Recipe::new(&[("wiki", lines.leak())], 1);
    recipe.servers = Servers::Command(wiki.command());
    let pool = recipe.start();
    wiki.tell_of(&pool);
    pool
}

/// Each edge answers with this text from the first view on, and soon from its cache. What MediaWiki
/// does behind its answer to an edit may purge once more, so the second view need not be a hit.
#[track_caller]
fn is_kept(edges: &[SocketAddr], path: &str, status: u16, text: &str) {
    for &edge in edges {
        eventually(&format!("{path} is a hit"), || {
            let seen = Visitor::of(edge).view(path);
            assert!(seen.0 == status && seen.1.contains(text), "{path}: no {text} in {seen:?}");
            seen.2
        });
    }
}

/// MediaWiki answers each view.
#[track_caller]
fn is_asked_for(edge: SocketAddr, path: &str, text: &str) {
    for _ in 0..2 {
        let seen = Visitor::of(edge).view(path);
        assert!(seen.0 == 200 && seen.1.contains(text) && !seen.2, "{path}: {seen:?}");
    }
}

#[test]
fn who_is_not_logged_in_gets_pages_from_the_cache_and_never_old_ones() {
    let Some(wiki) = Wiki::install() else { return };
    let pool = start(&wiki);
    let (edges, anyone) = (&pool.edges[..], Visitor::of(pool.edges[0]));
    is_kept(edges, MAIN, 200, "MediaWiki has been installed");
    let mut editor = anyone.clone();
    editor.log_in();
    changes_are_seen(&wiki, edges, &mut editor);
    nobody_gets_the_page_of_another(edges, &editor);
    only_what_is_purged_is_kept(edges[0]);
    who_edits_is_known_by_address(&anyone);
    others_may_not_purge(edges);
    no_reader_sees_what_was_before_an_edit(edges, &mut editor);
    pool.finish();
}

/// Whatever way a page changes, the very next view has it.
fn changes_are_seen(wiki: &Wiki, edges: &[SocketAddr], editor: &mut Visitor) {
    let history = "/index.php?title=Main_Page&action=history";
    is_kept(edges, history, 200, "Main Page");
    editor.edit("Main Page", "The first edit");
    is_kept(edges, MAIN, 200, "The first edit");
    is_kept(edges, history, 200, "action=history");
    // In a process of its own, which speaks to edges in another way if it has no curl.
    for (text, has_curl) in [("Edited by curl", true), ("Edited by no curl", false)] {
        wiki.maintain("edit -u Admin 'Main Page'", text, has_curl);
        is_kept(edges, MAIN, 200, text);
    }
    // That there is no such page is kept, until there is one; signs are as in the wiki's links.
    let (title, path) =
        ("Café & (more), it's ~100%: a/b", "/wiki/Caf%C3%A9_%26_(more),_it%27s_~100%25:_a/b");
    is_kept(edges, path, 404, NO_PAGE);
    editor.edit(title, "Made of {{cream}}");
    is_kept(edges, path, 200, "Made of");
    // Pages that use a template follow once MediaWiki's queue gets to them, and not if they were
    // made in the same second.
    sleep(A_SECOND);
    editor.edit("Template:Cream", "cream and sugar");
    eventually("the page has its new template", || {
        wiki.maintain("runJobs", "", true);
        Visitor::of(edges[0]).view(path).1.contains("cream and sugar")
    });
    is_kept(edges, path, 200, "cream and sugar");
    editor.change("move", &[("from", title), ("to", "Cake")]);
    is_kept(edges, "/wiki/Cake", 200, "cream and sugar");
    is_asked_for(edges[0], path, "cream and sugar");
    editor.edit("Cake", "Eaten");
    is_kept(edges, "/wiki/Cake", 200, "Eaten");
    // The old name is a redirect now, and shows a page with which it is not purged.
    is_asked_for(edges[0], path, "Eaten");
    editor.change("delete", &[("title", "Cake")]);
    is_kept(edges, "/wiki/Cake", 404, NO_PAGE);
}

fn nobody_gets_the_page_of_another(edges: &[SocketAddr], editor: &Visitor) {
    let (anonymous, admin) = ("\"wgUserName\":null", "\"wgUserName\":\"Admin\"");
    editor.clone().edit("Fresh", "Not yet seen by anyone");
    for (path, is_stored) in [(MAIN, true), ("/wiki/Fresh", false)] {
        for &edge in edges {
            // Where the page for all is stored, and where the page for one comes first; each twice,
            // since the first might have been stored.
            for _ in 0..2 {
                let (status, text, is_hit) = editor.at(edge).view(path);
                assert!(status == 200 && text.contains(admin) && !is_hit, "{path}: {is_hit}");
            }
            let (status, text, is_hit) = Visitor::of(edge).view(path);
            assert!(status == 200 && text.contains(anonymous), "{path}: {text}");
            assert_eq!(is_hit, is_stored, "{path}");
            // Cookies that MediaWiki does not know visitors by are no reason for another page.
            let counted = Visitor::of(edge).with_cookie("_ga", "GA1.2.3");
            eventually("the page for all is a hit", || {
                let (_, text, is_hit) = counted.view(path);
                assert!(text.contains(anonymous), "{path}: {text}");
                is_hit
            });
        }
    }
    assert!(editor.has_cookie("wiki_session"));
}

/// Under other URLs too, since MediaWiki purges a page's own alone.
fn only_what_is_purged_is_kept(edge: SocketAddr) {
    is_asked_for(edge, "/wiki/Main_Page?from=mail", "Edited by no curl");
    is_asked_for(edge, "/index.php?title=Main_Page", "Edited by no curl");
    is_asked_for(edge, "/wiki/Special:RecentChanges", "Main Page");
}

fn who_edits_is_known_by_address(anyone: &Visitor) {
    anyone.from([127, 0, 0, 7]).edit("By nobody", "No name");
    let query = "action=query&titles=By_nobody&prop=revisions&rvprop=user";
    let answer = anyone.clone().api(query, &[]);
    assert_eq!(answer["query"]["pages"][0]["revisions"][0]["user"], "127.0.0.7", "{answer}");
}

fn others_may_not_purge(edges: &[SocketAddr]) {
    let listed = Visitor::of(edges[0]);
    let purge = |visitor: &Visitor, target| visitor.clone().ask("PURGE", target, "").status;
    for target in [MAIN, "http://wiki.test/wiki/Main_Page"] {
        assert!(listed.view(MAIN).2);
        assert_eq!(purge(&listed.from([127, 0, 0, 7]), target), 403);
        assert!(listed.view(MAIN).2, "it is still there");
        assert_eq!(purge(&listed, target), 200);
        is_kept(edges, MAIN, 200, "Edited by no curl");
    }
}

/// Who looks after an edit was answered sees it, and fetches that an edit overtakes are not kept.
fn no_reader_sees_what_was_before_an_edit(edges: &[SocketAddr], editor: &mut Visitor) {
    let (edits, hits, is_over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    editor.edit("Race", "Number 0.");
    let read = |edge| {
        while !is_over.load(Ordering::SeqCst) {
            let least = edits.load(Ordering::SeqCst);
            let (_, text, is_hit) = Visitor::of(edge).view("/wiki/Race");
            let number = text.split("Number ").nth(1).and_then(|rest| rest.split('.').next());
            let number: u32 = number.and_then(|word| word.parse().ok()).expect("a number");
            assert!(number >= least, "{number} after edit {least} was answered; a hit: {is_hit}");
            hits.fetch_add(u32::from(is_hit), Ordering::SeqCst);
            sleep(LOOK_EVERY);
        }
    };
    scope(|threads| {
        let over = Over(&is_over);
        let readers: Vec<_> = edges.iter().map(|&edge| threads.spawn(move || read(edge))).collect();
        for number in 1..=EDITS {
            editor.edit("Race", &format!("Number {number}."));
            edits.store(number, Ordering::SeqCst);
        }
        drop(over);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert!(hits.load(Ordering::SeqCst) >= EDITS, "{hits:?}");
}

/// Ends the readers, though an edit may have failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
