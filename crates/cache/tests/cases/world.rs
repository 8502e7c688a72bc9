//! A cache with one server behind it, all in one thread: the edge's part, in forty lines.

use bytes::Bytes;
use cache::{
    Answer, Cache, Deliver, Head, Key, Limits, Lookup, Mode, NotStored, Reply, Request, Rules,
    Scheme, Tags, UnixMs,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pool_model::SiteId;

/// 2026-11-20, in milliseconds.
pub(crate) const START: u64 = 1_795_000_000_000;

/// The proof of these tests: the version of every tag, as one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) u64);

/// What the server answers next.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'static str,
    /// Fields of any bytes.
    pub(crate) more: HeaderMap,
    /// Fields of a request that is answered by a 304; one that lacks them gets 999.
    pub(crate) validated: Option<Vec<(&'static str, String)>>,
}

pub(crate) fn response(headers: &[(&'static str, &str)]) -> Response {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Response { status: 200, headers, body: "body", more: HeaderMap::new(), validated: None }
}

impl Response {
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn body(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    /// What the server says to a request with these fields.
    fn head(&self, request: &HeaderMap) -> Head {
        let mut head = self.plain_head();
        if let Some(wanted) = &self.validated {
            let carries = |(name, value): &(&str, String)| {
                request.get(*name).is_some_and(|is| is.as_bytes() == value.as_bytes())
            };
            let status = if wanted.iter().any(carries) { 304 } else { 999 };
            head.status = StatusCode::from_u16(status).unwrap();
        }
        head
    }

    fn plain_head(&self) -> Head {
        let headers = self.headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name, value);
        }
        for (name, value) in &self.more {
            all.append(name, value.clone());
        }
        Head { status: StatusCode::from_u16(self.status).unwrap(), headers: all }
    }
}

/// Everything.
pub(crate) struct World {
    pub(crate) cache: Cache<Version>,
    pub(crate) rules: Rules,
    pub(crate) now: u64,
    pub(crate) version: u64,
    /// What the server saw, one after the other.
    pub(crate) asked: Vec<HeaderMap>,
    /// Why the last response was not stored, or that it was.
    pub(crate) stored: Option<Result<(), NotStored>>,
    /// What the server answers; none: it fails.
    pub(crate) server: Option<Response>,
    /// The `Last-Modified` that the server sent last.
    pub(crate) sent_last_modified: Option<String>,
}

impl World {
    pub(crate) fn new(mode: Mode) -> Self {
        let rules = Rules { mode, unkeyed: cache::Unkeyed::Passed, ..Rules::default() };
        Self {
            cache: Cache::new(&Limits::default()),
            rules,
            now: START,
            version: 1,
            asked: Vec::new(),
            stored: None,
            server: None,
            sent_last_modified: None,
        }
    }

    pub(crate) fn serves(&mut self, response: Response) -> &mut Self {
        self.server = Some(response);
        self
    }

    pub(crate) fn wait_s(&mut self, seconds: u64) -> &mut Self {
        self.now += seconds * 1_000;
        self
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[(&'static str, &str)]) -> Answer {
        self.ask(&Method::GET, path, headers)
    }

    pub(crate) fn ask(
        &mut self,
        method: &Method,
        path: &str,
        lines: &[(&'static str, &str)],
    ) -> Answer {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        self.send(method, path, &headers)
    }

    /// One request, from the client to its answer.
    pub(crate) fn send(&mut self, method: &Method, path: &str, headers: &HeaderMap) -> Answer {
        let request = request(method, path, headers, self.now);
        self.stored = None;
        let mut lookup = self.cache.lookup(&self.rules, &request);
        if let Lookup::OnDisk(on_disk) = lookup {
            let (tell, told) = std::sync::mpsc::channel();
            self.cache.recall(&on_disk, Box::new(move |recalled| tell.send(recalled).unwrap()));
            lookup = self.cache.recalled(&self.rules, &request, told.recv().unwrap());
        }
        if let Lookup::Hit(hit) = lookup {
            if hit.proof().is_none_or(|proof| proof.0 == self.version) {
                return self.cache.hit(&self.rules, &request, &hit);
            }
            lookup = self.cache.refused(&self.rules, &request, hit);
        }
        let mut fetch = match lookup {
            Lookup::OnDisk(_) => panic!("the disk was asked"),
            Lookup::Bypass(why) => return self.bypass(&request, why),
            Lookup::NotCached => return error(504),
            Lookup::Hit(_) => unreachable!("what is refused is no hit"),
            Lookup::Fetch(fetch) => fetch,
        };
        loop {
            let before = self.version;
            self.asked.push(fetch.headers().clone());
            let Some(response) = self.server.clone() else {
                let stale = self.cache.failed(&self.rules, &fetch, UnixMs(self.now));
                return stale.unwrap_or_else(|| error(502));
            };
            let head = response.head(fetch.headers());
            self.remember(&head);
            let (now, prove) = (UnixMs(self.now), |_: &Tags| Some(Version(before)));
            let reply = self.cache.respond(&self.rules, fetch, head, now, prove);
            match reply {
                Reply::Answer(answer) => return answer,
                Reply::Again(again) => fetch = again,
                Reply::Pass { head, mut deliver, fill } => {
                    let chunk = Bytes::from_static(response.body.as_bytes());
                    self.stored = Some(fill.and_then(|mut fill| {
                        fill.push(&chunk);
                        self.cache.finish(&self.rules, *fill, now)
                    }));
                    let body = match &mut deliver {
                        _ if *method == Method::HEAD => Bytes::new(),
                        Deliver::Whole => chunk,
                        Deliver::Part(cut) => cut.cut(&chunk),
                        Deliver::Nothing => Bytes::new(),
                    };
                    return Answer { status: head.status, headers: head.headers, body };
                }
            }
        }
    }

    fn remember(&mut self, head: &Head) {
        let modified = head.headers.get("last-modified").and_then(|value| value.to_str().ok());
        self.sent_last_modified = modified.map(ToOwned::to_owned);
    }

    fn bypass(&mut self, request: &Request<'_>, why: cache::Bypass) -> Answer {
        self.asked.push(request.headers.clone());
        let Some(response) = self.server.clone() else { return error(502) };
        let mut head = response.head(request.headers);
        self.remember(&head);
        self.cache.passed(&self.rules, request, why, &mut head);
        let body = Bytes::from_static(response.body.as_bytes());
        Answer { status: head.status, headers: head.headers, body }
    }

    /// What is stored for a path, as a key.
    pub(crate) fn key(&self, path: &str) -> Key {
        let headers = HeaderMap::new();
        request(&Method::GET, path, &headers, self.now).key().to_key()
    }

    /// How often the server was asked.
    pub(crate) fn count(&self) -> usize {
        self.asked.len()
    }

    /// Whether this request is answered without the server.
    pub(crate) fn hits(&mut self, path: &str, headers: &[(&'static str, &str)]) -> bool {
        let before = self.count();
        let answer = self.get(path, headers);
        let hit = self.count() == before;
        let said = field(&answer, "cache-status").contains("; hit");
        assert_eq!(hit, said, "{answer:?}");
        hit
    }
}

pub(crate) fn request<'a>(
    method: &'a Method,
    path: &'a str,
    headers: &'a HeaderMap,
    now: u64,
) -> Request<'a> {
    Request {
        site: SiteId::new(1).unwrap(),
        method,
        scheme: Scheme::Http,
        authority: "a.example",
        path_and_query: path,
        headers,
        now: UnixMs(now),
        waited: false,
    }
}

fn error(status: u16) -> Answer {
    let status = StatusCode::from_u16(status).unwrap();
    Answer { status, headers: HeaderMap::new(), body: Bytes::new() }
}

/// All lines of a field, as one text.
pub(crate) fn field(answer: &Answer, name: &str) -> String {
    let lines = answer.headers.get_all(name).iter();
    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    lines.join(", ")
}
