//! The table of files against a naive twin, with a folder that is a map.

use proptest::prelude::*;

use super::*;
use crate::key::KeyRef;
use crate::store::Entries;

/// Room for four files of a block each.
const BYTES_MAX: u64 = 4 * BLOCK_BYTES;

#[derive(Debug, Clone)]
enum Step {
    /// Memory gives a URL up, of so many bytes.
    Offer(u64, u64),
    /// The writer takes its next file, and has the disk write it or fail.
    Write {
        works: bool,
    },
    /// What happens to the file in the middle of its being written.
    Within(Box<Step>),
    Forget(u64),
    ForgetSite,
    /// A recall, and whether it is put back.
    Recall {
        hash: u64,
        gives_up: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let hash = 0..6_u64;
    let plain = prop_oneof![
        3 => (hash.clone(), 1..3 * BLOCK_BYTES).prop_map(|(hash, bytes)| Step::Offer(hash, bytes)),
        1 => hash.clone().prop_map(Step::Forget),
        2 => (hash, any::<bool>())
            .prop_map(|(hash, gives_up)| Step::Recall { hash, gives_up }),
    ];
    prop_oneof![
        4 => plain.clone(),
        3 => any::<bool>().prop_map(|works| Step::Write { works }),
        2 => plain.prop_map(|step| Step::Within(Box::new(step))),
        1 => Just(Step::ForgetSite),
    ]
}

fn stored(number: u64, bytes: u64) -> Stored<()> {
    let url = format!("http://a/{number}");
    let site = SiteId::new(1).unwrap();
    let key = KeyRef::of_url(site, &url).unwrap().to_key();
    let variants = Variants { entries: Entries::new(), bytes, content: number };
    Stored { key, variants: Arc::new(variants) }
}

struct Twin {
    index: Index<()>,
    /// Files by their serial: which offer they hold, and blocks.
    folder: BTreeMap<Serial, (String, u64)>,
    /// The last offer of each URL, unless it was forgotten or moved.
    newest: HashMap<u64, String>,
    offers: u64,
}

impl Twin {
    fn remove(&mut self, doomed: Vec<File>) {
        for file in doomed {
            assert!(self.folder.remove(&file.serial).is_some(), "{file:?} is removed once");
        }
    }

    fn write(&mut self, works: bool, within: Option<Step>) {
        let doomed = self.index.take_doomed();
        self.remove(doomed);
        let Some((file, stored)) = self.index.next_write() else { return };
        let bytes = stored.variants.bytes;
        if !self.index.reserve(bytes) {
            return self.index.lost(file);
        }
        let doomed = self.index.take_doomed();
        self.remove(doomed);
        if works {
            self.folder.insert(file.serial, (stored.key.to_string(), blocks(bytes)));
        }
        if let Some(step) = within {
            self.carry_out(step);
        }
        let on_disk: u64 = self.folder.values().map(|(_, bytes)| bytes).sum();
        assert!(on_disk <= BYTES_MAX, "{on_disk} bytes in the folder");
        if works {
            self.index.written(file, bytes);
        } else {
            self.index.not_written(file, bytes);
        }
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Offer(hash, bytes) => {
                self.offers += 1;
                let stored = stored(self.offers, bytes);
                let name = stored.key.to_string();
                self.newest.remove(&hash);
                if self.index.offer(hash, stored) {
                    self.newest.insert(hash, name);
                }
            }
            Step::Write { works } => self.write(works, None),
            Step::Within(step) => self.write(true, Some(*step)),
            Step::Forget(hash) => {
                self.index.forget(hash);
                self.newest.remove(&hash);
            }
            Step::ForgetSite => {
                self.index.forget_all(SiteId::new(2).ok());
                assert_eq!(self.index.held().urls, self.index.slots.len() as u64);
                self.index.forget_all(SiteId::new(1).ok());
                self.newest.clear();
            }
            Step::Recall { hash, gives_up } => self.recall(hash, gives_up),
        }
        self.index.check_invariants();
    }

    fn recall(&mut self, hash: u64, gives_up: bool) {
        let (file, name) = match self.index.recall(hash) {
            Recall::Nothing => return,
            Recall::Here(serial, stored) => {
                assert_eq!(
                    self.index.content(File { hash, serial }),
                    Some(stored.variants.content)
                );
                (File { hash, serial }, stored.key.to_string())
            }
            Recall::Read(file) => {
                let found = self.folder.get(&file.serial);
                (file, found.expect("what is kept has its file").0.clone())
            }
        };
        assert_eq!(Some(&name), self.newest.get(&hash), "never an older one");
        assert!(self.index.used(file));
        if gives_up {
            let content = self.index.content(file).unwrap();
            assert!(self.index.offer(hash, stored(content, 1)), "it is there already");
            assert!(self.index.is_here(file), "it is not written again");
        }
    }
}

proptest! {
    #[test]
    fn files_stay_within_the_limit_and_only_the_newest_is_found(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let index = Index::new(BYTES_MAX);
        let mut twin =
            Twin { index, folder: BTreeMap::new(), newest: HashMap::new(), offers: 0 };
        for step in steps {
            twin.carry_out(step);
        }
        // All that can be written is, and all that is doomed goes.
        while !twin.index.waiting.is_empty() {
            twin.write(true, None);
        }
        let doomed = twin.index.take_doomed();
        twin.remove(doomed);
        let on_disk: u64 = twin.folder.values().map(|(_, bytes)| bytes).sum();
        let held = twin.index.held();
        prop_assert_eq!((held.bytes, held.urls), (on_disk, twin.folder.len() as u64));
    }
}

#[test]
fn what_waits_is_bounded_and_what_is_written_first_goes_first() {
    let mut index = Index::new(1 << 40);
    let bytes = WAITING_BYTES_MAX / 4;
    let taken = (0..6).filter(|&hash| index.offer(hash, stored(hash, bytes))).count();
    assert_eq!((taken, index.held().dropped), (4, 2));
    let mut index = Index::new(2 * BLOCK_BYTES);
    for hash in 0..3 {
        assert!(index.offer(hash, stored(hash, 1)));
        let (file, _) = index.next_write().unwrap();
        assert!(index.reserve(1));
        index.written(file, 1);
    }
    assert_eq!((0..3).map(|hash| index.has(hash)).collect::<Vec<_>>(), [false, true, true]);
    assert!(!index.offer(7, stored(7, 3 * BLOCK_BYTES)), "it would never fit");
    let Recall::Read(file) = index.recall(1) else { panic!("it is kept") };
    assert!(index.used(file));
    assert!(index.reserve(1));
    assert_eq!((index.has(1), index.has(2)), (true, false), "what was used last stays");
}
