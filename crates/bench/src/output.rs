//! Where a figure goes: a table on standard output, files in a folder, one line of JSON.

use crate::cli::FigureArguments;
use crate::machine::Setting;
use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use load::plot::Figure;
use load::stats::Spread;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Where the full form of a figure writes unless told otherwise.
const FOLDER: &str = "results";

/// Where one figure goes.
pub(crate) struct Output {
    figure: &'static str,
    folder: Option<PathBuf>,
    json: bool,
    pub(crate) quick: bool,
    pub(crate) setting: Setting,
}

impl Output {
    pub(crate) fn new(figure: &'static str, arguments: &FigureArguments) -> anyhow::Result<Self> {
        let default = (!arguments.quick).then(|| PathBuf::from(FOLDER));
        let folder = arguments.out.clone().or(default);
        if let Some(folder) = &folder {
            // Before anything is measured, so that minutes of work are not lost.
            fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        }
        let (json, quick) = (arguments.json, arguments.quick);
        Ok(Self { figure, folder, json, quick, setting: Setting::read() })
    }

    /// Prints the tables, writes table and JSON, prints the summary. `raw` is everything that was
    /// measured.
    pub(crate) fn finish(&self, text: &str, raw: &Value, summary: &Value) -> anyhow::Result<()> {
        let setting = &self.setting;
        let head = format!("{}\n{}\n", setting.line(), setting.command);
        println!("{head}\n{text}");
        if let Some(folder) = &self.folder {
            // For people first; the raw data, which nobody reads line by line, in one.
            let json = format!(
                "{{\n\"setting\": {},\n\"summary\": {},\n\"figure\": {raw}\n}}\n",
                serde_json::to_string_pretty(setting)?,
                serde_json::to_string_pretty(summary)?,
            );
            self.write("json", &json)?;
            let table = format!("# {}\n\n```text\n{head}\n{}\n```\n", self.figure, text.trim_end());
            self.write("md", &table)?;
            println!("written: {}/{}*", folder.display(), self.figure);
        }
        if self.json {
            println!("{summary}");
        }
        Ok(())
    }

    /// Writes a picture; `part` is added to the figure's name. A picture with nothing in it is
    /// said, and left out.
    pub(crate) fn picture(&self, part: &str, mut figure: Figure) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let below = format!("{}; {} cores", self.setting.cpu, self.setting.cores);
        let gap = if figure.subtitle.is_empty() { "" } else { "; " };
        figure.subtitle = format!("{}{gap}{below}", figure.subtitle);
        let path = folder.join(format!("{}-{part}.svg", self.figure));
        match figure.write(&path) {
            Err(load::plot::PlotError::Empty(title)) => eprintln!("nothing to draw for {title:?}"),
            drawn => drawn?,
        }
        Ok(())
    }

    fn write(&self, end: &str, text: &str) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(format!("{}.{end}", self.figure));
        fs::write(&path, text).with_context(|| format!("{}", path.display()))
    }
}

/// A table with its first column on the left and numbers on the right.
pub(crate) fn table<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(heads.into_iter().map(Into::into).collect::<Vec<String>>());
    for (place, column) in table.column_iter_mut().enumerate() {
        let side = if place == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    table
}

/// A median with its spread, as JSON; null where nothing was measured.
pub(crate) fn spread_json(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |spread| {
        json!({
            "median": round(spread.median), "low": round(spread.low), "high": round(spread.high),
            "count": spread.count,
        })
    })
}

/// Six significant digits: more are noise, and make files unreadable.
pub(crate) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(-12, 12));
    (value * scale).round() / scale
}

/// A number that may be missing, with so many decimals.
pub(crate) fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A number that may be missing, rounded; null if it is.
pub(crate) fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| json!(round(value)))
}

/// Text under a table.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}", line.as_ref());
    }

    pub(crate) fn table(&mut self, table: &Table) {
        self.line(table.trim_fmt());
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Anything serialisable as JSON; figures hold only plain data.
pub(crate) fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(folder: &std::path::Path) -> Output {
        let out = Some(folder.to_owned());
        let arguments = FigureArguments { quick: true, json: true, out };
        Output::new("test", &arguments).unwrap()
    }

    #[test]
    fn a_figure_leaves_its_table_and_its_raw_data() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(&folder.path().join("new"));
        output.finish("the table", &json!([1, 2]), &json!({ "moves": 3 })).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        let json: Value = serde_json::from_str(&read("test.json")).unwrap();
        assert_eq!(json["summary"]["moves"], 3);
        assert_eq!(json["figure"], json!([1, 2]));
        assert!(json["setting"]["cores"].as_u64().unwrap() >= 1);
        assert!(read("test.md").contains("the table"));
        output
            .picture(
                "empty",
                Figure::new(
                    "x",
                    load::plot::Panel::new(
                        load::plot::Shape::Lines,
                        load::plot::Axis::new("x"),
                        load::plot::Axis::new("y"),
                        vec![],
                    ),
                ),
            )
            .unwrap();
        assert!(!folder.path().join("new/test-empty.svg").exists());
    }

    #[test]
    fn a_quick_figure_writes_nothing_unless_told() {
        let arguments = FigureArguments { quick: true, json: false, out: None };
        assert_eq!(Output::new("test", &arguments).unwrap().folder, None);
    }

    #[test]
    fn numbers_are_rounded_to_what_they_are_worth() {
        assert_eq!(round(2.123_456_789), 2.123_46);
        assert_eq!(round(9_876_543.21), 9_876_540.0);
        assert_eq!(round(0.0), 0.0);
        assert_eq!(shown(Some(1.25), 1), "1.2");
        assert_eq!(shown(None, 1), "-");
        assert_eq!(number(None), Value::Null);
        assert_eq!(spread_json(Spread::of(&[1.0, 2.0, 4.0]))["median"], 2.0);
        assert_eq!(spread_json(None), Value::Null);
    }
}
