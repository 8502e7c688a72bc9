//! A server's program: its placeholders, and what they become on this node.
//!
//! A placeholder is a lower-case word in braces, as `{port}`. What else stands in braces is the
//! program's own: `${port}` and `{ echo; }` go to a shell as they are.

use crate::options::Program;
use std::net::SocketAddrV4;
use std::ops::Range;
use thiserror::Error;

const PLACEHOLDERS: [&str; 4] = ["port", "host", "node", "site"];

/// Why a program cannot run.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadCommand {
    /// There is no program.
    #[error("the command is empty")]
    Empty,
    /// The kernel ends arguments at a zero byte.
    #[error("the argument {argument:?} holds a zero byte")]
    ZeroByte {
        /// The argument.
        argument: String,
    },
    /// A name in the environment ends at an equals sign.
    #[error("the environment variable {name:?} has no name or an equals sign in it")]
    Variable {
        /// The variable's name.
        name: String,
    },
    /// A placeholder that nobody fills in.
    #[error("unknown placeholder {{{name}}} in {argument:?}; known: port, host, node, site")]
    Placeholder {
        /// The word in braces.
        name: String,
        /// Where it stands.
        argument: String,
    },
}

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) address: SocketAddrV4,
    pub(crate) node: &'a str,
    pub(crate) site: &'a str,
}

/// A program ready to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

/// Refuses a program that could not start on any node.
pub(crate) fn check(program: &Program) -> Result<(), BadCommand> {
    if program.argv.first().is_none_or(|first| first.trim().is_empty()) {
        return Err(BadCommand::Empty);
    }
    for (name, _) in &program.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(BadCommand::Variable { name: name.clone() });
        }
    }
    for argument in program.argv.iter().chain(program.env.iter().map(|(_, value)| value)) {
        if argument.contains('\0') {
            return Err(BadCommand::ZeroByte { argument: argument.clone() });
        }
        let mut rest = argument.as_str();
        while let Some((name, place)) = next_placeholder(rest) {
            if !PLACEHOLDERS.contains(&name) {
                let (name, argument) = (name.to_owned(), argument.clone());
                return Err(BadCommand::Placeholder { name, argument });
            }
            rest = &rest[place.end..];
        }
    }
    Ok(())
}

/// Fills in the placeholders and adds `PORT`, `HOST`, `NODE` and `SITE` to the environment; what
/// the settings say of these wins.
pub(crate) fn fill_in(program: &Program, place: Place<'_>) -> Filled {
    let values = [
        place.address.port().to_string(),
        place.address.ip().to_string(),
        place.node.to_owned(),
        place.site.to_owned(),
    ];
    let known = PLACEHOLDERS.iter().zip(&values);
    let mut env: Vec<_> = known.map(|(n, v)| (n.to_ascii_uppercase(), v.clone())).collect();
    env.extend(program.env.iter().map(|(name, value)| (name.clone(), fill(value, &values))));
    let argv = program.argv.iter().map(|argument| fill(argument, &values)).collect();
    Filled { argv, env }
}

fn fill(argument: &str, values: &[String; 4]) -> String {
    let mut filled = String::new();
    let mut rest = argument;
    while let Some((name, place)) = next_placeholder(rest) {
        filled.push_str(&rest[..place.start]);
        let known = PLACEHOLDERS.iter().position(|known| *known == name);
        filled.push_str(known.map_or(&rest[place.clone()], |index| &values[index]));
        rest = &rest[place.end..];
    }
    filled + rest
}

/// The next placeholder: its name, and the bytes that it takes with its braces.
fn next_placeholder(text: &str) -> Option<(&str, Range<usize>)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|found| found + from) {
        let length = text[open + 1..].bytes().take_while(u8::is_ascii_lowercase).count();
        let close = open + 1 + length;
        let is_shells = text[..open].ends_with('$');
        if length > 0 && text[close..].starts_with('}') && !is_shells {
            return Some((&text[open + 1..close], open..close + 1));
        }
        from = open + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Start;
    use std::net::Ipv4Addr;

    fn program(argv: &[&str]) -> Program {
        let argv = argv.iter().map(|&a| a.to_owned()).collect();
        Program { argv, env: Vec::new(), start: Start::Warm }
    }

    fn place() -> Place<'static> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9_001);
        Place { address, node: "n1", site: "shop" }
    }

    #[test]
    fn arguments_and_environment_are_filled_in() {
        let mut program =
            program(&["serve", "{host}:{port}", "${port}", "{ echo; }", "{site}@{node}"]);
        program.env = vec![("ROOT".into(), "/srv/{site}".into()), ("NODE".into(), "mine".into())];
        assert_eq!(check(&program), Ok(()));
        let filled = fill_in(&program, place());
        let expected = ["serve", "127.0.0.1:9001", "${port}", "{ echo; }", "shop@n1"];
        assert_eq!(filled.argv, expected);
        let last = |name| filled.env.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(last("PORT"), Some("9001"));
        assert_eq!(last("HOST"), Some("127.0.0.1"));
        assert_eq!(last("SITE"), Some("shop"));
        assert_eq!(last("ROOT"), Some("/srv/shop"));
        assert_eq!(last("NODE"), Some("mine"));
    }

    #[test]
    fn what_cannot_run_is_refused_by_name() {
        assert_eq!(check(&program(&[])), Err(BadCommand::Empty));
        assert_eq!(check(&program(&[" "])), Err(BadCommand::Empty));
        let unknown = check(&program(&["serve", "-p{prot}"])).unwrap_err().to_string();
        assert!(unknown.contains("{prot}") && unknown.contains("-p{prot}"), "{unknown}");
        let zero = check(&program(&["serve", "a\0b"])).unwrap_err();
        assert!(matches!(zero, BadCommand::ZeroByte { .. }));
        let mut bad = program(&["serve"]);
        bad.env = vec![("A=B".into(), String::new())];
        assert!(matches!(check(&bad), Err(BadCommand::Variable { .. })));
    }
}
