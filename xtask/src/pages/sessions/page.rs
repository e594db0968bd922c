//! Parses the console sessions in a page of the documentation.

use anyhow::{Result, bail};
use std::iter::Peekable;

/// In place of a package name: the page's sessions start in an empty folder.
pub const NO_PACKAGE: &str = "none";

/// The sessions of a page, as a list of files to write and commands to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SessionPage<'a> {
    /// The package in whose sources the sessions run, or [`NO_PACKAGE`].
    pub package: &'a str,
    pub steps: Vec<SessionStep<'a>>,
    /// Index of the first step of the first slow session; `None` if all sessions are fast.
    pub first_slow_step: Option<usize>,
}

impl<'a> SessionPage<'a> {
    /// Returns the steps to run: all of them if `with_slow`, otherwise those before the first slow session.
    pub fn steps(&self, with_slow: bool) -> &[SessionStep<'a>] {
        &self.steps[..self.first_slow_step.filter(|_| !with_slow).unwrap_or(self.steps.len())]
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum SessionStep<'a> {
    Run(CommandStep<'a>),
    Write { file: &'a str, content: String },
}

#[derive(Debug, PartialEq, Eq)]
pub struct CommandStep<'a> {
    /// The line number of the command in the page. If the command has several lines, this is the last of them.
    pub line: usize,
    pub command: String,
    pub expected: Vec<&'a str>,
}

/// The comments that have been read since the last block, and control the next block.
#[derive(Default)]
struct PendingComment<'a> {
    line: usize,
    file: Option<&'a str>,
    is_slow: bool,
}

/// Parses the sessions of a page. Returns `None` if the page has none. Fails if a comment or a block is malformed; the error begins with
/// the line number.
pub fn parse_sessions(text: &str) -> Result<Option<SessionPage<'_>>> {
    let mut page = SessionPage::default();
    let mut pending = PendingComment::default();
    let mut has_session = false;
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(mark) = line.strip_prefix("```") {
            let PendingComment { file, is_slow, .. } = std::mem::take(&mut pending);
            if is_slow && page.first_slow_step.is_none() {
                page.first_slow_step = Some(page.steps.len());
            }
            match file {
                Some(file) => page.steps.push(SessionStep::Write { file, content: read_block(&mut lines) }),
                None if mark == "console" && page.package.is_empty() => {
                    bail!("{number}: the page has no comment `<!-- sessions: PACKAGE -->` before its first session")
                }
                None if mark == "console" => {
                    has_session = true;
                    read_session(&mut lines, &mut page.steps)?;
                }
                None => drop(read_block(&mut lines)),
            }
        } else if let Some(package) = parse_comment_value(line, "sessions") {
            page.package = package;
        } else if let Some(file) = parse_comment_value(line, "file") {
            pending = PendingComment { line: number, file: Some(file), ..pending };
        } else if parse_comment_value(line, "session") == Some("slow") {
            pending = PendingComment { line: number, is_slow: true, ..pending };
        } else if line.starts_with("<!-- ") && line.contains("session") {
            bail!("{number}: unknown comment `{line}`");
        } else if pending.line > 0 && !line.trim().is_empty() {
            bail!("{}: no block follows this comment", pending.line);
        }
    }
    Ok(has_session.then_some(page))
}

/// If `line` is a comment `<!-- KEY: VALUE -->` with this key, returns its value.
fn parse_comment_value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let value = line.trim_end().strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(key)?.strip_prefix(": ")?;
    Some(value.trim())
}

fn read_block<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> String {
    lines.map(|(_, line)| line).take_while(|line| !line.starts_with("```")).flat_map(|line| [line, "\n"]).collect()
}

/// Parses the commands of a session and their output, up to the end of the block.
fn read_session<'a>(lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>, steps: &mut Vec<SessionStep<'a>>) -> Result<()> {
    let first = steps.len();
    while let Some((number, line)) = lines.next().filter(|(_, line)| !line.starts_with("```")) {
        if let Some(command) = line.strip_prefix("$ ") {
            let (line, command) = join_command(number, command, lines);
            steps.push(SessionStep::Run(CommandStep { line, command, expected: Vec::new() }));
        } else {
            match steps[first..].last_mut() {
                Some(SessionStep::Run(step)) => step.expected.push(line),
                _ => bail!("{number}: the session begins with output"),
            }
        }
    }
    Ok(())
}

/// Joins the first line of a command with the lines that continue it after a backslash or in a here-document. Returns the command, preceded
/// by the number of its last line.
fn join_command<'a>(number: usize, first: &str, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> (usize, String) {
    let (mut last, mut command) = (number, first.to_owned());
    let delimiter = first.split_once("<<").and_then(|(_, rest)| rest.split(' ').next()).map(|word| word.trim_matches('\''));
    while delimiter.is_some() || command.ends_with('\\') {
        let Some((number, line)) = lines.next() else { break };
        last = number;
        command.push('\n');
        command.push_str(line);
        if delimiter.is_some_and(|delimiter| line == delimiter) {
            break;
        }
    }
    (last, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_step<'a>(line: usize, command: &str, expected: &[&'a str]) -> SessionStep<'a> {
        SessionStep::Run(CommandStep { line, command: command.to_owned(), expected: expected.to_vec() })
    }

    #[test]
    fn sessions_are_read_from_console_blocks() {
        let text = "text\n<!-- sessions: bzip2 -->\n```console\n$ make\n...\ndone\n$ report\n  paths 528\n```\n```sh\n$ no session\n```\n";
        let page = parse_sessions(text).unwrap().unwrap();
        assert_eq!(page.package, "bzip2");
        assert_eq!(page.steps, [run_step(4, "make", &["...", "done"]), run_step(7, "report", &["  paths 528"])]);
        assert_eq!(parse_sessions("```sh\nmake\n```\n").unwrap(), None);
    }

    #[test]
    fn files_and_long_commands_are_read() {
        let text = "<!-- sessions: none -->\n<!-- file: a/b.c -->\n\n```c\nint x;\n\n```\n```console\n$ cat > c.c <<'END'\n$ y\nEND\n\
            $ cc a/b.c \\\n  c.c\nok\n```\n";
        let page = parse_sessions(text).unwrap().unwrap();
        let file = SessionStep::Write { file: "a/b.c", content: "int x;\n\n".to_owned() };
        assert_eq!(page.steps, [file, run_step(11, "cat > c.c <<'END'\n$ y\nEND", &[]), run_step(13, "cc a/b.c \\\n  c.c", &["ok"])]);
    }

    #[test]
    fn slow_sessions_end_the_fast_ones() {
        let text = "<!-- sessions: none -->\n```console\n$ a\n```\n<!-- session: slow -->\n```console\n$ b\n```\n```console\n$ c\n```\n";
        let page = parse_sessions(text).unwrap().unwrap();
        assert_eq!((page.steps(false).len(), page.steps(true).len()), (1, 3));
    }

    #[test]
    fn malformed_comments_and_blocks_are_rejected() {
        let message = |text: &str| parse_sessions(text).unwrap_err().to_string();
        assert!(message("```console\n$ a\n```\n").starts_with("1: the page has no comment"));
        assert!(message("<!-- sessions: none -->\n```console\nout\n$ a\n```\n").starts_with("3: the session begins with output"));
        assert!(message("<!-- file: a.c -->\ntext\n").starts_with("1: no block follows"));
        assert!(message("<!-- session: fast -->\n").starts_with("1: unknown comment"));
    }
}
