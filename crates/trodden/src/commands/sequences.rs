//! Queries on sequences of paths and calls: `find --events`, `diff --sequence` and `segments --thread`.

use crate::cli::{DiffArguments, FindArguments, SegmentsArguments};
use crate::output;
use crate::surroundings::folders;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::sequences::{self, EventTable, OpenedSequence};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::sequences::{self as shown, ThreadChoice};
use trodden_stored::place::streams_folder_of;

const SCHEMA_VERSION: u32 = 2;

/// `trodden find --events`: prints where a sequence of events occurs. Returns status 1 if it occurs and `--fail` is given.
pub fn find(job: &FindArguments, kind: InputKind) -> Result<ExitCode> {
    let events = parse_events(&job.expression)?;
    let opened = open_thread_stream(&find_stream_to_read(&job.file, kind, "find --events")?, job.thread.unwrap_or(0) as usize)?;
    let found = sequences::find(&opened, &events, output::max_results(job.top, job.json))?;
    print_result(job.json, &found, |out| shown::write_found(out, &found))?;
    Ok(if job.fail && found.occurrences > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Splits a list of events at semicolons. Semicolons in square brackets do not count, because they belong to types (`[u8; 4]`).
fn parse_events(text: &str) -> Result<Vec<String>> {
    let (mut events, mut depth) = (vec![String::new()], 0_i32);
    for character in text.chars() {
        match character {
            ';' if depth == 0 => events.push(String::new()),
            other => {
                depth += i32::from(other == '[') - i32::from(other == ']');
                events.last_mut().context("the list of events is empty")?.push(other);
            }
        }
    }
    let events: Vec<String> = events.iter().map(|event| event.trim().to_owned()).collect();
    ensure!(
        !events.iter().any(String::is_empty),
        "`{text}` contains an empty event. Write FUNCTION:PATH, `enter FUNCTION` or `leave`, separated by `;`"
    );
    Ok(events)
}

/// `trodden diff --sequence`: prints where two streams differ. Returns status 1 if they differ and `--fail` is given.
pub fn diff(job: &DiffArguments, (before, after): (InputKind, InputKind)) -> Result<ExitCode> {
    InputKind::StreamLogs.reject_options(&[
        ("--across-builds", job.across_builds),
        ("--min-change", job.min_change.is_some()),
        ("--counts", job.counts),
        ("--ignore", !job.ignore.is_empty()),
    ])?;
    let (before, after) =
        (find_stream_to_read(&job.before, before, "diff --sequence")?, find_stream_to_read(&job.after, after, "diff --sequence")?);
    let (input, folders, mut table) = (choose_thread(job.thread.unwrap_or(0) as usize), folders(), EventTable::default());
    let (_, left) = shown::open_into(&before, input, &mut table, &folders)?;
    let (_, right) = shown::open_into(&after, input, &mut table, &folders)?;
    let found = sequences::diff(&left, &right, &table, job.top);
    print_result(job.json, &found, |out| shown::write_differences(out, &found))?;
    Ok(if job.fail && !found.equal { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `trodden segments --thread`: prints the segments in one thread's stream.
pub fn segments(job: &SegmentsArguments, kind: InputKind) -> Result<ExitCode> {
    let profile_options = [("--function", job.function.is_some()), ("--known", !job.known.is_empty()), ("--sarif", job.sarif.is_some())];
    if let Some((option, _)) = profile_options.iter().find(|(_, is_given)| *is_given) {
        bail!("{option} does not apply to the segments of one thread's stream. Omit {option} or --thread");
    }
    let opened = open_thread_stream(&find_stream_to_read(&job.file, kind, "segments")?, job.thread.unwrap_or(0))?;
    let found = sequences::count_segments(&opened, job.depth as usize, false, output::max_results(job.top, job.json))?;
    print_result(job.json, &found, |out| shown::write_segments(out, &found))?;
    Ok(if job.fail && !found.segments.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the name under which a file's stream is read. For a profile, this is the folder of logs beside the profile. Fails if the profile
/// has no stream, or the command does not apply to this kind of file.
pub fn find_stream_to_read(file: &Path, kind: InputKind, command: &str) -> Result<String> {
    match kind {
        InputKind::Profile if file.is_file() => {
            let logs = streams_folder_of(file);
            ensure!(
                logs.is_dir(),
                "{} is a profile without a stream. Build the program with --stream, and record it with `trodden record --whole-program \
                 -o FILE -- PROGRAM`",
                file.display()
            );
            Ok(require_utf8_name(&logs)?.to_owned())
        }
        InputKind::Profile | InputKind::StreamLogs | InputKind::EventText => Ok(require_utf8_name(file)?.to_owned()),
        other => Err(other.not_accepted_error(file, command)),
    }
}

fn open_thread_stream(recording: &str, thread: usize) -> Result<OpenedSequence> {
    shown::open(recording, choose_thread(thread), &folders())
}

fn choose_thread(thread: usize) -> ThreadChoice {
    ThreadChoice { thread, method: None }
}

fn print_result(json: bool, document: &impl Serialize, lines: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(output::text_or_json_writer(json));
    if json {
        #[derive(Serialize)]
        struct VersionedDocument<'a, T> {
            schema_version: u32,
            #[serde(flatten)]
            document: &'a T,
        }
        serde_json::to_writer_pretty(&mut out, &VersionedDocument { schema_version: SCHEMA_VERSION, document })?;
        writeln!(out)?;
    } else {
        lines(&mut out)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::parse_events;

    #[test]
    fn events_are_separated_by_semicolons() {
        assert_eq!(parse_events("parse:12; enter lex ;leave").unwrap(), ["parse:12", "enter lex", "leave"]);
        assert_eq!(parse_events("enter <[u8; 4] as Sum>::sum; leave").unwrap(), ["enter <[u8; 4] as Sum>::sum", "leave"]);
        assert!(parse_events("leave;").is_err() && parse_events("").is_err());
    }
}
