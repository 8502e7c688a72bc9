//! From the threads that serve to whoever carries invalidations out, and back.
//!
//! Carrying out waits for other processes, which no thread that serves does: it goes through a
//! bounded queue, and its answer comes back over a channel.

use pool_model::SiteId;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Invalidations that wait, of all threads of an edge: an application sends them one after the
/// other, and each has 40 KiB at most. The next one is refused.
pub const PURGES_MAX: usize = 256;

/// How long one waits before it is its turn. While an edge is stopped each takes seconds, and who
/// asks has long gone when it has waited for all before it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Said to those that a queue has no room or no time for.
const TOO_MANY: &str = "too many purges wait; try again soon";

/// What is to be invalidated of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidated {
    /// All of it.
    Everything,
    /// All responses for a URL, over TLS or not.
    Url {
        /// The host, with a port if the client's URL has one.
        authority: String,
        /// As the client would send it.
        path_and_query: String,
    },
    /// All that carry one of these tags.
    Tags(Vec<String>),
}

/// One invalidation that somebody waits for.
#[derive(Debug)]
pub struct Invalidation {
    /// The site.
    pub site: SiteId,
    /// What.
    pub what: Invalidated,
    /// Whether it may go on as stale, where the site allows the use of what is.
    pub is_soft: bool,
    since: Instant,
    answer: oneshot::Sender<Result<(), &'static str>>,
}

impl Invalidation {
    /// It holds everywhere from now on; or why nobody knows whether it does.
    pub fn done(self, how: Result<(), &'static str>) {
        // Whoever asked may be gone.
        let _ = self.answer.send(how);
    }
}

/// The end of those who ask.
#[derive(Clone, Debug)]
pub struct Invalidator(mpsc::Sender<Invalidation>);

impl Invalidator {
    /// Ready when it holds, or it is known that it may not.
    pub(crate) async fn tell(
        &self,
        site: SiteId,
        what: Invalidated,
        is_soft: bool,
    ) -> Result<(), &'static str> {
        let (answer, told) = oneshot::channel();
        let invalidation = Invalidation { site, what, is_soft, since: Instant::now(), answer };
        self.0.try_send(invalidation).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => TOO_MANY,
            mpsc::error::TrySendError::Closed(_) => "this edge is about to stop",
        })?;
        told.await.unwrap_or(Err("this edge is about to stop"))
    }
}

/// The end of who carries them out.
#[derive(Debug)]
pub struct Invalidations(mpsc::Receiver<Invalidation>);

impl Invalidations {
    /// The next one; none when nobody asks any more. Blocks: not for a thread with a runtime.
    pub fn wait(&mut self) -> Option<Invalidation> {
        self.wait_within(WAIT_MAX)
    }

    fn wait_within(&mut self, wait_max: Duration) -> Option<Invalidation> {
        loop {
            let next = self.0.blocking_recv()?;
            if next.since.elapsed() <= wait_max {
                return Some(next);
            }
            next.done(Err(TOO_MANY));
        }
    }
}

/// Both ends.
#[must_use]
pub fn invalidations() -> (Invalidator, Invalidations) {
    let (sender, receiver) = mpsc::channel(PURGES_MAX);
    (Invalidator(sender), Invalidations(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_and_a_full_queue_is_told() {
        let (invalidator, mut all) = invalidations();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let ask = |what: Invalidated| {
            let invalidator = invalidator.clone();
            local.spawn_local(async move { invalidator.tell(SiteId::MIN, what, false).await })
        };
        let asked: Vec<_> = (0..=PURGES_MAX).map(|_| ask(Invalidated::Everything)).collect();
        let serving = std::thread::spawn(move || {
            for _ in 0..PURGES_MAX - 1 {
                all.wait().unwrap().done(Ok(()));
            }
            all.wait().unwrap().done(Err("no"));
            // What still comes is lost with this end.
        });
        let answers: Vec<_> = local.block_on(&runtime, async {
            let mut answers = Vec::new();
            for asked in asked {
                answers.push(asked.await.unwrap());
            }
            answers
        });
        serving.join().unwrap();
        let count = |how| answers.iter().filter(|answer| **answer == how).count();
        assert!(count(Ok(())) >= PURGES_MAX - 1 && count(Err("no")) == 1, "{answers:?}");
        let last = local.block_on(&runtime, ask(Invalidated::Everything)).unwrap();
        assert_eq!(last, Err("this edge is about to stop"));
    }

    #[test]
    fn the_queue_is_bounded() {
        let (invalidator, _all) = invalidations();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut waiting = Vec::new();
            let told = loop {
                let ask = invalidator.tell(SiteId::MIN, Invalidated::Everything, false);
                let mut ask = Box::pin(ask);
                match std::future::poll_fn(|cx| std::task::Poll::Ready(ask.as_mut().poll(cx))).await
                {
                    std::task::Poll::Ready(told) => break told,
                    std::task::Poll::Pending => waiting.push(ask),
                }
            };
            assert_eq!(waiting.len(), PURGES_MAX);
            assert_eq!(told, Err(TOO_MANY));
        });
    }

    #[test]
    fn who_has_waited_for_too_long_is_told_so() {
        let (invalidator, mut all) = invalidations();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let serving = std::thread::spawn(move || all.wait_within(Duration::ZERO).is_none());
        let told = runtime.block_on(invalidator.tell(SiteId::MIN, Invalidated::Everything, false));
        assert_eq!(told, Err(TOO_MANY));
        drop(invalidator);
        assert!(serving.join().unwrap(), "it was handed out");
    }
}
