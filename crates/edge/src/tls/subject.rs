//! The subject of a certificate as text (RFC 4514), for a header field.
//!
//! ```text
//! Certificate    = SEQUENCE { tbs SEQUENCE { [0] version OPTIONAL, serial, algorithm, issuer,
//!                             validity, subject Name, ... }, ... }
//! Name           = SEQUENCE OF SET OF SEQUENCE { OBJECT IDENTIFIER, value }
//! ```
//!
//! The certificate was verified before: what can't be read here is rare, and yields nothing.

use http::HeaderValue;
use std::fmt::Write as _;

/// A longer subject is not passed on: a header line of some servers takes 8 KiB.
const SUBJECT_BYTES_MAX: usize = 4 * 1024;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;
const STRINGS: [u8; 3] = [UTF8_STRING, PRINTABLE_STRING, IA5_STRING];
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Object identifiers that have a name (RFC 4514, section 3), and the one of e-mail addresses,
/// which every tool writes so.
const NAMES: [(&[u8], &str); 10] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// The subject of a certificate in DER: `CN=alice,O=Example`, the last part first.
pub(super) fn subject(certificate: &[u8]) -> Option<HeaderValue> {
    let name = subject_name(certificate)?;
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        parts.push(relative_name(take(&mut rest, SET)?)?);
    }
    parts.reverse();
    let text = parts.join(",");
    (text.len() <= SUBJECT_BYTES_MAX).then(|| HeaderValue::try_from(text).ok())?
}

fn subject_name(certificate: &[u8]) -> Option<&[u8]> {
    let mut certificate = certificate;
    let mut certificate = take(&mut certificate, SEQUENCE)?;
    let mut tbs = take(&mut certificate, SEQUENCE)?;
    if tbs.first() == Some(&VERSION) {
        take(&mut tbs, VERSION)?;
    }
    let _serial = any(&mut tbs)?;
    for _algorithm_issuer_validity in 0..3 {
        take(&mut tbs, SEQUENCE)?;
    }
    take(&mut tbs, SEQUENCE)
}

/// One or more attributes, joined by `+`.
fn relative_name(mut set: &[u8]) -> Option<String> {
    let mut text = String::new();
    while !set.is_empty() {
        let mut attribute = take(&mut set, SEQUENCE)?;
        let kind = take(&mut attribute, OBJECT)?;
        let whole = attribute;
        let (tag, value) = any(&mut attribute)?;
        if !text.is_empty() {
            text.push('+');
        }
        match NAMES.iter().find(|(known, _)| *known == kind) {
            Some((_, name)) => text.push_str(name),
            None => dotted(kind, &mut text)?,
        }
        text.push('=');
        if STRINGS.contains(&tag) {
            escape(value, &mut text);
        } else {
            // RFC 4514, 2.4: the encoding itself.
            text.push('#');
            whole.iter().for_each(|byte| push_hex(*byte, &mut text));
        }
    }
    (!text.is_empty()).then_some(text)
}

/// An object identifier as numbers with dots.
fn dotted(kind: &[u8], text: &mut String) -> Option<()> {
    let mut number = 0_u64;
    let mut first = true;
    for byte in kind {
        number = number.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 != 0 {
            continue;
        }
        if std::mem::take(&mut first) {
            let top = (number / 40).min(2);
            write!(text, "{top}.{}", number - top * 40).ok()?;
        } else {
            write!(text, ".{number}").ok()?;
        }
        number = 0;
    }
    Some(())
}

/// RFC 4514, 2.4; what is not printable ASCII becomes `\` and two hexadecimal digits.
fn escape(value: &[u8], text: &mut String) {
    for (place, &byte) in value.iter().enumerate() {
        let at_edge = place == 0 || place + 1 == value.len();
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' ' if at_edge => text.push_str("\\ "),
            b'#' if place == 0 => text.push_str("\\#"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                text.push('\\');
                push_hex(byte, text);
            }
        }
    }
}

fn push_hex(byte: u8, text: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// The contents of the next element, which must be of this kind.
fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    any(bytes).filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
}

/// The next element: its tag (of one byte) and its contents (of definite length).
fn any<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn of(parts: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        subject(certificate.der()).unwrap().to_str().unwrap().to_owned()
    }

    fn text(value: &str) -> DnValue {
        DnValue::Utf8String(value.to_owned())
    }

    #[test]
    fn the_last_part_comes_first() {
        let parts = [
            (DnType::CountryName, text("NL")),
            (DnType::OrganizationName, text("Polder")),
            (DnType::CommonName, text("alice")),
        ];
        assert_eq!(of(&parts), "CN=alice,O=Polder,C=NL");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn nothing_in_a_value_can_end_it_or_the_field() {
        let wild = text(" a,b+c=\"d\"\\;<é>\r\nX: y# ");
        let expected = r#"CN=\ a\,b\+c=\"d\"\\\;\<\C3\A9\>\0D\0AX: y#\ "#;
        assert_eq!(of(&[(DnType::CommonName, wild)]), expected);
        assert_eq!(of(&[(DnType::CommonName, text("#1"))]), r"CN=\#1");
    }

    #[test]
    fn what_has_no_name_is_numbered_and_what_is_no_text_is_in_hexadecimal() {
        let own = DnType::CustomDnType(vec![2, 999, 3]);
        assert_eq!(of(&[(own, text("x"))]), "2.999.3=x");
        let wide = DnValue::BmpString("a".try_into().unwrap());
        assert_eq!(of(&[(DnType::CommonName, wide)]), "CN=#1E020061");
    }

    #[test]
    fn half_a_certificate_has_no_subject() {
        let key = KeyPair::generate().unwrap();
        let whole = CertificateParams::default().self_signed(&key).unwrap().der().to_vec();
        assert!(subject(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(subject(&whole[..end]), None);
        }
        for place in 0..whole.len() {
            let mut bent = whole.clone();
            bent[place] ^= 0xff;
            // Whatever it yields, it must come to an end without a panic.
            let _ = subject(&bent);
        }
    }
}
