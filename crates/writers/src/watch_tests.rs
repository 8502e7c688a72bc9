//! What a watch tells of real files, and that no change is missed.

use super::*;
use fuzzing::Random;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Far more than any of it takes.
const LONG: Duration = Duration::from_secs(60);

fn is_covered(path: &[u8], changed: &BTreeSet<Vec<u8>>) -> bool {
    let ends = (0..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
    ends.into_iter().any(|end| changed.contains(&path[..end]))
}

struct Site {
    folder: TempDir,
    watch: Watch,
}

impl Site {
    fn new(files: &[&str], folders_max: usize) -> Self {
        let folder = TempDir::new().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        }
        let mut watch = Watch::new(folder.path(), folders_max);
        let mut changed = BTreeSet::new();
        watch.changes(&mut changed);
        assert!(changed.contains(&b""[..]), "what was before is told once");
        Self { folder, watch }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// All that is told until there is nothing more.
    fn changes(&mut self) -> BTreeSet<Vec<u8>> {
        let mut all = BTreeSet::new();
        let since = Instant::now();
        loop {
            let mut changed = BTreeSet::new();
            self.watch.changes(&mut changed);
            if changed.is_empty() {
                return all;
            }
            all.extend(changed);
            assert!(since.elapsed() < LONG, "it never ends: {all:?}");
        }
    }

    /// Whether this path is told within a while, and told again and again.
    fn is_told_always(&mut self, path: &str) -> bool {
        let since = Instant::now();
        let mut times = 0;
        while times < 2 && since.elapsed() < LONG {
            let mut changed = BTreeSet::new();
            self.watch.changes(&mut changed);
            times += usize::from(is_covered(path.as_bytes(), &changed));
        }
        times == 2
    }
}

/// What it does, how, and what is told.
type Step<'a> = (&'a str, &'a dyn Fn(&Site), &'a [&'a str]);

#[test]
fn each_kind_of_change_is_told() {
    let mut site = Site::new(&["a/b.html", "a/c.html", "d.html"], FOLDERS_MAX);
    assert!(site.changes().is_empty(), "nothing has changed");
    let steps: [Step<'_>; 7] = [
        ("written", &|site| fs::write(site.at("a/b.html"), "new").unwrap(), &["/a/b.html"]),
        ("made", &|site| fs::write(site.at("e"), "x").unwrap(), &["/e"]),
        ("removed", &|site| fs::remove_file(site.at("e")).unwrap(), &["/e"]),
        (
            "renamed over another",
            &|site| fs::rename(site.at("d.html"), site.at("a/c.html")).unwrap(),
            &["/d.html", "/a/c.html"],
        ),
        (
            "not readable",
            &|site| {
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(site.at("a/b.html"), mode).unwrap();
            },
            &["/a/b.html"],
        ),
        (
            "moved as a folder",
            &|site| fs::rename(site.at("a"), site.at("f")).unwrap(),
            &["/a", "/f"],
        ),
        ("written there", &|site| fs::write(site.at("f/b.html"), "x").unwrap(), &["/f/b.html"]),
    ];
    for (what, step, told) in steps {
        step(&site);
        let told: BTreeSet<Vec<u8>> = told.iter().map(|path| path.as_bytes().to_vec()).collect();
        let mut changed = site.changes();
        // The folder's own attributes change with a rename.
        changed.remove(&b"/f"[..]);
        let mut told = told;
        told.remove(&b"/f"[..]);
        assert_eq!(changed, told, "{what}");
    }
    fs::remove_dir_all(site.at("f")).unwrap();
    assert!(is_covered(b"/f/b.html", &site.changes()));
    assert_eq!(site.watch.held(), (1, 0), "a watch for each folder that is there");
}

#[test]
fn what_lies_in_a_new_folder_is_told_and_watched() {
    let mut site = Site::new(&[], FOLDERS_MAX);
    fs::create_dir_all(site.at("a/b/c")).unwrap();
    fs::write(site.at("a/b/c/d"), "x").unwrap();
    assert!(is_covered(b"/a/b/c/d", &site.changes()));
    fs::write(site.at("a/b/c/d"), "y").unwrap();
    assert_eq!(site.changes(), BTreeSet::from([b"/a/b/c/d".to_vec()]));
}

#[test]
fn after_an_overflow_all_is_told_and_watched_anew() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 200_000 {
        println!("skipped: an overflow takes {limit} events here");
        return;
    }
    let mut site = Site::new(&["a/b"], FOLDERS_MAX);
    // Two events each.
    for number in 0..=limit {
        let path = site.at(&format!("a/{}", number % 5_000));
        if fs::remove_file(&path).is_err() {
            fs::write(path, "").unwrap();
        }
    }
    fs::create_dir(site.at("new")).unwrap();
    assert!(site.changes().contains(&b""[..]));
    fs::write(site.at("new/file"), "x").unwrap();
    assert!(is_covered(b"/new/file", &site.changes()));
}

#[test]
fn what_cannot_be_watched_is_told_at_each_tick() {
    let mut site = Site::new(&["a/x", "b/x", "c/x"], 3);
    assert_eq!(site.watch.held(), (3, 1), "one folder is too many");
    let unwatched = site.watch.tree.as_ref().unwrap().unwatched.first().unwrap().clone();
    assert!(site.is_told_always(&String::from_utf8(unwatched).unwrap()));
    let mut site = Site::new(&["a/x"], FOLDERS_MAX);
    let other = TempDir::new().unwrap();
    symlink(other.path(), site.at("link")).unwrap();
    assert!(site.is_told_always("/link/file"));
    fs::remove_file(site.at("link")).unwrap();
    site.changes();
    let mut missing = Site::new(&[], FOLDERS_MAX);
    fs::remove_dir(missing.folder.path()).unwrap();
    assert!(missing.is_told_always("/any"));
    fs::create_dir(missing.folder.path()).unwrap();
    missing.changes();
    fs::write(missing.at("file"), "x").unwrap();
    assert!(is_covered(b"/file", &missing.changes()));
}

#[test]
fn a_root_that_is_swapped_is_told() {
    let folder = TempDir::new().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        fs::write(folder.path().join(release).join("page"), release).unwrap();
    }
    let current = folder.path().join("current");
    symlink("one", &current).unwrap();
    let mut watch = Watch::new(&current, FOLDERS_MAX);
    watch.changes(&mut BTreeSet::new());
    symlink("two", folder.path().join("next")).unwrap();
    fs::rename(folder.path().join("next"), &current).unwrap();
    let mut changed = BTreeSet::new();
    let since = Instant::now();
    while changed.is_empty() && since.elapsed() < LONG {
        watch.changes(&mut changed);
    }
    assert!(changed.contains(&b""[..]));
    changed.clear();
    fs::write(current.join("page"), "three").unwrap();
    watch.changes(&mut changed);
    assert_eq!(changed, BTreeSet::from([b"/page".to_vec()]));
}

/// Somebody changes files and folders as they like, somebody keeps what is read, and forgets what
/// is told: at the end nothing is kept that is not so.
#[test]
fn whatever_happens_nothing_stale_is_kept() {
    let seed =
        std::env::var("POLDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("POLDER_SEED={seed}");
    let mut site = Site::new(&["a/x", "a/b/x", "x"], FOLDERS_MAX);
    let ends = Arc::new(AtomicBool::new(false));
    let (root, done) = (site.folder.path().to_owned(), Arc::clone(&ends));
    let writer = thread::spawn(move || {
        let mut random = Random::of(&seed.to_le_bytes());
        for number in 0..3_000 {
            change(&root, &mut random, number);
        }
        done.store(true, Ordering::SeqCst);
    });
    let mut random = Random::of(&(seed + 1).to_le_bytes());
    let mut kept: HashMap<String, Option<String>> = HashMap::new();
    let read = |root: &Path, path: &str| fs::read_to_string(root.join(&path[1..])).ok();
    let mut rounds_after = 0;
    while rounds_after < 3 {
        rounds_after += usize::from(ends.load(Ordering::SeqCst));
        let mut changed = BTreeSet::new();
        site.watch.changes(&mut changed);
        kept.retain(|path, _| !is_covered(path.as_bytes(), &changed));
        for _ in 0..20 {
            let path = name(&mut random);
            kept.insert(path.clone(), read(site.folder.path(), &path));
        }
    }
    writer.join().unwrap();
    let changed = site.changes();
    kept.retain(|path, _| !is_covered(path.as_bytes(), &changed));
    assert!(!kept.is_empty());
    for (path, content) in kept {
        assert_eq!(read(site.folder.path(), &path), content, "{path}, seed {seed}");
    }
}

/// A path of one to four names out of three.
fn name(random: &mut Random) -> String {
    (0..=random.below(4)).map(|_| format!("/{}", random.pick(&["a", "b", "x"]))).collect()
}

fn change(root: &Path, random: &mut Random, number: usize) {
    let at = |path: String| root.join(&path[1..]);
    let (one, other) = (at(name(random)), at(name(random)));
    // Most are impossible at their time.
    let _ = match random.below(6) {
        0 => fs::create_dir_all(one),
        1 => fs::remove_dir_all(one),
        2 => fs::rename(one, other),
        3 => fs::remove_file(one),
        _ => fs::write(one, number.to_string()),
    };
}
