//! `trodden-lab sweep`: an experiment over configurations of profiler and processor.
//!
//! Configurations that differ in their tables only share detectors and processor; groups that share nothing are fed in parallel,
//! batch by batch. A source is read once if all groups fit into [`MAX_MEMORY`]; otherwise once for as many groups as fit.
//!
//! | file | what |
//! |---|---|
//! | `experiment.rs` | the file of an experiment |
//! | `results.rs`, `parquet.rs`, `page.rs`, `lines.rs` | what came of it; its page |

mod experiment;
mod lines;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod results;

use self::experiment::{Configuration, Experiment, text_of};
use self::results::{Results, SweepOutcome, sorted};
use crate::cli::Sweep;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use trodden_console::notes::note;
use trodden_console::output::write_file;
use trodden_hardware::character::{Character, character};
use trodden_hardware::experiment::{Design, combinations, effects};
use trodden_hardware::processor::ProcessorModel;
use trodden_hardware::{Lane, Metric, ProfilerParameters, Repair};
use trodden_trace::simulation::{SourceFormat, open_file_or_trace};
use trodden_trace::sources::{Batch, Level};

/// Runs an experiment.
///
/// # Errors
/// The file is not understood, a source cannot be read, or results cannot be written.
pub fn run(job: &Sweep) -> Result<ExitCode> {
    let text = fs::read_to_string(&job.experiment).with_context(|| format!("cannot read {}", job.experiment.display()))?;
    let experiment: Experiment = toml::from_str(&text).with_context(|| format!("{} is not understood", job.experiment.display()))?;
    let folder = job.experiment.parent().unwrap_or(Path::new("."));
    let results = carry_out(&experiment, folder, job.window).with_context(|| job.experiment.display().to_string())?;
    let write = |file: &Path, text: String| write_file(file, text.as_bytes());
    match &job.output {
        Some(file) if file.extension().is_some_and(|e| e == "parquet") => write_parquet(&results, file)?,
        Some(file) => write(file, results.csv())?,
        None => trodden_console::output::text().write_all(results.csv().as_bytes())?,
    }
    for (metric, effects) in results.metrics.iter().zip(&results.effects) {
        let of = if results.metrics.len() > 1 { format!(" ({metric})") } else { String::new() };
        for effect in sorted(effects) {
            let name = &results.factors[effect.factor];
            note(format_args!("{:2}. {name:16} changes the mean overlap by {:+.2}{of}", effect.rank, effect.effect));
        }
    }
    if let Some(file) = &job.json {
        write(file, serde_json::to_string_pretty(&results)? + "\n")?;
    }
    if let Some(file) = &job.distributions {
        write(file, results.distributions_csv())?;
    }
    if let Some(file) = &job.html {
        write(file, page::page(&results))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "parquet")]
fn write_parquet(results: &Results, file: &Path) -> Result<()> {
    write_file(file, &parquet::bytes(results).with_context(|| format!("cannot write {}", file.display()))?)
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &Results, file: &Path) -> Result<()> {
    bail!(
        "{}: this trodden-lab cannot write Parquet: build it with `cargo build --release -p trodden-lab --features parquet`, or name \
            a file that ends in .csv",
        file.display()
    )
}

fn carry_out(experiment: &Experiment, folder: &Path, window: u64) -> Result<Results> {
    let design = match experiment.design.as_str() {
        "full-factorial" => Design::FullFactorial,
        "plackett-burman" => Design::PlackettBurman { foldover: false },
        "plackett-burman-foldover" => Design::PlackettBurman { foldover: true },
        other => bail!("design = {other:?}: full-factorial, plackett-burman or plackett-burman-foldover"),
    };
    let metrics = experiment.metrics()?;
    let counts: Vec<usize> = experiment.factors.values().map(Vec::len).collect();
    let combinations = combinations(design, &counts)?;
    let configurations = experiment.configurations(folder, &combinations)?;
    let job = Job::new(experiment, &configurations, metrics.iter().map(|(_, m)| *m).collect(), window)?;
    let (mut outcomes, mut characters) = (Vec::new(), Vec::new());
    for (number, source) in experiment.sources.iter().enumerate() {
        let path = folder.join(source);
        let (of_source, character) = job.source(&path, number)?;
        outcomes.extend(of_source);
        characters.push(character);
    }
    // Sum and number of the overlaps of each metric and configuration.
    let mut overlaps = vec![vec![(0.0, 0u32); combinations.len()]; metrics.len()];
    for (outcome, overlap) in outcomes.iter().filter_map(|o: &SweepOutcome| Some((o, o.overlap?))) {
        let (sum, number) = &mut overlaps[outcome.metric][outcome.configuration];
        (*sum, *number) = (*sum + overlap, *number + 1);
    }
    let effects_of = |metric: usize| {
        let responses: Vec<f64> = overlaps[metric].iter().map(|(sum, number)| sum / f64::from((*number).max(1))).collect();
        effects(&combinations, &counts, &responses)
    };
    Ok(Results {
        schema_version: 1,
        sources: experiment.sources.iter().map(|s| s.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect(),
        factors: experiment.factors.keys().cloned().collect(),
        levels: experiment.factors.values().map(|levels| levels.iter().map(text_of).collect()).collect(),
        effects: (0..metrics.len()).map(effects_of).collect(),
        combinations,
        outcomes,
        metrics: metrics.into_iter().map(|(name, _)| name).collect(),
        characters,
    })
}

/// Maximum memory of the groups that are fed at a time, in bytes.
const MAX_MEMORY: u64 = 2 << 30;

/// Configurations that share a lane: places, and what they share.
struct Group {
    members: Vec<usize>,
    lane: Lane,
}

/// What is done with each source.
struct Job<'a> {
    configurations: &'a [Configuration],
    metrics: Vec<Metric>,
    model: Option<ProcessorModel>,
    format: SourceFormat,
    window: u64,
    /// Maximum memory of the groups that are fed at a time, in bytes. A group alone may take more.
    max_memory: u64,
}

impl Job<'_> {
    fn new<'a>(experiment: &Experiment, configurations: &'a [Configuration], metrics: Vec<Metric>, window: u64) -> Result<Job<'a>> {
        let needs_processor = metrics.iter().any(|m| !matches!(m, Metric::Frequency | Metric::Event(0)))
            || configurations.iter().any(|c| c.processor.branch_queue > 0)
            || experiment.model()? == ProcessorModel::Reference;
        let format = match experiment.format.as_deref() {
            None => SourceFormat::Auto,
            Some(name) => SourceFormat::named(name).with_context(|| format!("invalid variant: {name}")).context("format")?,
        };
        Ok(Job { configurations, metrics, model: needs_processor.then_some(experiment.model()?), format, window, max_memory: MAX_MEMORY })
    }

    /// Feeds a source to all configurations, as many groups at a time as fit into the memory.
    fn source(&self, path: &Path, number: usize) -> Result<(Vec<SweepOutcome>, Character)> {
        let mut pending = self.members();
        self.announce(path, &pending);
        let (mut outcomes, mut first_character) = (Vec::new(), None);
        // Memory of a group at the end of a reading.
        let mut grown = 0;
        while !pending.is_empty() {
            let mut opened = open_file_or_trace(path, self.format)?;
            if self.model.is_some() && opened.source.level() == Level::Branches {
                bail!(
                    "{} holds branches only: metrics and branch-queue need whole instructions (record with --event, or take a trace of \
                     CBP2025 or ChampSim)",
                    path.display()
                );
            }
            let repairs = opened.source.knows_return_addresses();
            let mut groups = Vec::new();
            let mut memory = 0;
            while let Some(members) = pending.front() {
                memory += self.table_memory(members).max(grown);
                if memory > self.max_memory && !groups.is_empty() {
                    break;
                }
                groups.extend(pending.pop_front().map(|members| self.group(members, repairs)).transpose()?);
            }
            let mut batch = Batch::default();
            let mut goes_on = true;
            while goes_on {
                batch.clear();
                goes_on = opened.source.read(&mut batch)?;
                feed(&mut groups, &batch)?;
                // Profiles of all paths grow: what fits no longer waits for another reading.
                while groups.len() > 1 && groups.iter().map(|g| g.lane.memory()).sum::<u64>() > self.max_memory {
                    for group in groups.split_off(groups.len() / 2).into_iter().rev() {
                        pending.push_front(group.members);
                    }
                }
            }
            grown = groups.iter().map(|g| g.lane.memory()).max().unwrap_or(0);
            for group in &mut groups {
                group.lane.finish(&mut |_, _| {})?;
                for (place, metric) in self.metrics.iter().enumerate() {
                    outcomes.extend(group.outcomes(number, place, *metric));
                }
                // The first configuration's detector: that of the base, unless a factor changes it.
                if group.members.contains(&0) {
                    first_character = Some(character(&group.lane.profiler, &self.metrics));
                }
            }
        }
        outcomes.sort_by_key(|o| (o.configuration, o.metric));
        Ok((outcomes, first_character.context("an experiment has a configuration")?))
    }

    /// Says what is about to be done with a source, and how much memory that takes.
    fn announce(&self, path: &Path, groups: &VecDeque<Vec<usize>>) {
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        let memory: u64 = groups.iter().map(|members| self.table_memory(members)).sum();
        let (path, number) = (path.display(), self.configurations.len());
        let all = format!("{path}: {number} configurations; tables and processors take {} MB", megabytes(memory));
        match memory.div_ceil(self.max_memory.max(1)) {
            0 | 1 => note(format_args!("{all}")),
            readings => note(format_args!("{all}, at most {} MB at a time: at least {readings} readings", megabytes(self.max_memory))),
        }
    }

    /// Places of the configurations of each group: those that share a detector and a processor, as far as their tables leave room for
    /// other groups.
    fn members(&self) -> VecDeque<Vec<usize>> {
        let mut members: Vec<Vec<usize>> = Vec::new();
        // With a queue the first table's latencies matter, so each has a lane of its own.
        let shares = |one: &Configuration, other: &Configuration| {
            one.detector == other.detector && (self.model.is_none() || one.processor == other.processor && one.processor.branch_queue == 0)
        };
        let mut memory: Vec<u64> = Vec::new();
        for (number, configuration) in self.configurations.iter().enumerate() {
            let tables = self.parameters(&[number]).table_memory();
            let fits = |place: &usize| memory[*place] + tables <= self.max_memory / 4;
            let same = |place: &usize| shares(&self.configurations[members[*place][0]], configuration);
            match (0..members.len()).rev().filter(fits).find(same) {
                Some(place) => {
                    members[place].push(number);
                    memory[place] += tables;
                }
                None => {
                    members.push(vec![number]);
                    memory.push(tables);
                }
            }
        }
        members.into()
    }

    fn parameters(&self, members: &[usize]) -> ProfilerParameters {
        let tables = members.iter().map(|m| self.configurations[*m].table).collect();
        let mut metrics = vec![Metric::Frequency];
        metrics.extend(self.metrics.iter().filter(|m| **m != Metric::Frequency));
        metrics.extend(members.contains(&0).then_some(Metric::Instructions));
        ProfilerParameters { detector: self.configurations[members[0]].detector, tables, metrics, window: self.window }
    }

    /// Bytes of memory of a group that was fed nothing.
    fn table_memory(&self, members: &[usize]) -> u64 {
        let processor = self.configurations[members[0]].processor;
        let models = if processor.branch_queue > 0 { 3 } else { 1 };
        self.parameters(members).table_memory() + self.model.map_or(0, |_| models * processor.memory())
    }

    fn group(&self, members: Vec<usize>, repairs: bool) -> Result<Group> {
        let mut parameters = self.parameters(&members);
        if !repairs {
            parameters.detector.repair = Repair::None;
        }
        let processor = self.configurations[members[0]].processor;
        Ok(Group { lane: Lane::new(parameters, self.model.map(|model| (model, processor)))?, members })
    }
}

impl Group {
    fn outcomes(&self, source: usize, place: usize, metric: Metric) -> Vec<SweepOutcome> {
        let timing = self.lane.timing();
        let outcome = |(result, configuration): (trodden_hardware::TableResult, &usize)| SweepOutcome {
            source,
            configuration: *configuration,
            metric: place,
            overlap: result.overlap,
            dynamic_overlap: result.dynamic_overlap,
            windows: result.windows,
            cycles: timing.map(|t| t.totals.cycles),
            slowdown: timing.and_then(|t| t.slowdown),
            frozen_slowdown: timing.and_then(|t| t.frozen_slowdown),
        };
        self.lane.profiler.results(metric).into_iter().zip(&self.members).map(outcome).collect()
    }
}

/// Feeds all groups, in as many threads as there are processors.
fn feed(groups: &mut [Group], batch: &Batch) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len()).max(1);
    let chunk = groups.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let feed = |groups: &mut [Group]| {
            let feed = |group: &mut Group| anyhow::Ok(group.lane.feed(&batch.events, &batch.instructions, &mut |_, _| {})?);
            groups.iter_mut().try_for_each(feed)
        };
        let running: Vec<_> = groups.chunks_mut(chunk).map(|groups| scope.spawn(move || feed(groups))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread failed")))
    })
}
