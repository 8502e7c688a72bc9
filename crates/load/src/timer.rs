//! Sleeping to the nanosecond inside a tokio runtime.
//!
//! Tokio's own timers tick in milliseconds, too coarse for a service time of 2 ms. Here all
//! sleepers of one runtime stand in a heap, and one task waits on a kernel timer (`timerfd`, high
//! resolution, absolute deadlines) for the earliest of them. When it fires, everything due is
//! woken at once, and the timer is set to the next deadline: one system call per wake-up, however
//! many sleepers.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use crate::clock::now_ns;

const SECOND_NS: u64 = 1_000_000_000;

/// A precise timer for the tasks of one current-thread runtime.
#[derive(Clone)]
pub(crate) struct PreciseTimer {
    shared: Rc<Shared>,
    // Aborts the driver when the last clone goes.
    _driver: Rc<Driver>,
}

struct Shared {
    fd: AsyncFd<OwnedFd>,
    state: RefCell<State>,
}

struct State {
    sleepers: BinaryHeap<Reverse<Sleeper>>,
    armed_ns: u64,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Sleeper {
    deadline_ns: u64,
    waker: Waker,
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.deadline_ns == other.deadline_ns
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> Ordering {
        self.deadline_ns.cmp(&other.deadline_ns)
    }
}

impl PreciseTimer {
    /// Makes the kernel timer and starts its task. Call inside a `LocalRuntime`.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let shared = Rc::new(Shared {
            fd: crate::sys::watch(fd)?,
            state: RefCell::new(State { sleepers: BinaryHeap::new(), armed_ns: u64::MAX }),
        });
        let driver = tokio::task::spawn_local(drive(Rc::clone(&shared)));
        Ok(Self { shared, _driver: Rc::new(Driver(driver)) })
    }

    /// Completes once the monotonic clock shows `deadline_ns`; at once when it already does.
    pub(crate) fn sleep_until(&self, deadline_ns: u64) -> SleepUntil {
        SleepUntil { shared: Rc::clone(&self.shared), deadline_ns, waker: None }
    }
}

/// See [`PreciseTimer::sleep_until`]. Dropping it early leaves its place in the heap until the
/// deadline; the wake-up then is harmless.
pub(crate) struct SleepUntil {
    shared: Rc<Shared>,
    deadline_ns: u64,
    waker: Option<Waker>,
}

impl Future for SleepUntil {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let known = self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if !known {
            let waker = context.waker().clone();
            self.waker = Some(waker.clone());
            self.shared.add(Sleeper { deadline_ns: self.deadline_ns, waker });
        }
        Poll::Pending
    }
}

impl Shared {
    fn add(&self, sleeper: Sleeper) {
        let deadline_ns = sleeper.deadline_ns;
        let mut state = self.state.borrow_mut();
        state.sleepers.push(Reverse(sleeper));
        if deadline_ns < state.armed_ns {
            state.armed_ns = deadline_ns;
            self.arm(deadline_ns);
        }
    }

    /// Wakes all that are due and sets the kernel timer to the next deadline.
    fn fire(&self) {
        let now = now_ns();
        let mut state = self.state.borrow_mut();
        while let Some(Reverse(first)) = state.sleepers.peek() {
            if first.deadline_ns > now {
                break;
            }
            if let Some(Reverse(due)) = state.sleepers.pop() {
                due.waker.wake();
            }
        }
        state.armed_ns = state.sleepers.peek().map_or(u64::MAX, |next| next.0.deadline_ns);
        if state.armed_ns != u64::MAX {
            self.arm(state.armed_ns);
        }
    }

    fn arm(&self, deadline_ns: u64) {
        // Zero would disarm the timer; the clock has long left zero behind.
        let deadline_ns = deadline_ns.max(1);
        let at = Timespec {
            tv_sec: i64::try_from(deadline_ns / SECOND_NS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(deadline_ns % SECOND_NS).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &once)
            .expect("the descriptor is a timer and the nanoseconds are below one second");
    }
}

/// The timer is edge-triggered in epoll and set anew after each wake-up, which clears its count of
/// expirations, so that it need not be read.
async fn drive(shared: Rc<Shared>) {
    while let Ok(mut ready) = shared.fd.readable().await {
        ready.clear_ready();
        shared.fire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::runtime::{Builder, LocalOptions};

    fn in_runtime<F: Future>(future: F) -> F::Output {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .expect("a runtime for the test");
        runtime.block_on(future)
    }

    #[test]
    fn sleepers_wake_in_order_and_never_early() {
        in_runtime(async {
            let timer = PreciseTimer::new().expect("a kernel timer");
            let start = now_ns();
            let order = Rc::new(RefCell::new(Vec::new()));
            let mut tasks = tokio::task::JoinSet::new();
            // Later deadlines first, so that the timer must be set to an earlier one.
            for step in (0..50u64).rev() {
                let (timer, order) = (timer.clone(), Rc::clone(&order));
                tasks.spawn_local(async move {
                    let deadline = start + 2_000_000 + step * 300_000;
                    timer.sleep_until(deadline).await;
                    assert!(now_ns() >= deadline, "woken early");
                    order.borrow_mut().push(step);
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.expect("no sleeper panics");
            }
            let order = order.borrow();
            assert_eq!(order.len(), 50);
        });
    }

    #[test]
    fn a_past_deadline_is_ready_at_once_and_a_dropped_sleeper_harms_nobody() {
        in_runtime(async {
            let timer = PreciseTimer::new().expect("a kernel timer");
            timer.sleep_until(now_ns()).await;
            let woken = Rc::new(Cell::new(false));
            let deadline = now_ns() + 50_000_000;
            let dropped = {
                let (timer, woken) = (timer.clone(), Rc::clone(&woken));
                tokio::task::spawn_local(async move {
                    timer.sleep_until(deadline).await;
                    woken.set(true);
                })
            };
            // One turn for the task to fall asleep.
            tokio::task::yield_now().await;
            dropped.abort();
            timer.sleep_until(deadline + 1_000_000).await;
            assert!(!woken.get(), "the aborted task did not go on");
        });
    }

    #[test]
    fn precision_is_far_below_a_millisecond() {
        in_runtime(async {
            let timer = PreciseTimer::new().expect("a kernel timer");
            let mut late = Vec::new();
            for _ in 0..100 {
                let deadline = now_ns() + 700_000;
                timer.sleep_until(deadline).await;
                late.push(now_ns() - deadline);
            }
            late.sort_unstable();
            // A quarter of the sleeps, so that a machine busy with other work passes too; a
            // millisecond wheel could not do it for any but a few.
            assert!(late[25] < 300_000, "lower quartile {} ns late", late[25]);
        });
    }
}
