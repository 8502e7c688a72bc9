//! What all parts of the demo share: the screen, the time, the wish to stop.

use super::screen::Screen;
use super::text::Line;
use super::view::Progress;
use crate::rig::CpuSnapshot;
use load::generate::Cancel;
use std::io::Write;
use std::time::{Duration, Instant};

/// Between two looks at whether something is over.
const PAUSE_POLL: Duration = Duration::from_millis(20);

/// The demo's screen and clock.
pub(super) struct Stage<'a> {
    screen: Screen<Box<dyn Write + 'a>>,
    started: Instant,
    total: Duration,
    cancel: Cancel,
}

impl<'a> Stage<'a> {
    /// The clock starts now.
    pub(super) fn new(
        screen: Screen<Box<dyn Write + 'a>>,
        total: Duration,
        cancel: Cancel,
    ) -> Self {
        Self { screen, started: Instant::now(), total, cancel }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long the demo takes, about.
    pub(super) fn total(&self) -> Duration {
        self.total
    }

    pub(super) fn left(&self) -> Duration {
        self.total.saturating_sub(self.elapsed())
    }

    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(super) fn progress(&self, doing: &str) -> Progress {
        Progress { elapsed: self.elapsed(), total: self.total, doing: doing.to_owned() }
    }

    /// Whether pictures are drawn; if not, something is to be said now and then.
    pub(super) fn draws(&self) -> bool {
        self.screen.draws()
    }

    pub(super) fn draw(&mut self, picture: &[Line]) {
        self.screen.draw(picture);
    }

    pub(super) fn say(&mut self, lines: &[Line]) {
        self.screen.say(lines);
    }

    pub(super) fn keep_picture(&mut self) {
        self.screen.keep();
    }

    /// Ends the show; see [`Screen::finish`].
    pub(super) fn finish(self) -> std::io::Result<()> {
        self.screen.finish()
    }

    /// Blocks for `length`, or until `is_over`.
    pub(super) fn pause(&self, length: Duration, is_over: impl Fn() -> bool) {
        let until = Instant::now() + length;
        while Instant::now() < until && !is_over() {
            std::thread::sleep(PAUSE_POLL.min(length));
        }
    }
}

/// The share of a run's time that the thread which waited longest for a CPU waited; percent.
/// `own_wait_ns` is that of the threads that make load.
pub(super) fn wait_pct(spent: &CpuSnapshot, own_wait_ns: u64) -> f64 {
    let own = own_wait_ns as f64 / 1e7 / spent.seconds().max(1e-3);
    spent.wait_pct_worst().max(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[test]
    fn a_pause_ends_when_it_is_over_or_when_what_it_waits_for_is() {
        let cancel = Cancel::default();
        let screen =
            Screen::new(Box::new(Vec::new()) as Box<dyn Write>, Style::PLAIN, cancel.clone());
        let stage = Stage::new(screen, Duration::from_secs(60), cancel);
        let before = Instant::now();
        stage.pause(Duration::from_secs(600), || true);
        stage.pause(Duration::from_millis(30), || false);
        assert!((Duration::from_millis(30)..Duration::from_secs(60)).contains(&before.elapsed()));
        assert!(
            stage.left() < Duration::from_secs(60) && stage.elapsed() >= Duration::from_millis(30)
        );
    }

    #[test]
    fn the_longest_wait_counts() {
        let none = CpuSnapshot::default();
        assert_eq!(wait_pct(&none, 0), 0.0);
        assert!(wait_pct(&none, 1_000_000) > 0.0);
    }
}
