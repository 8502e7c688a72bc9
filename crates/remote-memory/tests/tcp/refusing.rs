//! Who is turned away, and how both sides learn of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_memory::shm::OwnedRegion;
use remote_memory::tcp::{
    ConnectError, PEERS_MAX, Priority, Refusal, Requester, RequesterSettings, Responder,
    ResponderSettings, Security, ServeError, WireError,
};
use remote_memory::{Access, ConnectionState, Mapped, OpError, Remote, SubmitError};

use crate::proxy::{Proxy, Ways};
use crate::support::{
    Owner, PATIENCE, add, call, connect, eventually, next, read, sealed, securities, swap, write,
};

#[test]
fn another_key_is_refused_and_the_right_one_goes_on() {
    let owner = Owner::new(sealed(1));
    let mut peer = owner.peer();
    for _ in 0..3 {
        let refused = connect(owner.responder.address(), sealed(2)).map(drop).unwrap_err();
        let expected = Refusal::OtherKey;
        assert!(
            matches!(refused, ConnectError::Refused { refusal, .. } if refusal == expected),
            "{refused}"
        );
    }
    eventually("failures are counted", || owner.responder.counts().handshakes_failed == 3);
    call(&mut peer, owner.key(), vec![add(0, 1)])[0].as_ref().unwrap();
    owner.peer();
}

#[test]
fn one_side_that_encrypts_is_not_enough() {
    for (theirs, ours) in
        [(sealed(1), Security::PlainLoopback), (Security::PlainLoopback, sealed(1))]
    {
        let owner = Owner::new(theirs);
        let refused = connect(owner.responder.address(), ours).map(drop).unwrap_err();
        let ConnectError::Refused { refusal: Refusal::OtherSecurity, .. } = refused else {
            panic!("{refused}");
        };
    }
}

#[test]
fn plain_text_does_not_leave_the_machine() {
    let settings = ResponderSettings { security: Security::PlainLoopback, real_time: false };
    let refused = Responder::bind("0.0.0.0:0".parse().unwrap(), settings).map(drop);
    assert!(matches!(refused, Err(ServeError::PlainBeyondLoopback { .. })), "{refused:?}");
    let refused = connect("192.0.2.1:9".parse().unwrap(), Security::PlainLoopback).map(drop);
    assert!(matches!(refused, Err(ConnectError::PlainBeyondLoopback { .. })), "{refused:?}");
}

#[test]
fn an_address_that_fails_again_and_again_is_shut_out_for_a_while() {
    let owner = Owner::new(sealed(1));
    let mut peer = owner.peer();
    // More than an address may have in a second, quicker than that.
    let start = Instant::now();
    while owner.responder.counts().turned_away == 0 {
        assert!(start.elapsed() < PATIENCE, "nobody was turned away");
        assert!(connect(owner.responder.address(), sealed(2)).is_err());
    }
    // Who is in stays in, and the door opens again.
    call(&mut peer, owner.key(), vec![add(0, 1)])[0].as_ref().unwrap();
    eventually("the door opens", || connect(owner.responder.address(), sealed(1)).is_ok());
}

#[test]
fn a_changed_or_repeated_record_ends_the_connection() {
    for ways in
        [Ways { flip: Some(3), ..Ways::default() }, Ways { repeat: true, ..Ways::default() }]
    {
        let owner = Owner::new(sealed(1));
        let proxy = Proxy::to(owner.responder.address());
        let mut peer = owner.peer_by(proxy.address);
        assert!(call(&mut peer, owner.key(), vec![add(0, 1)])[0].is_ok());
        let (repeat, before) = (ways.repeat, owner.word(0));
        proxy.set(ways);
        peer.submit(owner.key(), vec![add(0, 1), read(0)], PATIENCE).unwrap();
        let results = next(&mut peer).results;
        if !repeat {
            assert_eq!(results, [Err(OpError::Disconnected), Err(OpError::Flushed)]);
        }
        eventually("the connection breaks", || {
            peer.poll(&mut Vec::new());
            peer.connection() == ConnectionState::Broken
        });
        assert!(matches!(
            peer.why_broken(),
            Some(ConnectError::Closed { .. } | ConnectError::System { .. })
        ));
        assert_eq!(owner.word(0), before + u64::from(repeat), "a forged record took effect");
    }
}

#[test]
fn who_says_nothing_loses_its_place() {
    let owner = Owner::new(sealed(1));
    let mut silent = TcpStream::connect(owner.responder.address()).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0, "the owner hangs up");
    eventually("it is counted", || owner.responder.counts().handshakes_failed == 1);
    // Something else than our protocol is not waited for.
    let mut other = TcpStream::connect(owner.responder.address()).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = Instant::now();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = other.read(&mut [0; 9]);
    assert!(start.elapsed() < PATIENCE);
    eventually("it is counted", || owner.responder.counts().handshakes_failed == 2);
}

#[test]
fn a_peer_gives_up_on_an_owner_that_does_not_greet() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect_max = Duration::from_millis(50);
    for security in securities() {
        let settings = RequesterSettings { address, security, connect_max };
        let refused = Requester::connect(settings).map(drop).unwrap_err();
        assert!(matches!(refused, ConnectError::TimedOut { .. }), "{refused}");
    }
    drop(listener);
    let refused = connect(address, sealed(1)).map(drop).unwrap_err();
    assert!(matches!(refused, ConnectError::System { .. }), "{refused}");
}

#[test]
fn an_owner_that_talks_nonsense_is_an_error_not_a_panic() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let _ = socket.write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    for security in securities() {
        let refused = connect(address, security).map(drop).unwrap_err();
        let ConnectError::Wire { cause: WireError::Magic { .. }, .. } = refused else {
            panic!("{refused}");
        };
    }
}

#[test]
fn there_are_places_for_so_many_peers() {
    let owner = Owner::new(Security::PlainLoopback);
    let peers: Vec<_> = (0..PEERS_MAX).map(|_| owner.peer()).collect();
    eventually("all are counted", || owner.responder.counts().peers == PEERS_MAX as u64);
    let refused = connect(owner.responder.address(), Security::PlainLoopback).map(drop);
    let Err(ConnectError::Refused { refusal: Refusal::TooManyPeers, .. }) = refused else {
        panic!("{refused:?}");
    };
    drop(peers);
    eventually("places get free", || {
        connect(owner.responder.address(), Security::PlainLoopback).is_ok()
    });
}

#[test]
fn a_region_for_reading_is_only_read() {
    let owner = Owner::new(sealed(1));
    let region = Arc::new(OwnedRegion::create("table", 64).unwrap());
    region.write(8, 7).unwrap();
    let shared = Arc::clone(&region) as Arc<dyn Mapped>;
    owner.responder.serve(Arc::clone(&shared), Access::ReadOnly).unwrap();
    let again = owner.responder.serve(shared, Access::ReadWrite);
    assert!(matches!(again, Err(ServeError::KeyTaken { .. })), "{again:?}");
    let key = region.descriptor().key;
    for (op, name) in
        [(write(8, 1), "write"), (swap(8, 7, 1), "compare-and-swap"), (add(8, 1), "fetch-and-add")]
    {
        let mut peer = connect(owner.responder.address(), sealed(1)).unwrap();
        assert_eq!(peer.served().len(), 2);
        peer.open(region.descriptor()).unwrap();
        let results = call(&mut peer, key, vec![read(8), op, read(8)]);
        assert!(results[0].is_ok());
        assert_eq!(results[1], Err(OpError::AccessDenied { op: name }));
        assert_eq!(results[2], Err(OpError::Flushed));
        let state = ConnectionState::Broken;
        let refused = peer.submit(key, vec![read(8)], PATIENCE);
        assert_eq!(refused, Err(SubmitError::NotConnected { state }));
        peer.reconnect();
        peer.finish_connecting().unwrap();
        assert!(call(&mut peer, key, vec![read(8)])[0].is_ok());
    }
    assert_eq!(region.read(8), Ok(7));
}

#[test]
fn a_service_that_wants_to_run_first_says_whether_it_does() {
    let settings = ResponderSettings { security: sealed(1), real_time: true };
    let responder = Responder::bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
    let region = Arc::new(OwnedRegion::create("first", 64).unwrap());
    responder.serve(Arc::clone(&region) as Arc<dyn Mapped>, Access::ReadWrite).unwrap();
    match responder.priority() {
        Priority::RealTime => {}
        Priority::Normal { why } => println!("skipped: real-time scheduling, {why}"),
    }
    let mut peer = connect(responder.address(), sealed(1)).unwrap();
    peer.open(region.descriptor()).unwrap();
    assert!(call(&mut peer, region.descriptor().key, vec![add(0, 1)])[0].is_ok());
}
