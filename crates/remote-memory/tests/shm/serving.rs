//! Owners and peers inside one process: serving, attaching, limits, sockets left behind.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use remote_memory::Mapped;
use remote_memory::frame::Refusal;
use remote_memory::shm::{MAX_PEERS, OwnedRegion, RegionServer, ShmError, attach};

use crate::support::{DEADLINE, eventually, private_directory};

fn serve(path: &Path) -> (Arc<OwnedRegion>, RegionServer) {
    let region = Arc::new(OwnedRegion::create("node-3", 4096).unwrap());
    let server = RegionServer::bind(path, Arc::clone(&region)).unwrap();
    (region, server)
}

/// Leaves a socket that nobody listens on, as a killed owner does.
fn leave_dead_socket(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    // Dropping alone would not do: a process that another test is just starting has a copy.
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
}

fn bind_error(path: &Path) -> ShmError {
    let region = Arc::new(OwnedRegion::create("second", 64).unwrap());
    match RegionServer::bind(path, region) {
        Ok(_) => panic!("{} could be bound", path.display()),
        Err(error) => error,
    }
}

#[test]
fn owner_and_peers_see_the_same_words() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let (owned, server) = serve(&path);
    let (one, two) = (attach(&path, DEADLINE).unwrap(), attach(&path, DEADLINE).unwrap());
    assert_eq!(one.region().descriptor(), owned.descriptor());
    owned.write(8, 7).unwrap();
    assert_eq!(one.region().compare_and_swap(8, 7, 9), Ok(7));
    assert_eq!(two.region().fetch_and_add(8, 1), Ok(9));
    assert_eq!(owned.read(8), Ok(10));
    assert!(one.owner_alive() && two.owner_alive());

    // The server's end is what peers see; mappings outlive it, and the owner's too.
    drop(server);
    assert!(!one.owner_alive() && !two.owner_alive());
    assert!(!path.exists());
    let mapped = one.region();
    drop((owned, one, two));
    assert_eq!(mapped.read(8), Ok(10));
    mapped.write(8, 11).unwrap();
    assert_eq!(mapped.read(8), Ok(11));
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let _serving = serve(&path);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "mode {mode:o}");
}

#[test]
fn a_directory_open_to_others_is_refused() {
    let directory = private_directory();
    for mode in [0o755, 0o710, 0o701, 0o777] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), permissions).unwrap();
        let error = bind_error(&directory.path().join("node.sock"));
        let ShmError::DirectoryNotPrivate { mode: found, .. } = error else { panic!("{error}") };
        assert_eq!(found & 0o777, mode);
    }
    let error = bind_error(&directory.path().join("missing").join("node.sock"));
    assert!(matches!(error, ShmError::System { .. }), "{error}");
}

#[test]
fn a_live_socket_is_refused_and_a_dead_one_replaced() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    leave_dead_socket(&path);
    assert!(path.exists());
    let absent = attach(&path, DEADLINE).err();
    assert!(matches!(absent, Some(ShmError::NoOwner { .. })), "{absent:?}");
    let (first, server) = serve(&path);

    let error = bind_error(&path);
    assert!(matches!(error, ShmError::AlreadyServed { .. }), "{error}");
    let attachment = attach(&path, DEADLINE).unwrap();
    assert_eq!(attachment.region().descriptor(), first.descriptor(), "the first was left alone");

    drop(server);
    let (second, _server) = serve(&path);
    let attachment = attach(&path, DEADLINE).unwrap();
    assert_eq!(attachment.region().descriptor(), second.descriptor());
}

#[test]
fn owners_that_start_at_once_leave_one_server() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    for _ in 0..100 {
        leave_dead_socket(&path);
        let together = Barrier::new(4);
        let servers: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                let region = Arc::new(OwnedRegion::create("racer", 64).unwrap());
                together.wait();
                RegionServer::bind(&path, region)
            };
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(servers.iter().filter(|server| server.is_ok()).count(), 1);
        assert!(attach(&path, DEADLINE).is_ok(), "the one that won is reachable");
        drop(servers);
        assert!(!path.exists());
    }
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    std::fs::write(&path, "precious").unwrap();
    let error = bind_error(&path);
    assert!(matches!(error, ShmError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let link = directory.path().join("link.sock");
    symlink(&path, &link).unwrap();
    let error = bind_error(&link);
    assert!(matches!(error, ShmError::NotASocket { .. }), "{error}");

    let long = directory.path().join("x".repeat(120));
    assert!(matches!(bind_error(&long), ShmError::PathTooLong { .. }));
    assert!(matches!(attach(&long, DEADLINE).err(), Some(ShmError::PathTooLong { .. })));
}

#[test]
fn a_server_removes_no_socket_but_its_own() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let (_region, server) = serve(&path);
    std::fs::remove_file(&path).unwrap();
    let (second, _second_server) = serve(&path);
    drop(server);
    let attachment = attach(&path, DEADLINE).unwrap();
    assert_eq!(attachment.region().descriptor(), second.descriptor());
}

#[test]
fn garbage_from_a_peer_ends_that_peer_alone() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let (region, _server) = serve(&path);
    let good = attach(&path, DEADLINE).unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], &[0]] {
        let mut noisy = UnixStream::connect(&path).unwrap();
        noisy.set_read_timeout(Some(DEADLINE)).unwrap();
        // The server may have hung up before all is written.
        let _ = noisy.write_all(garbage);
        let mut heard = Vec::new();
        // It ends with the end of the stream, or a reset because of unread bytes.
        let _ = noisy.read_to_end(&mut heard);
        assert!(heard.len() <= 128);
    }
    // Peers that vanish at once, without reading.
    for _ in 0..50 {
        drop(UnixStream::connect(&path).unwrap());
    }
    assert!(good.owner_alive());
    let late = attach(&path, DEADLINE).unwrap();
    late.region().write(0, 3).unwrap();
    assert_eq!(region.read(0), Ok(3));
}

#[test]
fn peers_beyond_the_limit_are_refused_until_one_leaves() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let _serving = serve(&path);
    let mut peers: Vec<_> = (0..MAX_PEERS).map(|_| attach(&path, DEADLINE).unwrap()).collect();
    let error = attach(&path, DEADLINE).err();
    let Some(ShmError::Refused { reason, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(*reason, Refusal::TooManyPeers);
    assert!(peers.iter().all(|peer| peer.owner_alive()), "the others keep what they have");

    peers.pop();
    eventually("a place is free", || match attach(&path, Duration::from_secs(1)) {
        Ok(_) => true,
        Err(ShmError::Refused { .. }) => false,
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn an_adopted_region_is_not_served_again() {
    use std::os::fd::AsFd;
    let directory = private_directory();
    let old = OwnedRegion::create("old", 64).unwrap();
    let adopted = OwnedRegion::adopt(old.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let path = directory.path().join("node.sock");
    let error = RegionServer::bind(&path, Arc::new(adopted)).err();
    assert!(matches!(error, Some(ShmError::AdoptedRegion)), "{error:?}");
    assert!(!path.exists());
}
