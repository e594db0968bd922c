//! Runs the console sessions in the README and checks that each command prints what the page shows.
//!
//! A session is a block marked `console`. Lines that start with `$ ` are commands; the lines after them are their output, standard error
//! included. A line `...` stands for any number of lines. Dates, times, durations and the host name may differ.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trodden_corpus::Corpus;
use trodden_corpus::steps;

/// The page with the sessions.
const PAGE: &str = "README.md";
/// The source package in whose folder the sessions run.
const PACKAGE: &str = "bzip2";
/// Stands for omitted lines.
const OMISSION: &str = "...";

/// A command of a session.
#[derive(Debug, PartialEq, Eq)]
struct Step<'a> {
    /// The command's line in the page.
    line: usize,
    command: &'a str,
    /// The expected output.
    expected: Vec<&'a str>,
}

/// Runs all sessions with the commands in the folder `programs`, and returns a finding for each step whose output differs.
///
/// # Errors
/// The sources cannot be fetched, a command cannot be started, or the README has no session.
pub fn check(programs: &Path) -> Result<Vec<String>> {
    let page = steps::root().join(PAGE);
    let text = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let sessions = sessions(&text);
    ensure!(!sessions.is_empty(), "{PAGE} has no console session");
    let folder = steps::target().join("sessions");
    let sources = Corpus::at(&folder).source(PACKAGE)?;
    let mut findings = Vec::new();
    for session in sessions {
        let place = fresh_copy(&sources, &folder.join("place"))?;
        for step in session {
            let printed = run_step(&step, &place, programs, &folder.join("store"))?;
            findings.extend(difference(&step, &printed));
        }
    }
    Ok(findings)
}

/// Copies the unpacked sources for one session.
fn fresh_copy(sources: &Path, place: &Path) -> Result<PathBuf> {
    if place.exists() {
        std::fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    steps::output(Command::new("cp").arg("-a").args([sources, place]))?;
    Ok(place.to_owned())
}

/// Runs a step and returns its standard output and error in their original order.
fn run_step(step: &Step, place: &Path, programs: &Path, store: &Path) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec 2>&1; {}", step.command)]).current_dir(place).stdin(Stdio::null());
    command.env("PATH", steps::path_with(&[programs.to_owned()])?).env("TRODDEN_CACHE", store);
    for variable in ["COLUMNS", "MAKEFLAGS", "MAKELEVEL", "CFLAGS", "TRODDEN_QUIET", "TRODDEN_INSTRUMENT"] {
        command.env_remove(variable);
    }
    let output = command.output().with_context(|| format!("cannot run `{}`", step.command))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{PAGE}:{}: `{}` failed ({}):\n{text}", step.line, step.command, output.status);
    Ok(text)
}

fn sessions(text: &str) -> Vec<Vec<Step<'_>>> {
    let mut found: Vec<Vec<Step>> = Vec::new();
    let mut is_session = false;
    for (line, content) in (1..).zip(text.lines()) {
        match (content.strip_prefix("```"), content.strip_prefix("$ ")) {
            (Some(mark), _) => {
                is_session = mark == "console";
                if is_session {
                    found.push(Vec::new());
                }
            }
            (None, Some(command)) if is_session => {
                found.last_mut().expect("a session has begun").push(Step { line, command, expected: Vec::new() });
            }
            _ if is_session => {
                if let Some(step) = found.last_mut().and_then(|session| session.last_mut()) {
                    step.expected.push(content);
                }
            }
            _ => {}
        }
    }
    found
}

/// Describes the first line in which a step's output differs from the page; `None` if it matches.
fn difference(step: &Step, printed: &str) -> Option<String> {
    let actual: Vec<String> = printed.lines().map(with_placeholders).collect();
    let expected: Vec<String> = step.expected.iter().map(|line| with_placeholders(line)).collect();
    let parts: Vec<&[String]> = expected.split(|line| line == OMISSION).collect();
    let (mut at, mut line) = (0, step.line);
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let start = match (number, is_last) {
            (0, _) => at,
            (_, true) => actual.len().saturating_sub(part.len()).max(at),
            _ => (at..actual.len()).find(|start| actual[*start..].starts_with(part)).unwrap_or(at),
        };
        let differs = (0..part.len()).find(|n| actual.get(start + n) != Some(&part[*n]));
        if let Some(n) = differs {
            let prints = actual.get(start + n).map_or("nothing more".to_owned(), |line| format!("`{line}`"));
            return Some(format!("{PAGE}:{}: `{}` prints {prints} instead of `{}`", line + 1 + n, step.command, part[n]));
        }
        at = start + part.len();
        line += part.len() + 1;
    }
    // After the last expected line, more output is allowed only if the page ends with an omission.
    let more = actual.get(at)?;
    Some(format!("{PAGE}:{}: `{}` also prints `{more}`", step.line, step.command))
}

/// Replaces dates, times, durations and the host name in a line by placeholders.
fn with_placeholders(line: &str) -> String {
    const UNITS: [&str; 5] = ["ns", "us", "ms", "s", "min"];
    let words: Vec<&str> = line.split(' ').collect();
    let is_run = line.trim_start().starts_with("run ");
    let is_number = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','));
    let is_moment = |word: &str| {
        word.len() >= 8
            && word.chars().all(|c| c.is_ascii_digit() || c == '-' || c == ':')
            && word.contains(['-', ':'])
            && word != "--------"
    };
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| UNITS.contains(&word.trim_end_matches([',', '.', ';'])));
    let replaced = words.iter().enumerate().map(|(at, word)| match *word {
        word if is_moment(word) => "MOMENT".to_owned(),
        word if is_number(word) && is_unit(words.get(at + 1)) => "NUMBER".to_owned(),
        word if is_unit(Some(&word)) && at > 0 && is_number(words[at - 1]) => format!("UNIT{}", if word.ends_with(',') { "," } else { "" }),
        _ if is_run && at > 0 && at + 1 == words.len() && words[at - 1] == "on" => "HOST".to_owned(),
        word => word.to_owned(),
    });
    replaced.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "```console\n$ make\n...\ndone\n$ report\n  run   2026-11-21 10:42:49 UTC, 210 ms, exit status 0, on vm\n\
        \u{20} paths 528\n```\n```sh\n$ no session\n```\n";

    #[test]
    fn sessions_are_read_from_console_blocks() {
        let found = sessions(TEXT);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0][0], Step { line: 2, command: "make", expected: vec!["...", "done"] });
        assert_eq!((found[0][1].line, found[0][1].expected.len()), (5, 2));
    }

    #[test]
    fn only_times_and_host_names_may_differ() {
        let found = sessions(TEXT);
        let [make, report] = found[0].as_slice() else { panic!("{found:?}") };
        for printed in ["done\n", "cc a.c\ncc b.c\ndone\n"] {
            assert_eq!(difference(make, printed), None);
        }
        for printed in ["", "done\nmore\n", "cc a.c\n"] {
            assert!(difference(make, printed).is_some_and(|d| d.contains("README.md:4: ")), "{printed}");
        }
        let other = |paths: &str| format!("  run   2030-01-02 00:00:00 UTC, 1.5 s, exit status 0, on other\n  paths {paths}\n");
        assert_eq!(difference(report, &other("528")), None);
        let said = difference(report, &other("529")).unwrap();
        assert_eq!(said, "README.md:7: `report` prints `  paths 529` instead of `  paths 528`");
        assert!(difference(report, &other("528").replace("status 0", "status 1")).is_some());
        assert!(difference(report, &format!("{}more\n", other("528"))).is_some_and(|d| d.contains("also prints `more`")));
    }
}
