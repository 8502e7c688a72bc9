//! When to beat: often while an edge watches, rarely else. Pure.
//!
//! An edge that has work rings every half second, when it wakes up and after a move; an agent that
//! was rung within the last second is watched.

use crate::lifecycle::Now;
use crate::options::{Options, ms};
use std::time::Duration;

/// How long a ring counts: two periods of a busy edge's rings, so that one may be missed.
const WATCHED_FOR: Duration = Duration::from_secs(1);
/// Agents of one machine start together; each shifts its idle beats by this much for each number
/// of its node, so that they do not all wake up at once. A prime, so that shifts differ.
const SPREAD: Duration = Duration::from_millis(61);

/// The beats of one agent.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    busy_period: Duration,
    idle_period: Duration,
    shift: Duration,
    edge_rings: u32,
    rung_at: Option<Now>,
    watched: bool,
    beat_at: Now,
}

impl Pulse {
    pub(crate) fn new(options: &Options, edge_rings: u32) -> Self {
        let idle_period = ms(options.idle_beat_ms);
        let shift = SPREAD * u32::from(options.node.get());
        // A period in ms fits 64 bits of ns for 500 years.
        let shift_ns = shift.as_nanos().checked_rem(idle_period.as_nanos()).unwrap_or(0);
        Self {
            busy_period: ms(options.beat_ms),
            idle_period,
            shift: Duration::from_nanos(shift_ns as u64),
            edge_rings,
            rung_at: None,
            watched: false,
            beat_at: Duration::ZERO,
        }
    }

    /// Notes how often edges have rung so far; tells whether one watches.
    pub(crate) fn hear(&mut self, edge_rings: u32, now: Now) -> bool {
        if edge_rings != self.edge_rings {
            (self.edge_rings, self.rung_at) = (edge_rings, Some(now));
        }
        let watched = self.rung_at.is_some_and(|at| now.saturating_sub(at) <= WATCHED_FOR);
        if watched != self.watched {
            // The promise changes, so the next beat comes now and says so.
            (self.watched, self.beat_at) = (watched, now);
        }
        watched
    }

    /// If a beat is due: the time within which the one after it will come.
    pub(crate) fn beat(&mut self, now: Now) -> Option<Duration> {
        if now < self.beat_at {
            return None;
        }
        let period = if self.watched { self.busy_period } else { self.idle_period };
        self.beat_at = now + period;
        if !self.watched && !self.shift.is_zero() {
            // The first idle beat comes early by the shift, which the later ones keep.
            self.beat_at -= std::mem::take(&mut self.shift).min(period);
        }
        Some(period)
    }

    /// When the next beat is due.
    pub(crate) fn next_due(&self) -> Now {
        self.beat_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool_model::NodeId;
    use std::path::Path;

    fn pulse(node: u16) -> Pulse {
        Pulse::new(&Options::new(NodeId::new(node).unwrap(), "n", Path::new("/nowhere")), 0)
    }

    /// The promises of `pulse` over a time in ms, rung at the given times.
    fn beats(pulse: &mut Pulse, until_ms: u64, rings: &[u64]) -> Vec<(u64, u64)> {
        let mut count = 0;
        let mut beats = Vec::new();
        for now in 0..=until_ms {
            count += rings.iter().filter(|&&at| at == now).count() as u32;
            pulse.hear(count, ms(now));
            if let Some(period) = pulse.beat(ms(now)) {
                beats.push((now, period.as_millis() as u64));
            }
        }
        beats
    }

    #[test]
    fn an_idle_agent_beats_rarely_and_promises_so() {
        assert_eq!(
            beats(&mut pulse(0), 1_600, &[]),
            [(0, 500), (500, 500), (1_000, 500), (1_500, 500)]
        );
    }

    #[test]
    fn agents_of_one_machine_do_not_beat_together() {
        assert_eq!(beats(&mut pulse(1), 1_000, &[]), [(0, 500), (439, 500), (939, 500)]);
    }

    #[test]
    fn a_ring_makes_it_beat_often_for_a_second() {
        let beats = beats(&mut pulse(0), 2_000, &[700]);
        assert_eq!(beats[..4], [(0, 500), (500, 500), (700, 10), (710, 10)]);
        let last = beats.iter().rposition(|(_, period)| *period == 10).unwrap();
        assert_eq!(beats[last].0, 1_700);
        assert_eq!(beats[last + 1], (1_701, 500), "the longer promise comes with a beat");
        // No promise is ever broken.
        for pair in beats.windows(2) {
            assert!(pair[1].0 - pair[0].0 <= pair[0].1, "{pair:?}");
        }
    }
}
