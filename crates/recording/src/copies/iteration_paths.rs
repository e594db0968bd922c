//! Copies that each count some paths across several iterations of a loop ("paths over iterations"), without recording streams.
//!
//! Such a path is counted at its end, an edge that determines the path of its last iteration, and these ends are divided among the copies.
//! A copy counts nothing at the ends of other copies, and needs labels (increments on edges) only for paths that occur in its own paths
//! over iterations. Dividing a function has a setup cost: in each copy that counts something in the function, every path that ends with a
//! cut edge also updates the context. Paths over iterations outside the set are counted together at each end, so no execution is lost. P3
//! (Afraz, Saha and Kanade, ESEC/FSE 2015, section 6) leaves such cyclic paths to future work.

use super::preparation::CopyInput;
use super::shared::{self, CopyPartition, NamedFunction, lightest_functions};
use super::{CopyContext, CopyJob, RecordedCopies};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trodden_flow::part::PathEnds;
use trodden_flow::{DagEdgeId, Origin};
use trodden_partition::setup::{DivisibleTask, distribute};
use trodden_profile::iterations::{IterationPathCounters, add_counted_iterations, counts_iterations};
use trodden_profile::{ImageProfile, Profile};
use trodden_text::words::plural;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::iterations::{NO_COUNTED_ITERATION_PATHS, end_of_iteration_path};
use trodden_unit::{FunctionKey, IterationFunction, IterationSet, Settings};

pub fn run(job: &CopyJob, set: &IterationSet, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    shared::record_with_partition(job, context, input, |_| IterationPathPartition::new(set.clone(), job))
}

struct IterationPathPartition {
    set: IterationSet,
    /// For each function and each end of its paths over iterations, the copy that counts there.
    owners: BTreeMap<FunctionKey, BTreeMap<DagEdgeId, usize>>,
    /// The copies that count anything.
    copies: Vec<usize>,
    /// Functions that all copies count, to check that the copies execute the same paths. Functions of which the program has several
    /// versions are not among them.
    counted_by_all: BTreeSet<FunctionKey>,
}

impl IterationPathPartition {
    fn new(set: IterationSet, job: &CopyJob) -> Result<IterationPathPartition> {
        ensure!(
            job.options.max_probes.is_none(),
            "--max-probes cannot be combined with this value of --divide. Omit --max-probes or --divide"
        );
        let executions = |function: &IterationFunction| function.counted.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let weights: Vec<(u64, u32)> = set.functions().values().map(executions).zip(0..).collect();
        let lightest = lightest_functions(&weights);
        let keys = set.functions().keys().zip(0..);
        let is_only_version =
            |(unit, name, _): &FunctionKey| set.functions().keys().filter(|key| (&key.0, &key.1) == (unit, name)).count() == 1;
        let chosen = keys.filter(|(key, at)| lightest.contains(at) && is_only_version(key));
        let counted_by_all: BTreeSet<FunctionKey> = chosen.map(|(key, _)| key.clone()).collect();
        let divided: Vec<(&FunctionKey, &IterationFunction)> =
            set.functions().iter().filter(|(key, _)| !counted_by_all.contains(key)).collect();
        let tasks =
            divided.iter().map(|(key, function)| divisible_task_of_function(key, function)).collect::<Result<Vec<DivisibleTask>>>()?;
        let distribution = distribute(&tasks, job.options.copies);
        let owners: BTreeMap<FunctionKey, BTreeMap<DagEdgeId, usize>> = divided
            .iter()
            .zip(&distribution.owners)
            .map(|((key, function), owners)| ((*key).clone(), function.ends.iter().copied().zip(owners.iter().copied()).collect()))
            .collect();
        // A copy that would count nothing is not made.
        let used: BTreeSet<usize> = owners.values().flat_map(BTreeMap::values).copied().collect();
        let copies = if used.is_empty() { vec![0] } else { used.into_iter().collect() };
        let is_divided = |of: &&BTreeMap<DagEdgeId, usize>| of.values().collect::<BTreeSet<_>>().len() > 1;
        log::info!(
            "{} of paths over {} iterations of {} will be counted by {}; one copy makes at most {} counts and changes of context, and {} \
             divided between copies",
            plural(weights.iter().fold(0u64, |sum, (count, _)| sum.saturating_add(*count)).into(), "execution", "executions"),
            set.iterations(),
            plural(weights.len() as u128, "function", "functions"),
            plural(copies.len() as u128, "copy", "copies"),
            distribution.loads.iter().max().copied().unwrap_or(0),
            plural(owners.values().filter(is_divided).count() as u128, "function is", "functions are")
        );
        Ok(IterationPathPartition { set, owners, copies, counted_by_all })
    }

    /// Warns about each function of the set that some copy cannot count, and returns these functions.
    fn find_uncounted_functions(&self, profiles: &[Profile]) -> BTreeSet<NamedFunction> {
        let units = profiles.iter().flat_map(|profile| &profile.images).flat_map(|image| &image.units);
        let skipped = units.flat_map(|unit| unit.map.skipped.iter().map(move |skipped| (&unit.map.source, skipped)));
        let missing: BTreeMap<NamedFunction, &String> = skipped
            .filter(|(unit, skipped)| skipped.reason != NO_COUNTED_ITERATION_PATHS && self.set.has_function(unit, &skipped.name))
            .map(|(unit, skipped)| ((unit.clone(), skipped.name.clone()), &skipped.reason))
            .collect();
        for ((_, name), reason) in &missing {
            log::warn!("the paths of function `{name}` that span several iterations are not counted: {reason}");
        }
        missing.into_keys().collect()
    }

    fn functions_counted_by_all_copies(&self) -> BTreeSet<NamedFunction> {
        self.counted_by_all.iter().map(|(unit, name, _)| (unit.clone(), name.clone())).collect()
    }
}

/// Returns the cost of counting at each end of a function's paths over iterations. The setup cost is that of updating contexts.
fn divisible_task_of_function(key: &FunctionKey, function: &IterationFunction) -> Result<DivisibleTask> {
    let (dag, numbering) = function.numbered_paths().with_context(|| format!("the stored paths of function `{}` are corrupt", key.1))?;
    let ends = PathEnds::without_dummy_entry_edges(&dag);
    let mut parts: BTreeMap<DagEdgeId, u64> = function.ends.iter().map(|end| (*end, 0)).collect();
    let mut setup = 0u64;
    for (path, count) in &function.counted {
        if let Some(end) = end_of_iteration_path(path, &ends, (&dag, &numbering))
            && let Some(sum) = parts.get_mut(&end)
        {
            *sum = sum.saturating_add(*count);
        }
        let last = path.last().and_then(|path| numbering.path(&dag, *path)?.last().copied());
        if last.is_some_and(|edge| matches!(dag.edge(edge).origin, Origin::Leave(_))) {
            setup = setup.saturating_add(*count);
        }
    }
    Ok(DivisibleTask { setup, parts: parts.into_values().collect() })
}

impl CopyPartition for IterationPathPartition {
    const WRITES_STREAMS: bool = false;

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |copy: &usize| {
            let counts = |key: &FunctionKey, end: DagEdgeId| {
                self.counted_by_all.contains(key) || self.owners.get(key).and_then(|owners| owners.get(&end)) == Some(copy)
            };
            let iterations = Some(SettingsFile::Stored(context.driver.inputs()?.put(&self.set.part(counts).to_bytes())?));
            Ok(Settings { iterations, ..Settings::default() })
        };
        self.copies.iter().map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, _: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let uncounted = self.find_uncounted_functions(&profiles);
        let (images, differences) = merge(profiles, &self.functions_counted_by_all_copies(), &uncounted);
        ensure!(
            images.iter().any(counts_iterations),
            "no path over iterations of a loop was counted, because the program executed none of the functions that were to be counted. \
             Run it with the same input as the run that named these functions"
        );
        Ok((images, differences))
    }

    fn store_results(&self, _: &CopyJob, _: Option<u64>, _: &Path, _: CopyContext) -> Result<()> {
        Ok(())
    }
}

/// Combines the images of all copies. For functions that all copies count, keeps the first copy's counts and returns how other copies
/// differ. For functions that some copy could not count, drops all counts, because they are incomplete.
fn merge(
    profiles: Vec<Profile>,
    counted_by_all: &BTreeSet<NamedFunction>,
    uncounted: &BTreeSet<NamedFunction>,
) -> (Vec<ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut first: BTreeMap<FunctionKey, IterationPathCounters> = BTreeMap::new();
    let is_in = |names: &BTreeSet<NamedFunction>, unit: &str, name: &str| names.contains(&(unit.to_owned(), name.to_owned()));
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own = BTreeMap::new();
        for mut image in profile.images {
            if !counts_iterations(&image) {
                images.extend((copy == 0).then_some(image));
                continue;
            }
            add_counted_iterations(&image, &mut own);
            for unit in &mut image.units {
                let map = unit.map.clone();
                let is_dropped = |name: &str| is_in(uncounted, &map.source, name) || copy > 0 && is_in(counted_by_all, &map.source, name);
                for words in map.functions.iter().filter(|f| is_dropped(&f.name)).filter_map(|f| f.iteration_words()) {
                    unit.counts.executions.retain(|(word, _)| !words.range().contains(word));
                }
            }
            images.push(image);
        }
        own.retain(|(unit, name, _), _| is_in(counted_by_all, unit, name) && !is_in(uncounted, unit, name));
        if copy == 0 {
            first = own;
        } else if let Some((_, name, _)) = first.keys().chain(own.keys()).find(|key| own.get(*key) != first.get(*key)) {
            differences.push(format!("copy {copy} and copy 0 have different counts of the paths over iterations of `{name}`"));
        }
    }
    (images, differences)
}
