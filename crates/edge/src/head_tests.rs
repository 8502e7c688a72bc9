//! Heads that are taken and heads that are refused.

use super::*;
use http::Request;

fn read(request: http::request::Builder) -> Result<Head, Reason> {
    Head::read(&request.body(()).unwrap().into_parts().0, 100)
}

fn get(uri: &str) -> http::request::Builder {
    Request::builder().uri(uri).header("host", "a.example")
}

#[test]
fn an_ordinary_request_passes() {
    let head = read(get("/x?y=1").header("connection", "keep-alive")).unwrap();
    assert_eq!(head.host.unwrap(), "a.example");
    assert_eq!(head.target.as_str(), "/x?y=1");
    assert_eq!(head.framing, Framing::None);
    assert!(head.dropped.is_empty() && !head.expects_continue);
}

#[test]
fn the_authority_of_an_absolute_form_wins() {
    let head = read(get("http://b.example:81/x")).unwrap();
    assert_eq!(head.host.unwrap(), "b.example:81");
    assert_eq!(head.target.as_str(), "/x");
    for bad in ["http://u@b.example/", "ftp://b.example/", "b.example:80"] {
        assert_eq!(read(get(bad)).unwrap_err(), Reason::BadRequest, "{bad}");
    }
}

#[test]
fn a_star_is_for_options() {
    assert_eq!(read(get("*")).unwrap_err(), Reason::BadRequest);
    assert_eq!(read(get("*").method("OPTIONS")).unwrap().target.as_str(), "*");
}

#[test]
fn one_valid_host_is_demanded() {
    let bare = || Request::builder().uri("/");
    assert_eq!(read(bare()).unwrap_err(), Reason::BadRequest);
    assert!(read(bare().version(Version::HTTP_10)).unwrap().host.is_none());
    assert_eq!(read(get("/").header("host", "a.example")).unwrap_err(), Reason::BadRequest);
    for bad in ["", "a b", "u@a", "a,b", "a/b"] {
        assert_eq!(read(bare().header("host", bad)).unwrap_err(), Reason::BadRequest, "{bad:?}");
    }
}

#[test]
fn lengths_are_digits_and_agree() {
    let with = |values: &[&str]| {
        let mut request = get("/").method("POST");
        for value in values {
            request = request.header("content-length", *value);
        }
        read(request).map(|head| head.framing)
    };
    assert_eq!(with(&["5"]), Ok(Framing::Length(5)));
    assert_eq!(with(&["5", "05"]), Ok(Framing::Length(5)));
    let overflow = "18446744073709551616";
    for bad in [&["5", "6"][..], &["5, 5"], &["+5"], &["-1"], &[""], &["0x5"], &[overflow]] {
        assert_eq!(with(bad), Err(Reason::BadRequest), "{bad:?}");
    }
}

#[test]
fn chunked_is_the_only_coding_and_stands_alone() {
    let with = |coding: &str| {
        let request = get("/").method("POST").header("transfer-encoding", coding);
        read(request).map(|head| head.framing)
    };
    assert_eq!(with("Chunked"), Ok(Framing::Chunked));
    for bad in ["gzip, chunked", "chunked, chunked", "identity", "chunked;q=1", "xchunked"] {
        assert_eq!(with(bad), Err(Reason::BadTransferCoding), "{bad}");
    }
    let both = get("/").header("transfer-encoding", "chunked").header("content-length", "5");
    assert_eq!(read(both).unwrap_err(), Reason::BadRequest);
}

#[test]
fn connection_names_fields_but_not_those_that_matter() {
    let head = read(get("/").header("connection", "close, X-Hop , te")).unwrap();
    assert_eq!(head.dropped, ["x-hop"]);
    for bad in [
        "host",
        "Content-Length",
        "transfer-encoding",
        "authorization",
        "cookie",
        "X-Forwarded-For",
        "if-match",
        "accept",
        "accept-encoding",
        "a b",
        "close, via",
    ] {
        let request = get("/").header("connection", bad);
        assert_eq!(read(request).unwrap_err(), Reason::BadRequest, "{bad}");
    }
    let many = vec!["x-a"; CONNECTION_NAMES_MAX + 1].join(",");
    assert!(read(get("/").header("connection", many)).is_err());
}

#[test]
fn expectations_other_than_continue_are_refused() {
    let post = || get("/").method("POST").header("content-length", "1");
    assert!(read(post().header("expect", "100-Continue")).unwrap().expects_continue);
    assert_eq!(read(post().header("expect", "x")).unwrap_err(), Reason::BadExpectation);
    let old = post().header("expect", "100-continue").version(Version::HTTP_10);
    assert!(!read(old).unwrap().expects_continue);
    assert!(!read(get("/").header("expect", "100-continue")).unwrap().expects_continue);
}

#[test]
fn long_targets_and_connect_are_refused() {
    let long = format!("/{}", "a".repeat(100));
    assert_eq!(read(get(&long)).unwrap_err(), Reason::UriTooLong);
    assert_eq!(read(get("a:80").method("CONNECT")).unwrap_err(), Reason::BadMethod);
}
