//! The descriptor that a sleeping requester watches: its socket and a timer for deadlines.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::time::timespec;

/// Shortest time that a timer is set to: zero would turn it off.
const SOON: Duration = Duration::from_nanos(1);

pub(super) struct Alarm {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer rings.
    rings: Option<Instant>,
    /// What is asked of the socket, if it is watched.
    interest: Option<EventFlags>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { epoll, timer, rings: None, interest: None })
    }

    /// Forgets the socket, which is about to be closed, or was replaced.
    pub(super) fn forget_socket(&mut self) {
        self.interest = None;
    }

    /// Makes the descriptor readable when the socket is ready, or at the given time.
    pub(super) fn set(
        &mut self,
        socket: Option<&TcpStream>,
        wants_space: bool,
        at: Option<Instant>,
    ) -> io::Result<BorrowedFd<'_>> {
        if let Some(socket) = socket {
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wants_space);
            if self.interest != Some(flags) {
                let data = EventData::new_u64(1);
                match self.interest {
                    None => epoll::add(&self.epoll, socket, data, flags)?,
                    Some(_) => epoll::modify(&self.epoll, socket, data, flags)?,
                }
                self.interest = Some(flags);
            }
        }
        self.set_timer(at)?;
        Ok(self.epoll.as_fd())
    }

    fn set_timer(&mut self, at: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        // A ring that comes too early costs less than setting the timer for each batch; one that
        // has come must be cleared.
        let holds = match (self.rings, at) {
            (Some(rings), Some(at)) => rings > now && rings <= at,
            (Some(rings), None) => rings > now,
            (None, at) => at.is_none(),
        };
        if holds {
            return Ok(());
        }
        let wait = at.map(|at| at.saturating_duration_since(now).max(SOON));
        let value = timespec(wait.unwrap_or(Duration::ZERO));
        let new = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new)?;
        self.rings = at;
        Ok(())
    }
}
