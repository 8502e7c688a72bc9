//! A version table on another machine, read over TCP: one connection for each thread and table.
//!
//! ```text
//! request ─► Run ─► submit ─┐                     ┌─► answers to those who wait
//! request ─► Run ─► submit ─┴─► driver: one send ─┘
//! ```
//!
//! What requests of one turn of the thread submit leaves together, and their batches are under way
//! at the same time. Whatever goes wrong, an answer that is late or a connection that breaks, means
//! that nothing holds: the server is asked, and its response is not stored.

use crate::sys;
use remote_memory::tcp::{Requester, RequesterSettings};
use remote_memory::{
    Completion, ConnectionState, OpError, OpResult, RegionDescriptor, Remote as _,
};
use remote_memory::{SubmitError, Ticket};
use shared_state::versions::{FarTable, Filled, Machine, Run, Slot, SlotBits, Want};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

/// The pause before another attempt to connect, the first time; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause: until then every response comes from its server.
const PAUSE_MAX: Duration = Duration::from_secs(1);

type Results = Vec<Result<OpResult, OpError>>;

/// Where a far table is.
#[derive(Clone, Debug)]
pub struct FarVersions {
    /// Its service.
    pub dial: RequesterSettings,
    /// The label of its region there.
    pub label: String,
    /// How large it is.
    pub bits: SlotBits,
    /// How long an answer may take before nothing holds.
    pub answer_within: Duration,
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(crate) struct FarLinks(RefCell<Vec<Rc<Link>>>);

impl FarLinks {
    /// The one to this table; the first who asks starts it.
    fn link(&self, far: &Arc<FarVersions>) -> Rc<Link> {
        let mut links = self.0.borrow_mut();
        if let Some(link) = links.iter().find(|link| Arc::ptr_eq(&link.far, far)) {
            return Rc::clone(link);
        }
        let (far, state) = (Arc::clone(far), RefCell::default());
        let link = Rc::new(Link { far, state, work: Notify::new() });
        // It ends with its thread, as the table does with the pool.
        tokio::task::spawn_local(drive(Rc::clone(&link)));
        links.push(Rc::clone(&link));
        link
    }

    /// See [`super::Versions::fill`].
    pub(super) async fn fill(&self, far: &Arc<FarVersions>) -> Option<Filled> {
        self.link(far).run(FarTable::fill).await?
    }

    /// See [`super::Versions::holds`].
    pub(super) async fn holds(
        &self,
        far: &Arc<FarVersions>,
        filled: Filled,
        slots: &[Slot],
    ) -> bool {
        let check = |table: &FarTable| table.check(filled, slots.to_vec());
        self.link(far).run(check).await.unwrap_or(false)
    }
}

/// One connection.
struct Link {
    far: Arc<FarVersions>,
    state: RefCell<State>,
    /// Rung when there is something to send.
    work: Notify,
}

#[derive(Default)]
struct State {
    /// Once it is up.
    requester: Option<Requester>,
    /// Once its header was read.
    table: Option<FarTable>,
    waiting: HashMap<Ticket, oneshot::Sender<Results>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("label", &self.far.label).finish_non_exhaustive()
    }
}

impl Link {
    /// Runs a machine to its end; nothing where the table does not answer.
    async fn run<M: Machine>(&self, begin: impl FnOnce(&FarTable) -> Run<M>) -> Option<M::Outcome> {
        let (mut run, descriptor) = {
            let state = self.state.borrow();
            let table = state.table.as_ref()?;
            (begin(table), table.descriptor().clone())
        };
        loop {
            let batch_ops_max = self.batch_ops_max()?;
            match run.next(batch_ops_max).ok()? {
                Want::Done(outcome) => return Some(outcome),
                Want::Batch(ops) => {
                    let answered = self.submit(&descriptor, ops).ok()??;
                    run.reply(&answered.await.ok()?).ok()?;
                }
            }
        }
    }

    fn batch_ops_max(&self) -> Option<usize> {
        let state = self.state.borrow();
        Some(state.requester.as_ref()?.capabilities().batch_ops_max)
    }

    fn submit(
        &self,
        descriptor: &RegionDescriptor,
        ops: Vec<remote_memory::Op>,
    ) -> Result<Option<oneshot::Receiver<Results>>, SubmitError> {
        let mut state = self.state.borrow_mut();
        let Some(requester) = &mut state.requester else { return Ok(None) };
        let ticket = requester.submit(descriptor.key, ops, self.far.answer_within)?;
        let (sender, answered) = oneshot::channel();
        state.waiting.insert(ticket, sender);
        self.work.notify_one();
        Ok(Some(answered))
    }

    /// Sends and receives what there is; whether anything came.
    fn poll(&self, done: &mut Vec<Completion>) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(requester) = &mut state.requester else { return false };
        requester.poll(done);
        let any = !done.is_empty();
        for Completion { ticket, results } in done.drain(..) {
            if let Some(waiter) = state.waiting.remove(&ticket) {
                // Who has gone does not need it.
                let _ = waiter.send(results);
            }
        }
        any
    }

    fn connection(&self) -> ConnectionState {
        let state = self.state.borrow();
        state.requester.as_ref().map_or(ConnectionState::Broken, Requester::connection)
    }

    /// What becomes readable when there is something to poll for.
    fn event(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let mut state = self.state.borrow_mut();
        let event = state.requester.as_mut().and_then(Requester::arm);
        let event = event.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        sys::watch(event.try_clone_to_owned()?)
    }

    fn arm(&self) {
        let mut state = self.state.borrow_mut();
        let _ = state.requester.as_mut().and_then(Requester::arm);
    }

    /// Nothing holds from now on.
    fn give_up(&self) {
        *self.state.borrow_mut() = State::default();
    }

    /// Opens the region once the connection is up; the answer to the reading of its header.
    fn ask_header(&self) -> Option<(RegionDescriptor, oneshot::Receiver<Results>)> {
        let descriptor = {
            let mut state = self.state.borrow_mut();
            let requester = state.requester.as_mut()?;
            let served = requester.served().iter();
            let found = served.filter(|region| region.label == self.far.label).last()?.clone();
            requester.open(&found).ok()?;
            found
        };
        let answered = self.submit(&descriptor, FarTable::header_batch()).ok()??;
        Some((descriptor, answered))
    }

    /// Takes the table's header.
    fn open(&self, descriptor: RegionDescriptor, header: &Results) -> Result<(), String> {
        let table = FarTable::open(descriptor, header).map_err(|error| error.to_string())?;
        if table.layout().bits() != self.far.bits {
            return Err("it has another size than `tags` says".to_owned());
        }
        self.state.borrow_mut().table = Some(table);
        Ok(())
    }
}

/// Connects, and connects again. Does not end.
async fn drive(link: Rc<Link>) {
    let mut pause = PAUSE_MIN;
    let (label, address) = (&link.far.label, link.far.dial.address);
    loop {
        match Requester::begin(link.far.dial.clone()) {
            Ok(requester) => {
                link.state.borrow_mut().requester = Some(requester);
                let why = serve(&link).await;
                let was_up = link.state.borrow().table.is_some();
                tracing::warn!(label, %address, why, "a version table is out of reach");
                if was_up {
                    pause = PAUSE_MIN;
                }
            }
            Err(error) => tracing::error!(label, %address, %error, "a version table"),
        }
        link.give_up();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Serves those who ask, until the connection breaks; why it did.
async fn serve(link: &Rc<Link>) -> String {
    let event = match link.event() {
        Ok(event) => event,
        Err(error) => return error.to_string(),
    };
    let (mut done, mut header) = (Vec::new(), None);
    let mut is_asked = false;
    loop {
        if link.poll(&mut done) {
            continue;
        }
        match link.connection() {
            ConnectionState::Broken => return why_broken(link),
            ConnectionState::Connecting => {}
            ConnectionState::Up if !is_asked => {
                is_asked = true;
                header = link.ask_header();
                if header.is_none() {
                    return "its owner does not serve it".to_owned();
                }
                continue;
            }
            ConnectionState::Up => {}
        }
        if let Some((descriptor, mut answered)) = header.take() {
            match answered.try_recv() {
                Ok(results) => match link.open(descriptor, &results) {
                    Ok(()) => tracing::info!(label = link.far.label, "a version table is read"),
                    Err(why) => return why,
                },
                Err(oneshot::error::TryRecvError::Empty) => header = Some((descriptor, answered)),
                Err(oneshot::error::TryRecvError::Closed) => return why_broken(link),
            }
        }
        link.arm();
        if link.poll(&mut done) {
            continue;
        }
        tokio::select! {
            ready = event.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => return error.to_string(),
            },
            () = link.work.notified() => {}
        }
    }
}

fn why_broken(link: &Link) -> String {
    let state = link.state.borrow();
    let why = state.requester.as_ref().and_then(Requester::why_broken);
    why.map_or_else(|| "it is broken".to_owned(), ToString::to_string)
}
