//! Readers and a writer at once: after a purge was done, nobody reads what was there before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use cache::{Cache, Head, Limits, Lookup, Mode, Purge, Reply, Rules, UnixMs};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::world::{START, request};

/// Purges that the writer makes; each races with the fills of all readers.
const PURGES: u64 = 3_000;

const READERS: usize = 3;

/// The page, which says how often it was written to. `written` is the database, `told` what the
/// writer's client knows.
struct Site {
    cache: Cache<()>,
    rules: Rules,
    written: AtomicU64,
    told: AtomicU64,
    done: AtomicBool,
}

impl Site {
    /// Reads the page; what it says, and whether from the cache.
    fn read(&self) -> (u64, bool) {
        let headers = HeaderMap::new();
        let request = request(&Method::GET, "/page", &headers, START);
        match self.cache.lookup(&self.rules, &request) {
            Lookup::Hit(hit) => {
                let answer = self.cache.hit(&self.rules, &request, &hit);
                (std::str::from_utf8(&answer.body).unwrap().parse().unwrap(), true)
            }
            Lookup::Fetch(fetch) => {
                let page = self.written.load(Ordering::SeqCst);
                // The response is on its way for a while.
                thread::yield_now();
                let mut headers = HeaderMap::new();
                headers.insert("cache-control", HeaderValue::from_static("max-age=3600"));
                headers.insert("xkey", HeaderValue::from_static("t"));
                let head = Head { status: StatusCode::OK, headers };
                let now = UnixMs(START);
                let reply = self.cache.respond(&self.rules, fetch, head, now, |_| None);
                let Reply::Pass { fill: Ok(mut fill), .. } = reply else {
                    panic!("it may be stored")
                };
                fill.push(&Bytes::from(page.to_string()));
                // It is not, if it was purged meanwhile.
                let _ = self.cache.finish(&self.rules, *fill, now);
                (page, false)
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, purge: Purge<'_>) {
        let next = self.written.load(Ordering::SeqCst) + 1;
        self.written.store(next, Ordering::SeqCst);
        self.cache.purge(purge);
        self.told.store(next, Ordering::SeqCst);
    }
}

#[test]
fn nobody_reads_what_was_purged() {
    let site = Site {
        cache: Cache::new(&Limits::default()),
        rules: Rules { mode: Mode::Http, ..Rules::default() },
        written: AtomicU64::new(0),
        told: AtomicU64::new(0),
        done: AtomicBool::new(false),
    };
    let headers = HeaderMap::new();
    let key = request(&Method::GET, "/page", &headers, START).key();
    let purges =
        [Purge::Url(key), Purge::Tag(key.site(), b"t"), Purge::Site(key.site()), Purge::All];
    let hits: u64 = thread::scope(|scope| {
        let reader = || {
            let mut hits = 0;
            while !site.done.load(Ordering::SeqCst) {
                let told = site.told.load(Ordering::SeqCst);
                let (page, hit) = site.read();
                hits += u64::from(hit);
                assert!(page >= told, "read {page} when {told} was told; from the cache: {hit}");
            }
            hits
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        for purge in purges.iter().cycle().take(usize::try_from(PURGES).unwrap()) {
            site.write(*purge);
            thread::yield_now();
        }
        site.done.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    println!("{hits} hits between {PURGES} purges");
    // Once all is quiet, the second read is a hit.
    site.read();
    assert_eq!(site.read(), (PURGES, true));
}
