//! Noise for the lines of the control socket.

use super::wire::{decode_request, decode_response, encode_request, encode_response};
use super::{Refusal, Response};
use crate::status::example;
use fuzzing::{Random, Target};

const TOKENS: [&str; 30] = [
    "{\"version\":1,\"request\":\"",
    "\"version\":",
    "\"request\":\"status\"",
    "\"request\":\"move\"",
    "\"arguments\":{",
    "\"node\":\"n1\"",
    "\"site\":\"shop\"",
    "\"limit\":9",
    "\"response\":\"done\"",
    "\"response\":\"moves\"",
    "\"value\":",
    "\"error\":{\"code\":\"not_found\",\"text\":\"x\"}",
    "\"text\":\"\"",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "1e999",
    "-0",
    "\\u0000",
    "\\ud800",
    "\u{1b}[2J",
    ",",
    ":",
    "}",
    "\"",
    "drain",
    "pause",
    "stop",
];

fn made(random: &mut Random) -> Vec<u8> {
    let outcome = match random.below(3) {
        0 => Ok(Response::Status(Box::new(example()))),
        1 => Ok(Response::Moves(Vec::new())),
        _ => Err(Refusal::new(super::Code::Refused, "no")),
    };
    encode_response(outcome)
}

#[test]
fn fuzz_control() {
    let check = |bytes: &[u8], _: &mut Random| {
        let request = decode_request(bytes);
        if let Ok(request) = &request {
            assert_eq!(decode_request(&encode_request(request)).as_ref(), Ok(request));
        }
        let response = decode_response(bytes);
        if let Ok(response) = &response {
            // Once more: the text of a number in the input need not be the shortest.
            let line = encode_response(response.clone());
            let again = decode_response(&line).expect("what is written is read");
            assert_eq!(encode_response(again), line);
        }
        let kind = |text: &str| text.split(['`', '"', '0', '1']).next().map(str::to_owned);
        let request = request.map_err(|refusal| (refusal.code as u8, kind(&refusal.text)));
        (format!("{request:?}"), response.is_ok(), response.err().and_then(|text| kind(&text)))
    };
    let target = Target::new("control", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&TOKENS).made_by(made).bytes_max(16 * 1024).run(check);
}
