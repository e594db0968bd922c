//! `trodden simulate`: runs a model of the hardware path profiler on a program under QEMU, or on recorded branches.

use crate::context::driver_context;
use crate::notes::note;
use crate::output::OutputFile;
use crate::temporary;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use trodden_console::arguments::simulate::{SimulateModel, SimulateOptions};
use trodden_driver::assets::TroddenLibrary;
use trodden_driver::other_programs::find_program;
use trodden_driver::toolchain::is_program;
use trodden_hardware::processor::{ProcessorEvent, ProcessorModel, ProcessorParameters};
use trodden_hardware::{
    CounterWidth, DetectorParameters, MappingPreset, Metric, OperationMapping, ProfilerParameters, SimulationLane, StackRepair,
    TableParameters,
};
use trodden_launch::process::exit_code;
use trodden_profile::Run;
use trodden_recording::new_run_metadata;
use trodden_report::simulation::{SimulationReport, SimulationView};
use trodden_trace::simulation::{
    EmulatedProgram, MappedPlaces, OpenedSource, ProfileKind, WrittenFile, check_mapping, open_file, qemu_version, read_mapping,
    read_processor, simulate, table_profile,
};
use trodden_trace::sources::{SourceDetail, SourceNotes};

/// The QEMU plugin that records branches and instructions.
const QEMU_PLUGIN_LIBRARY: TroddenLibrary =
    TroddenLibrary { kind: "plugin", file: "libtrodden_qemu_plugin.so", package: "trodden-qemu-plugin", variable: "TRODDEN_QEMU_PLUGIN" };

/// Simulates the profiler and writes a report. Returns the program's exit status. Fails if a parameter is out of range, the input cannot be
/// opened or is corrupt, or a file cannot be written.
pub fn run(job: &SimulateOptions, model: &SimulateModel) -> Result<ExitCode> {
    ensure!(
        model.profile_of.is_none() || job.profile.is_some(),
        "--profile-of needs --profile, whose content it selects. Add --profile FILE"
    );
    if job.from.is_none() && job.command.is_empty() {
        bail!("nothing to simulate. Write a program and its arguments after `--`, or pass a recording or trace to --from");
    }
    // clap does not enforce that these options require --from if a command is given, because --from conflicts with a command.
    let file_options = [("--program", !job.program.is_empty()), ("--partial", job.partial)];
    if let Some((option, _)) = file_options.iter().find(|(_, is_given)| *is_given && job.from.is_none()) {
        bail!("{option} applies only to --from FILE, not to a program that is run. Omit {option}");
    }
    let mut parameters = profiler_parameters(job, model)?;
    let processor = processor_model(job, model)?;
    let level = if processor.is_some() || (job.record.is_some() && !job.event.is_empty()) {
        SourceDetail::Instructions
    } else {
        SourceDetail::Branches
    };
    let mut opened = match &job.from {
        Some(file) => open_file(file, model.format, &job.program)?,
        None => start_emulated_program(&job.command, crate::output::destination(job.output.as_deref()).is_none(), level)?,
    };
    if level == SourceDetail::Instructions && opened.source.level() == SourceDetail::Branches {
        bail!(
            "{} contains only branches, but events other than `instructions` need all instructions. Simulate the program itself, or \
             record it with --event",
            opened.origin
        );
    }
    if !opened.source.knows_return_addresses() {
        parameters.detector.repair = StackRepair::None;
    }
    if job.profile.is_some() {
        check_mapping(&parameters.detector.mapping)?;
    }
    let mut lane = SimulationLane::new(parameters.clone(), processor)?;
    let notes = feed_profiler(job, model.sequence.as_deref(), &mut opened, &mut lane)?;
    let status = opened.end()?.map_or(ExitCode::SUCCESS, exit_code);
    notes.notes.iter().for_each(note);
    let places = MappedPlaces::new(&notes.mappings);
    if let Some(file) = &job.profile {
        write_profile((job, model), file, &parameters, &lane, (&places, &notes))?;
    }
    let shown = SimulationView { top: job.top, steps: model.steps };
    let report = SimulationReport::new(shown, &opened.origin, notes.iterations, &parameters, &lane, &places);
    write_report(job, &report)?;
    Ok(status)
}

fn write_report(job: &SimulateOptions, report: &SimulationReport) -> Result<()> {
    let write = |out: &mut dyn Write| if job.json { report.write_json(out) } else { report.write_text(out) };
    match crate::output::destination(job.output.as_deref()) {
        Some(file) => {
            let mut out = OutputFile::create(file)?;
            write(&mut out).with_context(|| format!("cannot write {}", file.display()))?;
            out.finish()
        }
        None => {
            let mut out = crate::output::text_or_json_writer(job.json);
            write(&mut out)?;
            Ok(out.flush()?)
        }
    }
}

/// Reads the opened source to its end, and passes its data to the profiler and to the files that the user requests.
fn feed_profiler(
    job: &SimulateOptions,
    sequence: Option<&Path>,
    opened: &mut OpenedSource,
    lane: &mut SimulationLane,
) -> Result<SourceNotes> {
    let mut files = [None, None];
    for (file, path) in files.iter_mut().zip([job.record.as_deref(), sequence]) {
        *file = path.map(|path| anyhow::Ok((OutputFile::create(path)?, path))).transpose()?;
    }
    let [recording, sequence] = files.each_mut().map(|file| file.as_mut().map(|(out, path)| WrittenFile { out, path }));
    let notes = simulate(opened, lane, job.partial, recording, sequence)?;
    files.into_iter().flatten().try_for_each(|(out, _)| out.finish())?;
    Ok(notes)
}

/// Writes the paths that the simulated profiler holds in its table or detector as a profile of the program's units.
fn write_profile(
    (job, model): (&SimulateOptions, &SimulateModel),
    file: &Path,
    parameters: &ProfilerParameters,
    lane: &SimulationLane,
    (places, notes): (&MappedPlaces, &SourceNotes),
) -> Result<()> {
    let command = job.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let (run, store) = (Run { command, ..new_run_metadata() }, driver_context().store().ok());
    let code = (places, notes.mappings.as_slice());
    let profile =
        table_profile(model.profile_of.unwrap_or(ProfileKind::Table), &parameters.detector, &lane.profiler, code, store.as_ref(), run)?;
    profile.write(file).with_context(|| format!("cannot write {}", file.display()))?;
    note(format_args!("the profile is in {}", file.display()));
    Ok(())
}

/// Runs `true` under QEMU with the plugin. Returns a description of QEMU and the plugin.
pub fn try_qemu_plugin() -> Result<String> {
    let version = qemu_version()?;
    let plugin = find_qemu_plugin()?;
    let command = ["true".into()];
    let instructions = with_emulated_program(&command, true, SourceDetail::Branches, |program| program.count_trial_instructions())?;
    Ok(format!("{version}; {} recorded {instructions} instructions of `true`", plugin.display()))
}

/// Starts a program under QEMU. With `moves_output`, the program's standard output goes to standard error, because the report goes to
/// standard output.
fn start_emulated_program(command: &[OsString], moves_output: bool, level: SourceDetail) -> Result<OpenedSource> {
    with_emulated_program(command, moves_output, level, |program| program.start())
}

fn with_emulated_program<T>(
    command: &[OsString],
    moves_output: bool,
    level: SourceDetail,
    work: impl FnOnce(EmulatedProgram) -> Result<T>,
) -> Result<T> {
    let name = &command[0];
    let file = find_program(driver_context(), name).filter(|path| is_program(path));
    let file = file.ok_or_else(|| anyhow!("{} is not an executable program", name.display()))?;
    let (plugin, folder) = (find_qemu_plugin()?, temporary::create_temporary_folder("trodden-simulate-")?);
    let output = moves_output.then(|| std::io::stderr().as_fd().try_clone_to_owned().map(Stdio::from)).transpose()?;
    work(EmulatedProgram { command, file: &file, plugin: &plugin, folder, output, level })
}

fn find_qemu_plugin() -> Result<PathBuf> {
    if let Some(named) = QEMU_PLUGIN_LIBRARY.from_variable(driver_context())? {
        return Ok(named);
    }
    QEMU_PLUGIN_LIBRARY.find_installed(driver_context())?.map_err(|places| {
        let [one, other] = places.each_ref().map(|place| place.display());
        anyhow!(
            "cannot find the QEMU plugin: neither {one} nor {other} exists. Build it with `cargo build --release -p {}`, or set {} to \
             its path",
            QEMU_PLUGIN_LIBRARY.package,
            QEMU_PLUGIN_LIBRARY.variable
        )
    })
}

fn profiler_parameters(job: &SimulateOptions, model: &SimulateModel) -> Result<ProfilerParameters> {
    let mapping = match &model.mapping {
        Some(file) => read_mapping(file)?,
        None => {
            let is_extended = matches!(model.preset, MappingPreset::ExtendedLoops | MappingPreset::ExtendedCalls);
            if model.extensions.is_some() && !is_extended {
                bail!("--extensions applies only to extended paths. Add --preset extended-loops or --preset extended-calls");
            }
            OperationMapping::preset(model.preset, model.extensions.unwrap_or(1))
        }
    };
    let detector = DetectorParameters {
        length_limit: model.path_limit,
        stack_entries: model.path_stack,
        overflow: model.stack_overflow,
        repair: if model.no_repair { StackRepair::None } else { StackRepair::Frames },
        counter_width: CounterWidth::new(model.counter_bits)?,
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
    Ok(ProfilerParameters { detector, tables, metrics, window: model.window })
}

/// Returns the processor model and its parameters, or `None` if no option needs them.
fn processor_model(job: &SimulateOptions, model: &SimulateModel) -> Result<Option<(ProcessorModel, ProcessorParameters)>> {
    let needs_one =
        job.event.iter().any(|e| *e != ProcessorEvent::Instructions) || model.branch_queue.is_some() || model.processor.is_some();
    if !needs_one && model.model == ProcessorModel::Fast {
        return Ok(None);
    }
    if job.event.contains(&ProcessorEvent::CyclePower) && model.model == ProcessorModel::Fast {
        bail!("--event power-cycle needs the cycle-by-cycle model. Add --model reference");
    }
    let mut parameters = model.processor.as_deref().map_or_else(|| Ok(ProcessorParameters::default()), read_processor)?;
    if let Some(entries) = model.branch_queue {
        parameters.branch_queue = entries;
    }
    Ok(Some((model.model, parameters)))
}
