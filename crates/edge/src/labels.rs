//! What a request is known by: its id and its place in a trace.
//!
//! * `X-Request-Id`: 128 random bits, or a trusted proxy's own word; sent to the server, returned
//!   to the client, written into the log.
//! * `traceparent` (W3C Trace Context): a valid one is continued under a new span, everything
//!   else begins a new trace. `tracestate` belongs to a valid `traceparent` and goes with it.
//!
//! Fast path: no system call and no lock, nothing is allocated but the value that the client
//! gets; some 30 ns.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The longest id that is taken from a trusted proxy: more than any scheme in use needs, and
/// short enough for every log.
const GIVEN_ID_BYTES_MAX: usize = 128;

/// `00-TRACE-SPAN-FLAGS` in hexadecimal digits.
const TRACEPARENT_BYTES: usize = 55;

/// Flags that have a meaning: sampled, and random.
const FLAGS_KNOWN: u8 = 0b11;

/// The flags of a trace that begins here: sampled, so that servers which follow their parent's
/// word record it as if there were no edge, and random.
const FLAGS_NEW: u8 = 0b11;

/// Random numbers of one thread, by xoshiro256++ (Blackman, Vigna): unique, not secret.
pub(crate) struct Chance(Cell<[u64; 4]>);

impl Chance {
    /// Seeded by the operating system, which gives the standard library's hashers their keys.
    pub(crate) fn seeded() -> Self {
        Self(Cell::new(std::array::from_fn(|place| RandomState::new().hash_one(place))))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut s = self.0.get();
        let number = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        self.0.set(s);
        number
    }
}

/// Writes numbers as hexadecimal digits.
fn hex<const N: usize>(numbers: &[u64]) -> [u8; N] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; N];
    for (digits, number) in text.chunks_mut(16).zip(numbers) {
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            *digit = DIGITS[(number >> (4 * place)) as usize & 0xf];
        }
    }
    text
}

/// The id of a request.
#[derive(Clone, Debug)]
enum RequestId {
    Made([u8; 32]),
    Given(HeaderValue),
}

/// The place of a request in a trace, as the server gets it.
#[derive(Clone, Debug)]
struct Trace {
    text: [u8; TRACEPARENT_BYTES],
    /// The client's own trace goes on.
    continued: bool,
}

/// Which labels there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelRules {
    pub(crate) request_id: bool,
    /// Whether a client's id is taken over.
    pub(crate) trusts_id: bool,
    pub(crate) trace: bool,
}

/// The labels of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    id: Option<RequestId>,
    trace: Option<Trace>,
}

impl Labels {
    /// Takes over what may be taken over, and makes the rest.
    pub(crate) fn new(rules: LabelRules, headers: &HeaderMap, chance: &Chance) -> Self {
        let id = rules.request_id.then(|| {
            let given = rules.trusts_id.then(|| only(headers, &X_REQUEST_ID)).flatten();
            match given.filter(|value| is_sane(value.as_bytes())) {
                Some(value) => RequestId::Given(value.clone()),
                None => RequestId::Made(hex(&[chance.next(), chance.next()])),
            }
        });
        let trace = rules.trace.then(|| Trace::new(only(headers, &TRACEPARENT), chance));
        Self { id, trace }
    }

    pub(crate) fn id(&self) -> Option<&[u8]> {
        Some(match self.id.as_ref()? {
            RequestId::Made(text) => text,
            RequestId::Given(value) => value.as_bytes(),
        })
    }

    pub(crate) fn traceparent(&self) -> Option<&[u8]> {
        self.trace.as_ref().map(|trace| &trace.text[..])
    }

    pub(crate) fn trace_id(&self) -> Option<&[u8]> {
        self.trace.as_ref().map(|trace| &trace.text[3..35])
    }

    /// The id as a field's value.
    pub(crate) fn id_value(&self) -> Option<HeaderValue> {
        match self.id.as_ref()? {
            RequestId::Made(text) => HeaderValue::from_bytes(text).ok(),
            RequestId::Given(value) => Some(value.clone()),
        }
    }

    /// Whether a client's field gives way to one of these.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        match name {
            "x-request-id" => self.id.is_some(),
            "traceparent" => self.trace.is_some(),
            "tracestate" => self.trace.as_ref().is_some_and(|trace| !trace.continued),
            _ => false,
        }
    }
}

/// The value of a field that came once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Whether servers, logs and shells can do no harm with it.
fn is_sane(id: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(b);
    (1..=GIVEN_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain)
}

impl Trace {
    fn new(parent: Option<&HeaderValue>, chance: &Chance) -> Self {
        let parent = parent.and_then(|value| Parent::read(value.as_bytes()));
        // A span of zeros is none.
        let span: [u8; 16] = hex(&[chance.next().max(1)]);
        let (id, flags) = match &parent {
            Some(parent) => (parent.id, parent.flags & FLAGS_KNOWN),
            None => (hex(&[chance.next(), chance.next().max(1)]), FLAGS_NEW),
        };
        let mut text = *b"00-________________________________-________________-00";
        text[3..35].copy_from_slice(&id);
        text[36..52].copy_from_slice(&span);
        text[54] = b'0' + flags;
        Self { text, continued: parent.is_some() }
    }
}

/// What a `traceparent` says.
struct Parent {
    id: [u8; 32],
    flags: u8,
}

impl Parent {
    /// Reads one as the recommendation says (section 3.2), later versions by what they share with
    /// the first.
    fn read(text: &[u8]) -> Option<Self> {
        let (fixed, rest) = text.split_first_chunk::<TRACEPARENT_BYTES>()?;
        let (version, id, span, flags) = (&fixed[..2], &fixed[3..35], &fixed[36..52], &fixed[53..]);
        let is_hex =
            |digits: &[u8]| digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_zero = |digits: &[u8]| digits.iter().all(|&byte| byte == b'0');
        let dashes = [2, 35, 52].iter().all(|&at| fixed[at] == b'-');
        let ends = if version == b"00" { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        let valid = dashes
            && ends
            && version != b"ff"
            && [version, id, span, flags].into_iter().all(is_hex)
            && !is_zero(id)
            && !is_zero(span);
        let flags = u8::from_str_radix(str::from_utf8(flags).ok()?, 16).ok()?;
        Some(Self { id: id.try_into().ok()?, flags }).filter(|_| valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: LabelRules = LabelRules { request_id: true, trusts_id: true, trace: true };
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn labels(rules: LabelRules, fields: &[(&'static str, &str)]) -> Labels {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Labels::new(rules, &headers, &Chance::seeded())
    }

    fn text(bytes: Option<&[u8]>) -> String {
        String::from_utf8(bytes.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn an_id_is_made_where_none_can_be_taken_over() {
        let made = labels(RULES, &[]);
        let id = text(made.id());
        assert_eq!((id.len(), id.bytes().all(|b| b.is_ascii_hexdigit())), (32, true));
        assert_eq!(made.id_value().unwrap(), id);
        assert_ne!(id, text(labels(RULES, &[]).id()), "another thread, another seed");
        assert_eq!(text(labels(RULES, &[("x-request-id", "a-1_b")]).id()), "a-1_b");
        let stranger = LabelRules { trusts_id: false, ..RULES };
        assert_ne!(text(labels(stranger, &[("x-request-id", "a-1_b")]).id()), "a-1_b");
        for bad in ["", "a b", "a\"b", "a,b", "\u{e9}", &"x".repeat(129)] {
            assert_eq!(text(labels(RULES, &[("x-request-id", bad)]).id()).len(), 32, "{bad:?}");
        }
        let twice = [("x-request-id", "one"), ("x-request-id", "two")];
        assert_eq!(text(labels(RULES, &twice).id()).len(), 32);
    }

    #[test]
    fn a_valid_trace_is_continued_under_a_new_span() {
        for (given, flags) in [("00", "00"), ("01", "01"), ("03", "03"), ("ff", "03")] {
            let parent = format!("00-{TRACE}-{SPAN}-{given}");
            let labels = labels(RULES, &[("traceparent", &parent)]);
            let ours = text(labels.traceparent());
            assert!(ours.starts_with(&format!("00-{TRACE}-")) && ours.ends_with(flags), "{ours}");
            assert!(!ours.contains(SPAN) && Parent::read(ours.as_bytes()).is_some());
            assert_eq!(text(labels.trace_id()), TRACE);
            assert!(labels.replaces("traceparent") && !labels.replaces("tracestate"));
        }
        let later = format!("cc-{TRACE}-{SPAN}-01-what-comes-later");
        assert_eq!(text(labels(RULES, &[("traceparent", &later)]).trace_id()), TRACE);
    }

    #[test]
    fn an_invalid_trace_is_replaced() {
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("cc-{TRACE}-{SPAN}-01x"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("0g-{TRACE}-{SPAN}-01"),
        ] {
            let labels = labels(RULES, &[("traceparent", &bad)]);
            assert_ne!(text(labels.trace_id()), TRACE, "{bad}");
            assert!(labels.replaces("tracestate"), "{bad}");
            assert!(Parent::read(labels.traceparent().unwrap()).is_some());
        }
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let twice = [("traceparent", parent.as_str()), ("traceparent", &parent)];
        assert_ne!(text(labels(RULES, &twice).trace_id()), TRACE);
    }

    #[test]
    fn what_is_off_passes_by() {
        let off = LabelRules { request_id: false, trusts_id: true, trace: false };
        let labels = labels(off, &[("x-request-id", "a"), ("traceparent", "b")]);
        assert!(labels.id().is_none() && labels.traceparent().is_none());
        for name in ["x-request-id", "traceparent", "tracestate"] {
            assert!(!labels.replaces(name), "{name}");
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let chance = Chance::seeded();
        let ids: std::collections::HashSet<u64> = (0..100_000).map(|_| chance.next()).collect();
        assert_eq!(ids.len(), 100_000);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_trace(text in "[ -~]{0,80}", cut in 0_usize..60) {
            let near = format!("00-{TRACE}-{SPAN}-01");
            let near = format!("{}{text}", &near[..cut.min(near.len())]);
            for given in [text, near] {
                let labels = labels(RULES, &[("traceparent", &given)]);
                prop_assert!(Parent::read(labels.traceparent().unwrap()).is_some());
            }
        }

        #[test]
        fn digits_are_those_of_the_number(number in any::<u64>()) {
            let text: [u8; 16] = hex(&[number]);
            prop_assert_eq!(str::from_utf8(&text).unwrap(), format!("{number:016x}"));
        }
    }
}
