//! How far a figure is: a bar on a terminal, a few plain lines elsewhere. Standard error only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Steps of the bar for each expected second.
const STEPS_PER_SECOND: f64 = 10.0;
/// Without a terminal a line is written at most so often.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// Progress towards an expected number of seconds.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    done: f64,
    expected: f64,
    last_line: Instant,
}

impl Progress {
    /// For work that should take `expected_s` seconds.
    pub(crate) fn new(expected_s: f64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(expected_s));
        Self { bar, done: 0.0, expected: expected_s.max(0.1), last_line: Instant::now() }
    }

    /// Says what is being done.
    pub(crate) fn say(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None if self.done == 0.0 || self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                let percent = (100.0 * self.done / self.expected).min(100.0);
                eprintln!("{percent:3.0} %  {what}");
            }
            None => {}
        }
    }

    /// So many of the expected seconds of work are done.
    pub(crate) fn did(&mut self, expected_s: f64) {
        self.done += expected_s;
        if let Some(bar) = &self.bar {
            bar.set_position((self.done * STEPS_PER_SECOND) as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(expected_s: f64) -> ProgressBar {
    let steps = (expected_s * STEPS_PER_SECOND).ceil() as u64;
    // Drawn only when it changes: a thread that redraws would be part of what is measured.
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(4));
    let template = "{bar:30} {percent:>3} %  {elapsed} of about {duration}  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
