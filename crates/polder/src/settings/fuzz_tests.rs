//! Noise for settings: each finding has a place in what was given, and what is accepted survives
//! being shown and read again.

use super::{PROBLEMS_SHOWN_MAX, Problems, overlay, parse};
use fuzzing::{Random, Target};

/// What begins a line of an input that is no line of the file, but an argument.
const SET: &str = "--set ";

const TOKENS: [&str; 68] = [
    "\n[pool]\n",
    "\n[http]\n",
    "\n[health]\n",
    "\n[[edges]]\n",
    "\n[[sites]]\n",
    "\n[[nodes]]\n",
    "\n[[pool]]\n",
    "\n[sites]\n",
    "\n--set ",
    "pool.",
    "sites.shop.",
    "sites.0.",
    "nodes.n1.",
    "edges.0.",
    "name = \"shop\"\n",
    "name = \"blog\"\n",
    "policy = \"rigid\"\n",
    "mode = \"observe\"\n",
    "look_every_ms = 5\n",
    "hold_ms = 20\n",
    "high_load = 1.5\n",
    "light_load = nan\n",
    "metrics = \"off\"\n",
    "metrics = \"127.0.0.1:9\"\n",
    "runtime_dir = \"/tmp/x\"\n",
    "listen = [\"127.0.0.1:0\"]\n",
    "listen = [\"[::]:80\", \"[::]:80\"]\n",
    "threads = 2\n",
    "default_site = \"shop\"\n",
    "forwarded = \"append\"\n",
    "hosts = [\"a.example\", \"*.b\"]\n",
    "hosts = [\"[::1]\", \"\"]\n",
    "hard = 2\n",
    "max = 3\n",
    "nodes = 1\n",
    "soft = 3\n",
    "priority = 200\n",
    "p99_ms = 50\n",
    "classes = [\"gpu\"]\n",
    "classes = [\"ssd\", \"gpu\"]\n",
    "unfit_pct = 25\n",
    "capacity_pct = 250\n",
    "policy = \"slo\"\n",
    "balance = \"two-choices\"\n",
    "queue_max = 9\n",
    "command = [\"stub\", \"{port}\"]\n",
    "command = [\"{{x}\", \"{y}\"]\n",
    "start = \"on-assignment\"\n",
    "check = { path = \"/x\" }\n",
    "check = { tcp = true }\n",
    "host = \"10.0.0.1\"\n",
    "servers = { shop = \"10.0.0.1:1\" }\n",
    "max_in_flight = 8\n",
    "count = 16382\n",
    " = ",
    "= 0x7f\n",
    "= 1e400\n",
    "= 1979-05-27\n",
    "= \"\"\"\n",
    "'''",
    "\\u001b[2J",
    "\u{1b}[2J",
    "\"ü\"",
    "# comment\n",
    "{}",
    "[]",
    "true",
    "\u{feff}",
];

/// The file and the arguments of an input.
fn split(text: &str) -> (String, Vec<String>) {
    let arguments = text.lines().filter_map(|line| line.strip_prefix(SET));
    let file = text.split_inclusive('\n').filter(|line| !line.starts_with(SET));
    (file.collect(), arguments.map(str::to_owned).collect())
}

/// Each problem lies in the file or in an argument, and none paints the terminal.
fn check_places(problems: &Problems, file: &str, arguments: &[String]) {
    let overlays: Vec<String> = arguments.iter().map(|text| overlay::as_toml(text)).collect();
    for problem in &problems.0 {
        let place = &problem.place;
        let within = |text: &str| {
            // A text that ends with a line's end has one more line, an empty one.
            let line = text.split('\n').nth(place.line - 1);
            line.is_some_and(|line| place.column <= line.chars().count() + 1)
        };
        let found = match place.file.starts_with(SET) {
            true => overlays.iter().any(|text| within(text)),
            false => place.file == "file" && within(file),
        };
        assert!(found, "{place:?} is no place of {file:?} {arguments:?}");
    }
    let shown = problems.to_string();
    let odd = shown.chars().find(|letter| letter.is_control() && *letter != '\n');
    assert!(odd.is_none(), "{odd:?} in {shown:?}");
    assert!(problems.0.is_empty() || !shown.is_empty());
}

/// What the problems say, without what they cite: the same for like mistakes.
fn kinds(problems: &Problems) -> Vec<String> {
    let kind = |message: &str| message.split('`').step_by(2).collect::<String>();
    let mut kinds: Vec<String> = problems.0.iter().map(|p| kind(&p.message)).collect();
    kinds.sort();
    kinds.dedup();
    kinds.truncate(PROBLEMS_SHOWN_MAX);
    kinds
}

#[test]
fn fuzz_settings() {
    let check = |bytes: &[u8], _: &mut Random| {
        let (file, arguments) = split(&String::from_utf8_lossy(bytes));
        let checked = match parse("file", &file, &arguments) {
            Ok(checked) => checked,
            Err(problems) => {
                assert!(problems.any_error(), "refused without an error");
                check_places(&problems, &file, &arguments);
                return (false, kinds(&problems));
            }
        };
        assert!(!checked.warnings.any_error());
        check_places(&checked.warnings, &file, &arguments);
        let shown = checked.settings.to_toml();
        let again = match parse("shown", &shown, &[]) {
            Ok(again) => again.settings,
            Err(problems) => panic!("what is shown is refused:\n{problems}\n{shown}"),
        };
        assert_eq!(again, checked.settings, "{shown}");
        assert_eq!(again.pool_hash(), checked.settings.pool_hash());
        (true, kinds(&checked.warnings))
    };
    Target::new("settings", env!("CARGO_MANIFEST_DIR")).tokens(&TOKENS).smoke_cases(300).run(check);
}
