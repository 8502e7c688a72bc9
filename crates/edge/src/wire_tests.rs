//! Hits that are answered before hyper reads them, over a real socket, with someone who answers
//! whatever asks for `/hit`.

use super::*;
use std::future::{Future, poll_fn};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const HIT: &[u8] = b"GET /hit HTTP/1.1\r\n\r\n";
const MISS: &[u8] = b"GET /miss HTTP/1.1\r\n\r\n";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

struct Fake {
    body: Bytes,
    client: Rc<Client>,
    asked: Cell<usize>,
}

impl Answering for Fake {
    fn is_on(&self) -> bool {
        true
    }

    fn answer(&self, request: &[u8], send: &mut dyn FnMut(&[u8], &Bytes)) -> bool {
        self.asked.update(|count| count + 1);
        if request != HIT {
            return false;
        }
        self.client.request_begins();
        send(HEAD, &self.body);
        self.client.set_hit();
        self.client.request_ends();
        true
    }
}

/// A wire, who answers, and the client's end.
struct Ends {
    wire: ClientWire,
    fake: Rc<Fake>,
    peer: TcpStream,
}

impl Ends {
    async fn new(body: impl Into<Bytes>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, address) = listener.accept().await.unwrap();
        let caller = Rc::new(Caller::new(address, None));
        let client = Rc::new(Client::new(caller, &Options::default()));
        let share = std::sync::Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let stream = ClientStream::Plain(crate::stream::Socket::new(tcp));
        let idle = Duration::from_secs(5);
        let mut wire = ClientWire::new(stream, Rc::clone(&client), idle, share);
        let fake = Rc::new(Fake { body: body.into(), client, asked: Cell::new(0) });
        wire.answer_by(Rc::clone(&fake) as Rc<dyn Answering>);
        Self { wire, fake, peer }
    }

    /// What hyper reads next, up to so many bytes.
    async fn reads(&mut self, room: usize) -> Vec<u8> {
        let mut bytes = vec![0; room];
        let count = self.wire.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    }

    /// hyper has had a request served.
    fn served(&self, is_hit: bool) {
        self.fake.client.request_begins();
        if is_hit {
            self.fake.client.set_hit();
        }
        self.fake.client.request_ends();
    }

    /// Sends this; expects that hyper gets it as it is.
    async fn passes(&mut self, bytes: &[u8], is_hit: bool) {
        self.peer.write_all(bytes).await.unwrap();
        assert_eq!(self.reads(1_000).await, bytes);
        self.served(is_hit);
    }

    /// Sends a request; expects an answer, while hyper waits.
    async fn is_answered(&mut self) {
        self.peer.write_all(HIT).await.unwrap();
        let mut answer = vec![0; HEAD.len() + self.fake.body.len()];
        let mut room = [0; 1_000];
        tokio::select! {
            _ = self.wire.read(&mut room) => panic!("hyper has got it"),
            read = self.peer.read_exact(&mut answer) => read.unwrap(),
        };
        assert_eq!(answer, [HEAD, &self.fake.body].concat());
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn hits_are_answered_after_a_hit_and_all_else_is_passed_on() {
    run(async {
        let mut ends = Ends::new("page").await;
        // Nobody knows yet that there is anything to hit.
        ends.passes(HIT, true).await;
        for _ in 0..3 {
            ends.is_answered().await;
        }
        ends.passes(MISS, false).await;
        assert_eq!(ends.fake.asked.get(), 4);
        ends.passes(HIT, true).await;
        ends.is_answered().await;
        assert_eq!(ends.fake.asked.get(), 5);
    });
}

#[test]
fn nothing_is_answered_while_hyper_may_hold_a_part_of_it() {
    run(async {
        let begun = [HIT, b"GET /hit HTT"].concat();
        let behind_a_bare_line_end = b"GET /hit HTTP/1.1\n\nGET /hit HTTP/1.1\r\n\r\n";
        let parts: [&[u8]; 4] = [&begun, b"GET /hit HT", &HIT.repeat(2), behind_a_bare_line_end];
        for first in parts {
            let mut ends = Ends::new("page").await;
            ends.passes(first, true).await;
            ends.passes(HIT, true).await;
            ends.passes(HIT, true).await;
            assert_eq!(ends.fake.asked.get(), 0);
            // Parked, and made anew.
            ends.wire.unread(Bytes::new());
            ends.is_answered().await;
            ends.wire.unread(Bytes::from_static(b"GET"));
            assert_eq!(ends.reads(1_000).await, b"GET");
            ends.passes(b" /hit HTTP/1.1\r\n\r\n", true).await;
            ends.passes(HIT, true).await;
        }
    });
}

#[test]
fn what_comes_during_a_request_is_passed_on() {
    run(async {
        let mut ends = Ends::new("page").await;
        ends.passes(HIT, true).await;
        ends.fake.client.request_begins();
        ends.fake.client.set_hit();
        ends.passes(HIT, true).await;
        ends.passes(HIT, true).await;
        assert_eq!(ends.fake.asked.get(), 0);
    });
}

#[test]
fn a_slow_reader_gets_all_of_an_answer_before_anything_else_is_read() {
    run(async {
        let body: Vec<u8> = (0..8_u32 << 20).map(|at| (at / 5) as u8).collect();
        let mut ends = Ends::new(body).await;
        ends.passes(HIT, true).await;
        ends.peer.write_all(HIT).await.unwrap();
        let mut room = [0; 1_000];
        let waited = tokio::time::timeout(Duration::from_millis(50), ends.wire.read(&mut room));
        assert!(waited.await.is_err());
        assert!(ends.wire.owed.is_some(), "no socket holds as much");
        poll_fn(|cx| Pin::new(&mut ends.wire).poll_flush(cx)).await.unwrap();
        assert!(ends.fake.client.idle_since().is_none(), "it is not waiting for a request");
        ends.peer.write_all(MISS).await.unwrap();
        let mut answer = vec![0; HEAD.len() + ends.fake.body.len()];
        let (read, passed) =
            tokio::join!(ends.peer.read_exact(&mut answer), ends.wire.read(&mut room));
        read.unwrap();
        assert!(answer[HEAD.len()..] == ends.fake.body);
        assert_eq!(&room[..passed.unwrap()], MISS);
    });
}

#[test]
fn an_end_waits_for_what_is_owed_and_a_client_that_takes_nothing_is_given_up() {
    run(async {
        for takes in [true, false] {
            let mut ends = Ends::new(vec![b'x'; 8 << 20]).await;
            ends.wire.stall = Stall::new(Duration::from_millis(100));
            ends.passes(HIT, true).await;
            ends.peer.write_all(HIT).await.unwrap();
            let mut room = [0; 1_000];
            let early = Duration::from_millis(20);
            assert!(tokio::time::timeout(early, ends.wire.read(&mut room)).await.is_err());
            if takes {
                let mut all = Vec::new();
                let (shut, read) =
                    tokio::join!(ends.wire.shutdown(), ends.peer.read_to_end(&mut all));
                shut.unwrap();
                assert_eq!(read.unwrap(), HEAD.len() + (8 << 20));
            } else {
                let error = ends.wire.read(&mut room).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            }
        }
    });
}
