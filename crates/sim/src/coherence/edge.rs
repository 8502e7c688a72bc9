//! An edge: its cache, who waits for what, and each request from its arrival to its answer.
//!
//! The order of calls is that of `edge::cached`; every operation on a word of the version table and
//! every message is an event of its own, and anything may happen between two of them.

use super::Flaw;
use super::options::{
    BODY_NS, CLIENT_LEAVES, FLEETING_NS, LOST_BATCH, ORIGIN_FAILS, QUESTIONS_MAX, RENDER_NS,
    VERDICT_NS, WIRE_NS,
};
use super::outcome::{How, Note};
use super::site::{LANGUAGES, slot_of_tags};
use super::table::{Running, summaries};
use super::world::{Due, World};
use bytes::Bytes;
use cache::{
    Cache, Collapse, Fetch, Fill, FlightId, Head, Hit, Landing, Limits, Lookup, Reply, Role,
    Scheme, Ticket, Wake,
};
use http::header::{ACCEPT_LANGUAGE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use http::{Method, StatusCode};
use pool_model::SiteId;
use shared_state::versions::{Check, Fill as Versions, Filled, Slot};

/// What an entry keeps to be proved by.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    filled: Filled,
    slots: Vec<Slot>,
}

impl Proof {
    fn check(&self, by: By) -> Running<Check> {
        let slots = match by {
            By::Summaries => summaries(&self.slots),
            By::Own => self.slots.clone(),
        };
        Running::new(Check::new(self.filled, slots))
    }
}

/// One edge, in one of its lives.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) life: u32,
    pub(super) is_up: bool,
    /// Whether the table is on another machine.
    pub(super) is_far: bool,
    /// The table that it has mapped.
    pub(super) table: Option<usize>,
    cache: Cache<Proof>,
    collapse: Collapse,
    /// For one of the wrong edges: what it found of which entry, and when.
    verdicts: Vec<(usize, usize, Filled, u64)>,
}

impl Edge {
    pub(super) fn new(life: u32, is_far: bool, table: Option<usize>) -> Self {
        // Everything fits: what has to go would depend on hashes, which no seed decides.
        let limits = Limits { memory_bytes: 32 << 20, entries_expected: 64, ..Limits::default() };
        let (cache, collapse) = (Cache::new(&limits), Collapse::default());
        Self { life, is_up: true, is_far, table, cache, collapse, verdicts: Vec::new() }
    }
}

/// The words that are to prove a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Those of its tags' groups, and its tags' own if these do not.
    Summaries,
    /// Those of its tags.
    Own,
}

/// How far a request is.
#[derive(Debug)]
enum Doing {
    LookUp,
    /// Reading the words of a hit.
    Check {
        hit: Hit<Proof>,
        by: By,
        run: Running<Check>,
        table: usize,
    },
    Checked {
        hit: Hit<Proof>,
        is_valid: bool,
    },
    Wait(FlightId),
    /// Reading the sequence; behind the response by one of the wrong edges.
    Versions {
        asked: Asked,
        run: Running<Versions>,
        table: usize,
    },
    /// The origin reads row after row.
    Render(Asked),
    /// The response's head reaches the edge.
    Respond(Asked),
    Body {
        fill: Box<Fill<Proof>>,
        body: Bytes,
        sent: usize,
    },
    Over,
}

/// A question to the origin.
#[derive(Debug)]
struct Asked {
    /// None: the request went past the cache.
    fetch: Option<Box<Fetch<Proof>>>,
    filled: Option<Filled>,
    shown: Vec<(usize, u32)>,
    is_answered: bool,
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) edge: usize,
    pub(super) page: usize,
    language: usize,
    headers: HeaderMap,
    /// What was committed when it arrived.
    arrived: Vec<u32>,
    rounds: u32,
    is_alone: bool,
    has_waited: bool,
    lead: Option<FlightId>,
    questions: usize,
    /// Whether its client is still there.
    is_here: bool,
    /// Whether nothing but a hit will do.
    must_hit: bool,
    doing: Doing,
}

/// How it goes on.
enum Then {
    In(u64, Doing),
    /// Somebody else wakes it.
    Wait(Doing),
    Over,
}

impl World {
    /// A request arrives at an edge.
    pub(super) fn arrive(&mut self, edge: usize, page: usize, language: usize, must_hit: bool) {
        let id = self.requests.len() as u32;
        self.counts.requests += 1;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static(LANGUAGES[language]));
        let language = if self.site.pages[page].has_languages { language } else { 0 };
        self.requests.push(Some(Box::new(Request {
            edge,
            page,
            language,
            headers,
            arrived: self.site.committed.clone(),
            rounds: 0,
            is_alone: false,
            has_waited: false,
            lead: None,
            questions: 0,
            is_here: true,
            must_hit,
            doing: Doing::LookUp,
        })));
        let after_ns = self.delays.between(FLEETING_NS.0, FLEETING_NS.1);
        self.after(after_ns, Due::Request(id));
        if !self.is_quiet && self.traffic.below(CLIENT_LEAVES) == 0 {
            let after_ns = self.traffic.between(0, 2 * RENDER_NS.1);
            self.after(after_ns, Due::Leave(id));
        }
    }

    /// The next step of a request.
    pub(super) fn advance(&mut self, id: u32) {
        let Some(mut request) = self.requests[id as usize].take() else { return };
        let then = match std::mem::replace(&mut request.doing, Doing::Over) {
            Doing::LookUp => self.look_up(id, &mut request),
            Doing::Check { hit, by, run, table } => self.check(&request, hit, by, run, table),
            Doing::Checked { hit, is_valid } => self.checked(id, &mut request, hit, is_valid),
            Doing::Versions { asked, run, table } => self.versions(&request, asked, run, table),
            Doing::Render(asked) => self.render(&request, asked),
            Doing::Respond(asked) => self.respond(&mut request, asked),
            Doing::Body { fill, body, sent } => self.body(&mut request, fill, body, sent),
            doing @ Doing::Wait(_) => Then::Wait(doing),
            Doing::Over => Then::Over,
        };
        match then {
            Then::In(after_ns, doing) => {
                request.doing = doing;
                self.requests[id as usize] = Some(request);
                self.after(after_ns, Due::Request(id));
            }
            Then::Wait(doing) => {
                request.doing = doing;
                self.requests[id as usize] = Some(request);
            }
            Then::Over => {}
        }
    }

    fn look_up(&mut self, id: u32, request: &mut Request) -> Then {
        let lookup = self.edges[request.edge].cache.lookup(&self.rules, &self.asked(request));
        self.follow(id, request, lookup)
    }

    /// Goes on with what a look-up has found.
    fn follow(&mut self, id: u32, request: &mut Request, lookup: Lookup<Proof>) -> Then {
        let Edge { table, is_far, .. } = self.edges[request.edge];
        match lookup {
            Lookup::Hit(hit) => {
                let (Some(proof), Some(table)) = (hit.proof(), table) else {
                    return Then::In(FLEETING_NS.0, Doing::Checked { hit, is_valid: false });
                };
                if self.flaw == Flaw::ValidatedBeforeArrival && self.found_lately(request, proof) {
                    return Then::In(FLEETING_NS.0, Doing::Checked { hit, is_valid: true });
                }
                // Elsewhere all words are read at once, so their number does not count.
                let by = if is_far { By::Own } else { By::Summaries };
                let run = proof.check(by);
                Then::In(self.way_ns(is_far), Doing::Check { hit, by, run, table })
            }
            Lookup::Fetch(fetch) => self.turn(id, request, fetch),
            Lookup::Bypass(_) => {
                self.land(request, Landing::NotStored, None);
                self.question(request, None)
            }
            // These edges have no disk.
            Lookup::OnDisk(on_disk) => self.follow(id, request, on_disk.otherwise()),
            Lookup::NotCached => {
                self.violated(format!("request {id} was told that there is nothing"));
                Then::Over
            }
        }
    }

    fn asked<'a>(&'a self, request: &'a Request) -> cache::Request<'a> {
        cache::Request {
            site: SiteId::MIN,
            method: &Method::GET,
            scheme: Scheme::Http,
            authority: "site.test",
            path_and_query: &self.paths[request.page],
            headers: &request.headers,
            now: self.unix(),
            waited: request.has_waited,
        }
    }

    fn found_lately(&self, request: &Request, proof: &Proof) -> bool {
        let found = (request.page, request.language, proof.filled);
        self.edges[request.edge].verdicts.iter().any(|&(page, language, filled, at_ns)| {
            (page, language, filled) == found && self.now_ns < at_ns + VERDICT_NS
        })
    }

    fn check(
        &mut self,
        request: &Request,
        hit: Hit<Proof>,
        by: By,
        mut run: Running<Check>,
        table: usize,
    ) -> Then {
        let edge = &mut self.edges[request.edge];
        let is_far = edge.is_far;
        if edge.table != Some(table) || self.batch_is_lost(is_far) {
            return Then::In(FLEETING_NS.1, Doing::Checked { hit, is_valid: false });
        }
        match run.step(&mut self.tables[table]) {
            None => Then::In(self.step_ns(), Doing::Check { hit, by, run, table }),
            Some(false)
                if by == By::Summaries
                    && let Some(proof) = hit.proof() =>
            {
                let (by, run) = (By::Own, proof.check(By::Own));
                Then::In(self.step_ns(), Doing::Check { hit, by, run, table })
            }
            Some(is_valid) => {
                if is_valid && !is_far {
                    let counts = &mut self.counts;
                    match by {
                        By::Summaries => counts.by_summaries += 1,
                        By::Own => counts.by_own_words += 1,
                    }
                }
                if let Some(proof) = hit.proof().filter(|_| is_valid) {
                    let found = (request.page, request.language, proof.filled, self.now_ns);
                    let verdicts = &mut self.edges[request.edge].verdicts;
                    verdicts.retain(|old| (old.0, old.1) != (found.0, found.1));
                    verdicts.push(found);
                }
                Then::In(self.way_ns(is_far), Doing::Checked { hit, is_valid })
            }
        }
    }

    fn checked(&mut self, id: u32, request: &mut Request, hit: Hit<Proof>, valid: bool) -> Then {
        let cache = &self.edges[request.edge].cache;
        let asked = self.asked(request);
        if valid {
            let body = cache.hit(&self.rules, &asked, &hit).body;
            self.land(request, Landing::Stored, Some(&body));
            let how = if request.has_waited { How::Collapsed } else { How::Hit };
            return self.deliver(request, &body, how);
        }
        let lookup = cache.refused(&self.rules, &asked, hit);
        self.counts.refused += 1;
        self.follow(id, request, lookup)
    }

    /// Waits for another request's response, or asks.
    fn turn(&mut self, id: u32, request: &mut Request, fetch: Box<Fetch<Proof>>) -> Then {
        if request.lead.is_none() && !request.is_alone && fetch.is_shared() {
            let collapse = &mut self.edges[request.edge].collapse;
            match collapse.arrive(fetch.flight(), Ticket(id.into()), request.rounds) {
                Role::Alone => {}
                Role::Lead => request.lead = Some(fetch.flight()),
                Role::Wait => {
                    self.counts.waited += 1;
                    return Then::Wait(Doing::Wait(fetch.flight()));
                }
            }
        }
        self.question(request, Some(fetch))
    }

    fn question(&mut self, request: &mut Request, fetch: Option<Box<Fetch<Proof>>>) -> Then {
        request.questions += 1;
        if request.questions > QUESTIONS_MAX {
            self.violated(format!("{QUESTIONS_MAX} questions for one request"));
            return Then::Over;
        }
        let asked = Asked { fetch, filled: None, shown: Vec::new(), is_answered: false };
        if self.flaw == Flaw::VersionWithResponse || asked.fetch.is_none() {
            return Then::In(self.wire_ns(), Doing::Render(asked));
        }
        self.read_versions(request, asked)
    }

    fn read_versions(&mut self, request: &Request, asked: Asked) -> Then {
        let Edge { table, is_far, .. } = self.edges[request.edge];
        match table {
            Some(table) => {
                let run = Running::new(Versions::default());
                Then::In(self.way_ns(is_far), Doing::Versions { asked, run, table })
            }
            None => Then::In(FLEETING_NS.0, self.behind_versions(asked)),
        }
    }

    fn versions(
        &mut self,
        request: &Request,
        mut asked: Asked,
        mut run: Running<Versions>,
        table: usize,
    ) -> Then {
        let Edge { table: now, is_far, .. } = self.edges[request.edge];
        if now == Some(table) && !self.batch_is_lost(is_far) {
            match run.step(&mut self.tables[table]) {
                None => return Then::In(self.step_ns(), Doing::Versions { asked, run, table }),
                Some(filled) => asked.filled = filled,
            }
        }
        let after_ns = self.way_ns(is_far) + if asked.is_answered { 0 } else { self.wire_ns() };
        Then::In(after_ns, self.behind_versions(asked))
    }

    fn behind_versions(&self, asked: Asked) -> Doing {
        if asked.is_answered { Doing::Respond(asked) } else { Doing::Render(asked) }
    }

    /// The origin reads a row, as it is committed now.
    fn render(&mut self, request: &Request, mut asked: Asked) -> Then {
        let page = &self.site.pages[request.page];
        if let Some(row) = page.next_row(&asked.shown) {
            asked.shown.push((row, self.site.committed[row]));
            let after_ns = self.delays.between(RENDER_NS.0, RENDER_NS.1);
            return Then::In(after_ns, Doing::Render(asked));
        }
        asked.is_answered = true;
        self.counts.origin += 1;
        if self.flaw == Flaw::VersionWithResponse && asked.fetch.is_some() {
            return self.read_versions(request, asked);
        }
        Then::In(self.wire_ns(), Doing::Respond(asked))
    }

    fn respond(&mut self, request: &mut Request, asked: Asked) -> Then {
        let page = &self.site.pages[request.page];
        let Some(fetch) = asked.fetch else {
            let body = page.body(&asked.shown, request.language);
            return self.deliver(request, &body, How::Bypassed);
        };
        let (cache, now) = (&self.edges[request.edge].cache, self.unix());
        if !self.is_quiet && self.delays.below(ORIGIN_FAILS) == 0 {
            if cache.failed(&self.rules, &fetch, now).is_some() {
                self.violated("something stood in for a failed server".to_owned());
            }
            self.land(request, Landing::NotStored, None);
            self.counts.failed += 1;
            return Then::Over;
        }
        // The origin goes by what it was sent.
        let sent = fetch.headers().get(ACCEPT_LANGUAGE);
        let language = LANGUAGES.iter().position(|&one| sent.is_some_and(|sent| sent == one));
        let language = language.filter(|_| page.has_languages).unwrap_or(0);
        let body = page.body(&asked.shown, language);
        let headers = page.headers(&asked.shown, &body);
        let known = fetch.headers().get(IF_NONE_MATCH);
        let same = known.is_some() && known == headers.get(ETAG);
        let status = if same { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let prove = |tags: &cache::Tags| {
            Some(Proof { filled: asked.filled?, slots: slot_of_tags(tags.iter()) })
        };
        let head = Head { status, headers };
        match cache.respond(&self.rules, fetch, head, now, prove) {
            Reply::Again(fetch) => self.question(request, Some(fetch)),
            Reply::Answer(answer) => {
                self.land(request, Landing::Stored, Some(&answer.body));
                self.deliver(request, &answer.body, How::Renewed)
            }
            Reply::Pass { fill: Ok(fill), .. } => {
                Then::In(self.body_ns(), Doing::Body { fill, body, sent: 0 })
            }
            Reply::Pass { fill: Err(why), .. } => {
                self.land(request, Landing::of(Err(why)), Some(&body));
                self.deliver(request, &body, How::Fetched)
            }
        }
    }

    fn body(
        &mut self,
        request: &mut Request,
        mut fill: Box<Fill<Proof>>,
        body: Bytes,
        sent: usize,
    ) -> Then {
        let end = if sent == 0 { body.len() / 2 } else { body.len() };
        fill.push(&body.slice(sent..end));
        if end < body.len() {
            return Then::In(self.body_ns(), Doing::Body { fill, body, sent: end });
        }
        let stored = self.edges[request.edge].cache.finish(&self.rules, *fill, self.unix());
        self.counts.stored += u64::from(stored.is_ok());
        self.land(request, Landing::of(stored), Some(&body));
        self.deliver(request, &body, How::Fetched)
    }

    /// A request that others wait for is done.
    fn land(&mut self, request: &mut Request, landing: Landing, body: Option<&Bytes>) {
        let Some(flight) = request.lead.take() else { return };
        let wake = self.edges[request.edge].collapse.landed(flight, landing);
        self.wake(flight, wake, body);
    }

    fn wake(&mut self, flight: FlightId, wake: Wake, body: Option<&Bytes>) {
        let (tickets, looks_up) = match wake {
            Wake::Nobody => return,
            Wake::LookUp(tickets) => (tickets, true),
            Wake::Alone(tickets) => (tickets, false),
            Wake::Lead(ticket) => {
                if let Some(request) = &mut self.requests[ticket.0 as usize] {
                    request.lead = Some(flight);
                }
                (vec![ticket], false)
            }
        };
        for ticket in tickets {
            let Some(mut request) = self.requests[ticket.0 as usize].take() else { continue };
            if let Some(body) = body.filter(|_| looks_up && self.flaw == Flaw::SharesUnchecked) {
                self.deliver(&mut request, body, How::Collapsed);
                continue;
            }
            request.rounds += u32::from(looks_up);
            request.has_waited = looks_up;
            request.is_alone = !looks_up && request.lead.is_none();
            request.doing = Doing::LookUp;
            self.requests[ticket.0 as usize] = Some(request);
            let after_ns = self.delays.between(FLEETING_NS.0, FLEETING_NS.1);
            self.after(after_ns, Due::Request(ticket.0 as u32));
        }
    }

    /// The answer reaches the client: is it as new as what was committed when the client asked?
    fn deliver(&mut self, request: &mut Request, body: &Bytes, how: How) -> Then {
        if !request.is_here {
            self.counts.left += 1;
            return Then::Over;
        }
        self.counts.answered(how);
        let (edge, page) = (request.edge, request.page);
        self.note(Note::Answer { edge, page, how, body: body.clone() });
        let fault = self.site.pages[page].fault(body, request.language, &request.arrived);
        if let Some(fault) = fault {
            self.violated(format!("{how:?} of page {page} at edge {edge}: {fault}"));
        }
        if request.must_hit && how != How::Hit {
            self.violated(format!("page {page} at edge {edge} is {how:?}, and nothing happens"));
        }
        Then::Over
    }

    /// A client goes away.
    pub(super) fn leave(&mut self, id: u32) {
        let Some(mut request) = self.requests[id as usize].take() else { return };
        let collapse = &mut self.edges[request.edge].collapse;
        request.is_here = false;
        match request.doing {
            // The rest is carried on for the cache.
            Doing::Body { .. } => {
                self.requests[id as usize] = Some(request);
                return;
            }
            Doing::Wait(flight) => collapse.left(flight, Ticket(id.into())),
            _ => {
                if let Some(flight) = request.lead.take() {
                    let wake = collapse.crashed(flight);
                    self.counts.leads_left += 1;
                    self.wake(flight, wake, None);
                }
            }
        }
        self.counts.left += 1;
    }

    /// An edge's process dies, and with it its cache and its requests.
    pub(super) fn crash_edge(&mut self, edge: usize) {
        if !self.edges[edge].is_up {
            return;
        }
        let life = self.edges[edge].life + 1;
        self.edges[edge] = Edge { is_up: false, ..Edge::new(life, self.edges[edge].is_far, None) };
        self.counts.edge_crashes += 1;
        self.note(Note::Edge { edge, is_up: false });
        for request in &mut self.requests {
            if request.as_ref().is_some_and(|request| request.edge == edge) {
                *request = None;
                self.counts.cut_off += 1;
            }
        }
    }

    fn batch_is_lost(&mut self, is_far: bool) -> bool {
        let is_lost = is_far && !self.is_quiet && self.delays.below(LOST_BATCH) == 0;
        self.counts.lost_batches += u64::from(is_lost);
        is_lost
    }

    /// From an edge to the table, or back.
    fn way_ns(&mut self, is_far: bool) -> u64 {
        if is_far { self.wire_ns() } else { self.step_ns() }
    }

    fn wire_ns(&mut self) -> u64 {
        self.delays.between(WIRE_NS.0, WIRE_NS.1)
    }

    fn body_ns(&mut self) -> u64 {
        self.delays.between(BODY_NS.0, BODY_NS.1)
    }
}
