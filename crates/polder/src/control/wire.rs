//! What goes over a control socket: one JSON object a line, a request and its response in turn.
//!
//! ```text
//! {"version":1,"request":"move","arguments":{"node":"n3","site":"shop"}}
//! {"version":1,"response":"done","value":{"text":"n3 serves shop"}}
//! {"version":1,"error":{"code":"unknown_request","text":"..."}}
//! ```

use super::cache::{
    CacheExplainArguments, CacheExplained, CacheForgetArguments, CachePurgeArguments,
};
use crate::settings::{KeyChange, did_you_mean, one_of};
use crate::status::{MoveRecord, StatusReport};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the protocol. A peer with another one is told so.
pub const PROTOCOL_VERSION: u32 = 1;
/// The longest request: a purge that was told to an edge, of a thousand tags or of a URL as long as
/// an edge takes.
pub const REQUEST_MAX_BYTES: usize = 256 << 10;
/// The longest response: the status of 16,382 nodes and 1,023 sites at some hundred bytes each,
/// with room for the servers of each.
pub const RESPONSE_MAX_BYTES: usize = 64 << 20;
/// Moves in one response. The log of a busy hour; more are read as metrics.
pub const MOVES_MAX: usize = 10_000;

/// What can be asked of a process of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", content = "arguments", rename_all = "snake_case")]
pub enum Request {
    /// Its view of the pool.
    Status,
    /// The last moves, at most so many, newest last.
    #[serde(rename = "moves")]
    Moves(MovesArguments),
    /// The first requests that an edge sent to moved nodes: for the parent, which knows by them
    /// when a node that one edge moved got its first request from another.
    FirstDispatches,
    /// Give a node to a site.
    Move(MoveArguments),
    /// Take a node out of service.
    Drain(NodeArguments),
    /// Put a drained node back.
    Undrain(NodeArguments),
    /// Stop moving nodes.
    Pause,
    /// Move nodes again.
    Resume,
    /// Finish what is in flight, and end.
    Stop,
    /// Read the settings again and change what differs.
    Reload(ReloadArguments),
    /// The settings in force of one site, or of all.
    Sites(SitesArguments),
    /// Set keys of one site until the next reload.
    SetSite(SetSiteArguments),
    /// Let another program take the place of the parent and of its children, without an end.
    Upgrade(UpgradeArguments),
    /// Forget stored responses, in all edges.
    CachePurge(CachePurgeArguments),
    /// Forget stored responses of one site, in all edges, as an edge was told over HTTP.
    CacheForget(CacheForgetArguments),
    /// What is stored for a URL, and why.
    CacheExplain(CacheExplainArguments),
    /// To an edge: go on under the settings in the parent's copy.
    Update(UpdateArguments),
}

/// Arguments of [`Request::Reload`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadArguments {
    /// Another settings file from now on; absolute.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Arguments of [`Request::Sites`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitesArguments {
    /// The site's name; all without it.
    #[serde(default)]
    pub site: Option<String>,
}

/// Arguments of [`Request::SetSite`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSiteArguments {
    /// The site's name.
    pub site: String,
    /// `KEY=VALUE` each; `KEY=` takes back what was set.
    pub keys: Vec<String>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// Write them into the settings file too.
    #[serde(default)]
    pub save: bool,
}

/// Arguments of [`Request::Upgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeArguments {
    /// The program; absolute. Without it the one that the pool was started with, which may be
    /// another file by now.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

/// Arguments of [`Request::Update`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateArguments {
    /// The parent's copy of the settings.
    pub file: PathBuf,
    /// Their version in the shared words.
    pub version: u32,
    /// Only say whether it could.
    pub is_trial: bool,
    /// Whether the data plane changes too; else another edge is about to take this one's place.
    pub is_all: bool,
}

/// Arguments of [`Request::Moves`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovesArguments {
    /// How many at most.
    pub limit: usize,
}

/// Arguments of [`Request::Move`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveArguments {
    /// The node's name.
    pub node: String,
    /// The site's name.
    pub site: String,
}

/// Arguments of [`Request::Drain`] and [`Request::Undrain`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeArguments {
    /// The node's name.
    pub node: String,
}

/// The names of all requests.
pub(super) const REQUESTS: [&str; 17] = [
    "status",
    "moves",
    "first_dispatches",
    "move",
    "drain",
    "undrain",
    "pause",
    "resume",
    "stop",
    "reload",
    "sites",
    "set_site",
    "upgrade",
    "cache_purge",
    "cache_forget",
    "cache_explain",
    "update",
];

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", content = "value", rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<StatusReport>),
    /// To [`Request::Moves`].
    Moves(Vec<MoveRecord>),
    /// To [`Request::FirstDispatches`].
    FirstDispatches(Vec<FirstDispatch>),
    /// To [`Request::Sites`].
    Sites(Vec<SiteSettings>),
    /// To [`Request::SetSite`].
    SiteSet(SiteSet),
    /// To [`Request::CacheExplain`]: an entry for each edge.
    CacheExplained(Vec<CacheExplained>),
    /// To the others: it is done, and what that means in words.
    Done(Done),
}

/// The first request that an edge sent to a node after it moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDispatch {
    /// The node's name.
    pub node: String,
    /// When, nanoseconds of the machine's monotonic clock.
    pub at_ns: u64,
}

/// The settings in force of one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteSettings {
    /// The site's name.
    pub name: String,
    /// All keys, with every default filled in.
    pub keys: BTreeMap<String, Value>,
    /// Those that differ from the file.
    pub differs: Vec<KeyChange>,
}

/// What setting keys of a site came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteSet {
    /// What differs now.
    pub changes: Vec<KeyChange>,
    /// Whether it holds in all edges, and the site has the nodes that it is promised.
    pub holds: bool,
    /// The file that says so too.
    #[serde(default)]
    pub saved: Option<PathBuf>,
    /// In words.
    pub text: String,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// In words.
    pub text: String,
}

impl Response {
    /// It is done.
    #[must_use]
    pub fn done(text: impl Into<String>) -> Self {
        Self::Done(Done { text: text.into() })
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Its kind.
    pub code: Code,
    /// In words.
    pub text: String,
}

impl Refusal {
    /// A refusal of a kind, in words.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It was no JSON object of this form.
    Malformed,
    /// It was longer than [`REQUEST_MAX_BYTES`].
    TooLong,
    /// It was of another version.
    Version,
    /// There is no such request.
    UnknownRequest,
    /// The arguments do not fit the request.
    Arguments,
    /// A node or site of that name does not exist.
    NotFound,
    /// The pool may not do that now: a guarantee would break, or its settings forbid it.
    Refused,
    /// The settings cannot be used.
    Settings,
    /// It took too long.
    Timeout,
    /// Something failed inside.
    Internal,
}

#[derive(Deserialize)]
struct RequestLine {
    version: u32,
    request: String,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Serialize, Deserialize)]
struct ResponseLine {
    version: u32,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Outcome {
    Refused { error: Refusal },
    Given(Response),
}

/// A request as a line, its end included.
#[must_use]
pub(super) fn encode_request(request: &Request) -> Vec<u8> {
    let mut value = serde_json::to_value(request).expect("requests are plain data");
    value["version"] = PROTOCOL_VERSION.into();
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A line as a request. Whatever is wrong with it is named.
pub(super) fn decode_request(line: &[u8]) -> Result<Request, Refusal> {
    let parsed: RequestLine = serde_json::from_slice(line).map_err(|error| {
        let form = r#"{"version":1,"request":"status"}"#;
        Refusal::new(Code::Malformed, format!("{error}; a request is a line like {form}"))
    })?;
    if parsed.version != PROTOCOL_VERSION {
        let given = parsed.version;
        let text = format!("version {given} is not spoken here, only {PROTOCOL_VERSION}");
        return Err(Refusal::new(Code::Version, text));
    }
    if !REQUESTS.contains(&parsed.request.as_str()) {
        let name: String = parsed.request.chars().take(40).collect();
        let help = did_you_mean(&name, REQUESTS)
            .unwrap_or_else(|| format!("there are {}", one_of(REQUESTS)));
        let text = format!("unknown request {name:?}; {help}");
        return Err(Refusal::new(Code::UnknownRequest, text));
    }
    let mut tagged = serde_json::json!({ "request": parsed.request });
    if let Some(arguments) = parsed.arguments {
        tagged["arguments"] = arguments;
    }
    serde_json::from_value(tagged).map_err(|error| {
        Refusal::new(Code::Arguments, format!("arguments of {}: {error}", parsed.request))
    })
}

/// A response as a line, its end included.
#[must_use]
pub(super) fn encode_response(outcome: Result<Response, Refusal>) -> Vec<u8> {
    let outcome = match outcome {
        Ok(response) => Outcome::Given(response),
        Err(error) => Outcome::Refused { error },
    };
    let line = ResponseLine { version: PROTOCOL_VERSION, outcome };
    let mut bytes = serde_json::to_vec(&line).expect("responses are plain data");
    bytes.push(b'\n');
    bytes
}

/// A line as a response; an error in words for what is none.
pub(super) fn decode_response(line: &[u8]) -> Result<Result<Response, Refusal>, String> {
    let parsed: ResponseLine =
        serde_json::from_slice(line).map_err(|error| format!("not a response: {error}"))?;
    if parsed.version != PROTOCOL_VERSION {
        return Err(format!("a response of version {}, not {PROTOCOL_VERSION}", parsed.version));
    }
    Ok(match parsed.outcome {
        Outcome::Given(response) => Ok(response),
        Outcome::Refused { error } => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;
    use proptest::prelude::*;

    fn all_requests() -> Vec<Request> {
        let node = NodeArguments { node: "n1".into() };
        vec![
            Request::Status,
            Request::Moves(MovesArguments { limit: 9 }),
            Request::FirstDispatches,
            Request::Move(MoveArguments { node: "n1".into(), site: "shop".into() }),
            Request::Drain(node.clone()),
            Request::Undrain(node),
            Request::Pause,
            Request::Resume,
            Request::Stop,
            Request::Reload(ReloadArguments { file: Some("/x".into()), dry_run: true }),
            Request::Sites(SitesArguments { site: Some("shop".into()) }),
            Request::SetSite(SetSiteArguments {
                site: "shop".into(),
                keys: vec!["max=3".into()],
                dry_run: true,
                save: false,
            }),
            Request::Upgrade(UpgradeArguments::default()),
            Request::CachePurge(CachePurgeArguments { all: true, ..Default::default() }),
            Request::CacheForget(CacheForgetArguments {
                site: "shop".into(),
                tags: vec!["a".into()],
                ..Default::default()
            }),
            Request::CacheExplain(CacheExplainArguments { url: "http://a/".into() }),
            Request::Update(UpdateArguments {
                file: "/x".into(),
                version: 3,
                is_trial: true,
                is_all: false,
            }),
        ]
    }

    #[test]
    fn requests_go_there_and_back_and_are_all_listed() {
        let mut names = Vec::new();
        for request in all_requests() {
            let line = encode_request(&request);
            assert!(line.ends_with(b"\n") && line.len() < REQUEST_MAX_BYTES);
            let value: Value = serde_json::from_slice(&line).unwrap();
            names.push(value["request"].as_str().unwrap().to_owned());
            assert_eq!(decode_request(&line), Ok(request));
        }
        assert_eq!(names, REQUESTS);
    }

    #[test]
    fn responses_go_there_and_back() {
        let change =
            KeyChange { site: "shop".into(), key: "max".into(), from: None, to: Some("3".into()) };
        let outcomes = [
            Ok(Response::Status(Box::new(example()))),
            Ok(Response::Moves(Vec::new())),
            Ok(Response::FirstDispatches(vec![FirstDispatch { node: "n1".into(), at_ns: 7 }])),
            Ok(Response::Sites(vec![SiteSettings {
                name: "shop".into(),
                keys: BTreeMap::from([("hosts".to_owned(), serde_json::json!(["a", "b"]))]),
                differs: vec![change.clone()],
            }])),
            Ok(Response::SiteSet(SiteSet {
                changes: vec![change],
                holds: true,
                saved: None,
                text: "done".into(),
            })),
            Ok(Response::done("n1 serves shop")),
            Err(Refusal::new(Code::NotFound, "no node n9")),
        ];
        for outcome in outcomes {
            let line = encode_response(outcome.clone());
            assert_eq!(decode_response(&line).unwrap(), outcome);
        }
        assert!(decode_response(b"{}").is_err());
        let other = br#"{"version":2,"response":"done","value":{"text":""}}"#;
        assert!(decode_response(other).unwrap_err().contains("version 2"));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        let refusal = |line: &str| decode_request(line.as_bytes()).unwrap_err();
        let cases = [
            ("", Code::Malformed, "a request is a line like"),
            ("[]", Code::Malformed, ""),
            (r#"{"request":"status"}"#, Code::Malformed, "version"),
            (r#"{"version":9,"request":"x"}"#, Code::Version, "version 9"),
            (r#"{"version":1,"request":"statsu"}"#, Code::UnknownRequest, "mean `status`?"),
            (r#"{"version":1,"request":"\u001b[2J"}"#, Code::UnknownRequest, "`undrain`"),
            (r#"{"version":1,"request":"move"}"#, Code::Arguments, "move"),
            (r#"{"version":1,"request":"drain","arguments":{"nod":"x"}}"#, Code::Arguments, "nod"),
        ];
        for (line, code, words) in cases {
            let refusal = refusal(line);
            assert_eq!(refusal.code, code, "{line}: {refusal}");
            assert!(refusal.text.contains(words), "{line}: {refusal}");
            assert!(!refusal.text.contains('\u{1b}'), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = decode_request(&bytes);
            let _ = decode_response(&bytes);
        }

        #[test]
        fn no_object_panics(
            request in "[a-z]{0,8}|status|move", key in "node|site|limit|x", value in ".{0,9}",
        ) {
            let line = serde_json::json!({
                "version": 1, "request": request, "arguments": { key: value },
            });
            let _ = decode_request(line.to_string().as_bytes());
        }
    }
}
