//! Requests for the same response at the same time, over all threads of an edge: who asks, who
//! waits, and how those who wait hear of it.

use cache::{Collapse, FlightId, Landing, Role, Ticket, Wake};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// What one that waited is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    LookUp,
    Alone,
    Lead,
}

/// What one that waited does now.
#[derive(Debug)]
pub(crate) enum Told {
    /// It looks up again.
    LookUp,
    /// It asks a server for itself.
    Alone,
    /// It asks a server, and those that waited with it wait for that.
    Lead(Lead),
}

/// What a request does that needs a server.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// It asks, for all that wait.
    Lead(Lead),
    /// It waits.
    Wait(Waiting),
    /// It asks for itself.
    Alone,
}

#[derive(Debug, Default)]
struct Inner {
    collapse: Collapse,
    waiting: HashMap<Ticket, oneshot::Sender<News>>,
    next: u64,
}

impl Inner {
    fn wake(&mut self, wake: Wake) {
        let (tickets, news) = match wake {
            Wake::LookUp(tickets) => (tickets, News::LookUp),
            Wake::Alone(tickets) => (tickets, News::Alone),
            Wake::Lead(ticket) => (vec![ticket], News::Lead),
            Wake::Nobody => return,
        };
        for ticket in tickets {
            if let Some(waiter) = self.waiting.remove(&ticket) {
                // Who leaves now finds the news in its channel: see the drop of `Waiting`.
                let _ = waiter.send(news);
            }
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<Inner>);

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that needs a server, and has waited `rounds` times already.
    pub(crate) fn arrive(self: &Arc<Self>, flight: FlightId, rounds: u32) -> Arrived {
        let mut inner = self.lock();
        inner.next += 1;
        let ticket = Ticket(inner.next);
        match inner.collapse.arrive(flight, ticket, rounds) {
            Role::Lead => Arrived::Lead(Lead::new(self, flight)),
            Role::Alone => Arrived::Alone,
            Role::Wait => {
                let (sender, news) = oneshot::channel();
                inner.waiting.insert(ticket, sender);
                let (flights, is_told) = (Arc::clone(self), false);
                Arrived::Wait(Waiting { flights, flight, ticket, news, is_told })
            }
        }
    }

    /// Flights and waiters now.
    pub(crate) fn held(&self) -> (usize, usize) {
        self.lock().collapse.held()
    }
}

/// Those who wait are told how this one's question ends. Dropped before, it hands the lead on.
#[derive(Debug)]
#[must_use = "dropped, it hands the lead on"]
pub(crate) struct Lead {
    flights: Arc<Flights>,
    flight: FlightId,
    landing: Option<Landing>,
}

impl Lead {
    fn new(flights: &Arc<Flights>, flight: FlightId) -> Self {
        Self { flights: Arc::clone(flights), flight, landing: None }
    }

    /// The question has come to its end.
    pub(crate) fn land(mut self, landing: Landing) {
        self.landing = Some(landing);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut inner = self.flights.lock();
        let wake = match self.landing {
            Some(landing) => inner.collapse.landed(self.flight, landing),
            None => inner.collapse.crashed(self.flight),
        };
        inner.wake(wake);
    }
}

/// A request that waits. Dropped, it leaves.
#[derive(Debug)]
pub(crate) struct Waiting {
    flights: Arc<Flights>,
    flight: FlightId,
    ticket: Ticket,
    news: oneshot::Receiver<News>,
    is_told: bool,
}

impl Waiting {
    /// Ready when it is this one's turn.
    pub(crate) async fn told(mut self) -> Told {
        let news = (&mut self.news).await;
        self.is_told = true;
        match news {
            Ok(News::LookUp) => Told::LookUp,
            Ok(News::Lead) => Told::Lead(Lead::new(&self.flights, self.flight)),
            // The sender is never dropped without a word; should it be, nobody asks for this one.
            Ok(News::Alone) | Err(_) => Told::Alone,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let mut inner = self.flights.lock();
        if inner.waiting.remove(&self.ticket).is_some() {
            inner.collapse.left(self.flight, self.ticket);
        } else if self.news.try_recv() == Ok(News::Lead) {
            // It was named between its client's end and now.
            let wake = inner.collapse.crashed(self.flight);
            inner.wake(wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cache::{Cache, Limits, Lookup, Mode, Request, Rules, Scheme, UnixMs};
    use http::{HeaderMap, Method};
    use pool_model::SiteId;

    fn flight() -> FlightId {
        let cache = Cache::<()>::new(&Limits::default());
        let rules = Rules { mode: Mode::Http, ..Rules::default() };
        let request = Request {
            site: SiteId::MIN,
            method: &Method::GET,
            scheme: Scheme::Http,
            authority: "a.example",
            path_and_query: "/",
            headers: &HeaderMap::new(),
            now: UnixMs(1),
            waited: false,
        };
        let Lookup::Fetch(fetch) = cache.lookup(&rules, &request) else { panic!("it is empty") };
        fetch.flight()
    }

    fn lead(arrived: Arrived) -> Lead {
        match arrived {
            Arrived::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    fn wait(arrived: Arrived) -> Waiting {
        match arrived {
            Arrived::Wait(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn told(waiting: Waiting) -> Told {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(waiting.told())
    }

    #[test]
    fn who_waits_looks_up_when_it_is_stored_and_goes_alone_when_not() {
        let (flights, flight) = (Arc::new(Flights::default()), flight());
        let first = lead(flights.arrive(flight, 0));
        let (second, third) = (flights.arrive(flight, 0), flights.arrive(flight, 0));
        assert_eq!(flights.held(), (1, 2));
        first.land(Landing::Stored);
        for waiter in [second, third] {
            assert!(matches!(told(wait(waiter)), Told::LookUp));
        }
        let first = lead(flights.arrive(flight, 0));
        let second = flights.arrive(flight, 0);
        first.land(Landing::NotStored);
        assert!(matches!(told(wait(second)), Told::Alone));
        assert_eq!(flights.held(), (0, 0));
    }

    #[test]
    fn a_lead_that_is_dropped_is_handed_on_also_past_one_that_leaves_at_that_moment() {
        let (flights, flight) = (Arc::new(Flights::default()), flight());
        let first = lead(flights.arrive(flight, 0));
        let gone = wait(flights.arrive(flight, 0));
        let (named, next) = (wait(flights.arrive(flight, 0)), wait(flights.arrive(flight, 0)));
        drop(gone);
        drop(first);
        // It was told, and does not hear it any more.
        drop(named);
        let Told::Lead(second) = told(next) else { panic!("it was not named") };
        assert_eq!(flights.held(), (1, 0));
        second.land(Landing::NotStored);
        assert_eq!(flights.held(), (0, 0));
    }
}
