//! Completions and manual pages, judged by the programs that read them.

#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn polder(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_polder")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn printed(arguments: &[&str]) -> String {
    String::from_utf8(polder(arguments).stdout).unwrap()
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]);
    let listed = help.lines().take_while(|line| *line != "Options:");
    // What is further in belongs to the line above.
    let listed = listed.filter_map(|line| {
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split_whitespace().next()
    });
    let names: Vec<String> = listed.map(str::to_owned).collect();
    assert!(names.len() >= 13 && names.iter().any(|name| name == "load"), "{names:?}");
    names
}

/// Gives a text to a program, which must find nothing wrong with it; false where it is missing.
fn accepted_by(program: &[&str], text: &str) -> bool {
    let spawned = Command::new(program[0])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: no {}", program[0]);
        return false;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{program:?}: {output:?}");
    true
}

#[test]
fn each_shell_accepts_its_script_and_it_names_every_command() {
    for (shell, checker) in [
        ("bash", &["bash", "-n"][..]),
        ("zsh", &["zsh", "-n"]),
        ("fish", &["fish", "--no-execute"]),
    ] {
        let script = printed(&["completions", shell]);
        for name in commands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        assert!(script.contains("in-flight-max"), "{shell}");
        accepted_by(checker, &script);
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_polder")).args(["completions", "csh"]).output();
    assert_eq!(unknown.unwrap().status.code(), Some(2));
}

#[test]
fn bash_completes_a_command_and_an_option() {
    let script = printed(&["completions", "bash"]);
    let ask = "\nCOMP_WORDS=(polder stat); COMP_CWORD=1; _polder polder stat polder\n\
               echo \"${COMPREPLY[@]}\"\n\
               COMP_WORDS=(polder load --tr); COMP_CWORD=2; _polder polder --tr load\n\
               echo \"${COMPREPLY[@]}\"\n";
    let ran = Command::new("bash").arg("-c").arg(script + ask).output();
    let Ok(output) = ran else {
        eprintln!("skipped: no bash");
        return;
    };
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().collect::<Vec<_>>(), ["status", "--trace"], "{:?}", output.stderr);
}

#[test]
fn every_command_has_a_page_that_readers_accept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    polder(&["man", "--out", out.to_str().unwrap()]);
    let page = |path: &Path| std::fs::read_to_string(path).unwrap();
    for name in commands() {
        let text = page(&out.join(format!("polder-{name}.1")));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page(&out.join("polder.1")).contains("\npolder \\- Many web sites on one pool"));
    assert!(page(&out.join("polder-load-constant.1")).contains("\\-\\-rate"));
    assert_eq!(page(&out.join("polder.1")), printed(&["man"]));
    for entry in std::fs::read_dir(&out).unwrap() {
        let text = page(&entry.unwrap().path());
        // Whether a line is long or a date is missing is a matter of style; an error is not.
        if !accepted_by(&["mandoc", "-T", "lint", "-W", "error"], &text) {
            break;
        }
    }
    let mut man = Command::new("man");
    let shown = man.args(["--warnings", "-l"]).arg(out.join("polder.1")).env("MANPAGER", "cat");
    match shown.output() {
        Err(_) => eprintln!("skipped: no man"),
        Ok(output) if !output.status.success() || output.stdout.is_empty() => {
            // Small systems have a `man` that only says that there are no pages.
            eprintln!("skipped: man does not format here: {output:?}");
        }
        Ok(output) => {
            assert!(output.stderr.is_empty(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("completions"));
        }
    }
}
