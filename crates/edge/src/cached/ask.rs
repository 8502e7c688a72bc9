//! Requests that the cache has no answer to: who asks a server, and what comes of it.

use super::carry::{Carried, Carrier};
use super::flights::{Arrived, Lead, Told};
use super::{Caching, Proof, answered, audit, disk, now};
use crate::answer::Reason;
use crate::attempt::Outgoing;
use crate::download::{Download, Flight, Meter};
use crate::face::Dispatcher;
use crate::head::{Framing, Head as RequestHead};
use crate::serve::{Refused, Want, end_connection, forward, head_of, judge, refuse, set_cookie};
use crate::wire::Client;
use cache::{
    Answer, Bypass, Deliver, Fetch, Fill, Forward, Head, Landing, Lookup, NotStored, Reply, Tags,
};
use http::{Request, Response, response};
use std::rc::Rc;

/// Questions to servers for one request, repetitions at other servers not counted: the first, one
/// with the fields that its response varies by, one without conditions; and one to spare.
const QUESTIONS_MAX: usize = 4;

/// How a request goes on that was no hit.
pub(crate) enum Asked<D: Dispatcher> {
    /// This ends it.
    Response(Box<Response<Download<D>>>),
    /// It turned out, while it waited, that it goes on as without a cache.
    Bypass(Meter<D>, Bypass),
}

/// What servers made of a question.
enum Outcome<D: Dispatcher> {
    Answer(Answer),
    /// A head, and a body that comes at the pace of its server.
    Carried(response::Parts, Carried),
    /// A response that is not for the cache.
    Passed(response::Parts, Flight<D>),
    Refused(Refused),
}

/// What a request has done about its response so far.
#[derive(Default)]
struct Turn {
    /// Others wait for it.
    lead: Option<Lead>,
    /// How often it has waited.
    rounds: u32,
    is_alone: bool,
}

impl Turn {
    /// Nothing if this one asks a server; else it has waited, and was told this.
    async fn asks(&mut self, caching: &Caching, fetch: &Fetch<Proof>) -> Result<(), Told> {
        if self.lead.is_some() || self.is_alone || !fetch.is_shared() {
            return Ok(());
        }
        match caching.cached.flights.arrive(fetch.flight(), self.rounds) {
            Arrived::Alone => Ok(()),
            Arrived::Lead(lead) => {
                self.lead = Some(lead);
                Ok(())
            }
            Arrived::Wait(waiting) => Err(waiting.told().await),
        }
    }
}

fn land(lead: Option<Lead>, landing: Landing) {
    if let Some(lead) = lead {
        lead.land(landing);
    }
}

/// Goes on with a request that was no hit.
pub(crate) async fn ask<D: Dispatcher>(
    mut meter: Meter<D>,
    outgoing: &mut Outgoing,
    want: Want,
    mut lookup: Lookup<Proof>,
) -> Asked<D> {
    let core = Rc::clone(&meter.core);
    let Some(caching) = &core.shared.caching[outgoing.slot.0] else {
        return Asked::Bypass(meter, Bypass { why: Forward::Bypass });
    };
    let (mut turn, mut waited) = (Turn::default(), false);
    loop {
        let Some(request) = caching.request(outgoing) else {
            return Asked::Bypass(meter, Bypass { why: Forward::Request });
        };
        let request = cache::Request { waited, ..request };
        let fetch = match lookup {
            Lookup::Fetch(fetch) => fetch,
            Lookup::Bypass(bypass) => {
                land(turn.lead, Landing::NotStored);
                meter.set_cache(bypass.why.token());
                return Asked::Bypass(meter, bypass);
            }
            Lookup::NotCached => {
                land(turn.lead, Landing::NotStored);
                return Asked::Response(Box::new(refuse(meter, Reason::NotCached.into(), false)));
            }
            Lookup::OnDisk(on_disk) => {
                lookup = disk::look_up(caching, outgoing, waited, on_disk).await;
                continue;
            }
            // It may have waited, or come from a lead: the tags must hold now.
            Lookup::Hit(hit) if !caching.holds(&core.far, &hit).await => {
                lookup = caching.cached.cache.refused(&caching.rules, &request, hit);
                continue;
            }
            Lookup::Hit(hit) => {
                land(turn.lead, Landing::Stored);
                meter.set_cache(if waited { "collapsed" } else { "hit" });
                audit::sample(caching, &meter, outgoing, &request, &hit);
                let answer = caching.cached.cache.hit(&caching.rules, &request, &hit);
                return Asked::Response(Box::new(answered(meter, answer)));
            }
        };
        match turn.asks(caching, &fetch).await {
            Ok(()) => {
                meter.set_cache(fetch.why().token());
                let lead = turn.lead.take();
                let outcome = question(caching, &mut meter, outgoing, want, fetch, lead).await;
                return Asked::Response(Box::new(respond(meter, outcome)));
            }
            Err(Told::LookUp) => (turn.rounds, waited) = (turn.rounds + 1, true),
            Err(Told::Alone) => (turn.is_alone, waited) = (true, false),
            Err(Told::Lead(lead)) => (turn.lead, waited) = (Some(lead), false),
        }
        lookup = look_again(caching, outgoing, waited);
    }
}

fn look_again(caching: &Caching, outgoing: &Outgoing, waited: bool) -> Lookup<Proof> {
    match caching.request(outgoing) {
        Some(request) => {
            let request = cache::Request { waited, ..request };
            caching.cached.cache.lookup(&caching.rules, &request)
        }
        None => Lookup::Bypass(Bypass { why: Forward::Request }),
    }
}

/// Asks servers until there is something to answer with.
async fn question<D: Dispatcher>(
    caching: &Caching,
    meter: &mut Meter<D>,
    outgoing: &mut Outgoing,
    want: Want,
    mut fetch: Box<Fetch<Proof>>,
    lead: Option<Lead>,
) -> Outcome<D> {
    let (cache, rules) = (&caching.cached.cache, &*caching.rules);
    for _ in 0..QUESTIONS_MAX {
        // Before the server is asked: an update from now on voids what it says.
        let (filled, key) = (caching.fill(&meter.core.far).await, fetch.key().clone());
        outgoing.parts.headers.clone_from(fetch.headers());
        let (mut parts, mut flight) = match forward(meter, outgoing, want).await {
            Ok(answer) => answer,
            Err(refused) => {
                land(lead, Landing::NotStored);
                let instead = cache.failed(rules, &fetch, now());
                return instead.map_or(Outcome::Refused(refused), Outcome::Answer);
            }
        };
        judge(&mut flight, parts.status);
        let headers = std::mem::take(&mut parts.headers);
        let head = Head { status: parts.status, headers };
        let prove = |tags: &Tags| caching.prove(filled, &key, tags);
        match cache.respond(rules, fetch, head, now(), prove) {
            Reply::Again(again) => {
                flight.leave(&meter.core);
                fetch = again;
            }
            Reply::Answer(answer) => {
                flight.leave(&meter.core);
                land(lead, Landing::Stored);
                return Outcome::Answer(answer);
            }
            Reply::Pass { head, deliver, fill } => {
                if head.status != parts.status {
                    // The phrase belonged to the status.
                    parts.extensions.clear();
                }
                (parts.status, parts.headers) = (head.status, head.headers);
                set_cookie(meter, want.stick, &flight, &mut parts);
                return pass(caching, meter, (parts, flight), deliver, fill, lead);
            }
        }
    }
    land(lead, Landing::NotStored);
    Outcome::Refused(Reason::BadResponse.into())
}

fn pass<D: Dispatcher>(
    caching: &Caching,
    meter: &Meter<D>,
    (parts, flight): (response::Parts, Flight<D>),
    deliver: Deliver,
    fill: Result<Box<Fill<Proof>>, NotStored>,
    mut lead: Option<Lead>,
) -> Outcome<D> {
    if let Err(why) = fill {
        land(lead.take(), Landing::of(Err(why)));
        if deliver == Deliver::Whole {
            return Outcome::Passed(parts, flight);
        }
    }
    let caching = caching.clone();
    let (carrier, carried) = Carrier::new(&meter.core, caching, flight, fill.ok(), lead, deliver);
    carrier.start();
    Outcome::Carried(parts, carried)
}

fn respond<D: Dispatcher>(mut meter: Meter<D>, outcome: Outcome<D>) -> Response<Download<D>> {
    let (mut parts, body) = match outcome {
        Outcome::Answer(answer) => return answered(meter, answer),
        Outcome::Refused(refused) => return refuse(meter, refused, false),
        Outcome::Carried(parts, carried) => (parts, Ok(carried)),
        Outcome::Passed(parts, flight) => (parts, Err(flight)),
    };
    end_connection(&meter, &mut parts.headers, false);
    let parts = head_of(&mut meter, parts);
    let download = match body {
        Ok(carried) => Download::carried(carried, meter),
        Err(flight) => Download::server(flight, meter),
    };
    Response::from_parts(parts, download)
}

/// Asks a server about a stale response that a client has already been given.
pub(super) fn refresh<D: Dispatcher>(
    caching: &Caching,
    meter: &Meter<D>,
    outgoing: &Outgoing,
    fetch: Box<Fetch<Proof>>,
) {
    // What comes of a request that is not shared would hardly be kept. And one refresh is enough:
    // who has waited as often as can be does not wait for it.
    let arrived =
        fetch.is_shared().then(|| caching.cached.flights.arrive(fetch.flight(), u32::MAX));
    let Some(Arrived::Lead(lead)) = arrived else { return };
    let core = Rc::clone(&meter.core);
    // With a watchdog of its own, and no connection.
    let client = Client::of_streams(Rc::clone(&outgoing.caller), core.options());
    let mut meter = Meter::unseen(core, Rc::new(client), outgoing.slot);
    let (caching, mut outgoing) = (caching.clone(), alike(outgoing));
    tokio::task::spawn_local(async move {
        let want = Want::default();
        let asked = question(&caching, &mut meter, &mut outgoing, want, fetch, Some(lead)).await;
        if let Outcome::Passed(_, flight) = asked {
            flight.leave(&meter.core);
        }
    });
}

/// A request to the same place, without fields.
pub(super) fn alike(outgoing: &Outgoing) -> Outgoing {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method.clone_from(&outgoing.parts.method);
    parts.uri.clone_from(&outgoing.parts.uri);
    parts.version = outgoing.parts.version;
    let head = RequestHead {
        host: outgoing.head.host.clone(),
        target: outgoing.head.target.clone(),
        framing: Framing::None,
        expects_continue: false,
        dropped: outgoing.head.dropped.clone(),
        upgrade: None,
    };
    Outgoing {
        parts,
        head,
        host: outgoing.host.clone(),
        caller: Rc::clone(&outgoing.caller),
        slot: outgoing.slot,
        upload: None,
        labels: outgoing.labels.clone(),
        announced: outgoing.announced,
        upgrade_share: None,
    }
}
