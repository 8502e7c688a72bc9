//! Hits of the fast path: found, proved and counted as others, and written as text.

use super::{audit, now};
use crate::admission::rank_of;
use crate::attempt::Outgoing;
use crate::core::Core;
use crate::download::Meter;
use crate::face::Dispatcher;
use crate::wire::Client;
use bytes::Bytes;
use std::rc::Rc;
use tokio::time::Instant;

/// Answers a request if it is a hit that can be proved at once: writes the head of the response,
/// and sends it with its body. None, and nothing done or counted, if not.
pub(crate) fn answer_at_once<D: Dispatcher>(
    core: &Rc<Core<D>>,
    client: &Rc<Client>,
    outgoing: &mut Outgoing,
    head: &mut Vec<u8>,
    send: &mut dyn FnMut(&[u8], &Bytes),
) -> Option<()> {
    let slot = outgoing.slot;
    let caching = core.shared.caching[slot.0].as_ref()?;
    let (cache, rules) = (&caching.cached.cache, &caching.rules);
    let now = now();
    let request = caching.request_at(outgoing, now)?;
    let hit = cache.hit_now(rules, &request, |proof| caching.proves(proof) == Some(true))?;
    if let Some(limiter) = &core.shared.limiters[slot.0] {
        // Who asks too often is refused by `serve`, which asks again and is told the same.
        limiter.take(client.caller.address.ip(), Instant::now()).ok()?;
    }
    let site = &core.options().sites[slot.0];
    let mut meter = Meter::new(Rc::clone(core), Rc::clone(client), &outgoing.parts);
    meter.set_slot(slot);
    meter.set_rank(rank_of(&site.admission, &outgoing.parts, outgoing.head.target.path()));
    meter.set_cache("hit");
    outgoing.labels = meter.labels.clone();
    let request = caching.request_at(outgoing, now)?;
    audit::sample(caching, &meter, outgoing, &request, &hit);
    let (status, body) = cache.hit_written(rules, &request, &hit, head);
    meter.set_status(status);
    meter.write_label(head);
    head.extend_from_slice(b"\r\n");
    meter.count_response(body.len());
    send(head, &body);
    client.set_hit();
    Some(())
}
