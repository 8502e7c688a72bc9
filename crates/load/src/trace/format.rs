//! The formats, and how one is recognised.

use super::lines;
use std::fmt;
use std::path::Path;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `timestamp,num_request,size`: requests and bytes of each minute (World Cup 1998).
    Minutes,
    /// `time_s,NAME,NAME...`: requests in each interval, a column for each site.
    Rates,
    /// Counts separated by white space, one for each interval (NASA, Twitter).
    Counts,
    /// A header of tab-separated names with `time` and `url`, perhaps `bytes` (NASA, requests).
    Requests,
    /// `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure LLM inference).
    Tokens,
    /// The common or combined log format of web servers.
    Log,
    /// Binary records of 20 bytes (World Cup 1998, requests).
    Binary,
    /// `HashOwner,HashApp,HashFunction,Trigger,1,2,...`: invocations of each function in each
    /// minute of a day (Azure Functions 2019).
    Functions,
    /// `app,func,end_timestamp,duration`: requests by when they ended (Azure Functions 2021).
    Ends,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Minutes,
        Self::Rates,
        Self::Counts,
        Self::Requests,
        Self::Tokens,
        Self::Log,
        Self::Binary,
        Self::Functions,
        Self::Ends,
    ];

    /// As `--format` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Rates => "rates",
            Self::Counts => "counts",
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Log => "log",
            Self::Binary => "binary",
            Self::Functions => "functions",
            Self::Ends => "ends",
        }
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// By the name of a file and its first bytes, decompressed. Pure.
    #[must_use]
    pub fn detect(path: &Path, head: &[u8]) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let plain = [".gz", ".bz2", ".xz"].iter().find_map(|end| name.strip_suffix(end));
        if plain.unwrap_or(&name).ends_with(".bin") {
            return Some(Self::Binary);
        }
        let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let is_count = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace();
        if !head.is_empty() && head.iter().all(is_count) && head[0].is_ascii_digit() {
            return Some(Self::Counts);
        }
        let line = String::from_utf8_lossy(first);
        let line = line.trim_end_matches('\r');
        let lower = line.to_ascii_lowercase();
        if lower == "timestamp,num_request,size" {
            Some(Self::Minutes)
        } else if lower == "timestamp,contexttokens,generatedtokens" {
            Some(Self::Tokens)
        } else if lower.starts_with("hashowner,hashapp,hashfunction,trigger,1") {
            Some(Self::Functions)
        } else if lower == "app,func,end_timestamp,duration" {
            Some(Self::Ends)
        } else if lower.starts_with("time_s,") {
            Some(Self::Rates)
        } else if lines::Columns::of(line).is_some() {
            Some(Self::Requests)
        } else {
            lines::log(line).is_ok().then_some(Self::Log)
        }
    }

    /// Whether the first line names columns.
    pub(super) const fn has_header(self) -> bool {
        !matches!(self, Self::Counts | Self::Log | Self::Binary)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_their_beginning() {
        let detect = |name: &str, head: &str| Format::detect(Path::new(name), head.as_bytes());
        let cases = [
            ("x.csv.gz", "timestamp,num_request,size\n1998", Format::Minutes),
            ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n", Format::Tokens),
            ("x", "time_s,shop,blog\n0,1,2\n", Format::Rates),
            ("x.tsv", "host\tlogname\ttime\tmethod\turl\n", Format::Requests),
            ("workload.txt", "52 55 48 55", Format::Counts),
            ("x.bin.gz", "5H", Format::Binary),
            ("x", "HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,q,1,2,3", Format::Functions),
            ("x", "app,func,end_timestamp,duration\na,f,1.5,1", Format::Ends),
            ("a", "::1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n", Format::Log),
        ];
        for (name, head, format) in cases {
            assert_eq!(detect(name, head), Some(format), "{name}");
            assert_eq!(Format::named(format.name()), Some(format));
        }
        for head in ["", "hello\n", "a,b,c\n1,2,3\n", " \n"] {
            assert_eq!(detect("x", head), None, "{head:?}");
        }
    }
}
