//! Settings that change under a running loop.

use super::commands::Answer;
use super::host::Host;
use super::run::{Looper, LooperOptions};
use policy::Policy;
use std::fmt;

/// Other settings for a running loop. Which edge it is, how many nodes and sites there are, and
/// where their regions lie stays.
pub struct Update {
    /// Who decides.
    pub policy: Box<dyn Policy>,
    /// Everything else.
    pub options: LooperOptions,
}

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.policy.name();
        f.debug_struct("Update").field("policy", &policy).field("options", &self.options).finish()
    }
}

impl<H: Host> Looper<H> {
    /// Goes on under other settings from the next look on. Without a home, or while the home or
    /// another edge has other settings still, nothing moves.
    pub(super) fn update(&mut self, update: Update) -> Answer {
        let Update { policy, options } = update;
        let (old, new) = (&self.options, &options);
        let is_same_pool = old.core.edge == new.core.edge
            && old.incarnation == new.incarnation
            && old.core.sites.len() == new.core.sites.len()
            && old.nodes.len() == new.nodes.len();
        if !is_same_pool {
            let text = "these settings are for another edge or for other nodes or sites";
            return Answer::Refused(text.to_owned());
        }
        self.core.update(options.core.clone());
        self.pool.update(
            options.settings_hash,
            (options.slot_lease, options.node_dead),
            options.terms(),
        );
        self.pace.set_intervals(options.look_every, options.idle_look_every);
        self.slot_lease.set(options.slot_lease);
        self.policy = policy;
        self.options = options;
        Answer::Done
    }

    /// This edge ends: it decides nothing more, and agrees with whatever the home says, so that
    /// the others go on.
    pub(super) fn retire(&mut self) -> Answer {
        self.retired = true;
        Answer::Done
    }

    /// The hash that it tells the other edges.
    pub(super) fn told_hash(&self) -> u64 {
        let own = self.options.settings_hash;
        match &self.reach.memory.home {
            Some(home) if self.retired => home.settings_hash(),
            _ => own,
        }
    }
}
