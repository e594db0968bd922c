//! `trodden simulate`: the hardware path profiler's model on a program that QEMU runs, or on recorded branches.
//!
//! | file | what |
//! |---|---|
//! | `sources.rs` | opening a source: QEMU with the plugin, files |
//! | `walk.rs` | from a path descriptor to its instructions |
//! | `places.rs` | what lies at an address: file, function, source line, code |
//! | `report.rs` | the report as text and JSON |

mod places;
mod report;
mod sources;
mod walk;

use crate::cli::{PathKind, Simulate, StackOverflow};
use crate::notes::{note, warn};
use anyhow::{Context, Result};
use places::Places;
use report::Report;
use sources::Opened;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use trodden_hardware::{
    DetectorParameters, EventCounts, Mapping, Metric, Overflow, Preset, Profiler, ProfilerParameters, Repair, TableParameters,
};
use trodden_trace::sources::{Batch, RecordedWriter, Recording, SourceNotes};

/// Runs or reads, and reports.
///
/// # Errors
/// A parameter is out of its range, the source cannot be opened or is damaged, or a file cannot be written.
pub fn run(job: &Simulate) -> Result<ExitCode> {
    let parameters = parameters(job)?;
    let mut profiler = Profiler::new(parameters.clone())?;
    let mut opened = sources::open(job)?;
    let notes = feed(job, &mut opened, &mut profiler)?;
    let status = opened.end()?;
    notes.notes.iter().for_each(note);
    let places = Places::new(&notes.mappings);
    let report = Report::new(job, &opened.origin, &parameters, &profiler, &places);
    let mut out: Box<dyn Write> = match &job.output {
        Some(file) => Box::new(BufWriter::new(create(file)?)),
        None => Box::new(io::stdout().lock()),
    };
    if job.json {
        report.write_json(&mut out)?
    } else {
        report.write_text(&mut out)?
    }
    out.flush()?;
    Ok(status)
}

/// Reads the source to its end, into the profiler and the recording.
fn feed(job: &Simulate, opened: &mut Opened, profiler: &mut Profiler) -> Result<SourceNotes> {
    let recording = Recording { origin: opened.origin.clone() };
    let mut writer = match &job.record {
        Some(file) => Some((RecordedWriter::new(BufWriter::new(create(file)?), &recording)?, file)),
        None => None,
    };
    let mut batch = Batch::default();
    let mut goes_on = true;
    while goes_on {
        batch.clear();
        match opened.source.read(&mut batch) {
            Ok(more) => goes_on = more,
            Err(error) if job.partial => {
                warn(format_args!("{error}"));
                goes_on = false;
            }
            Err(error) => return Err(error.into()),
        }
        for (thread, event) in &batch.events {
            profiler.take(*thread, event, &EventCounts::default(), &mut |_, _| {})?;
        }
        if let Some((writer, file)) = &mut writer {
            writer.write(&batch.events).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    profiler.finish();
    let notes = opened.source.notes();
    if let Some((writer, file)) = writer {
        writer.finish(&notes).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(notes)
}

fn create(file: &Path) -> Result<File> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    File::create(file).with_context(|| format!("cannot write {}", file.display()))
}

fn parameters(job: &Simulate) -> Result<ProfilerParameters> {
    let mapping = match &job.mapping {
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            Mapping::from_toml(&text).with_context(|| file.display().to_string())?
        }
        None => Mapping::preset(preset(job.preset), job.extensions),
    };
    let detector = DetectorParameters {
        length_limit: job.path_limit,
        stack_entries: job.path_stack,
        overflow: match job.stack_overflow {
            StackOverflow::Drop => Overflow::Drop,
            StackOverflow::Spill => Overflow::Spill,
        },
        repair: if job.no_repair { Repair::None } else { Repair::ReturnAddress },
        ..DetectorParameters::published(mapping)
    };
    let mut tables = job.table.iter().map(|t| TableParameters::parse(t)).collect::<Result<Vec<_>, _>>()?;
    if tables.is_empty() {
        tables.push(TableParameters::PUBLISHED);
    }
    Ok(ProfilerParameters { detector, tables, metrics: vec![Metric::Frequency], window: job.window })
}

fn preset(kind: PathKind) -> Preset {
    match kind {
        PathKind::BallLarus => Preset::BallLarus,
        PathKind::WholeProgram => Preset::WholeProgram,
        PathKind::ExtendedLoops => Preset::ExtendedLoops,
        PathKind::ExtendedCalls => Preset::ExtendedCalls,
    }
}
