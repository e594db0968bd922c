//! Questions asked of sequences of paths and calls: `trodden stream find`, `hot` and others.

use crate::cli::{StreamAnalysis, StreamDiff, StreamFind, StreamHot, StreamInput, StreamIterations, StreamPhases, StreamSegments};
use crate::output;
use crate::surroundings::folders;
use anyhow::Result;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use trodden_analysis::sequences::{self, EventTable, HotQuestion, IterationQuestion, Opened};
use trodden_report::sequences::{self as shown, RecordedThread, iterations, phases, phases_page};

const SCHEMA_VERSION: u32 = 1;

/// Answers a question.
///
/// # Errors
/// A recording cannot be read, or a parameter is out of its range.
pub fn run(job: &StreamAnalysis) -> Result<ExitCode> {
    match job {
        StreamAnalysis::Diff(job) => return diff(job),
        StreamAnalysis::Find(job) => find(job),
        StreamAnalysis::Hot(job) => hot(job),
        StreamAnalysis::Segments(job) => segments(job),
        StreamAnalysis::Iterations(job) => count_iterations(job),
        StreamAnalysis::Phases(job) => find_phases(job),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn find(job: &StreamFind) -> Result<()> {
    let found = sequences::find(&open(&job.input)?, &job.events, job.input.top)?;
    print(job.input.json, &found, |out| shown::write_found(out, &found))
}

fn hot(job: &StreamHot) -> Result<()> {
    let question = HotQuestion { shortest: job.shortest, longest: job.longest, threshold: job.threshold, top: job.input.top };
    question.check()?;
    let found = sequences::hot(&open(&job.input)?, question)?;
    print(job.input.json, &found, |out| shown::write_hot(out, &question, &found))
}

fn segments(job: &StreamSegments) -> Result<()> {
    sequences::check_depth(job.depth, job.supergraph)?;
    let found = sequences::segments(&open(&job.input)?, job.depth, job.supergraph, job.input.top)?;
    print(job.input.json, &found, |out| shown::write_segments(out, &found))
}

fn count_iterations(job: &StreamIterations) -> Result<()> {
    let input = &job.input;
    let question = IterationQuestion { iterations: job.iterations, share: job.share, top: input.top, most: u64::MAX };
    let found = match (job.branches, iterations::of_copies(&input.recording, input.thread, question, &folders())?) {
        (Some(branches), _) => {
            let found = sequences::last_branches(&open(input)?, branches, input.top, u64::MAX)?;
            return print(input.json, &found, |out| iterations::write_branches(out, &found));
        }
        (None, Some(found)) => found,
        (None, None) => sequences::iterations_of(&open(input)?, question)?,
    };
    print(input.json, &found, |out| {
        iterations::write(out, &found)?;
        shown::write_sources(out, &found.sources)
    })
}

fn diff(job: &StreamDiff) -> Result<ExitCode> {
    let (input, folders, mut table) = (recorded(&job.input), folders(), EventTable::default());
    let (_, left) = shown::open_into(&job.input.recording, input, &mut table, &folders)?;
    let (_, right) = shown::open_into(&job.right, input, &mut table, &folders)?;
    let found = sequences::diff(&left, &right, &table, job.input.top);
    print(job.input.json, &found, |out| shown::write_differences(out, &found))?;
    Ok(if found.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find_phases(job: &StreamPhases) -> Result<()> {
    let found = sequences::phases_of(&open(&job.input)?, job.interval, job.most)?;
    if let Some(file) = &job.html {
        let title = match job.input.recording.parse::<u64>() {
            Ok(run) => format!("run {run}"),
            Err(_) => job.input.recording.clone(),
        };
        output::write_file(file, phases_page::page(&title, &found).as_bytes())?;
    }
    print(job.input.json, &found, |out| {
        phases::write(out, &found)?;
        shown::write_sources(out, &found.sources)
    })
}

/// Opens the thread that is asked for.
fn open(input: &StreamInput) -> Result<Opened> {
    shown::open(&input.recording, recorded(input), &folders())
}

fn recorded(input: &StreamInput) -> RecordedThread {
    RecordedThread { thread: input.thread, method: input.method }
}

/// Prints a result as JSON or as lines.
fn print(json: bool, document: &impl Serialize, lines: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(output::text_or_json(json));
    if json {
        #[derive(Serialize)]
        struct Versioned<'a, T> {
            schema_version: u32,
            #[serde(flatten)]
            document: &'a T,
        }
        serde_json::to_writer_pretty(&mut out, &Versioned { schema_version: SCHEMA_VERSION, document })?;
        writeln!(out)?;
    } else {
        lines(&mut out)?;
    }
    Ok(out.flush()?)
}
