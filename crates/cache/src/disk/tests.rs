//! The tier with a disk that is full, slow or lies, and files with any bytes.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::cache::{Cache, Lookup};
use crate::entry::Entry;
use crate::key::{Request, Scheme};
use crate::moment::UnixMs;
use crate::options::{Limits, Mode, Rules};
use crate::respond::{Head, Reply};

const CODEC: Codec<u64> = Codec {
    write: |proof, out| out.extend_from_slice(&proof.to_le_bytes()),
    read: |bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)),
};

/// A stored response, made as each is made.
fn entry(body: &str) -> (Key, Arc<Entry<u64>>) {
    let cache = Cache::<u64>::new(&Limits::default());
    let rules = Rules { mode: Mode::Strict, ..Rules::default() };
    let mut client = HeaderMap::new();
    client.insert("accept-language", "de".parse().unwrap());
    let request = Request {
        site: SiteId::new(1).unwrap(),
        method: &Method::GET,
        scheme: Scheme::Https,
        authority: "a.example",
        path_and_query: "/page?x",
        headers: &client,
        now: UnixMs(7),
        waited: false,
    };
    let mut headers = HeaderMap::new();
    let vary = if body.is_empty() { "" } else { "accept-language" };
    let lines =
        [("cache-tag", "t1, t2"), ("vary", vary), ("last-modified", "x"), ("etag", "\"e\"")];
    for (name, value) in lines {
        headers.append(name, value.parse().unwrap());
    }
    let mut lookup = cache.lookup(&rules, &request);
    let key = request.key().to_key();
    loop {
        let Lookup::Fetch(fetch) = lookup else { panic!("it is empty") };
        let head = Head { status: StatusCode::OK, headers: headers.clone() };
        match cache.respond(&rules, fetch, head, UnixMs(8), |_| Some(4_711)) {
            Reply::Again(again) => lookup = Lookup::Fetch(again),
            Reply::Pass { fill, .. } => {
                let mut fill = fill.unwrap();
                fill.push(&Bytes::copy_from_slice(body.as_bytes()));
                cache.finish(&rules, *fill, UnixMs(9)).unwrap();
                let stored = cache.explain(&key.borrowed()).remove(0).entry;
                return (key, stored);
            }
            Reply::Answer(_) => panic!("nothing is stored"),
        }
    }
}

fn variants(entries: Vec<Arc<Entry<u64>>>) -> Arc<Variants<u64>> {
    Arc::new(Variants::new(entries.into()))
}

#[test]
fn a_file_holds_all_of_a_response() {
    let (key, one) = entry("body");
    let (_, other) = entry("");
    let file = Bytes::from(record::encode(CODEC, &key, [&*one, &*other].into_iter()));
    let (read, entries) = record::decode(CODEC, &file).unwrap();
    assert_eq!(read, key);
    assert_eq!(format!("{entries:?}"), format!("{:?}", [one, other]));
    for at in 0..file.len() {
        let mut damaged = file.to_vec();
        damaged[at] ^= 1;
        assert!(record::decode(CODEC, &damaged.into()).is_none(), "byte {at}");
        assert!(record::decode(CODEC, &file.slice(..at)).is_none(), "cut at {at}");
    }
}

proptest! {
    /// Even what has the right digest is not believed.
    #[test]
    fn noise_in_a_file_makes_nothing_panic(
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (key, one) = entry("body");
        let mut payload = record::encode(CODEC, &key, [&*one].into_iter()).split_off(40);
        for (at, byte) in noise {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        if let Some((key, entries)) = record::payload(CODEC, payload.into()) {
            let again = record::encode(CODEC, &key, entries.iter());
            prop_assert!(record::decode(CODEC, &again.into()).is_some());
        }
    }
}

/// A disk in memory that does as it is told.
#[derive(Default)]
struct Fake {
    files: Mutex<HashMap<(u64, u64), Bytes>>,
    room: AtomicU64,
    is_slow: bool,
}

impl Fake {
    fn bytes(&self) -> u64 {
        self.files.lock().unwrap().values().map(|file| file.len() as u64).sum()
    }
}

impl Files for Fake {
    fn write(&self, file: File, bytes: &[u8]) -> io::Result<()> {
        if self.is_slow {
            thread::sleep(Duration::from_millis(20));
        }
        if self.bytes() + bytes.len() as u64 > self.room.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = Bytes::copy_from_slice(bytes);
        self.files.lock().unwrap().insert((file.hash, file.serial.0), bytes);
        Ok(())
    }

    fn read(&self, file: File) -> io::Result<Bytes> {
        let files = self.files.lock().unwrap();
        files.get(&(file.hash, file.serial.0)).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, file: File) -> io::Result<()> {
        self.files.lock().unwrap().remove(&(file.hash, file.serial.0));
        Ok(())
    }
}

fn key(number: u64) -> Key {
    let url = format!("http://a.example/{number}");
    KeyRef::of_url(SiteId::new(1).unwrap(), &url).unwrap().to_key()
}

fn recalled(tier: &Handle<u64>, key: &Key) -> Option<Key> {
    let (tell, told) = mpsc::channel();
    tier.recall(&key.borrowed(), Box::new(move |recalled| tell.send(recalled).unwrap()));
    tier.used(told.recv().unwrap()).map(|(key, _)| key)
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn is_idle(tier: &Handle<u64>) -> bool {
    let stats = tier.stats();
    let desk = tier.0.lock();
    desk.index.is_idle() && stats.urls == desk.index.held().urls
}

/// A disk with less room than the limit says: the tier shrinks to what there is, and recovers.
#[test]
fn a_full_disk_is_no_harm() {
    let (_, entry) = entry("body");
    let files = Arc::new(Fake { room: AtomicU64::new(2_000), ..Fake::default() });
    let disk = Disk::over(&files, 1 << 30, CODEC).unwrap();
    let tier = disk.handle();
    for number in 0..20 {
        tier.offer(key(number), variants(vec![Arc::clone(&entry)]));
        eventually("it is written or not", || is_idle(&tier));
    }
    let full = tier.stats();
    assert!(full.failed > 0 && full.written > 2 && full.urls < 20, "{full:?}");
    assert!(files.bytes() <= 2_000);
    let found = (0..20).filter(|&number| recalled(&tier, &key(number)).is_some()).count();
    assert_eq!(found as u64, full.urls, "what is said to be there is there");
    files.room.store(u64::MAX, Ordering::SeqCst);
    tier.offer(key(99), variants(vec![entry]));
    eventually("it is written", || is_idle(&tier));
    assert_eq!(tier.stats().failed, full.failed);
    assert_eq!(recalled(&tier, &key(99)), Some(key(99)));
    tier.forget_all(None);
    eventually("what is forgotten is removed", || files.bytes() == 0);
}

#[test]
fn what_waits_or_is_written_is_found_and_what_was_put_meanwhile_wins() {
    let (_, entry) = entry("body");
    let room = AtomicU64::new(u64::MAX);
    let files = Arc::new(Fake { room, is_slow: true, ..Fake::default() });
    let disk = Disk::over(&files, 1 << 30, CODEC).unwrap();
    let tier = disk.handle();
    let offer = |number| tier.offer(key(number), variants(vec![Arc::clone(&entry)]));
    offer(1);
    offer(2);
    assert_eq!(recalled(&tier, &key(2)), Some(key(2)), "it waits for its turn");
    tier.forget(&key(2).borrowed());
    assert_eq!(recalled(&tier, &key(2)), None);
    eventually("it is written", || is_idle(&tier));
    let (tell, told) = mpsc::channel();
    for _ in 0..3 {
        let tell = tell.clone();
        tier.recall(&key(1).borrowed(), Box::new(move |recalled| tell.send(recalled).unwrap()));
    }
    let all: Vec<_> = told.iter().take(3).collect();
    // A response of the same URL is stored meanwhile, and given up.
    tier.forget(&key(1).borrowed());
    offer(1);
    assert!(all.into_iter().all(|one| tier.used(one).is_none()), "an older one");
    assert!(tier.has(&key(1).borrowed()));
}

#[test]
fn who_waits_is_let_go_when_the_tier_ends() {
    let (_, entry) = entry("body");
    let files = Arc::new(Fake { room: AtomicU64::new(u64::MAX), ..Fake::default() });
    let disk = Disk::over(&files, 1 << 30, CODEC).unwrap();
    let tier = disk.handle();
    tier.offer(key(1), variants(vec![entry]));
    eventually("it is written", || is_idle(&tier));
    drop(disk);
    let (tell, told) = mpsc::channel::<Recalled<u64>>();
    tier.recall(&key(1).borrowed(), Box::new(move |recalled| tell.send(recalled).unwrap()));
    assert!(told.recv().is_ok_and(|recalled| recalled.found.is_none()));
}
