//! The parent process of a pool: from its start, or from another program's, to its end.

use super::asking::{ParentHandler, Reports};
use super::child;
use super::parent::Parent;
use crate::control::Server;
use crate::handed;
use crate::metrics::MetricsServer;
use crate::runtime_dir::CONTROL_SOCKET;
use crate::settings::Settings;
use crate::status::StatusReport;
use anyhow::Context as _;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

pub use super::parent::UpOptions;

/// What the parent tells whoever started it.
pub trait Watcher {
    /// All nodes serve, all edges listen and writers may connect (or `missing` says what does not).
    fn ready(&mut self, report: &StatusReport, missing: &[String], after: Duration);
    /// The pool is about to stop.
    fn stopping(&mut self);
}

/// Runs a pool until SIGTERM or SIGINT; SIGHUP reloads it. Blocks.
pub fn run(
    settings: &Settings,
    options: &UpOptions,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<()> {
    child::runtime()?.block_on(async {
        let ends = child::ends()?;
        let parent = Parent::start(settings, options)?;
        serve(parent, ends, watcher, true).await
    })
}

/// Goes on with a pool that another program ran in this process, whose state is standard input.
/// With `is_trial` it only says whether it could. Blocks.
pub(crate) fn resume(is_trial: bool) -> anyhow::Result<()> {
    child::runtime()?.block_on(async {
        let ends = child::ends()?;
        let Some(parent) = Parent::resume(is_trial)? else { return Ok(()) };
        let finishing = Rc::clone(&parent);
        tokio::task::spawn_local(async move { finishing.finish_upgrade().await });
        serve(parent, ends, &mut Nobody, false).await
    })
}

/// Whoever started the pool reads no more.
struct Nobody;

impl Watcher for Nobody {
    fn ready(&mut self, _: &StatusReport, _: &[String], _: Duration) {}

    fn stopping(&mut self) {}
}

/// `is_new`: whether nothing serves yet. Then a child that can't start ends it all.
async fn serve(
    parent: Rc<Parent>,
    mut ends: child::Ends,
    watcher: &mut dyn Watcher,
    is_new: bool,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let control = Server::over(parent.control.try_clone()?, parent.path(CONTROL_SOCKET))?;
    let mut metrics = pin!(serve_metrics(&parent));
    let mut serving = pin!(control.run(ParentHandler(Rc::clone(&parent))));
    let mut ready = pin!(parent.ready(started));
    let mut failure = pin!(parent.failure());
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut told = false;
    let outcome = loop {
        tokio::select! {
            () = ends.wait() => break Ok(()),
            () = parent.stopped() => break Ok(()),
            () = &mut serving => {}
            error = &mut metrics => break error,
            _ = hang_up.recv() => Parent::reload_unasked(&parent),
            (report, missing) = &mut ready, if !told => {
                told = true;
                watcher.ready(&report, &missing, started.elapsed());
                if is_new {
                    handed::notify("READY=1");
                }
            }
            why = &mut failure, if is_new && !told => break Err(anyhow::anyhow!(why)),
        }
    };
    watcher.stopping();
    parent.stop().await;
    outcome
}

/// Serves `/metrics` and `/healthz` for as long as the pool runs.
async fn serve_metrics(parent: &Rc<Parent>) -> anyhow::Result<()> {
    let Some(metrics) = &parent.metrics else {
        return std::future::pending().await;
    };
    let listener = metrics.listener.try_clone().context("metrics can't be served")?;
    MetricsServer::over(listener)?.run(Reports(Rc::clone(parent))).await;
    Ok(())
}
