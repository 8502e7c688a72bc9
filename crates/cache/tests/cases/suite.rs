//! The public suite http-tests/cache-tests, read as data and played against the cache alone, with
//! virtual time. Its server and its client are the few rules below; what needs a socket (interim
//! responses) is left to the edge's run of the suite itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cache::{Answer, Mode};
use http::Method;
use serde_json::Value;

use crate::world::{Response, START, World, field};

/// How many must pass, of 159 and 102: what passed when this was written, for the rules know no
/// chance. The one required test that fails shares a response with `Set-Cookie` that does not say
/// that it may be shared, which is never done here.
const REQUIRED_MIN: usize = 158;
const OPTIMAL_MIN: usize = 93;

/// Suites that need a socket.
const LEFT_OUT: [&str; 1] = ["interim"];

#[test]
fn the_public_suite_passes() {
    let Some(tests) = tests() else { return };
    let results: BTreeMap<&str, Result<(), String>> =
        tests.iter().map(|test| (text(test, "id"), Play::of(test))).collect();
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for test in &tests {
        let kind = test.get("kind").and_then(Value::as_str).unwrap_or("required");
        let passed = passes(&tests, &results, text(test, "id"));
        let count = counts.entry(kind).or_default();
        count.0 += usize::from(passed);
        count.1 += 1;
        if let (false, true) = (passed, kind != "check") {
            let id = text(test, "id");
            println!("{kind} {id}: {:?}", results[id]);
        }
    }
    println!("{counts:?}");
    assert!(counts["required"].0 >= REQUIRED_MIN, "required: {:?}", counts["required"]);
    assert!(counts["optimal"].0 >= OPTIMAL_MIN, "optimal: {:?}", counts["optimal"]);
}

/// Whether a test passed and all that it builds on.
fn passes(tests: &[Value], results: &BTreeMap<&str, Result<(), String>>, id: &str) -> bool {
    let Some(test) = tests.iter().find(|test| text(test, "id") == id) else { return false };
    let needs = list(test, "depends_on");
    results[id].is_ok() && needs.iter().all(|id| passes(tests, results, id.as_str().unwrap()))
}

/// All tests of the suite; none if it is not here.
fn tests() -> Option<Vec<Value>> {
    let Some(suite) = suite() else {
        println!(
            "skipped: no shared/suites/cache-tests above this crate, and CACHE_TESTS is unset"
        );
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/dump.mjs");
    let Ok(output) = Command::new("node").arg(script).arg(&suite).output() else {
        println!("skipped: node is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tests: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    Some(tests.into_iter().filter(|test| !LEFT_OUT.contains(&text(test, "suite"))).collect())
}

fn suite() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CACHE_TESTS") {
        return Some(PathBuf::from(path));
    }
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join("shared/suites/cache-tests")).find(|path| path.is_dir())
}

/// One test on its way.
struct Play<'a> {
    world: World,
    requests: &'a [Value],
    /// Numbers of the requests that the server saw.
    seen: BTreeSet<usize>,
    /// What the server sends unless the test says something else: 36 bytes, like a UUID.
    body: &'static str,
}

impl<'a> Play<'a> {
    fn of(test: &'a Value) -> Result<(), String> {
        let mut world = World::new(Mode::Http);
        world.rules.stale_while_revalidate = true;
        world.rules.client_directives = true;
        world.rules.stale_if_error_ms = 3_600_000;
        let requests = list(test, "requests");
        let mut play = Self {
            world,
            requests,
            seen: BTreeSet::new(),
            body: "0123456789abcdef0123456789abcdef0123",
        };
        for (at, config) in requests.iter().enumerate() {
            play.step(at).map_err(|why| format!("request {}: {why}", at + 1))?;
            if config.get("pause_after") == Some(&Value::Bool(true)) {
                play.world.wait_s(3);
            }
        }
        Ok(())
    }

    fn step(&mut self, at: usize) -> Result<(), String> {
        let config = &self.requests[at];
        let path = self.path(config);
        let lines = self.lines(config, "request_headers", &path);
        let disconnects = config.get("disconnect").is_some();
        self.world.server = (!disconnects).then(|| self.response(at, &path));
        let before = self.world.count();
        let method = config.get("request_method").and_then(Value::as_str).unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let lines: Vec<(&'static str, &str)> =
            lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = self.world.ask(&method, &path, &lines);
        let asked = self.world.count() > before;
        if asked {
            self.seen.insert(at);
        }
        self.check(at, &answer, asked, &path)
    }

    fn path(&self, config: &Value) -> String {
        let file = config.get("filename").and_then(Value::as_str);
        let query = config.get("query_arg").and_then(Value::as_str);
        let mut path = "/test/uuid".to_owned();
        path.push_str(&file.map(|file| format!("/{file}")).unwrap_or_default());
        path.push_str(&query.map(|query| format!("?{query}")).unwrap_or_default());
        path
    }

    /// Fields, with dates and places filled in.
    fn lines(&self, config: &Value, key: &str, path: &str) -> Vec<(&'static str, String)> {
        let line = |line: &Value| {
            let name = line[0].as_str().unwrap().to_ascii_lowercase();
            let old_form = list(config, "rfc850date").iter().any(|other| other == name.as_str());
            let magic = config.get("magic_locations").is_some();
            let value = match &line[1] {
                Value::Number(seconds) => {
                    let now = (self.world.now / 1_000).cast_signed();
                    date(now + seconds.as_i64().unwrap(), old_form)
                }
                Value::String(text) if magic && name.ends_with("location") => {
                    let slash = if text.is_empty() { "" } else { "/" };
                    format!("{path}{slash}{text}")
                }
                Value::String(text) => text.clone(),
                other => panic!("a value that is neither number nor text: {other}"),
            };
            // Names live as long as the test program: there are a few hundred.
            (&*Box::leak(name.into_boxed_str()), value)
        };
        list(config, key).iter().map(line).collect()
    }

    fn response(&self, at: usize, path: &str) -> Response {
        let config = &self.requests[at];
        let mut headers = self.lines(config, "response_headers", path);
        headers.push(("server-request-count", (self.seen.len() + 1).to_string()));
        headers.push(("client-request-count", (at + 1).to_string()));
        let status =
            config.get("response_status").map_or(200, |status| status[0].as_u64().unwrap());
        let body = config.get("response_body").and_then(Value::as_str);
        let body = body.map_or(self.body, |body| Box::leak(body.to_owned().into_boxed_str()));
        // As on the wire: what is said to be the length is what a client reads.
        let len = headers.iter().find(|(name, _)| *name == "content-length");
        let len = len.map_or(body.len(), |(_, len)| len.parse().unwrap());
        let body = if status == 204 { "" } else { &body[..len] };
        let status = u16::try_from(status).unwrap();
        Response {
            status,
            headers,
            body,
            more: http::HeaderMap::new(),
            validated: self.validated(at, path),
        }
    }

    /// What the question must carry for a 304, where the test expects one.
    fn validated(&self, at: usize, path: &str) -> Option<Vec<(&'static str, String)>> {
        let expected = self.requests[at].get("expected_type")?.as_str()?;
        if !expected.ends_with("validated") {
            return None;
        }
        let mut world = self.lines(&self.requests[at - 1], "response_headers", path);
        world.retain(|(name, _)| *name == "etag" || *name == "last-modified");
        // The date as it was then: three seconds ago, if the test waited.
        for (name, value) in &mut world {
            if *name == "last-modified" {
                *value = self.world.sent_last_modified.clone().unwrap_or(value.clone());
            }
            *name = if *name == "etag" { "if-none-match" } else { "if-modified-since" };
        }
        Some(world)
    }

    fn check(&self, at: usize, answer: &Answer, asked: bool, path: &str) -> Result<(), String> {
        let config = &self.requests[at];
        let fail = |is: bool, why: String| if is { Ok(()) } else { Err(why) };
        let expected = config.get("expected_type").and_then(Value::as_str);
        match expected {
            Some("cached") => {
                let count: usize =
                    field(answer, "server-request-count").parse().unwrap_or_default();
                fail(count <= at, "does not come from the cache".to_owned())?;
            }
            Some("not_cached") => fail(asked, "comes from the cache".to_owned())?,
            Some(_) => fail(asked && answer.status != 999, "was not validated".to_owned())?,
            None => {}
        }
        let status = match (config.get("expected_status"), config.get("response_status")) {
            (Some(Value::Null), _) => None,
            (Some(status), _) => status.as_u64(),
            (None, Some(status)) => status[0].as_u64(),
            (None, None) => Some(200),
        };
        let right = status.is_none_or(|status| u64::from(answer.status.as_u16()) == status);
        fail(right, format!("status {} in place of {status:?}", answer.status))?;
        self.check_fields(config, answer, path)?;
        if let (true, Some(sent)) = (asked, self.world.asked.last()) {
            for line in list(config, "expected_request_headers") {
                let name = line[0].as_str().unwrap();
                let value = sent.get(name).and_then(|value| value.to_str().ok());
                fail(value == line[1].as_str(), format!("the server saw {name}: {value:?}"))?;
            }
        }
        if let Some(body) = config.get("expected_response_text").and_then(Value::as_str) {
            fail(answer.body == body.as_bytes(), format!("body {:?}", answer.body))?;
        }
        Ok(())
    }

    fn check_fields(&self, config: &Value, answer: &Answer, path: &str) -> Result<(), String> {
        let expected = list(config, "expected_response_headers");
        let only: Value = expected
            .iter()
            .filter(|line| line.as_array().is_some_and(|line| line.len() == 2))
            .cloned()
            .collect();
        let mut filled = config.clone();
        filled["expected_response_headers"] = only;
        let shift = self.world.now - START;
        for (name, value) in self.lines(&filled, "expected_response_headers", path) {
            let found = field(answer, name);
            // A date is told from when the response was made.
            let early = name == "date" || name == "expires";
            if found != value && !(early && shift > 0 && !found.is_empty()) {
                return Err(format!("{name} is {found:?}, not {value:?}"));
            }
        }
        for line in expected {
            let name = line.as_str().or_else(|| line[0].as_str()).unwrap();
            let found = field(answer, name);
            let least = line.get(2).and_then(Value::as_u64);
            let many = least.is_none_or(|least| found.parse().is_ok_and(|is: u64| is > least));
            if found.is_empty() || !many {
                return Err(format!("{name} is {found:?}"));
            }
        }
        for line in list(config, "expected_response_headers_missing") {
            let name = line.as_str().or_else(|| line[0].as_str()).unwrap();
            let found = field(answer, name);
            let bad = line
                .get(1)
                .map_or(!found.is_empty(), |value| found.contains(value.as_str().unwrap()));
            if bad {
                return Err(format!("{name} is {found:?}, and should be missing"));
            }
        }
        Ok(())
    }
}

/// A date as HTTP writes it, or as it once did.
fn date(seconds: i64, old_form: bool) -> String {
    let days = seconds.div_euclid(86_400);
    let (hour, minute, second) =
        (seconds.rem_euclid(86_400) / 3_600, seconds / 60 % 60, seconds % 60);
    let names = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let name = names[usize::try_from(days.rem_euclid(7)).unwrap()];
    let (mut year, mut left) = (1970, days);
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(leap(year)) {
        left -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (day, month, short) = (left + 1, months[month], &name[..3]);
    if old_form {
        let year = year % 100;
        return format!("{name}, {day:02}-{month}-{year:02} {hour:02}:{minute:02}:{second:02} GMT");
    }
    format!("{short}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
