//! Table, raw data and the summary.

use super::measure::Races;
use super::plan::{AT_ONCE, CHANGE_AFTER, Dialect, RENDER};
use super::run::Results;
use crate::output::{Text, number, plain, shown, table};
use serde_json::{Value, json};

/// Of Varnish's races, so many must be lost, or the races show nothing.
const SHOWN_SHARE: f64 = 25.0 / 30.0;
/// What it means if they are not.
pub(super) const VOID: &str = "Varnish lost fewer than 25 of 30 races, so these show nothing";

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    text.line(format!(
        "The origin reads its data and renders for {} ms; {} ms after the read the data changes \
         and the cache is told.\nThen the page is asked for three times more: stale is a race with \
         an answer older than the data.\n{} races of each cache, {AT_ONCE} at a time, side by \
         side; {}.\n",
        RENDER.as_millis(),
        CHANGE_AFTER.as_millis(),
        results.plan.races,
        results.version,
    ));
    let mut rows = table(["", "told by", "races", "stale", "last answer from the cache %"]);
    let mut row = |name: &str, told: &str, races: usize, stale: usize, hits: Option<f64>| {
        let cells = [name, told, &races.to_string(), &stale.to_string(), &shown(hits, 1)];
        rows.add_row(cells.map(str::to_owned).to_vec());
    };
    let ours = &results.ours;
    row("Polder, strict", "begin, commit, end", ours.0.len(), ours.stale(), ours.hits_pct());
    for dialect in Dialect::ALL {
        let (races, stale) = results.varnish.by(dialect);
        let of_dialect = results.varnish.0.iter().filter(|race| race.dialect == Some(dialect));
        let hits = Races(of_dialect.copied().collect()).hits_pct();
        row("Varnish", dialect.name(), races, stale, hits);
    }
    text.table(&rows);
    let repeated = results.ours.repeated() + results.varnish.repeated();
    if repeated > 0 {
        text.line(format!("{repeated} races were run again: their change came too late"));
    }
    text.line(verdict(results));
    text.finish()
}

/// Whether Varnish lost enough races for them to show something.
pub(super) fn is_shown(results: &Results) -> bool {
    let races = results.varnish.0.len();
    races > 0 && results.varnish.stale() as f64 >= SHOWN_SHARE * races as f64
}

fn verdict(results: &Results) -> String {
    if !is_shown(results) {
        return format!("Void: {VOID}.");
    }
    let (stale, hits) = (results.ours.stale(), results.ours.hits_pct());
    if stale == 0 && hits == Some(100.0) {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: stale_ours {stale} (none), hits_ours_pct {} (100)", shown(hits, 1))
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    json!({
        "stale_ours": results.ours.stale(),
        "stale_varnish": results.varnish.stale(),
        "hits_ours_pct": number(results.ours.hits_pct()),
        "races": results.plan.races,
        "void": !is_shown(results),
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let by = |dialect: Dialect| {
        let (races, stale) = results.varnish.by(dialect);
        json!({ "told_by": plain(&dialect), "races": races, "stale": stale })
    };
    json!({
        "varnish_version": results.version,
        "repeated": results.ours.repeated() + results.varnish.repeated(),
        "varnish_by_dialect": Dialect::ALL.map(by),
        "ours": plain(&results.ours.0),
        "varnish": plain(&results.varnish.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::measure::Race;
    use super::super::plan::Plan;
    use super::*;

    fn results(ours: u64, lost: usize) -> Results {
        let race = |dialect, answer, is_hit| Race {
            dialect,
            attempts: 1,
            version: 1,
            answers: [answer; 3],
            is_hit,
        };
        let answer = |number| u64::from(number >= lost);
        let theirs = (0..30).map(|n| race(Some(Dialect::of_race(n)), answer(n), true));
        Results {
            quick: true,
            plan: Plan { races: 30 },
            ours: Races((0..30).map(|_| race(None, ours, ours > 0)).collect()),
            varnish: Races(theirs.collect()),
            version: "varnishd 7".to_owned(),
        }
    }

    #[test]
    fn races_that_varnish_wins_show_nothing() {
        assert!(is_shown(&results(1, 25)) && !is_shown(&results(1, 24)));
        let void = results(1, 0);
        assert!(verdict(&void).starts_with("Void") && summary(&void)["void"] == true);
        assert_eq!(verdict(&results(1, 30)), "All that was asked of this figure is met.");
        let line = verdict(&results(0, 30));
        assert!(line.contains("stale_ours 30") && line.contains("0.0 (100)"), "{line}");
    }

    #[test]
    fn the_table_has_a_row_for_each_way_to_tell() {
        let text = text(&results(1, 30));
        for dialect in Dialect::ALL {
            assert!(text.contains(dialect.name()), "{text}");
        }
        let summary = summary(&results(1, 29));
        assert_eq!((&summary["stale_ours"], &summary["stale_varnish"]), (&json!(0), &json!(29)));
        assert_eq!(summary["hits_ours_pct"], 100.0);
    }
}
