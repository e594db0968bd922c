//! `trodden-lab patterns`: repetition in a sequence of paths and calls: hot subpaths, iterations, phases.

use crate::cli::{LengthRange, PatternKind, PatternsArguments};
use crate::sequence::print_document;
use anyhow::{Result, bail, ensure};
use std::process::ExitCode;
use trodden_analysis::iterations::{counted_iterations, document_counted_iterations};
use trodden_analysis::sequences::{self, HotQuery, IterationDocument, IterationQuery, OpenedSequence};
use trodden_command::laboratory::{find_stream_to_read, folders};
use trodden_console::arguments::choices::word;
use trodden_console::output;
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::sequences::{self as shown, ThreadChoice, iterations, phases, phases_page};
use trodden_stored::named;

const SCHEMA_VERSION: u32 = 2;
/// Default range of lengths for hot subpaths, in paths.
const DEFAULT_HOT_SUBPATH_LENGTH: LengthRange = LengthRange { min: 2, max: 50 };
/// Default of `--threshold` for hot subpaths, in percent.
const DEFAULT_HOT_SHARE_PERCENT: f64 = 1.0;
/// Default number of consecutive iterations.
const DEFAULT_ITERATIONS_PER_PATTERN: usize = 4;
/// Default of `--threshold` for iterations, in percent: how often a repeating pattern must continue after its beginning.
const DEFAULT_PATTERN_SHARE_PERCENT: f64 = 90.0;
/// Default maximum number of phases, because the chart has a colour for each.
const DEFAULT_MAX_PHASES: usize = 10;

pub fn run(job: &PatternsArguments) -> Result<ExitCode> {
    let kind = InputKind::detect(&job.file)?;
    let given = [
        ("--length", job.length.is_some(), job.kind != PatternKind::Phases),
        ("--threshold", job.threshold.is_some(), job.kind != PatternKind::Phases),
        ("--html", job.html.is_some(), job.kind == PatternKind::Phases),
    ];
    if let Some((option, ..)) = given.iter().find(|(_, is_given, applies)| *is_given && !applies) {
        bail!("{option} does not apply to `patterns {}`. Omit {option}", word(job.kind));
    }
    match job.kind {
        PatternKind::Hot => find_hot_subpaths(job, kind),
        PatternKind::Iterations => count_iterations(job, kind),
        PatternKind::Phases => find_phases(job, kind),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn find_hot_subpaths(job: &PatternsArguments, kind: InputKind) -> Result<()> {
    let LengthRange { min, max } = job.length.unwrap_or(DEFAULT_HOT_SUBPATH_LENGTH);
    let (threshold, top) = (job.threshold.unwrap_or(DEFAULT_HOT_SHARE_PERCENT), output::max_results(job.top, job.json));
    let question = HotQuery { shortest: min, longest: max, threshold, top };
    question.check_query()?;
    let found = sequences::find_hot_subpaths(&open_sequence(&find_stream_to_read(&job.file, kind, "patterns")?, job.thread)?, question)?;
    print_document(SCHEMA_VERSION, job.json, &found, |out| shown::write_hot(out, &question, &found))
}

fn count_iterations(job: &PatternsArguments, kind: InputKind) -> Result<()> {
    let length = job.length.unwrap_or(LengthRange { min: DEFAULT_ITERATIONS_PER_PATTERN, max: DEFAULT_ITERATIONS_PER_PATTERN });
    ensure!(length.min == length.max && length.max <= 64, "--length must be a single number from 1 to 64 for `patterns iterations`");
    let (share, top) = (job.threshold.unwrap_or(DEFAULT_PATTERN_SHARE_PERCENT), output::max_results(job.top, job.json));
    if kind == InputKind::Profile
        && let Some(found) = list_counted_iterations(job, top)?
    {
        return print_document(SCHEMA_VERSION, job.json, &found, |out| iterations::write(out, &found));
    }
    let question = IterationQuery { iterations: length.max, share, top, max_symbols: u64::MAX };
    let recording = find_stream_to_read(&job.file, kind, "patterns")?;
    let found = match iterations::find_in_copies(&recording, job.thread, question, &folders())? {
        Some(found) => found,
        None => sequences::document_iterations(&open_sequence(&recording, job.thread)?, question)?,
    };
    print_document(SCHEMA_VERSION, job.json, &found, |out| {
        iterations::write(out, &found)?;
        shown::write_sources(out, &found.sources)
    })
}

/// Lists the paths over iterations that the program itself counted. Returns `None` if it counted something else.
fn list_counted_iterations(job: &PatternsArguments, top: usize) -> Result<Option<IterationDocument>> {
    let counted = counted_iterations(&named::load_profile(require_utf8_name(&job.file)?)?);
    if counted.is_empty() {
        return Ok(None);
    }
    let given = [("--threshold", job.threshold.is_some()), ("--thread", job.thread > 0)];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        bail!("{option} does not apply to counted paths over iterations. Omit {option}");
    }
    document_counted_iterations(&counted, job.length.map(|length| length.max), top).map(Some)
}

fn find_phases(job: &PatternsArguments, kind: InputKind) -> Result<()> {
    let top = job.top.unwrap_or(DEFAULT_MAX_PHASES);
    ensure!(top > 0, "--top must be at least 1 for `patterns phases`");
    let recording = find_stream_to_read(&job.file, kind, "patterns")?;
    let found = sequences::document_phases(&open_sequence(&recording, job.thread)?, top)?;
    if let Some(file) = &job.html {
        let title = if recording.parse::<u64>().is_ok() { format!("run {recording}") } else { recording };
        return output::write_report(file, phases_page::page(&title, &found).as_bytes(), "the page is");
    }
    print_document(SCHEMA_VERSION, job.json, &found, |out| {
        phases::write(out, &found)?;
        shown::write_sources(out, &found.sources)
    })
}

fn open_sequence(recording: &str, thread: usize) -> Result<OpenedSequence> {
    shown::open(recording, ThreadChoice { thread, method: None }, &folders())
}
