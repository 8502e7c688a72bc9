//! Noise for what is read of requests that tell of changes.

use super::dialect::{self, Asked, TAGS_BYTES_MAX, TAGS_MAX};
use super::pattern::{self, Pattern};
use fuzzing::{Random, Target};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use writers::line;

const TOKENS: [&str; 40] = [
    "PURGE /\n",
    "BAN /\n",
    "PURGETAGS /\n",
    "PURGEKEYS /\n",
    "POST /service/shop/purge/",
    "POST /service/shop/purge\n",
    "POST /service/shop/purge_all\n",
    "GET /\n",
    "xkey: ",
    "xkey-purge: ",
    "xkey-softpurge: ",
    "surrogate-key: ",
    "cache-tag: ",
    "x-cache-tags: ",
    "cache-tags: ",
    "purge-cache-tags: ",
    "x-magento-tags-pattern: ",
    "apiplatform-ban-regex: ",
    "x-url: .*\n",
    "x-host: ",
    "x-purge-method: regex\n",
    "clear-cache: true\n",
    "(^|,)",
    "(,|$)",
    "(,.+)?$",
    "((^|,)a(,|$))|",
    "(",
    ")",
    "|",
    ".*",
    "\\-",
    "%3a",
    "%",
    "\n",
    "\n\n",
    "content-type: application/json\n",
    "fastly-soft-purge: 1\n",
    "{\"surrogate_keys\": [",
    "\"a\", ",
    "]}",
];

fn made(random: &mut Random) -> Vec<u8> {
    let field = *random.pick(&["x-cache-tags", "x-magento-tags-pattern", "xkey", "cache-tags"]);
    let tags: Vec<String> =
        (0..=random.below(9)).map(|_| format!("t{}", random.below(9))).collect();
    if random.below(4) == 0 {
        let body = serde_json::json!({ "surrogate_keys": tags });
        return format!("POST /service/shop/purge\n\n{body}").into_bytes();
    }
    let list = tags.join("|");
    let value = match random.below(4) {
        0 => format!("(^|,)({list})(,|$)"),
        1 => tags.iter().map(|tag| format!("((^|,){tag}(,|$))")).collect::<Vec<_>>().join("|"),
        2 => tags.join(" "),
        _ => list,
    };
    format!("{} /\n{field}: {value}", random.pick(&["PURGE", "BAN"])).into_bytes()
}

/// Text with a first line of method and path, lines of fields, and a body behind an empty line.
fn request(text: &[u8]) -> Option<(Method, String, HeaderMap, &[u8])> {
    let end = text.windows(2).position(|two| two == b"\n\n");
    let (head, body) = end.map_or((text, &b""[..]), |end| (&text[..end], &text[end + 2..]));
    let mut lines = head.split(|&byte| byte == b'\n');
    let (method, path) = std::str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    let mut headers = HeaderMap::new();
    for line in lines.take(100) {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        headers.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
    }
    Some((method.parse().ok()?, path.to_owned(), headers, body))
}

/// Whatever comes, what is taken is a list of tags that one update can have, and a pattern means
/// what it says: its tags, written down, are in it.
#[test]
fn fuzz_purges() {
    let check = |bytes: &[u8], _: &mut Random| {
        if let Some(Pattern::Tags(tags)) = pattern::read(bytes) {
            assert!(!tags.is_empty() && tags.iter().all(|tag| !tag.is_empty()));
            let plain: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != b'\\').collect();
            for tag in &tags {
                let tag: Vec<u8> = tag.iter().copied().filter(|&byte| byte != b'\\').collect();
                assert!(tag.is_empty() || plain.windows(tag.len()).any(|part| part == tag));
            }
        }
        let (method, path, headers, body) = request(bytes)?;
        if !dialect::is_spoken(&method, &path) {
            return Some("not asked");
        }
        let body = if dialect::wants_body(&method, &path, &headers) { body } else { b"" };
        let asked = dialect::read("shop", &method, &path, &headers, body);
        if let Ok(asked) = &asked {
            let is_soft = dialect::is_soft(&headers, asked);
            assert!(!is_soft || *asked != Asked::Everything);
        }
        Some(match asked {
            Ok(Asked::Everything) => "everything",
            Ok(Asked::Url) => {
                assert_eq!(method.as_str(), "PURGE");
                "url"
            }
            Ok(Asked::Tags(tags)) => {
                assert!((1..=TAGS_MAX).contains(&tags.len()));
                assert!(tags.iter().map(String::len).sum::<usize>() <= TAGS_BYTES_MAX);
                line::tag_line("invalidate", &tags).expect("one update takes them");
                "tags"
            }
            Err(wrong) => {
                assert!(!wrong.to_string().is_empty());
                "refused"
            }
        })
    };
    let target = Target::new("purges", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&TOKENS).made_by(made).smoke_cases(2_000).run(check);
}
