//! Runs the model of the hardware path profiler: opens a source of branches, reads the source to its end, and locates the paths in the
//! code.
//!
//! | file | content |
//! |---|---|
//! | `open.rs` | opens a source: a file, or QEMU with the plugin |
//! | `places.rs` | what is at an address: file, function, source line, code |
//! | `walk.rs` | from a path descriptor to its instructions |
//! | `table_profile.rs` | the profile of a table, as paths of the program's units |

mod open;
mod places;
mod table_profile;
mod walk;

pub use open::{EmulatedProgram, OpenedSource, QEMU, SourceFormat, open_file, open_file_or_trace, qemu_version};
pub use places::{MappedMemory, MappedPlaces, SourcePlace};
pub use table_profile::{ProfileKind, check_mapping, table_profile};
pub use walk::{InstructionStep, InstructionWalk, walk};

use crate::sources::{EventBatch, RecordedWriter, Recording, SourceNotes};
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::Path;
use trodden_hardware::processor::ProcessorParameters;
use trodden_hardware::{CompletedPath, OperationMapping, SimulationLane, ThreadId};

/// A file that is written while a source is read.
pub struct WrittenFile<'a> {
    /// The writer.
    pub out: &'a mut dyn Write,
    /// The path for messages.
    pub path: &'a Path,
}

/// Reads a source to its end and feeds it to a lane, one simulated configuration of the profiler. Optionally writes a recording of the
/// source, and a list of all paths. The list has a line for each path: thread, start, outcomes, and the reason why the path ended.
///
/// # Errors
/// The source cannot be read, or is corrupt and `keeps_partial` is not set; or a file cannot be written.
pub fn simulate(
    opened: &mut OpenedSource,
    lane: &mut SimulationLane,
    keeps_partial: bool,
    recording: Option<WrittenFile>,
    mut sequence: Option<WrittenFile>,
) -> Result<SourceNotes> {
    let mut failure = None;
    let mut observe = |thread: ThreadId, completed: &CompletedPath| {
        let path = &completed.path;
        if let Some(file) = &mut sequence
            && let Err(error) = writeln!(file.out, "{} {} {} {}", thread.0, path.start, path.outcome_digits(), completed.end.name())
        {
            failure.get_or_insert(error);
        }
    };
    let notes = read_all_batches(opened, keeps_partial, recording, &mut |batch| {
        Ok(lane.feed(&batch.events, &batch.instructions, &mut observe)?)
    })?;
    lane.finish(&mut observe)?;
    if let Some(file) = &sequence {
        failure.map_or(Ok(()), Err).with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    Ok(notes)
}

/// Reads a source to its end, and optionally into a recording. Each batch is passed to `take`.
pub fn read_all_batches(
    opened: &mut OpenedSource,
    keeps_partial: bool,
    recording: Option<WrittenFile>,
    take: &mut dyn FnMut(&EventBatch) -> Result<()>,
) -> Result<SourceNotes> {
    let cannot_write = |path: &Path| format!("cannot write {}", path.display());
    let about = Recording::describe_source(&opened.origin, &*opened.source);
    let writer = recording.map(|file| RecordedWriter::new(file.out, &about).map(|writer| (writer, file.path)));
    let mut writer = writer.transpose().context("cannot write the recording")?;
    let mut batch = EventBatch::default();
    let mut goes_on = true;
    while goes_on {
        batch.clear();
        match opened.source.read(&mut batch) {
            Ok(more) => goes_on = more,
            Err(error) if keeps_partial => {
                log::warn!("{error}");
                goes_on = false;
            }
            Err(error) => return Err(error.into()),
        }
        take(&batch)?;
        if let Some((writer, path)) = &mut writer {
            writer.write(&batch).with_context(|| cannot_write(path))?;
        }
    }
    let notes = opened.source.notes();
    if let Some((writer, path)) = writer {
        writer.finish(&notes).with_context(|| cannot_write(path))?;
    }
    Ok(notes)
}

/// Reads the parameters of a processor from a TOML file.
///
/// # Errors
/// The file cannot be read, or a parameter is out of range.
pub fn read_processor(file: &Path) -> Result<ProcessorParameters> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    ProcessorParameters::from_toml(&text).with_context(|| file.display().to_string())
}

/// Reads each branch class's operations from a TOML file.
///
/// # Errors
/// The file cannot be read, or is malformed.
pub fn read_mapping(file: &Path) -> Result<OperationMapping> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    OperationMapping::from_toml(&text).with_context(|| file.display().to_string())
}
