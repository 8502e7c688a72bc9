//! Options that change while the edge serves.
//!
//! Each thread has one [`Core`] at a time, under which it takes new connections and requests.
//! A change puts another in its place, with the same connections to servers, the same counters and
//! the same clients; whatever began under the old one ends under it. On the path of a request this
//! costs a count that only its thread touches.

use crate::cached;
use crate::core::{Core, Shared};
use crate::edge::StartError;
use crate::face::Dispatcher;
use crate::forward::Forwarder;
use crate::hosts::SiteMap;
use crate::labels::LabelRules;
use crate::options::{ForwardedTrust, Options, OptionsError, SiteOptions};
use crate::rate::Limiter;
use crate::sticky::Stickiness;
use crate::tls::Tls;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// How long a thread may take to use new options: it does so as soon as its tasks let it, within
/// milliseconds, on a machine that does anything at all.
const UPDATE_WITHIN: Duration = Duration::from_secs(5);

/// Why an edge goes on with the options that it has.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// An edge would not start with them. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] StartError),
    /// An edge has that from its start to its end. Nothing has changed.
    #[error("`{0}` can't change while the edge serves: start another edge")]
    Fixed(&'static str),
    /// A thread does not answer.
    #[error("a thread of the edge does not use the new options within {UPDATE_WITHIN:?}")]
    Stuck,
}

/// What one thread serves under now.
pub(crate) struct Live<D> {
    core: RefCell<Rc<Core<D>>>,
}

impl<D: Dispatcher> Live<D> {
    pub(crate) fn new(core: Rc<Core<D>>) -> Rc<Self> {
        Rc::new(Self { core: RefCell::new(core) })
    }

    /// For whatever begins now.
    pub(crate) fn core(&self) -> Rc<Core<D>> {
        Rc::clone(&self.core.borrow())
    }

    /// Follows changes until the edge is gone.
    pub(crate) async fn follow(self: Rc<Self>, mut changes: UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            for (shares, owed) in change.owed {
                tokio::task::spawn_local(forget(shares, owed));
            }
            let next = self.core().under(change.shared);
            self.core.replace(next);
            // Who waits may have lost patience.
            let _ = change.done.send(());
        }
    }
}

/// Takes shares out of use as clients give them back.
async fn forget(shares: Arc<Semaphore>, owed: u32) {
    // It is never closed, see `Shared`.
    if let Ok(given_back) = shares.acquire_many(owed).await {
        given_back.forget();
    }
}

/// Shares that are to be taken out of use once they are given back.
pub(crate) type Owed = (Arc<Semaphore>, u32);

/// New options on their way to a thread.
pub(crate) struct Change {
    shared: Arc<Shared>,
    /// Shares of clients that this thread takes out of use.
    owed: Vec<Owed>,
    done: mpsc::Sender<()>,
}

/// The edge's end of it all.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    threads: Vec<UnboundedSender<Change>>,
}

impl Changes {
    /// One more thread.
    pub(crate) fn add(&mut self) -> UnboundedReceiver<Change> {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        self.threads.push(sender);
        receiver
    }

    /// Tells all threads, and waits until they serve new requests under it. `owed`: see [`resize`].
    pub(crate) fn tell(
        &self,
        shared: &Arc<Shared>,
        mut owed: Vec<Owed>,
    ) -> Result<(), UpdateError> {
        let (done, told) = mpsc::channel();
        for thread in &self.threads {
            let owed = std::mem::take(&mut owed);
            let change = Change { shared: Arc::clone(shared), owed, done: done.clone() };
            // A thread that has ended serves nobody.
            let _ = thread.send(change);
        }
        drop(done);
        loop {
            match told.recv_timeout(UPDATE_WITHIN) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(UpdateError::Stuck),
            }
        }
    }
}

/// Options as the threads use them; `before` are those that the edge has.
pub(crate) fn shared(options: Options, before: Option<&Shared>) -> Result<Shared, StartError> {
    options.check()?;
    let connections = before.map_or_else(
        || Arc::new(Semaphore::new(options.connections_max)),
        |before| Arc::clone(&before.connections),
    );
    let upgraded = before.map_or_else(
        || Arc::new(Semaphore::new(options.upgraded_max)),
        |before| Arc::clone(&before.upgraded),
    );
    let cached = cached::cached(&options, before.and_then(|before| before.cached.as_ref()));
    Ok(Shared {
        sites: SiteMap::new(&options.sites, options.default_site)?,
        forwarder: Forwarder::new(options.forwarded, &options.via_name),
        labels: LabelRules {
            request_id: options.request_id,
            trusts_id: options.forwarded == ForwardedTrust::Append,
            trace: options.trace,
        },
        tls: Tls::new(&options)?,
        limiters: limiters(&options.sites, before),
        stickiness: stickiness(&options.sites)?,
        caching: cached::caching(&options, cached.as_ref()),
        cached,
        connections,
        upgraded,
        options,
    })
}

/// A site whose limits stay keeps what its clients have used up of them.
fn limiters(sites: &[SiteOptions], before: Option<&Shared>) -> Vec<Option<Arc<Limiter>>> {
    let of = |(place, site): (usize, &SiteOptions)| {
        let same = before
            .filter(|old| old.options.sites.get(place).is_some_and(|old| old.rate == site.rate));
        match same {
            Some(old) => old.limiters.get(place).cloned().flatten(),
            None => Limiter::new(&site.rate).map(Arc::new),
        }
    };
    sites.iter().enumerate().map(of).collect()
}

fn stickiness(sites: &[SiteOptions]) -> Result<Vec<Option<Stickiness>>, OptionsError> {
    let of = |site: &SiteOptions| {
        let Some(sticky) = &site.sticky else { return Ok(None) };
        let ready = Stickiness::new(sticky);
        ready.map(Some).ok_or_else(|| OptionsError::BadCookie(site.name.clone()))
    };
    sites.iter().map(of).collect()
}

/// What can't change: what sockets and counters are made for.
pub(crate) fn check_fixed(before: &Options, after: &Options) -> Result<(), UpdateError> {
    let named = |options: &Options| -> Vec<_> {
        options.sites.iter().map(|site| (site.id, site.name.clone())).collect()
    };
    let fixed = [
        ("listen", before.listen == after.listen),
        ("tls_listen", before.tls_listen == after.tls_listen),
        ("threads", before.threads == after.threads),
        ("sites", named(before) == named(after)),
        ("access_log", before.access_log == after.access_log),
    ];
    match fixed.iter().find(|(_, same)| !same) {
        Some((name, _)) => Err(UpdateError::Fixed(name)),
        None => Ok(()),
    }
}

/// Lets more clients in, or fewer: those that are connected stay. Which shares must be given back
/// before the next client is let in.
pub(crate) fn resize(shared: &Shared, before: &Options) -> Vec<Owed> {
    let after = &shared.options;
    let sizes = [
        (&shared.connections, before.connections_max, after.connections_max),
        (&shared.upgraded, before.upgraded_max, after.upgraded_max),
    ];
    let resized = sizes.map(|(shares, before_max, after_max)| {
        shares.add_permits(after_max.saturating_sub(before_max));
        let surplus = before_max.saturating_sub(after_max);
        let owed = surplus - shares.forget_permits(surplus);
        // The options keep it far below.
        (Arc::clone(shares), u32::try_from(owed).unwrap_or(u32::MAX))
    });
    resized.into_iter().filter(|(_, owed)| *owed > 0).collect()
}
