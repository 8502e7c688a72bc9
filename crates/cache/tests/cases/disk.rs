//! The disk tier by the cache's public face, with real files.

use std::fs::{self, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cache::{Cache, Codec, Disk, DiskLimits, DiskStats, Limits, Mode, Purge, Source};
use http::Method;
use pool_model::SiteId;
use tempfile::TempDir;

use crate::world::{Version, World, field, response};

/// Four times what memory holds, each a quarter of what one response may have.
const PAGES: usize = 64;
const PAGE_BYTES: usize = 64 << 10;

const CODEC: Codec<Version> = Codec {
    write: |version, out| out.extend_from_slice(&version.0.to_le_bytes()),
    read: |bytes| Some(Version(u64::from_le_bytes(bytes.try_into().ok()?))),
};

fn world(folder: &Path, mode: Mode, bytes: u64) -> World {
    let mut world = World::new(mode);
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let disk = DiskLimits { folder: folder.to_owned(), bytes };
    world.cache = Cache::with(&limits, Some(Disk::open(&disk, CODEC).unwrap()));
    world
}

fn body(page: usize) -> &'static str {
    let letter = char::from(b'a' + u8::try_from(page % 26).unwrap());
    // A test's few megabytes, for as long as it runs.
    Box::leak(format!("{page:08}{}", letter.to_string().repeat(PAGE_BYTES)).into_boxed_str())
}

fn stats(world: &World) -> DiskStats {
    world.cache.stats().disk.unwrap()
}

/// All pages are asked for, and what memory has no room for is on the disk.
fn fill(world: &mut World) {
    for page in 0..PAGES {
        world.serves(response(&[("cache-control", "max-age=999"), ("xkey", "t")]).body(body(page)));
        world.get(&format!("/{page}"), &[]);
        settle(world);
    }
}

/// All that was offered is written, or given up.
fn settle(world: &World) {
    eventually("all is written", || stats(world).waiting == 0);
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let own =
        fs::read_dir(folder).unwrap().flat_map(|own| fs::read_dir(own.unwrap().path()).unwrap());
    own.map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_memory_gives_up_comes_back_from_the_disk() {
    let folder = TempDir::new().unwrap();
    let mut world = world(folder.path(), Mode::Http, 64 << 20);
    fill(&mut world);
    let before = stats(&world);
    assert!(
        before.written > 40 && before.urls > 40 && before.bytes > 40 * PAGE_BYTES as u64,
        "{before:?}"
    );
    for page in 0..PAGES {
        let answer = world.get(&format!("/{page}"), &[]);
        assert!(field(&answer, "cache-status").contains("; hit"), "{page}: {:?}", answer.headers);
        assert_eq!(answer.body, body(page));
        assert_eq!(field(&answer, "content-length"), (PAGE_BYTES + 8).to_string());
        let tag = field(&answer, "etag");
        let again = world.get(&format!("/{page}"), &[("if-none-match", &tag)]);
        assert_eq!(again.status, 304);
        settle(&world);
    }
    assert_eq!(world.count(), PAGES, "the server was asked for each page once");
    let after = stats(&world);
    assert!(after.recalled >= 40 && after.damaged + after.failed == 0, "{after:?}");
    assert!(after.written <= PAGES as u64, "what is there is not written again: {after:?}");
    for file in files(folder.path()) {
        let (of_file, of_folder) = (fs::metadata(&file), fs::metadata(file.parent().unwrap()));
        assert_eq!(of_file.unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(of_folder.unwrap().permissions().mode() & 0o777, 0o700);
    }
    let head = world.ask(&Method::HEAD, "/0", &[]);
    assert!(head.body.is_empty() && world.count() == PAGES);
    drop(world);
    eventually("it goes with its process", || fs::read_dir(folder.path()).unwrap().count() == 0);
}

/// Whether each response for a page that the disk holds was purged; none if it holds nothing.
fn on_disk(world: &World, page: usize) -> Option<Vec<bool>> {
    let key = world.key(&format!("/{page}"));
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |recalled| tell.send(recalled).unwrap());
    if !world.cache.ask_disk(&key.borrowed(), done) {
        return None;
    }
    let recalled = told.recv_timeout(Duration::from_secs(60)).unwrap();
    let all = world.cache.explain_recalled(&key.borrowed(), &recalled);
    let all = all.expect("it is not damaged");
    assert!(all.iter().all(|one| one.entry.has_body(body(page).as_bytes())), "{page}");
    Some(all.iter().map(|one| one.purged).collect())
}

#[test]
fn who_asks_what_lies_on_the_disk_leaves_it_there() {
    let folder = TempDir::new().unwrap();
    let mut world = world(folder.path(), Mode::Http, 64 << 20);
    assert_eq!(on_disk(&world, 0), None);
    fill(&mut world);
    let (before, held) = (stats(&world), world.cache.stats());
    let in_memory = |world: &World, page: usize| {
        !world.cache.explain(&world.key(&format!("/{page}")).borrowed()).is_empty()
    };
    for page in 0..PAGES {
        let lies_there = on_disk(&world, page) == Some(vec![false]);
        assert!(lies_there || in_memory(&world, page), "{page}");
    }
    assert_eq!((stats(&world), world.cache.stats().urls), (before, held.urls));
    let page = (0..PAGES).find(|&page| !in_memory(&world, page)).unwrap();
    world.cache.purge(Purge::Tag(SiteId::new(1).unwrap(), b"t"));
    assert_eq!(on_disk(&world, page), Some(vec![true]));
}

#[test]
fn purges_and_updates_reach_what_lies_on_the_disk() {
    let site = SiteId::new(1).unwrap();
    let folder = TempDir::new().unwrap();
    let mut world = world(folder.path(), Mode::Http, 64 << 20);
    for what in [Purge::Tag(site, b"t"), Purge::Site(site), Purge::All] {
        fill(&mut world);
        world.cache.purge(what);
        assert!(!world.hits("/0", &[]), "{what:?}");
    }
    fill(&mut world);
    let key = world.key("/0");
    world.cache.purge(Purge::Url(key.borrowed()));
    assert!(!world.hits("/0", &[]) && world.hits("/1", &[]));
    world.rules.mode = Mode::Strict;
    world.rules.source = Source::Acknowledged;
    assert!(!world.hits("/2", &[]), "it has no proof");
    fill(&mut world);
    let answer = world.get("/0", &[]);
    assert!(field(&answer, "cache-status").contains("detail=acknowledged"), "{:?}", answer.headers);
    settle(&world);
    world.version += 1;
    assert!(!world.hits("/1", &[]), "its proof came with it, and does not hold");
    assert!(world.hits("/1", &[]));
}

#[test]
fn damaged_files_are_misses_and_go() {
    let folder = TempDir::new().unwrap();
    let mut world = world(folder.path(), Mode::Http, 64 << 20);
    fill(&mut world);
    let (all, before) = (files(folder.path()), stats(&world));
    assert_eq!(all.len() as u64, before.urls);
    for (at, path) in all.iter().enumerate() {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        match at % 4 {
            0 => drop(fs::remove_file(path)),
            1 => file.set_len(0).unwrap(),
            2 => file.set_len(file.metadata().unwrap().len() - 1).unwrap(),
            _ => {
                file.seek(std::io::SeekFrom::End(-1)).unwrap();
                file.write_all(b"#").unwrap();
            }
        }
    }
    let asked = world.count();
    for page in 0..PAGES {
        world.serves(response(&[("cache-control", "max-age=999")]).body(body(page)));
        assert_eq!(world.get(&format!("/{page}"), &[]).body, body(page));
        settle(&world);
    }
    let after = stats(&world);
    // Some are in memory too, and are not read.
    assert!(after.damaged > 30 && (world.count() - asked) as u64 == after.damaged, "{after:?}");
    eventually("they are removed", || files(folder.path()).len() as u64 <= stats(&world).urls);
}

#[test]
fn files_stay_within_their_bytes() {
    let folder = TempDir::new().unwrap();
    let limit = 10 * PAGE_BYTES as u64;
    let mut world = world(folder.path(), Mode::Http, limit);
    for page in 0..PAGES {
        world.serves(response(&[("cache-control", "max-age=999")]).body(body(page)));
        world.get(&format!("/{page}"), &[]);
        let all = files(folder.path());
        let bytes: u64 = all.iter().map(|file| fs::metadata(file).map_or(0, |m| m.len())).sum();
        assert!(bytes <= limit, "{bytes}");
        settle(&world);
    }
    let held = stats(&world);
    assert!(held.evicted > 20 && held.bytes <= limit && held.urls >= 5, "{held:?}");
}

#[test]
fn a_start_removes_what_the_dead_left_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let mut living = world(folder.path(), Mode::Http, 64 << 20);
    fill(&mut living);
    // A process that was killed between the write and the name.
    let dead = folder.path().join("polder-1-0");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("writing"), "half a resp").unwrap();
    fs::write(dead.join("00000000000000ff-1"), "x").unwrap();
    fs::write(folder.path().join("polder-notes"), "a file").unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    let second = world(folder.path(), Mode::Http, 64 << 20);
    eventually("the dead one's is removed", || !dead.exists());
    assert!(folder.path().join("other").exists());
    assert!(folder.path().join("polder-notes").exists());
    assert!(living.hits("/0", &[]), "the living keep what they have");
    drop(second);
    assert!(living.hits("/1", &[]));
    let nowhere = DiskLimits { folder: folder.path().join("polder-notes/x"), bytes: 1 << 20 };
    assert!(Disk::<Version>::open(&nowhere, CODEC).is_err());
}
