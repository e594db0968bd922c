//! `trodden-lab convert`: a recording for `trodden simulate --from`, of a trace of another simulator.

use crate::cli::Convert;
use anyhow::{Context, Result};
use std::process::ExitCode;
use trodden_console::notes::{note, warn};
use trodden_console::output::OutputFile;
use trodden_trace::simulation::open_file;
use trodden_trace::sources::{Batch, RecordedWriter, Recording};

/// Reads the trace to its end.
///
/// # Errors
/// It cannot be read, or is damaged and `--partial` is not given; or the recording cannot be written.
pub fn run(job: &Convert) -> Result<ExitCode> {
    let mut opened = open_file(&job.trace, job.format, &[])?;
    let (level, knows_return_addresses) = (opened.source.level(), opened.source.knows_return_addresses());
    let about = Recording { origin: opened.origin.clone(), level, knows_return_addresses };
    let mut out = OutputFile::create(&job.output)?;
    let cannot_write = || format!("cannot write {}", job.output.display());
    let mut writer = RecordedWriter::new(&mut out, &about).with_context(cannot_write)?;
    let mut batch = Batch::default();
    let mut goes_on = true;
    while goes_on {
        batch.clear();
        match opened.source.read(&mut batch) {
            Ok(more) => goes_on = more,
            Err(error) if job.partial => {
                warn(error);
                goes_on = false;
            }
            Err(error) => return Err(error.into()),
        }
        writer.write(&batch).with_context(cannot_write)?;
    }
    let notes = opened.source.notes();
    notes.notes.iter().for_each(note);
    writer.finish(&notes).with_context(cannot_write)?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
