//! Answers the lines of one site's writers over its version table.
//!
//! ```text
//! begin:   a name of its own for each update;  table.begin;  remember it;  tell the token
//! end:     remembered: table.end.   else: by the ticket in the token (another process began it)
//! a connection ends: nothing.  What it began stays pending until its token ends it, from whatever
//!          connection, or until the owner says that it is decided
//! ```
//!
//! Answering costs some microseconds: one begin and end of one tag are about twenty operations on
//! the table's words, and nothing waits.

use crate::gate::{self, Entered, Gates};
use crate::line::{self, Code, Malformed, Request, Token, Whose};
use shared_state::versions::{
    BeginError, Decided, SettleError, Ticket, Update, VersionTable, WriterId,
};
use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::time::Duration;

/// Who sent a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The connection, by a number that no other has had.
    pub connection: u64,
    /// The process that made it.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Whether it may settle: the pool's own user, and root.
    pub is_owner: bool,
}

/// An update that began here.
struct Live {
    update: Update,
    ticket: Ticket,
    peer: Peer,
    since: Duration,
    is_connected: bool,
}

/// A writer whose update is not ended, as `pending` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWriter {
    /// Its name: eight hexadecimal digits.
    pub writer: String,
    /// Words of the table that its update holds.
    pub words: usize,
    /// For how long, in seconds; not known of updates that began at an earlier process.
    pub age_s: Option<u64>,
    /// The process that began it.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: Option<u32>,
    /// Whether the connection on which it began is still there.
    pub is_connected: bool,
}

impl PendingWriter {
    fn write(&self, out: &mut Vec<u8>) {
        let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        let (age, pid) = (number(self.age_s), number(self.pid.map(u64::from)));
        let uid = number(self.uid.map(u64::from));
        let connected = if self.is_connected { "connected" } else { "disconnected" };
        let (writer, words) = (&self.writer, self.words);
        // Writing to memory does not fail.
        let _ = writeln!(out, "{writer} {words} {age} {pid} {uid} {connected}");
    }

    /// Of a line of an answer.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let mut next = || parts.next();
        let writer = next()?.to_owned();
        let words = next()?.parse().ok()?;
        let mut number = || match next()? {
            "-" => Some(None),
            digits => digits.parse().ok().map(Some),
        };
        let (age_s, pid, uid): (Option<u64>, Option<u64>, Option<u64>) =
            (number()?, number()?, number()?);
        let narrow = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        let is_connected = next()? == "connected";
        Some(Self { writer, words, age_s, pid: narrow(pid), uid: narrow(uid), is_connected })
    }
}

/// Whether a line has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answered {
    /// It has.
    Now,
    /// It will be `ok` when [`Desk::take_admitted`] names the connection; whose next lines wait.
    Later,
}

/// One site's version table, the updates that began here, and the gates of its documents.
pub struct Desk {
    table: VersionTable,
    live: HashMap<WriterId, Live>,
    /// Writers of updates that began at an earlier process.
    inherited: HashSet<WriterId>,
    next: u32,
    gates: Gates,
    /// Connections whose wait at a gate is over.
    admitted: Vec<u64>,
}

impl Desk {
    /// Over a table that others may have used before. Names of updates begin at `first_name`,
    /// which is best drawn by chance.
    #[must_use]
    pub fn new(table: VersionTable, first_name: u32) -> Self {
        let inherited = table.undecided().into_iter().collect();
        let (live, gates, admitted) = (HashMap::new(), Gates::default(), Vec::new());
        Self { table, live, inherited, next: first_name, gates, admitted }
    }

    /// Answers a line, which comes without its line feed. `now` only serves to tell ages.
    pub fn answer(
        &mut self,
        line: &[u8],
        peer: &Peer,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Answered {
        let answered = match line::parse(line) {
            Ok(request) => self.carry_out(&request, peer, now, out),
            Err(malformed) => Err(Refused::from(malformed)),
        };
        answered.unwrap_or_else(|Refused { code, words }| {
            // Writing to memory does not fail.
            let _ = writeln!(out, "error {} {words}", code.name());
            Answered::Now
        })
    }

    /// Connections whose wait has come to its end since this was asked last.
    pub fn take_admitted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.admitted)
    }

    /// A connection has ended. What it began stays pending; its places in gates are free.
    pub fn disconnected(&mut self, connection: u64) {
        self.gates.disconnected(connection, &mut self.admitted);
        for live in self.live.values_mut().filter(|live| live.peer.connection == connection) {
            live.is_connected = false;
        }
    }

    fn carry_out(
        &mut self,
        request: &Request<'_>,
        peer: &Peer,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Result<Answered, Refused> {
        match request {
            Request::Begin(tags) => {
                let token = self.begin(tags, peer, now)?;
                let _ = writeln!(out, "ok {token}");
            }
            // An update that was rolled back ends as any other: see `VersionTable::abort`.
            Request::End(token) | Request::Abort(token) => {
                tell_end(self.end(token.0)?, out);
            }
            Request::Invalidate(tags) => {
                let (_, update) = self.begin_named(tags)?;
                self.table.end(update).map_err(failed)?;
                out.extend_from_slice(b"ok\n");
            }
            Request::Pending | Request::Settle(_) if !peer.is_owner => {
                return Err(Refused::new(
                    Code::Denied,
                    "only the pool's own user may ask for that",
                ));
            }
            Request::Pending => self.tell_pending(now, out),
            Request::Settle(whose) => {
                let settled = self.settle(*whose)?;
                let _ = writeln!(out, "ok {settled}");
            }
            Request::Enter(kind, document) => {
                if self.gates.enter(peer.connection, document, *kind)? == Entered::Wait {
                    return Ok(Answered::Later);
                }
                out.extend_from_slice(b"ok\n");
            }
            Request::Leave(kind, document) => {
                let admitted = &mut self.admitted;
                tell_end(self.gates.leave(peer.connection, document, *kind, admitted), out);
            }
        }
        Ok(Answered::Now)
    }

    fn begin(&mut self, tags: &[&[u8]], peer: &Peer, now: Duration) -> Result<Token, Refused> {
        let (writer, update) = self.begin_named(tags)?;
        let ticket = self.table.ticket(&update).expect("a line has a tag, so the update a word");
        let (peer, since) = (*peer, now);
        self.live.insert(writer, Live { update, ticket, peer, since, is_connected: true });
        Ok(Token(ticket))
    }

    fn begin_named(&mut self, tags: &[&[u8]]) -> Result<(WriterId, Update), Refused> {
        let writer = self.free_name();
        let slots = self.table.slots_of(tags);
        match self.table.begin(writer, &slots) {
            Ok(update) => Ok((writer, update)),
            Err(error @ BeginError::NoFreeRecord { .. }) => {
                Err(Refused::new(Code::Busy, &error.to_string()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// A name that no undecided update has. There are four thousand million, and a thousand
    /// updates at the most.
    fn free_name(&mut self) -> WriterId {
        loop {
            let name = WriterId(self.next);
            self.next = self.next.wrapping_add(1);
            if !self.live.contains_key(&name) && !self.inherited.contains(&name) {
                return name;
            }
        }
    }

    /// Ends an update; false where nothing of it is pending.
    fn end(&mut self, ticket: Ticket) -> Result<bool, Refused> {
        let is_live = self.live.get(&ticket.writer).is_some_and(|live| live.ticket == ticket);
        if let Some(live) = is_live.then(|| self.live.remove(&ticket.writer)).flatten() {
            return match self.table.end(live.update) {
                Ok(()) => Ok(true),
                Err(error) => {
                    // Its token, or the owner, settles what is left.
                    self.inherited.insert(ticket.writer);
                    Err(failed(error))
                }
            };
        }
        let ended = self.table.end_ticket(ticket, Decided).map_err(unsettled)?;
        if ended {
            self.inherited.remove(&ticket.writer);
        }
        Ok(ended)
    }

    fn tell_pending(&self, now: Duration, out: &mut Vec<u8>) {
        let mut words: HashMap<WriterId, usize> = HashMap::new();
        for pending in self.table.pending_updates() {
            *words.entry(pending.writer).or_default() += pending.slots.len();
        }
        let mut all: Vec<_> = words.into_iter().collect();
        all.sort_unstable();
        let is_open = if self.table.fill().is_some() { "open" } else { "closed" };
        let _ = writeln!(out, "ok {} {is_open}", all.len());
        for (writer, words) in all {
            let live = self.live.get(&writer);
            let told = PendingWriter {
                writer: Whose::Writer(writer).to_string(),
                words,
                age_s: live.map(|live| now.saturating_sub(live.since).as_secs()),
                pid: live.map(|live| live.peer.pid),
                uid: live.map(|live| live.peer.uid),
                is_connected: live.is_some_and(|live| live.is_connected),
            };
            told.write(out);
        }
    }

    fn settle(&mut self, whose: Whose) -> Result<usize, Refused> {
        let is_left = |writer: &WriterId| !self.live.get(writer).is_some_and(|l| l.is_connected);
        let writers = match whose {
            Whose::Writer(writer) => vec![writer],
            Whose::Disconnected => {
                self.table.undecided().into_iter().filter(is_left).collect::<Vec<_>>()
            }
            Whose::Earlier => {
                let was_open = self.table.fill().is_some();
                if !self.table.admit_hits(Decided) {
                    return Err(Refused::new(Code::Failed, "the version table was given up"));
                }
                return Ok(usize::from(!was_open));
            }
        };
        let (mut settled, mut stuck) = (0, None);
        for writer in writers {
            match self.table.settle(writer, Decided) {
                Ok(0) => {}
                Ok(_) => {
                    settled += 1;
                    self.live.remove(&writer);
                    self.inherited.remove(&writer);
                }
                Err(error) => stuck = Some(unsettled(error)),
            }
        }
        stuck.map_or(Ok(settled), Err)
    }
}

fn tell_end(is_ended: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is_ended { "ok\n" } else { "gone\n" }.as_bytes());
}

/// Why a line's wish was not fulfilled.
struct Refused {
    code: Code,
    words: String,
}

impl Refused {
    fn new(code: Code, words: &str) -> Self {
        Self { code, words: words.to_owned() }
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self { code: Code::Malformed, words: malformed.to_string() }
    }
}

impl From<gate::Refused> for Refused {
    fn from(refused: gate::Refused) -> Self {
        let code = match refused {
            gate::Refused::There => Code::Failed,
            gate::Refused::Full => Code::Busy,
        };
        Self { code, words: refused.to_string() }
    }
}

fn failed(error: impl std::error::Error) -> Refused {
    Refused { code: Code::Failed, words: error.to_string() }
}

fn unsettled(error: SettleError) -> Refused {
    match error {
        SettleError::Busy { writer } => {
            let writer = Whose::Writer(writer);
            let words = format!("writer {writer} is between two steps on a word; settle it too");
            Refused { code: Code::Failed, words }
        }
        other => failed(other),
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
