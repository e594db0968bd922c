//! Copies that write the sequences of the paths of a part of the functions each.
//!
//! A path of k iterations is within one activation of one function. So each function's are counted from the stream of any copy that has
//! that function's paths, and calls of it, in order: those of other functions are not needed. Functions that catch exceptions, or call
//! what returns twice, are in all streams, since there frames end that do not say so.
//!
//! The counts are those of the paths, which follow from the streams. The streams are kept, in a folder for each copy;
//! `trodden patterns iterations` answers from all of them, for any k.

use super::before::CopyInput;
use super::shared::{self, Divided, Partition, divide};
use super::spec::file;
use super::units::units;
use super::weights::recent;
use super::{CopiesRecorded, CopyContext, CopyJob};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use trodden_driver::experiment;
use trodden_profile::private;
use trodden_profile::{ImageProfile, Profile};
use trodden_stored::place::{LOG, move_logs, of_copy, streams_beside, with_extension};
use trodden_text::words::{plural, shell_word};
use trodden_unit::experiment::{ExperimentScheme, Observe};
use trodden_unit::{FunctionMap, Image, KnownPaths, Settings, UnitMap};

/// Unit and name of a function.
type Key = (String, String);

/// Counts of a function's paths.
type Counts = BTreeMap<u64, u64>;

/// Records a run by copies that share the streams of functions.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<CopiesRecorded> {
    shared::run(job, context, input, |program| IterationPartition::new(program, job, context))
}

/// Which copy writes the paths of which function.
struct IterationPartition {
    /// For each copy its functions.
    copies: Vec<KnownPaths>,
    /// As in the program.
    max_paths: u64,
}

impl IterationPartition {
    fn new(program: &Path, job: &CopyJob, context: CopyContext) -> Result<IterationPartition> {
        let units: Vec<UnitMap> = units(program, context.around.units.as_ref())?.into_iter().map(|(_, map)| map).collect();
        let image = Image::read(&fs::read(program).with_context(|| format!("cannot read {}", program.display()))?)?;
        let profile = recent(image.identity, &job.what.command, context)?;
        let executed = executions(profile.as_ref());
        let functions: Vec<(&UnitMap, &FunctionMap)> = units.iter().flat_map(|u| u.functions.iter().map(move |f| (u, f))).collect();
        ensure!(!functions.is_empty(), "{} has no instrumented function: build it with trodden", program.display());
        // Without a run, each path may be executed.
        let weight = |(unit, function): &(&UnitMap, &FunctionMap)| match &profile {
            Some(_) => 1 + executed.get(&key(unit, function)).copied().unwrap_or(0),
            None => function.counters,
        };
        let weights = functions.iter().map(weight).zip(0..).collect();
        let Divided { copies, most, all, .. } = divide(weights, job.options.copies);
        log::info!(
            "{} shared by {} copies, of which one has {:.1} % of the {} besides those that all have",
            plural(functions.len() as u128, "function", "functions"),
            copies.len(),
            100.0 * most as f64 / all.max(1) as f64,
            if profile.is_some() { "executions" } else { "paths" }
        );
        let part = |numbers: &BTreeSet<u32>| {
            let mut part = KnownPaths::default();
            for (unit, function) in numbers.iter().map(|number| functions[*number as usize]) {
                part.add(unit, function, std::iter::empty(), &vec![0; function.edges.len()])?;
            }
            Ok(part)
        };
        let max_paths = units.first().map_or(0, |unit| unit.experiment.placement().max_paths);
        Ok(IterationPartition { copies: copies.iter().map(part).collect::<Result<_>>()?, max_paths })
    }
}

fn key(unit: &UnitMap, function: &FunctionMap) -> Key {
    (unit.source.clone(), function.name.clone())
}

/// Executions of all paths of functions.
fn executions(profile: Option<&Profile>) -> HashMap<Key, u64> {
    let mut executions: HashMap<Key, u64> = HashMap::new();
    for (_, unit, function) in profile.iter().flat_map(|profile| profile.functions()) {
        let sum = executions.entry(key(&unit.map, function)).or_default();
        *sum = unit.counts_of(function).fold(*sum, |sum, (_, count)| sum.saturating_add(count));
    }
    executions
}

impl Partition for IterationPartition {
    const STREAMS: bool = true;

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |functions: &KnownPaths| {
            Ok(Settings {
                observe: Some(Observe::Stream),
                scheme: Some(ExperimentScheme::BallLarus),
                max_paths: Some(self.max_paths),
                interesting: Some(experiment::stored(context.driver, functions)?),
                ..Settings::default()
            })
        };
        self.copies.iter().map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let merged = merge(profiles, work);
        ensure!(!merged.0.is_empty(), "no copy wrote a stream: what ran has none of the program's functions");
        Ok(merged)
    }

    fn keep(&self, job: &CopyJob, run: Option<u64>, work: &Path, context: CopyContext) -> Result<()> {
        let place = match (run, &job.what.destination.output) {
            (Some(run), _) => context.around.run_store()?.streams(run),
            (None, output) => streams_beside(&output.clone().unwrap_or_default()),
        };
        for copy in 0..self.copies.len() {
            let own = of_copy(&place, copy);
            private::create_folder(&own).with_context(|| format!("cannot make the folder {}", own.display()))?;
            move_logs(&with_extension(&file(work, "logs", copy), LOG)?, &own)?;
        }
        let shown = run.map_or_else(|| place.display().to_string(), |run| run.to_string());
        log::info!("`trodden patterns iterations {}` shows paths across iterations", shell_word(&shown));
        Ok(())
    }
}

/// The images of all copies. Of a function that several have, the first copy's counts stay; says where those of others differ. Files that
/// are no copies, such as libraries, are the first copy's.
fn merge(profiles: Vec<Profile>, work: &Path) -> (Vec<ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut counted: BTreeMap<Key, (usize, Counts)> = BTreeMap::new();
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own: BTreeMap<Key, Counts> = BTreeMap::new();
        for mut image in profile.images {
            if !Path::new(&image.path).starts_with(work) {
                images.extend((copy == 0).then_some(image));
                continue;
            }
            for unit in &mut image.units {
                let map = unit.map.clone();
                for function in &map.functions {
                    let counts = own.entry(key(&map, function)).or_default();
                    unit.counts_of(function).for_each(|(path, count)| *counts.entry(path).or_default() += count);
                    if counted.contains_key(&key(&map, function)) {
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
                    differences.push(format!("copy {copy} executed other paths of `{}` than copy {first}", key.1))
                }
                Some(_) => {}
                None => drop(counted.insert(key, (copy, counts))),
            }
        }
    }
    (images, differences)
}
