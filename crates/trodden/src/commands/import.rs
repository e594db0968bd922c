//! `trodden import`: stores data that was recorded without `trodden record` as a run.

use super::trace;
use crate::cli::ImportArguments;
use crate::surroundings::recording_context;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use trodden_profile::Run;
use trodden_recording::streams::record as streams;
use trodden_recording::{ProfileDestination, import, new_run_metadata, record};
use trodden_report::input_kind::InputKind;

const STANDARD_INPUT: &str = "-";

pub fn run(job: &ImportArguments) -> Result<ExitCode> {
    job.destination.check_output_is_no_folder()?;
    let kind = detect_common_kind(job)?;
    let (recording, destination) = (recording_context(), job.destination.to_profile_destination());
    if kind != InputKind::Branches {
        kind.reject_options(&[("--program", !job.program.is_empty())])?;
    }
    match kind {
        InputKind::RawFiles => record::collect_files(&job.files, &destination, &recording)?,
        InputKind::StreamFiles => streams::import_leftover_streams(&job.files, &destination, &recording)?,
        InputKind::Trace => trace::import(require_single_file(job, "trace")?, &destination)?,
        InputKind::Branches => import_branches(job, require_single_file(job, "text of `perf script`")?, &destination)?,
        other => return Err(other.not_accepted_error(&job.files[0], "import")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the kind that all files have. Fails if their kinds differ.
fn detect_common_kind(job: &ImportArguments) -> Result<InputKind> {
    let first = detect_kind(job, &job.files[0])?;
    for file in &job.files[1..] {
        let other = detect_kind(job, file)?;
        ensure!(
            other == first,
            "{} is {}, but {} is {}. Import each kind separately",
            job.files[0].display(),
            first.noun_phrase(),
            file.display(),
            other.noun_phrase()
        );
    }
    Ok(first)
}

fn detect_kind(job: &ImportArguments, file: &Path) -> Result<InputKind> {
    let found = if file.as_os_str() == STANDARD_INPUT { Some(InputKind::Branches) } else { InputKind::detect_import(file)? };
    match found {
        // With --program, a file of unknown kind is assumed to be text from `perf script`. If it is not, the parser reports where it fails.
        None | Some(InputKind::Waits) if !job.program.is_empty() && file.is_file() => Ok(InputKind::Branches),
        Some(kind) => Ok(kind),
        None => Err(InputKind::unknown_kind_error(file)),
    }
}

fn require_single_file<'a>(job: &'a ImportArguments, what: &str) -> Result<&'a Path> {
    ensure!(job.files.len() == 1, "cannot import several files of this kind at once. Import one {what} at a time");
    Ok(&job.files[0])
}

fn import_branches(job: &ImportArguments, file: &Path, destination: &ProfileDestination) -> Result<()> {
    if job.program.is_empty() {
        bail!("cannot import recorded branches without the program that took them. Add --program PROGRAM (built with --addresses)");
    }
    let (text, name): (Box<dyn BufRead>, &Path) = match file.as_os_str() == STANDARD_INPUT {
        true => (Box::new(io::stdin().lock()), Path::new("standard input")),
        false => {
            let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            (Box::new(BufReader::new(opened)), file)
        }
    };
    let recording = recording_context();
    let run = Run { suite: destination.suite.clone(), ..new_run_metadata() };
    import::store_import(import::profile_from_branch_text(text, name, &job.program, run, &recording)?, name, destination, &recording)
}
