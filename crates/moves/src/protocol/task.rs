//! All machines under one roof, so that a shell has one loop.

use super::{
    Attempt, Bump, Claim, Close, Help, Join, Machine, Next, Outcome, Renew, Reply, SetFloor,
};

/// A machine to be run to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Step 1.
    Claim(Claim),
    /// Steps 2 and 3.
    Attempt(Attempt),
    /// Step 4.
    Close(Close),
    /// A free node joins.
    Join(Join),
    /// Somebody else's move is finished.
    Help(Help),
    /// A site gets a new epoch.
    Bump(Bump),
    /// A site's nodes get the present epoch.
    Renew(Renew),
    /// A guarantee changes.
    SetFloor(SetFloor),
}

impl Task {
    /// The word used in logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Attempt(_) => "attempt",
            Self::Close(_) => "close",
            Self::Join(_) => "join",
            Self::Help(_) => "help",
            Self::Bump(_) => "bump",
            Self::Renew(_) => "renew",
            Self::SetFloor(_) => "set-floor",
        }
    }
}

impl Machine for Task {
    fn next(&self) -> Next<Outcome> {
        match self {
            Self::Claim(machine) => machine.next(),
            Self::Attempt(machine) => machine.next(),
            Self::Close(machine) => machine.next(),
            Self::Join(machine) => machine.next(),
            Self::Help(machine) => machine.next(),
            Self::Bump(machine) => machine.next(),
            Self::Renew(machine) => machine.next(),
            Self::SetFloor(machine) => machine.next(),
        }
    }

    fn reply(&mut self, reply: Reply) {
        match self {
            Self::Claim(machine) => machine.reply(reply),
            Self::Attempt(machine) => machine.reply(reply),
            Self::Close(machine) => machine.reply(reply),
            Self::Join(machine) => machine.reply(reply),
            Self::Help(machine) => machine.reply(reply),
            Self::Bump(machine) => machine.reply(reply),
            Self::Renew(machine) => machine.reply(reply),
            Self::SetFloor(machine) => machine.reply(reply),
        }
    }
}
