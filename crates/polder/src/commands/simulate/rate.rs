//! `--rate SITE=RATE`: made-up traffic as steps of rates. Pure.

use super::super::load::time_s;

/// Steps in which a rate that goes up and down is cut: each lasts a fiftieth of a round.
const STEPS: u32 = 50;
/// Steps of one site; beyond it the rounds are too short for the time.
const STEPS_MAX: usize = 1_000_000;

/// From a time on, so many requests in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) at_s: f64,
    pub(super) per_second: f64,
}

/// One round of a site's rate: how long each part lasts (none: for ever).
type Round = Vec<(f64, Option<f64>)>;

/// The site and its rate over `duration_s`.
pub(super) fn parse(text: &str, duration_s: f64) -> Result<(String, Vec<Step>), String> {
    let wrong = |what: &str| format!("--rate {text}: {what}");
    let (site, rate) = text.split_once('=').ok_or_else(|| wrong("write SITE=RATE"))?;
    if site.is_empty() {
        return Err(wrong("the site's name is missing"));
    }
    let mut round: Round = Vec::new();
    for part in rate.split(',') {
        add(part, &mut round).map_err(|what| wrong(&what))?;
    }
    if round.len() > 1 && round.iter().any(|(_, for_s)| for_s.is_none()) {
        return Err(wrong("of several rates each needs its time: 50@30s,400@10s"));
    }
    let steps = unroll(&round, duration_s).map_err(|what| wrong(&what))?;
    Ok((site.to_owned(), steps))
}

fn add(part: &str, round: &mut Round) -> Result<(), String> {
    let (rates, time) = match part.split_once('@') {
        Some((rates, time)) => (rates, Some(time_s(time)?)),
        None => (part, None),
    };
    if time.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3.2e9)) {
        return Err("a time must be longer than nothing".to_owned());
    }
    let rate = |text: &str| {
        let rate: Option<f64> = text.parse().ok();
        rate.filter(|rate| (0.0..=1e9).contains(rate))
            .ok_or_else(|| "a rate is a number of requests in a second, 0 to 1e9".to_owned())
    };
    match (rates.split_once(".."), time) {
        (None, time) => round.push((rate(rates)?, time)),
        (Some(_), None) => return Err("a rate that goes up and down needs a time: @60s".to_owned()),
        (Some((low, high)), Some(time)) => {
            let (low, high) = (rate(low)?, rate(high)?);
            for step in 0..STEPS {
                // Up in the first half, down in the second; a step has the rate of its middle.
                let at = (f64::from(step) + 0.5) / f64::from(STEPS);
                let height = 1.0 - (2.0 * at - 1.0).abs();
                round.push((low + (high - low) * height, Some(time / f64::from(STEPS))));
            }
        }
    }
    Ok(())
}

/// Repeats the round until the time is over.
fn unroll(round: &Round, duration_s: f64) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut at_s = 0.0;
    for &(per_second, for_s) in round.iter().cycle() {
        if at_s >= duration_s {
            break;
        }
        if steps.len() >= STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} changes of the rate"));
        }
        steps.push(Step { at_s, per_second });
        at_s += for_s.unwrap_or(f64::INFINITY);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_steps_that_repeat() {
        let (site, steps) = parse("shop=120", 60.0).unwrap();
        assert_eq!((site, steps), ("shop".to_owned(), vec![Step { at_s: 0.0, per_second: 120.0 }]));
        let (_, steps) = parse("a=50@30s,400@10s", 60.0).unwrap();
        let told: Vec<_> = steps.iter().map(|step| (step.at_s, step.per_second)).collect();
        assert_eq!(told, [(0.0, 50.0), (30.0, 400.0), (40.0, 50.0)]);
        let (_, steps) = parse("a=100..900@1m", 120.0).unwrap();
        assert_eq!(steps.len(), 100);
        let (least, most) = steps.iter().fold((f64::MAX, 0.0_f64), |(least, most), step| {
            (least.min(step.per_second), most.max(step.per_second))
        });
        assert!((116.0 - least).abs() < 1e-6 && (884.0 - most).abs() < 1e-6, "{least} {most}");
        let mean = steps.iter().map(|step| step.per_second).sum::<f64>() / 100.0;
        assert!((mean - 500.0).abs() < 1e-6);
    }

    #[test]
    fn nonsense_is_named() {
        for (text, what) in [
            ("shop", "write SITE=RATE"),
            ("=5", "name is missing"),
            ("a=b", "a rate is a number"),
            ("a=-1", "a rate is a number"),
            ("a=1..2", "needs a time"),
            ("a=1@5s,2", "each needs its time"),
            ("a=1@0s", "longer than nothing"),
            ("a=1..2@1x", "a time as"),
            ("a=1@0.00001s,2@0.00001s", "changes of the rate"),
        ] {
            let error = parse(text, 60.0).unwrap_err();
            assert!(error.contains(what) && error.contains(text), "{text}: {error}");
        }
    }
}
