//! Runs a search and judges its end.

use stateright::{Checker, HasDiscoveries, Model};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A search that takes longer than this fails.
const TIME_MAX: Duration = Duration::from_secs(120);

/// The same for searches on demand.
const TIME_ON_DEMAND_MAX: Duration = Duration::from_secs(1_200);

/// As many as the smallest machine that runs the tests has cores.
const THREADS: usize = 2;

/// One search at a time: each uses all cores, and its time is limited.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Searches a large row completely where `POLDER_MODEL_FULL` is set; else says that it did not.
pub(crate) fn assert_complete_on_demand<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    if std::env::var_os("POLDER_MODEL_FULL").is_none() {
        println!("{name}: skipped: set POLDER_MODEL_FULL=1 to search this large row");
        return;
    }
    assert_complete_within(name, model, TIME_ON_DEMAND_MAX);
}

/// Searches everything that the budgets allow; fails on a violation or when time runs out.
pub(crate) fn assert_complete<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    assert_complete_within(name, model, TIME_MAX);
}

fn assert_complete_within<M>(name: &str, model: M, time_max: Duration)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let checker = model.checker().threads(THREADS).timeout(time_max).spawn_bfs().join();
    let took = start.elapsed();
    let (unique, generated) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {unique} states, {generated} generated, {:.1} s", took.as_secs_f64());
    // The checker calls itself done when its time is over, too.
    assert!(took < time_max, "{name}: cut off after {took:?}");
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("{name}: broken: {property}\n{path}");
    }
}

/// Searches until a property is broken; fails if it never is. The steps printed are those of the
/// last trace of the block in which the checker stopped: an upper bound of the shortest.
pub(crate) fn assert_broken_in<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let stop = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().finish_when(stop).timeout(TIME_MAX).spawn_bfs().join();
    let took = start.elapsed();
    let (unique, generated) = (checker.unique_state_count(), checker.state_count());
    let broken = checker.discovery(property).map(|path| path.into_actions());
    let steps = broken.as_ref().map_or(0, Vec::len);
    println!(
        "wrong variant: {name}: broken after {steps} steps, {unique} states, \
         {generated} generated, {:.1} s",
        took.as_secs_f64()
    );
    assert!(broken.is_some(), "{name}: the checker did not notice");
}
