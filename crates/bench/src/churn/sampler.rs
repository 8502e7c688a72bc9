//! Asks a pool now and then, while load runs, what its looks cost.

use polder::control::{Request, Response, ask};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two questions: the pool averages over less than that.
const EVERY: Duration = Duration::from_millis(200);
/// How long one answer may take before it is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was sampled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The look loop's share of a core; percent.
    pub(crate) look_cpu_pct: Vec<f64>,
    /// The longest interval between looks; milliseconds.
    pub(crate) look_every_ms_longest: f64,
}

/// Samples on a thread of its own until finished.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Samples>,
}

impl Sampler {
    pub(crate) fn start(control: PathBuf) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let sample = move || {
            let mut samples = Samples::default();
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let Ok(Response::Status(report)) = ask(&control, &Request::Status, PATIENCE) else {
                    continue;
                };
                for edge in report.edges.iter().filter(|edge| edge.alive) {
                    samples.look_cpu_pct.push(edge.look_cpu_pct);
                    let longest = &mut samples.look_every_ms_longest;
                    *longest = longest.max(edge.look_every_ms);
                }
            }
            samples
        };
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(sample)?;
        Ok(Self { stop, thread })
    }

    pub(crate) fn finish(self) -> Samples {
        // A thread that panicked has said so; it has no samples.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_pool_there_are_no_samples() {
        let sampler = Sampler::start(PathBuf::from("/nonexistent/control.sock")).unwrap();
        std::thread::sleep(EVERY * 2);
        let samples = sampler.finish();
        assert!(samples.look_cpu_pct.is_empty());
    }
}
