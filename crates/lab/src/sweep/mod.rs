//! `trodden-lab sweep`: simulates the configurations of an experiment with the hardware path profiler.
//!
//! Configurations that differ only in their tables form a group, which shares a detector and a processor model. Groups are fed in parallel,
//! batch by batch. A source of branches is read once if all groups fit into [`MAX_MEMORY_BYTES`], and several times otherwise.

mod experiment;
mod lines;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod results;

use self::experiment::{SweepConfiguration, SweepExperiment, format_level};
use self::results::{SweepOutcome, SweepResults, sort_by_rank};
use crate::cli::SweepArguments;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use trodden_console::notes::note;
use trodden_console::output::write_file;
use trodden_hardware::character::{PathCharacteristics, characterize_paths};
use trodden_hardware::experiment::{ExperimentalDesign, compute_effects, level_combinations};
use trodden_hardware::processor::ProcessorModel;
use trodden_hardware::{Metric, ProfilerParameters, SimulationLane, StackRepair};
use trodden_trace::simulation::{SourceFormat, open_file_or_trace};
use trodden_trace::sources::{EventBatch, SourceDetail};

pub fn run(job: &SweepArguments) -> Result<ExitCode> {
    let text = fs::read_to_string(&job.experiment).with_context(|| format!("cannot read {}", job.experiment.display()))?;
    let experiment: SweepExperiment =
        toml::from_str(&text).with_context(|| format!("{} is not a valid experiment file", job.experiment.display()))?;
    let folder = job.experiment.parent().unwrap_or(Path::new("."));
    let results = run_experiment(&experiment, folder, job.window).with_context(|| job.experiment.display().to_string())?;
    let write = |file: &Path, text: String| write_file(file, text.as_bytes());
    match &job.output {
        Some(file) if file.extension().is_some_and(|e| e == "parquet") => write_parquet(&results, file)?,
        Some(file) => write(file, results.to_csv())?,
        None => trodden_console::output::text_writer().write_all(results.to_csv().as_bytes())?,
    }
    for (metric, effects) in results.metrics.iter().zip(&results.effects) {
        let of = if results.metrics.len() > 1 { format!(" ({metric})") } else { String::new() };
        for effect in sort_by_rank(effects) {
            let name = &results.factors[effect.factor];
            note(format_args!("{:2}. {name:16} changes the mean overlap by {:+.2}{of}", effect.rank, effect.effect));
        }
    }
    if let Some(file) = &job.json {
        write(file, serde_json::to_string_pretty(&results)? + "\n")?;
    }
    if let Some(file) = &job.distributions {
        write(file, results.distributions_to_csv())?;
    }
    if let Some(file) = &job.html {
        write(file, page::render_page(&results))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "parquet")]
fn write_parquet(results: &SweepResults, file: &Path) -> Result<()> {
    write_file(file, &parquet::to_parquet(results).with_context(|| format!("cannot write {}", file.display()))?)
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &SweepResults, file: &Path) -> Result<()> {
    bail!(
        "cannot write {}: this trodden-lab was built without Parquet support. Build it with `cargo build --release -p trodden-lab \
         --features parquet`, or name a file that ends in .csv",
        file.display()
    )
}

fn run_experiment(experiment: &SweepExperiment, folder: &Path, window: u64) -> Result<SweepResults> {
    let design = match experiment.design.as_str() {
        "full-factorial" => ExperimentalDesign::FullFactorial,
        "plackett-burman" => ExperimentalDesign::PlackettBurman { foldover: false },
        "plackett-burman-foldover" => ExperimentalDesign::PlackettBurman { foldover: true },
        other => bail!("unknown design {other:?}. Choose full-factorial, plackett-burman or plackett-burman-foldover"),
    };
    let metrics = experiment.metrics()?;
    let counts: Vec<usize> = experiment.factors.values().map(Vec::len).collect();
    let combinations = level_combinations(design, &counts)?;
    let configurations = experiment.configurations(folder, &combinations)?;
    let job = SweepJob::new(experiment, &configurations, metrics.iter().map(|(_, m)| *m).collect(), window)?;
    let (mut outcomes, mut characters) = (Vec::new(), Vec::new());
    for (number, source) in experiment.sources.iter().enumerate() {
        let path = folder.join(source);
        let (of_source, character) = job.run_source(&path, number)?;
        outcomes.extend(of_source);
        characters.push(character);
    }
    // For each metric and configuration, the sum and the number of the overlaps.
    let mut overlaps = vec![vec![(0.0, 0u32); combinations.len()]; metrics.len()];
    for (outcome, overlap) in outcomes.iter().filter_map(|o: &SweepOutcome| Some((o, o.overlap?))) {
        let (sum, number) = &mut overlaps[outcome.metric][outcome.configuration];
        (*sum, *number) = (*sum + overlap, *number + 1);
    }
    let effects_of = |metric: usize| {
        let responses: Vec<f64> = overlaps[metric].iter().map(|(sum, number)| sum / f64::from((*number).max(1))).collect();
        compute_effects(&combinations, &counts, &responses)
    };
    Ok(SweepResults {
        schema_version: 1,
        sources: experiment.sources.iter().map(|s| s.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect(),
        factors: experiment.factors.keys().cloned().collect(),
        levels: experiment.factors.values().map(|levels| levels.iter().map(format_level).collect()).collect(),
        effects: (0..metrics.len()).map(effects_of).collect(),
        combinations,
        outcomes,
        metrics: metrics.into_iter().map(|(name, _)| name).collect(),
        characters,
    })
}

const MAX_MEMORY_BYTES: u64 = 2 << 30;

/// Configurations (by index) that share a detector and a processor model ("lane").
struct SweepLaneGroup {
    members: Vec<usize>,
    lane: SimulationLane,
}

struct SweepJob<'a> {
    configurations: &'a [SweepConfiguration],
    metrics: Vec<Metric>,
    model: Option<ProcessorModel>,
    format: SourceFormat,
    window: u64,
    /// Maximum memory of the groups fed at the same time, in bytes. A single group may exceed it.
    max_memory: u64,
}

impl SweepJob<'_> {
    fn new<'a>(
        experiment: &SweepExperiment,
        configurations: &'a [SweepConfiguration],
        metrics: Vec<Metric>,
        window: u64,
    ) -> Result<SweepJob<'a>> {
        let needs_processor = metrics.iter().any(|m| !matches!(m, Metric::Frequency | Metric::Event(0)))
            || configurations.iter().any(|c| c.processor.branch_queue > 0)
            || experiment.model()? == ProcessorModel::Reference;
        let format = match experiment.format.as_deref() {
            None => SourceFormat::Auto,
            Some(name) => SourceFormat::from_name(name).with_context(|| format!("unknown trace format {name:?}"))?,
        };
        Ok(SweepJob {
            configurations,
            metrics,
            model: needs_processor.then_some(experiment.model()?),
            format,
            window,
            max_memory: MAX_MEMORY_BYTES,
        })
    }

    /// Feeds a source to all configurations, reading it once for as many groups as fit into memory.
    fn run_source(&self, path: &Path, number: usize) -> Result<(Vec<SweepOutcome>, PathCharacteristics)> {
        let mut pending = self.form_groups();
        self.show_plan(path, &pending);
        let (mut outcomes, mut first_character) = (Vec::new(), None);
        // Memory of the largest group at the end of the previous pass over the source.
        let mut final_memory = 0;
        while !pending.is_empty() {
            let mut opened = open_file_or_trace(path, self.format)?;
            if self.model.is_some() && opened.source.level() == SourceDetail::Branches {
                bail!(
                    "{} contains only branches, but metrics and branch-queue need all instructions. Record with --event, or use a trace \
                     in the format of CBP2025 or ChampSim",
                    path.display()
                );
            }
            let repairs = opened.source.knows_return_addresses();
            let mut groups = Vec::new();
            let mut memory = 0;
            while let Some(members) = pending.front() {
                memory += self.table_memory(members).max(final_memory);
                if memory > self.max_memory && !groups.is_empty() {
                    break;
                }
                groups.extend(pending.pop_front().map(|members| self.create_group(members, repairs)).transpose()?);
            }
            let mut batch = EventBatch::default();
            let mut has_more = true;
            while has_more {
                batch.clear();
                has_more = opened.source.read(&mut batch)?;
                feed_groups(&mut groups, &batch)?;
                // The complete profiles grow. Groups that no longer fit into memory wait for the next pass over the source.
                while groups.len() > 1 && groups.iter().map(|g| g.lane.memory()).sum::<u64>() > self.max_memory {
                    for group in groups.split_off(groups.len() / 2).into_iter().rev() {
                        pending.push_front(group.members);
                    }
                }
            }
            final_memory = groups.iter().map(|g| g.lane.memory()).max().unwrap_or(0);
            for group in &mut groups {
                group.lane.finish(&mut |_, _| {})?;
                for (place, metric) in self.metrics.iter().enumerate() {
                    outcomes.extend(group.collect_outcomes(number, place, *metric));
                }
                // The source is characterised with the detector of configuration 0, which is the base detector unless a factor changes it.
                if group.members.contains(&0) {
                    first_character = Some(characterize_paths(&group.lane.profiler, &self.metrics));
                }
            }
        }
        outcomes.sort_by_key(|o| (o.configuration, o.metric));
        Ok((outcomes, first_character.context("the experiment has no configurations")?))
    }

    fn show_plan(&self, path: &Path, groups: &VecDeque<Vec<usize>>) {
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        let memory: u64 = groups.iter().map(|members| self.table_memory(members)).sum();
        let (path, number) = (path.display(), self.configurations.len());
        let all = format!("{path}: {number} configurations need {} MB for tables and processor models", megabytes(memory));
        match memory.div_ceil(self.max_memory.max(1)) {
            0 | 1 => note(format_args!("{all}")),
            readings => note(format_args!(
                "{all}. At most {} MB may be used at a time, so the source is read at least {readings} times",
                megabytes(self.max_memory)
            )),
        }
    }

    /// Groups the configurations (by index) that share a detector and a processor model. Splits groups whose tables would exceed the
    /// memory.
    fn form_groups(&self) -> VecDeque<Vec<usize>> {
        let mut members: Vec<Vec<usize>> = Vec::new();
        // If there is a branch queue, the first table affects timing, so such a configuration cannot share its processor model.
        let shares = |one: &SweepConfiguration, other: &SweepConfiguration| {
            one.detector == other.detector && (self.model.is_none() || one.processor == other.processor && one.processor.branch_queue == 0)
        };
        let mut memory: Vec<u64> = Vec::new();
        for (number, configuration) in self.configurations.iter().enumerate() {
            let tables = self.profiler_parameters(&[number]).table_memory();
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

    fn profiler_parameters(&self, members: &[usize]) -> ProfilerParameters {
        let tables = members.iter().map(|m| self.configurations[*m].table).collect();
        let mut metrics = vec![Metric::Frequency];
        metrics.extend(self.metrics.iter().filter(|m| **m != Metric::Frequency));
        metrics.extend(members.contains(&0).then_some(Metric::Instructions));
        ProfilerParameters { detector: self.configurations[members[0]].detector, tables, metrics, window: self.window }
    }

    /// Returns the initial memory of a group, in bytes.
    fn table_memory(&self, members: &[usize]) -> u64 {
        let processor = self.configurations[members[0]].processor;
        let models = if processor.branch_queue > 0 { 3 } else { 1 };
        self.profiler_parameters(members).table_memory() + self.model.map_or(0, |_| models * processor.memory())
    }

    fn create_group(&self, members: Vec<usize>, repairs: bool) -> Result<SweepLaneGroup> {
        let mut parameters = self.profiler_parameters(&members);
        if !repairs {
            parameters.detector.repair = StackRepair::None;
        }
        let processor = self.configurations[members[0]].processor;
        Ok(SweepLaneGroup { lane: SimulationLane::new(parameters, self.model.map(|model| (model, processor)))?, members })
    }
}

impl SweepLaneGroup {
    fn collect_outcomes(&self, source: usize, place: usize, metric: Metric) -> Vec<SweepOutcome> {
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

/// Feeds a batch to all groups, using all processors.
fn feed_groups(groups: &mut [SweepLaneGroup], batch: &EventBatch) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len()).max(1);
    let chunk = groups.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let feed = |groups: &mut [SweepLaneGroup]| {
            let feed = |group: &mut SweepLaneGroup| anyhow::Ok(group.lane.feed(&batch.events, &batch.instructions, &mut |_, _| {})?);
            groups.iter_mut().try_for_each(feed)
        };
        let running: Vec<_> = groups.chunks_mut(chunk).map(|groups| scope.spawn(move || feed(groups))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a simulation thread panicked")))
    })
}
