//! `trodden simulate`: the hardware path profiler's model on a program that QEMU runs, or on recorded branches.
//!
//! | file | what |
//! |---|---|
//! | `sources.rs` | opening a source: QEMU with the plugin, files |
//! | `walk.rs` | from a path descriptor to its instructions |
//! | `places.rs` | what lies at an address: file, function, source line, code |
//! | `lane.rs` | one configuration that is fed: profiler, processor |
//! | `profile.rs` | a table's profile as paths of the program's units |
//! | `report.rs` | the report as text and JSON |
//! | `character.rs` | skew and length of paths, profiles of events beside frequency |
//! | `sweep.rs`, `sweep_experiment.rs` | many configurations from one reading; their file |
//! | `sweep_results.rs`, `sweep_parquet.rs`, `sweep_page.rs`, `sweep_lines.rs` | what came of them; their page |

mod character;
mod lane;
mod places;
mod profile;
mod report;
mod sources;
mod sweep;
mod sweep_experiment;
mod sweep_lines;
mod sweep_page;
#[cfg(feature = "parquet")]
mod sweep_parquet;
mod sweep_results;
mod walk;

pub use sources::trial;

use self::sweep_experiment::processor_file;
use crate::cli::{ModelKind, Simulate, SimulateAction};
use crate::notes::{note, warn};
use crate::output::OutputFile;
use anyhow::{Context, Result, bail};
use lane::Lane;
use places::Places;
use report::Report;
use sources::Opened;
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use trodden_hardware::processor::{ProcessorEvent, ProcessorParameters};
use trodden_hardware::{
    CompletedPath, CounterWidth, DetectorParameters, Metric, OperationMapping, Preset, ProfilerParameters, Repair, TableParameters,
    ThreadId,
};
use trodden_trace::sources::{Batch, Level, RecordedWriter, Recording, SourceNotes};

/// Runs or reads, and reports.
///
/// # Errors
/// A parameter is out of its range, the source cannot be opened or is damaged, or a file cannot be written.
pub fn run(job: &Simulate) -> Result<ExitCode> {
    if let Some(SimulateAction::Sweep(sweep)) = &job.action {
        return sweep::run(sweep);
    }
    if job.from.is_none() && job.command.is_empty() {
        bail!("nothing to simulate: name a program with its arguments behind `--`, or a recording or a trace with --from");
    }
    let mut parameters = parameters(job)?;
    let processor = processor(job)?;
    let level = if processor.is_some() || job.instructions { Level::Instructions } else { Level::Branches };
    let mut opened = sources::open(job, level)?;
    if level == Level::Instructions && opened.source.level() == Level::Branches {
        bail!(
            "{} holds branches only: events but instructions need whole instructions (a program, or a trace of CBP2025 or ChampSim)",
            opened.origin
        );
    }
    if !opened.source.knows_return_addresses() {
        parameters.detector.repair = Repair::None;
    }
    if job.profile.is_some() {
        profile::check(&parameters.detector.mapping)?;
    }
    let mut lane = Lane::new(parameters.clone(), processor)?;
    let notes = feed(job, &mut opened, &mut lane)?;
    let status = opened.end()?;
    notes.notes.iter().for_each(note);
    let places = Places::new(&notes.mappings);
    if let Some(file) = &job.profile {
        profile::write(job, file, &parameters.detector, &lane.profiler, &places, &notes.mappings)?;
    }
    let report = Report::new(job, &opened.origin, notes.iterations, &parameters, &lane, &places);
    let write = |mut out: &mut dyn Write| if job.json { report.write_json(&mut out) } else { report.write_text(&mut out) };
    match &job.output {
        Some(file) => {
            let mut out = OutputFile::create(file)?;
            write(&mut out).with_context(|| format!("cannot write {}", file.display()))?;
            out.finish()?;
        }
        None => {
            let mut out = crate::output::text_or_json(job.json);
            write(&mut out)?;
            out.flush()?;
        }
    }
    Ok(status)
}

/// Reads the source to its end, into the profiler, the recording and the sequence of paths.
fn feed(job: &Simulate, opened: &mut Opened, lane: &mut Lane) -> Result<SourceNotes> {
    let (level, knows_return_addresses) = (opened.source.level(), opened.source.knows_return_addresses());
    let recording = Recording { origin: opened.origin.clone(), level, knows_return_addresses };
    let mut writer = match &job.record {
        Some(file) => Some((RecordedWriter::new(OutputFile::create(file)?, &recording)?, file)),
        None => None,
    };
    let mut sequence = job.sequence.as_deref().map(OutputFile::create).transpose()?;
    let mut failure = None;
    let mut observe = |thread: ThreadId, completed: &CompletedPath| {
        if let Some(out) = &mut sequence
            && let Err(error) =
                writeln!(out, "{} {} {} {}", thread.0, completed.path.start, report::outcomes(&completed.path), completed.end.name())
        {
            failure.get_or_insert(error);
        }
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
        lane.feed(&batch, &mut observe)?;
        if let Some((writer, file)) = &mut writer {
            writer.write(&batch).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    lane.finish(&mut observe)?;
    let notes = opened.source.notes();
    if let Some((writer, file)) = writer {
        writer.finish(&notes).with_context(|| format!("cannot write {}", file.display()))?.finish()?;
    }
    if let (Some(out), Some(file)) = (sequence, &job.sequence) {
        failure.map_or(Ok(()), Err).with_context(|| format!("cannot write {}", file.display()))?;
        out.finish()?;
    }
    Ok(notes)
}

fn parameters(job: &Simulate) -> Result<ProfilerParameters> {
    let mapping = match &job.mapping {
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            OperationMapping::from_toml(&text).with_context(|| file.display().to_string())?
        }
        None => {
            let is_extended = matches!(job.preset, Preset::ExtendedLoops | Preset::ExtendedCalls);
            if job.extensions.is_some() && !is_extended {
                bail!("--extensions is of extended paths: add --preset extended-loops or --preset extended-calls");
            }
            OperationMapping::preset(job.preset, job.extensions.unwrap_or(1))
        }
    };
    let detector = DetectorParameters {
        length_limit: job.path_limit,
        stack_entries: job.path_stack,
        overflow: job.stack_overflow,
        repair: if job.no_repair { Repair::None } else { Repair::ReturnAddress },
        counter_width: CounterWidth::new(job.counter_bits)?,
        ..DetectorParameters::published(mapping)
    };
    let mut tables = job.table.iter().map(|t| TableParameters::parse(t)).collect::<Result<Vec<_>, _>>()?;
    if tables.is_empty() {
        tables.push(TableParameters::PUBLISHED);
    }
    let mut metrics = vec![Metric::Frequency, Metric::Instructions];
    for event in &job.event {
        let metric = Metric::Event(*event as usize);
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    Ok(ProfilerParameters { detector, tables, metrics, window: job.window })
}

/// The processor, if anything that is asked for needs one.
fn processor(job: &Simulate) -> Result<Option<(ModelKind, ProcessorParameters)>> {
    let needs_one = job.event.iter().any(|e| *e != ProcessorEvent::Instructions) || job.branch_queue.is_some() || job.processor.is_some();
    if !needs_one && job.model == ModelKind::Fast {
        return Ok(None);
    }
    if job.event.contains(&ProcessorEvent::CyclePower) && job.model == ModelKind::Fast {
        bail!("--event power-cycle is known to the cycle-stepped model only: add --model reference");
    }
    let mut parameters = job.processor.as_deref().map_or_else(|| Ok(ProcessorParameters::default()), processor_file)?;
    if let Some(entries) = job.branch_queue {
        parameters.branch_queue = entries;
    }
    Ok(Some((job.model, parameters)))
}
