//! Gates over real sockets: clients that read, write, wait, and die.

use super::*;
use crate::{Client, ClientError, Ended};
use remote_memory::shm::OwnedRegion;
use shared_state::versions::{Decided, SlotBits, TableLayout, VersionTable};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use tempfile::TempDir;

/// Far more than any answer takes.
const LONG: Duration = Duration::from_secs(60);

/// Serves until the test's process ends.
fn start() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("writers.sock");
    let (tell, told) = std::sync::mpsc::channel();
    let own = path.clone();
    thread::spawn(move || {
        let bits = SlotBits::new(SlotBits::MIN).unwrap();
        let length = TableLayout::new(bits).region_bytes();
        let region = Arc::new(OwnedRegion::create("tags-serve", length).unwrap());
        let table = VersionTable::publish(region, bits).unwrap();
        table.admit_hits(Decided);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let door = Door::open(&own, Who::Owner).unwrap();
            tell.send(()).unwrap();
            serve(Desk::new(table, 1), vec![door]).await;
        });
    });
    told.recv().unwrap();
    (folder, path)
}

fn connect(path: &Path) -> Client {
    Client::connect(path, LONG).unwrap()
}

#[test]
fn nobody_reads_what_is_written() {
    let (_folder, path) = start();
    // Readers that are in, or a thousand less for a writer.
    let inside = Arc::new(AtomicI64::new(0));
    let work = |number: u64| {
        let (path, inside) = (path.clone(), Arc::clone(&inside));
        thread::spawn(move || {
            let mut client = connect(&path);
            for round in 0..60 {
                if (number + round).is_multiple_of(4) {
                    client.write("page 1").unwrap();
                    assert_eq!(inside.fetch_sub(1_000, Ordering::SeqCst), 0, "it is alone");
                    thread::yield_now();
                    inside.fetch_add(1_000, Ordering::SeqCst);
                } else {
                    client.read("page 1").unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0, "nobody writes");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                if round % 20 == 19 {
                    // It dies where it is.
                    client = connect(&path);
                    continue;
                }
                let ended = if (number + round).is_multiple_of(4) {
                    client.write_end("page 1")
                } else {
                    client.read_end("page 1")
                };
                assert_eq!(ended.unwrap(), Ended::Now);
            }
        })
    };
    let all: Vec<_> = (0..6).map(work).collect();
    all.into_iter().for_each(|one| one.join().unwrap());
    connect(&path).write("page 1").unwrap();
}

#[test]
fn who_dies_frees_its_place_also_in_the_queue_and_its_update_stays_pending() {
    let (_folder, path) = start();
    let mut reader = connect(&path);
    reader.read("a").unwrap();
    // A writer that gives up waiting.
    let mut impatient = Client::connect(&path, Duration::from_millis(50)).unwrap();
    assert!(matches!(impatient.write("a"), Err(ClientError::Io(_))));
    drop(impatient);
    let mut second = connect(&path);
    second.read("a").unwrap();
    let mut writer = connect(&path);
    let waits = thread::spawn({
        move || {
            writer.write("a").unwrap();
            writer.begin(&["t"]).unwrap();
        }
    });
    drop((reader, second));
    waits.join().unwrap();
    let mut third = connect(&path);
    third.read("a").unwrap();
    assert_eq!(third.pending().unwrap().0.len(), 1, "no closed socket decides an update");
    assert_eq!(third.write_end("a").unwrap(), Ended::Before);
}

/// Lines behind one that waits are answered after it, in order, however they come.
#[test]
fn lines_behind_a_wait_are_answered_in_order() {
    let (_folder, path) = start();
    let mut reader = connect(&path);
    reader.read("a").unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"invalidate x\nwrite a\ninvalidate y\nwrite-").unwrap();
    let mut first = [0; 3];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"ok\n");
    stream.write_all(b"end a\nwrite-end a\n").unwrap();
    stream.set_nonblocking(true).unwrap();
    assert!(stream.read(&mut first).is_err(), "it waits");
    stream.set_nonblocking(false).unwrap();
    reader.read_end("a").unwrap();
    let mut rest = [0; 14];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"ok\nok\nok\ngone\n");
}
