//! A deadline that is moved far more often than it is reached.
//!
//! Moving tokio's timer for every request costs more than letting it ring early once in a while:
//! the sleep stays where it was armed, and is moved on only when it rings too early, or back when
//! an earlier deadline is wanted. In steady traffic a watchdog touches the timer wheel about once
//! per time-out instead of once per request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// Such a deadline. Nothing is allocated before the first wait.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Watchdog {
    /// Ready once `deadline` has passed; else the task is woken then, or somewhat earlier.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        ready!(sleep.as_mut().poll(cx));
        if sleep.deadline() >= deadline {
            return Poll::Ready(());
        }
        // It rang for an older deadline. The second poll registers the new one.
        sleep.as_mut().reset(deadline);
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn an_older_deadline_never_ends_a_later_wait() {
        run(async {
            let mut dog = Watchdog::default();
            let start = Instant::now();
            let early = start + Duration::from_millis(10);
            let late = start + Duration::from_millis(60);
            let pending = poll_fn(|cx| Poll::Ready(dog.poll_until(cx, early).is_pending())).await;
            assert!(pending);
            poll_fn(|cx| dog.poll_until(cx, late)).await;
            assert!(Instant::now() >= late);
        });
    }

    #[test]
    fn a_deadline_can_be_brought_forward() {
        run(async {
            let mut dog = Watchdog::default();
            let start = Instant::now();
            let late = start + Duration::from_secs(600);
            let _ = poll_fn(|cx| Poll::Ready(dog.poll_until(cx, late))).await;
            poll_fn(|cx| dog.poll_until(cx, start + Duration::from_millis(5))).await;
            assert!(Instant::now() < late);
        });
    }
}
