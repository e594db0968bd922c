//! `trodden-lab convert`: converts traces from other simulators to recordings for `trodden simulate --from`.

use crate::cli::ConvertArguments;
use anyhow::Result;
use std::process::ExitCode;
use trodden_console::notes::note;
use trodden_console::output::OutputFile;
use trodden_trace::simulation::{WrittenFile, open_file_or_trace, read_all_batches};

pub fn run(job: &ConvertArguments) -> Result<ExitCode> {
    let mut opened = open_file_or_trace(&job.trace, job.format)?;
    let mut out = OutputFile::create(&job.output)?;
    let recording = WrittenFile { out: &mut out, path: &job.output };
    let notes = read_all_batches(&mut opened, job.partial, Some(recording), &mut |_| Ok(()))?;
    notes.notes.iter().for_each(note);
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
