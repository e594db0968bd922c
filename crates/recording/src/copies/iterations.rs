//! Copies that each record the path sequences of some functions.
//!
//! A path over k iterations stays within one activation of a function, so any stream that contains the function's paths and calls in order
//! contains it. Some functions are in all streams because frames may end in them without an event: functions that catch exceptions, and
//! functions that call functions returning twice.
//!
//! Path counts are computed from the streams. The streams are stored, in one folder per copy; `trodden-lab patterns iterations` reads them
//! for any k.

use super::preparation::CopyInput;
use super::shared::{self, AssignedFunctions, CopyPartition, NamedFunction, divide_functions};
use super::spec::copy_file;
use super::units::read_units;
use super::weights::find_recent_profile;
use super::{CopyContext, CopyJob, RecordedCopies};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use trodden_driver::experiment;
use trodden_profile::private;
use trodden_profile::{ImageProfile, Profile};
use trodden_stored::place::{LOG_EXTENSION, files_with_extension, folder_of_copy, move_logs_to_folder, streams_folder_of};
use trodden_text::words::{plural, quote_for_shell};
use trodden_unit::experiment::{ExperimentScheme, Observe};
use trodden_unit::{FunctionMap, InstrumentedImage, KnownPaths, Settings, UnitMap};

type CountsByNumber = BTreeMap<u64, u64>;

/// Records a run with copies that write streams of different functions.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    shared::record_with_partition(job, context, input, |program| IterationPartition::new(program, job, context))
}

struct IterationPartition {
    copies: Vec<KnownPaths>,
    /// The path limit that the original program was built with.
    max_paths: u64,
}

impl IterationPartition {
    fn new(program: &Path, job: &CopyJob, context: CopyContext) -> Result<IterationPartition> {
        let units: Vec<UnitMap> = read_units(program, context.recording.units.as_ref())?.into_iter().map(|(_, map)| map).collect();
        let image = InstrumentedImage::read(&fs::read(program).with_context(|| format!("cannot read {}", program.display()))?)?;
        let profile = find_recent_profile(image.identity, &job.what.command, context)?;
        let executed = count_executions(profile.as_ref());
        let functions: Vec<(&UnitMap, &FunctionMap)> = units.iter().flat_map(|u| u.functions.iter().map(move |f| (u, f))).collect();
        ensure!(!functions.is_empty(), "{} has no instrumented functions. Build it with trodden", program.display());
        // Without a profile, a function's weight is its number of paths.
        let weight = |(unit, function): &(&UnitMap, &FunctionMap)| match &profile {
            Some(_) => 1 + executed.get(&key_of_function(unit, function)).copied().unwrap_or(0),
            None => function.counters,
        };
        let weights = functions.iter().map(weight).zip(0..).collect();
        let AssignedFunctions { copies, max_load, total_weight } = divide_functions(weights, job.options.copies);
        log::info!(
            "the sequences of paths in {} are divided among {} copies; the largest share is {:.1} % of the divided {}",
            plural(functions.len() as u128, "function", "functions"),
            copies.len(),
            100.0 * max_load as f64 / total_weight.max(1) as f64,
            if profile.is_some() { "executions" } else { "paths" }
        );
        let part = |numbers: &BTreeSet<u32>| {
            let mut part = KnownPaths::default();
            for (unit, function) in numbers.iter().map(|number| functions[*number as usize]) {
                part.add(unit, function, std::iter::empty(), &vec![0; function.graph.edge_count()])?;
            }
            Ok(part)
        };
        let max_paths = units.first().map_or(0, |unit| unit.experiment.placement().max_paths);
        Ok(IterationPartition { copies: copies.iter().map(part).collect::<Result<_>>()?, max_paths })
    }
}

fn key_of_function(unit: &UnitMap, function: &FunctionMap) -> NamedFunction {
    (unit.source.clone(), function.name.clone())
}

fn count_executions(profile: Option<&Profile>) -> HashMap<NamedFunction, u64> {
    let mut executions: HashMap<NamedFunction, u64> = HashMap::new();
    for (_, unit, function) in profile.iter().flat_map(|profile| profile.functions()) {
        let sum = executions.entry(key_of_function(&unit.map, function)).or_default();
        *sum = unit.counts_of(function).fold(*sum, |sum, (_, count)| sum.saturating_add(count));
    }
    executions
}

impl CopyPartition for IterationPartition {
    const WRITES_STREAMS: bool = true;

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |functions: &KnownPaths| {
            Ok(Settings {
                observe: Some(Observe::Stream),
                scheme: Some(ExperimentScheme::BallLarus),
                max_paths: Some(self.max_paths),
                interesting: Some(experiment::store_known_paths(context.driver, functions)?),
                ..Settings::default()
            })
        };
        self.copies.iter().map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let merged = merge(profiles, work);
        ensure!(
            !merged.0.is_empty(),
            "no stream (the order of paths) was recorded, because the program executed none of its instrumented functions"
        );
        Ok(merged)
    }

    fn store_results(&self, job: &CopyJob, run: Option<u64>, work: &Path, context: CopyContext) -> Result<()> {
        let streams = match (run, &job.what.destination.output) {
            (Some(run), _) => context.recording.run_store()?.streams(run),
            (None, output) => streams_folder_of(&output.clone().unwrap_or_default()),
        };
        for copy in 0..self.copies.len() {
            let own = folder_of_copy(&streams, copy);
            private::create_folder(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
            move_logs_to_folder(&files_with_extension(&copy_file(work, "logs", copy), LOG_EXTENSION)?, &own)?;
        }
        let shown = run.map_or_else(|| streams.display().to_string(), |run| run.to_string());
        log::info!("to show paths across iterations of loops, run `trodden-lab patterns iterations {}`", quote_for_shell(&shown));
        Ok(())
    }
}

/// Combines the images of all copies. For functions in several copies, keeps the first copy's counts and returns how other copies differ.
/// Other images, such as libraries, are taken from the first copy.
fn merge(profiles: Vec<Profile>, work: &Path) -> (Vec<ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut counted: BTreeMap<NamedFunction, (usize, CountsByNumber)> = BTreeMap::new();
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own: BTreeMap<NamedFunction, CountsByNumber> = BTreeMap::new();
        for mut image in profile.images {
            if !Path::new(&image.path).starts_with(work) {
                images.extend((copy == 0).then_some(image));
                continue;
            }
            for unit in &mut image.units {
                let map = unit.map.clone();
                for function in &map.functions {
                    let counts = own.entry(key_of_function(&map, function)).or_default();
                    unit.counts_of(function).for_each(|(path, count)| *counts.entry(path).or_default() += count);
                    if counted.contains_key(&key_of_function(&map, function)) {
                        let range = function.first_counter..function.first_counter.saturating_add(function.counters);
                        unit.counts.executions.retain(|(word, _)| !range.contains(word));
                    }
                }
            }
            images.push(image);
        }
        for (key, counts) in own {
            match counted.get(&key) {
                Some((first, before)) if *before != counts => {
                    differences.push(format!("copy {copy} and copy {first} executed different paths of `{}`", key.1))
                }
                Some(_) => {}
                None => drop(counted.insert(key, (copy, counts))),
            }
        }
    }
    (images, differences)
}
