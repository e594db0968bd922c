//! `trodden-lab sequence`: counts paths in a recorded sequence with published methods, and checks counted segments against the sequence.

use crate::cli::{CountedPathsArguments, SequenceCheckArguments, SequenceCommand};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use trodden_analysis::segments::{ObservedSegments, compare};
use trodden_analysis::sequences::{self, OpenedSequence};
use trodden_command::laboratory::folders;
use trodden_console::{notes, output};
use trodden_report::counted_segments;
use trodden_report::sequences::{self as shown, ThreadChoice, iterations};

const SCHEMA_VERSION: u32 = 1;

pub fn run(job: &SequenceCommand) -> Result<ExitCode> {
    match job {
        SequenceCommand::Supergraph(job) => {
            let found = sequences::count_segments(&open_sequence(job)?, job.length as usize, true, job.top)?;
            print_document(SCHEMA_VERSION, job.json, &found, |out| shown::write_segments(out, &found))?;
        }
        SequenceCommand::Branches(job) => {
            let found = sequences::last_branches(&open_sequence(job)?, job.length as usize, job.top, u64::MAX)?;
            print_document(SCHEMA_VERSION, job.json, &found, |out| iterations::write_branches(out, &found))?;
        }
        SequenceCommand::Check(job) => return check_segments(job),
    }
    Ok(ExitCode::SUCCESS)
}

fn open_sequence(job: &CountedPathsArguments) -> Result<OpenedSequence> {
    shown::open(&job.recording, ThreadChoice { thread: job.thread, method: None }, &folders())
}

/// Compares the segments that a program counted with a recording, for one depth or for all counted depths.
fn check_segments(job: &SequenceCheckArguments) -> Result<ExitCode> {
    let (depth, folders) = (job.depth.map(|depth| depth as usize), folders());
    let counted = ObservedSegments::load(&job.counted, depth.unwrap_or(1), &folders)?;
    let all = compare(&counted, &job.recording, depth, &folders)?;
    for compared in &all {
        counted_segments::describe_differences(compared).for_each(notes::warn);
        output::print_text(&counted_segments::describe_comparison(compared))?;
    }
    ensure!(all.iter().any(|compared| compared.compared > 0), "no segment was compared: none of the counted call sites was executed");
    Ok(if all.iter().all(|compared| compared.differing.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a result as text or, with `schema_version`, as JSON.
pub fn print_document(
    schema_version: u32,
    json: bool,
    document: &impl Serialize,
    lines: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(output::text_or_json_writer(json));
    if json {
        let mut document = serde_json::to_value(document)?;
        document["schema_version"] = schema_version.into();
        out.write_all(&output::json_text(&document)?)?;
    } else {
        lines(&mut out)?;
    }
    Ok(out.flush()?)
}
