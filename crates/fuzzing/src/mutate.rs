//! Changes of an input.

use crate::Random;

/// Changes of one input: more turn it into noise, which parsers refuse at its first byte.
const CHANGES_MAX: usize = 8;

/// Longest range that is removed, doubled or moved, in bytes.
const RANGE_BYTES_MAX: usize = 64;

/// Bytes at which text protocols turn.
const TURNS: &[u8] = b"\r\n\0 \t:;,=\"'\\[]{}()%/@?#+-.0a\x7f\x80\xff";

/// Numbers at which mistakes live.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "00",
    "7",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
];

/// Changes the input somewhere, some times. It stays within `bytes_max`.
pub(crate) fn mutate(
    input: &mut Vec<u8>,
    other: &[u8],
    tokens: &[Vec<u8>],
    bytes_max: usize,
    random: &mut Random,
) {
    for _ in 0..1 + random.below(CHANGES_MAX) {
        change(input, other, tokens, random);
    }
    input.truncate(bytes_max);
}

fn change(input: &mut Vec<u8>, other: &[u8], tokens: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let range = at..(at + 1 + random.below(RANGE_BYTES_MAX)).min(input.len()).max(at);
    match random.below(12) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = *random.pick(TURNS);
            }
        }
        3 => input.insert(at, *random.pick(TURNS)),
        4 | 5 if !tokens.is_empty() => {
            input.splice(at..at, random.pick(tokens).iter().copied());
        }
        6 if !tokens.is_empty() => {
            let token = random.pick(tokens);
            let end = (at + token.len()).min(input.len());
            input.splice(at..end, token.iter().copied());
        }
        7 => drop(input.drain(range)),
        8 => {
            let copy = input[range].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copy);
        }
        9 => change_number(input, at, random),
        10 => {
            let from = random.below(other.len());
            let length = random.below(other.len() - from + 1);
            input.splice(range, other[from..from + length].iter().copied());
        }
        11 if random.once_in(3) => input.truncate(at),
        _ => {}
    }
}

/// Replaces the first run of digits behind `at`.
fn change_number(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit) else { return };
    let start = at + start;
    let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    input.splice(start..start + digits, random.pick(&NUMBERS).bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn inputs_change_and_keep_to_their_limit() {
        let tokens = [b"token".to_vec()];
        let mut random = Random::new(3);
        let mut seen = HashSet::new();
        for _ in 0..2_000 {
            let mut input = b"length: 42, more".to_vec();
            mutate(&mut input, b"another input", &tokens, 40, &mut random);
            assert!(input.len() <= 40);
            seen.insert(input);
        }
        assert!(seen.len() > 1_500, "{} different inputs", seen.len());
        let some = |part: &[u8]| seen.iter().any(|one| one.windows(part.len()).any(|w| w == part));
        assert!(some(b"token") && some(b"18446744073709551616") && some(b"another"));
    }

    #[test]
    fn nothing_can_be_changed_too() {
        let mut random = Random::new(4);
        for _ in 0..2_000 {
            let mut input = Vec::new();
            mutate(&mut input, &[], &[], 4, &mut random);
        }
    }
}
