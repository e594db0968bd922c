//! Copies of a program that watches for paths (`trodden instrument --watch`), each of which watches for a part of them.
//!
//! D. Saha, P. Dhoolia and G. Paul (ESEC/FSE 2013, section 8) mention the runtime verification of policies by distributed runs as future
//! work. Each path is recognised by itself, so any partition works. Watched paths are sorted by function and number, and divided into
//! pieces of nearly equal weight: few functions are split, and a piece of a function has neighbouring numbers, whose paths share
//! prefixes. Copies only count; matches are reported when the counts are merged, so that the copies' output does not differ. Actions that
//! change the execution are refused.

use super::before::CopyInput;
use super::shared::{self, Partition};
use super::units::units;
use super::{CopiesRecorded, CopyContext, CopyJob, CopyOptions};
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use trodden_driver::experiment;
use trodden_driver::variant::Defaults;
use trodden_partition::{PartitionStrategy, Procedure};
use trodden_profile::procedures;
use trodden_profile::{Counts, ImageProfile, Profile, UnitProfile};
use trodden_text::words::plural;
use trodden_unit::experiment::{InputKind, SettingsFile};
use trodden_unit::{Frame, FunctionKey, FunctionMap, Image, KnownPaths, Settings, UnitMap};
use trodden_wire::ON_UNTESTED_VARIABLE;

/// Whether a program watches for paths.
pub fn is_watching(program: &Path, context: CopyContext) -> bool {
    units(program, context.around.units.as_ref()).is_ok_and(|units| units.iter().any(|(_, map)| map.experiment.is_watched()))
}

/// Records a run by copies that share the watching.
///
/// # Errors
/// The copies cannot be built or run, or an option does not apply to them.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<CopiesRecorded> {
    check(&job.options)?;
    shared::run(job, context, input, |program| WatchPartition::new(program, job.options.copies, context))
}

/// Refuses options that apply to copies which count all paths.
fn check(options: &CopyOptions) -> Result<()> {
    let given = [
        (options.weights.is_some(), "--weights"),
        (options.no_first_run, "--no-first-run"),
        (options.baseline, "--baseline"),
        (options.costs.is_some(), "--costs"),
        (options.count_hits, "--count-hits"),
        (options.max_probes.is_some(), "--max-probes"),
        (options.strategy != PartitionStrategy::Weighted, "--strategy"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => {
            anyhow::bail!("{option} applies to copies that count all paths, but the program was built with --watch: leave it out")
        }
        None => Ok(()),
    }
}

/// The partition of the watched paths.
struct WatchPartition {
    /// The program's image, without counts.
    image: ImageProfile,
    /// The settings of its units.
    settings: Settings,
    /// All paths except the watched ones.
    others: KnownPaths,
    /// The copy of each watched path, by function.
    owners: Owners,
    copies: usize,
    /// The watched expression, if matches are to be reported.
    reported_expression: Option<String>,
}

impl WatchPartition {
    fn new(program: &Path, copies: usize, context: CopyContext) -> Result<WatchPartition> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let (image, units) = (Image::read(&bytes)?, units(program, context.around.units.as_ref())?);
        let reported_expression = reported_expression(&bytes, program, context)?;
        let settings = settings(&units, program)?;
        let file = settings.watched.as_ref().and_then(SettingsFile::stored).context("the program's units are damaged: build it again")?;
        let others = experiment::paths_of(context.driver, InputKind::Watched, file)?;
        let (owners, copies) = divide(others.unknown(), &weights(&units)?, copies);
        let (paths, functions) = (owners.values().map(BTreeMap::len).sum::<usize>(), owners.len());
        log::info!(
            "{} of {} {} watched for by {}; {} divided",
            plural(paths as u128, "path", "paths"),
            plural(functions as u128, "function", "functions"),
            if paths == 1 { "is" } else { "are" },
            plural(copies as u128, "copy", "copies"),
            plural(count_divided_functions(&owners) as u128, "function is", "functions are")
        );
        let nothing = |(frame, map): (Frame, UnitMap)| UnitProfile { unit: frame.unit, map: Arc::new(map), counts: Counts::default() };
        let units = units.into_iter().map(nothing).collect();
        let image = ImageProfile { identity: image.identity, path: program.display().to_string(), build_id: image.build_id, units };
        Ok(WatchPartition { image, settings, others, owners, copies, reported_expression })
    }
}

/// The expression of a program that reports matches; `None` if it only counts them.
fn reported_expression(bytes: &[u8], program: &Path, context: CopyContext) -> Result<Option<String>> {
    let defaults = Defaults::from_program(bytes)?;
    let expression = defaults.watched.with_context(|| {
        format!("{} has no symbols, so its action at a match is unknown: link it without stripping symbols", program.display())
    })?;
    let variable = context.driver.variables.get(OsStr::new(ON_UNTESTED_VARIABLE)).map(|word| word.to_string_lossy().into_owned());
    let action = variable.or(defaults.on_untested).unwrap_or_default();
    ensure!(
        matches!(action.as_str(), "" | "count" | "report"),
        "{} does `{action}` at a match, so copies with different watched paths would behave differently: set {ON_UNTESTED_VARIABLE}=report",
        program.display()
    );
    Ok((action == "report").then_some(expression))
}

/// The settings, which all units must share.
fn settings(units: &[(Frame, UnitMap)], program: &Path) -> Result<Settings> {
    let mut all: Vec<Settings> = units.iter().map(|(_, map)| Settings::from(&map.experiment)).collect();
    all.dedup();
    let message =
        || format!("units of {} were built with different parameters: build it again with `trodden instrument --watch`", program.display());
    ensure!(all.len() == 1, message());
    Ok(all.remove(0))
}

/// Estimated executions of each function's paths, by its loops and the calls of it.
fn weights(units: &[(Frame, UnitMap)]) -> Result<HashMap<FunctionKey, u64>> {
    let functions = units.iter().flat_map(|(_, map)| map.functions.iter().map(move |function| key(map, function)));
    let entries = |procedure: &Procedure| {
        let dag = &procedure.dag;
        dag.out(dag.entry()).iter().fold(0, |sum: u64, edge| sum.saturating_add(procedure.frequencies[edge.index()]))
    };
    Ok(functions.zip(procedures::known(units, None)?.iter().map(entries)).collect())
}

/// Identifies the same function in different builds of the program.
fn key(map: &UnitMap, function: &FunctionMap) -> FunctionKey {
    (map.source.clone(), function.name.clone(), function.version())
}

/// The copy of each watched path, by function.
type Owners = HashMap<FunctionKey, BTreeMap<u64, usize>>;

/// Divides the paths of functions among copies. Returns the number of copies, too: copies without paths are dropped.
fn divide<'a>(
    watched: impl Iterator<Item = (&'a FunctionKey, Vec<u64>)>,
    weights: &HashMap<FunctionKey, u64>,
    copies: usize,
) -> (Owners, usize) {
    let mut functions: Vec<(u128, &FunctionKey, Vec<u64>)> = watched
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(key, paths)| (u128::from(weights.get(key).copied().unwrap_or(1).max(1)), key, paths))
        .collect();
    functions.sort_by_key(|(weight, key, _)| (Reverse(*weight), *key));
    let all: u128 = functions.iter().map(|(weight, ..)| weight).sum();
    let mut owners = HashMap::new();
    let (mut before, mut used) = (0u128, BTreeMap::new());
    for (weight, key, paths) in functions {
        let count = paths.len() as u128;
        // The middle of a path's share of the weight decides.
        let wanted = |place: usize| ((before * 2 * count + weight * (2 * place as u128 + 1)) * copies as u128 / (2 * count * all)) as usize;
        let own: BTreeMap<u64, usize> = paths.iter().enumerate().map(|(place, path)| (*path, wanted(place))).collect();
        used.extend(own.values().map(|copy| (*copy, 0)));
        owners.insert(key.clone(), own);
        before += weight;
    }
    used.values_mut().zip(0..).for_each(|(number, next)| *number = next);
    owners.values_mut().flat_map(BTreeMap::values_mut).for_each(|copy| *copy = used[copy]);
    (owners, used.len())
}

/// Number of functions whose paths are divided among several copies.
fn count_divided_functions(owners: &Owners) -> usize {
    owners.values().filter(|own| own.values().collect::<BTreeSet<_>>().len() > 1).count()
}

impl Partition for WatchPartition {
    const STREAMS: bool = false;
    // The program's own action at a match, which is in its link recipe, is replaced.
    const VARIABLES: &[(&str, &str)] = &[(ON_UNTESTED_VARIABLE, "count")];

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |copy: usize| {
            let mut others = self.others.clone();
            others.learn(|key, path| self.owners[key][&path] != copy);
            Ok(Settings { watched: Some(experiment::stored(context.driver, &others)?), ..self.settings.clone() })
        };
        (0..self.copies).map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let (own, elsewhere) = counts_of_copies(profiles, work);
        let (image, differences) = merge(self.image.clone(), &own)?;
        if let Some(expression) = &self.reported_expression {
            for unit in &image.units {
                for function in &unit.map.functions {
                    unit.counts_of(function).for_each(|(path, _)| log::info!("path {path} of {} matches {expression}", function.name));
                }
            }
        }
        let mut images = vec![image];
        for other in elsewhere {
            match images.iter_mut().find(|image| image.identity == other.identity) {
                // Counts of processes that started the program by its own name.
                Some(image) => image.units.iter_mut().zip(&other.units).for_each(|(unit, more)| unit.counts.merge(&more.counts)),
                None => images.push(other),
            }
        }
        Ok((images, differences))
    }

    fn keep(&self, _: &CopyJob, _: Option<u64>, _: &Path, _: CopyContext) -> Result<()> {
        Ok(())
    }
}

/// The counts of the copies' images, by copy; and the first copy's counts of other images, which are the same for all copies.
fn counts_of_copies(profiles: Vec<Profile>, work: &Path) -> (Vec<(usize, ImageProfile)>, Vec<ImageProfile>) {
    let images = profiles.into_iter().enumerate().flat_map(|(copy, profile)| profile.images.into_iter().map(move |image| (copy, image)));
    let (own, elsewhere): (Vec<_>, Vec<_>) = images.partition(|(_, image)| Path::new(&image.path).starts_with(work));
    (own, elsewhere.into_iter().filter(|(copy, _)| *copy == 0).map(|(_, image)| image).collect())
}

/// The key of a function in an image, and the number of units before it with the same function.
type PlacedKey = (FunctionKey, usize);

/// The key of the next function. `seen` counts the functions before it.
fn placed_key(seen: &mut HashMap<FunctionKey, usize>, map: &UnitMap, function: &FunctionMap) -> PlacedKey {
    let key = key(map, function);
    let before = seen.entry(key.clone()).or_default();
    *before += 1;
    (key, *before - 1)
}

/// The executions of a path according to a copy, and the time of the first one.
struct CountedPath {
    copy: usize,
    count: u64,
    first_seen: Option<u64>,
}

/// Merges the copies' counts into the program's image. Returns the differences between copies that counted the same path.
fn merge(mut image: ImageProfile, copies: &[(usize, ImageProfile)]) -> Result<(ImageProfile, Vec<String>)> {
    let mut counts_of_copies: HashMap<PlacedKey, BTreeMap<u64, CountedPath>> = HashMap::new();
    let mut differences = Vec::new();
    for (copy, own) in copies {
        let mut seen = HashMap::new();
        for (unit, function) in own.units.iter().flat_map(|unit| unit.map.functions.iter().map(move |function| (unit, function))) {
            let paths = counts_of_copies.entry(placed_key(&mut seen, &unit.map, function)).or_default();
            for (path, count) in unit.counts_of(function) {
                let fresh = || CountedPath { copy: *copy, count, first_seen: unit.first_seen(function, path) };
                let known = paths.entry(path).or_insert_with(fresh);
                if known.count != count {
                    let (name, first, before) = (&function.name, known.copy, known.count);
                    differences
                        .push(format!("path {path} of `{name}` was executed {before} times in copy {first} and {count} in copy {copy}"));
                }
            }
        }
    }
    let mut seen = HashMap::new();
    for unit in &mut image.units {
        let map = unit.map.clone();
        for function in &map.functions {
            for (path, known) in counts_of_copies.remove(&placed_key(&mut seen, &map, function)).unwrap_or_default() {
                let counter = function.first_counter + path;
                unit.counts.executions.push((counter, known.count));
                unit.counts.first_seen.extend(known.first_seen.map(|time| (counter, time)));
            }
        }
        unit.counts.executions.sort_unstable();
        unit.counts.first_seen.sort_unstable();
    }
    let foreign = counts_of_copies.iter().find(|(_, paths)| !paths.is_empty());
    ensure!(
        foreign.is_none(),
        "the copies have a function `{}` that the program does not have: build the program again",
        foreign.map_or("", |((key, _), _)| &key.1)
    );
    Ok((image, differences))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_unit::NameVersion;

    fn function(name: &str) -> FunctionKey {
        ("a.c".into(), name.into(), NameVersion::default())
    }

    /// Divides functions with the given numbers of paths and weights among copies. Returns the copies of each function's paths.
    fn copies(functions: &[(&str, u64, u64)], copies: usize) -> (Vec<Vec<usize>>, usize) {
        let watched: Vec<(FunctionKey, Vec<u64>)> =
            functions.iter().map(|(name, paths, _)| (function(name), (0..*paths).collect())).collect();
        let weights = functions.iter().map(|(name, _, weight)| (function(name), *weight)).collect();
        let (owners, used) = divide(watched.iter().map(|(key, paths)| (key, paths.clone())), &weights, copies);
        (functions.iter().map(|(name, ..)| owners[&function(name)].values().copied().collect()).collect(), used)
    }

    #[test]
    fn pieces_have_nearly_equal_weight_and_every_copy_has_a_path() {
        assert_eq!(copies(&[("f", 6, 1)], 3), (vec![vec![0, 0, 1, 1, 2, 2]], 3));
        assert_eq!(copies(&[("f", 1, 5)], 4), (vec![vec![0]], 1));
        // The heaviest function comes first, and is divided.
        assert_eq!(copies(&[("f", 1, 1), ("g", 4, 99)], 2), (vec![vec![1], vec![0, 0, 1, 1]], 2));
        assert_eq!(copies(&[("f", 2, 0), ("g", 2, 0)], 4), (vec![vec![0, 1], vec![2, 3]], 4));
    }
}
