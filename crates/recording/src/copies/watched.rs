//! Copies of a program that watches for paths (`trodden instrument --watch`), each of which watches for a part of them.
//!
//! D. Saha, P. Dhoolia and G. Paul (ESEC/FSE 2013, section 8) name the runtime verification of policies by distributed runs as future work.
//! A path is watched for by itself: nothing has to be known of the others to see that it was taken. So any division does, and all copies
//! together notice what the one program notices.
//!
//! Watched paths are put in order by function and number, and cut into pieces of nearly equal weight. Few functions are divided that way,
//! and a function's piece has paths of neighbouring numbers, which share beginnings; what copies spend is spent once for each function.
//!
//! Copies only count. The lines that the one program prints about matches are printed once their counts are known: printed by the copies,
//! they would be differences between what copies print. Actions that change the execution are refused.

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
/// The copies cannot be made or run.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<CopiesRecorded> {
    check(&job.options)?;
    shared::run(job, context, input, |program| WatchPartition::new(program, job.options.copies, context))
}

/// Options that say something of copies that count all paths.
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
            anyhow::bail!("{option} is for copies that count all paths, and the program was made by --watch: leave it out")
        }
        None => Ok(()),
    }
}

/// Which copy watches for which path.
struct WatchPartition {
    /// The program, with nothing counted.
    image: ImageProfile,
    /// Its settings.
    settings: Settings,
    /// All paths but the watched ones.
    others: KnownPaths,
    /// The copy of each watched path, by function.
    owners: Owners,
    copies: usize,
    /// What matching paths match, if they are to be reported.
    reported: Option<String>,
}

impl WatchPartition {
    fn new(program: &Path, copies: usize, context: CopyContext) -> Result<WatchPartition> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let (image, units) = (Image::read(&bytes)?, units(program, context.around.units.as_ref())?);
        let reported = reported(&bytes, program, context)?;
        let settings = settings(&units, program)?;
        let file = settings.watched.as_ref().and_then(SettingsFile::stored).context("the program's units are damaged: make it again")?;
        let others = experiment::paths_of(context.driver, InputKind::Watched, file)?;
        let (owners, copies) = divide(others.unknown(), &weights(&units)?, copies);
        let (paths, functions) = (owners.values().map(BTreeMap::len).sum::<usize>(), owners.len());
        log::info!(
            "{} of {} {} watched for by {}; {} divided",
            plural(paths as u128, "path", "paths"),
            plural(functions as u128, "function", "functions"),
            if paths == 1 { "is" } else { "are" },
            plural(copies as u128, "copy", "copies"),
            plural(divided(&owners) as u128, "function is", "functions are")
        );
        let nothing = |(frame, map): (Frame, UnitMap)| UnitProfile { unit: frame.unit, map: Arc::new(map), counts: Counts::default() };
        let units = units.into_iter().map(nothing).collect();
        let image = ImageProfile { identity: image.identity, path: program.display().to_string(), build_id: image.build_id, units };
        Ok(WatchPartition { image, settings, others, owners, copies, reported })
    }
}

/// The expression of a program that reports matches; none if it only counts them.
fn reported(bytes: &[u8], program: &Path, context: CopyContext) -> Result<Option<String>> {
    let defaults = Defaults::from_program(bytes)?;
    let expression = defaults.watched.with_context(|| {
        format!("{} has no symbols, which say what it does at a match: link it without removing symbols", program.display())
    })?;
    let variable = context.driver.variables.get(OsStr::new(ON_UNTESTED_VARIABLE)).map(|word| word.to_string_lossy().into_owned());
    let action = variable.or(defaults.on_untested).unwrap_or_default();
    ensure!(
        matches!(action.as_str(), "" | "count" | "report"),
        "{} does `{action}` at a match, and copies that watch for different paths would not do the same: set {ON_UNTESTED_VARIABLE}=report",
        program.display()
    );
    Ok((action == "report").then_some(expression))
}

/// Settings that all units have in common.
fn settings(units: &[(Frame, UnitMap)], program: &Path) -> Result<Settings> {
    let mut all: Vec<Settings> = units.iter().map(|(_, map)| Settings::from(&map.experiment)).collect();
    all.dedup();
    let message =
        || format!("units of {} are built with different parameters: make it again by `trodden instrument --watch`", program.display());
    ensure!(all.len() == 1, message());
    Ok(all.remove(0))
}

/// How often each function's paths are taken, as far as its loops and the calls of it say.
fn weights(units: &[(Frame, UnitMap)]) -> Result<HashMap<FunctionKey, u64>> {
    let functions = units.iter().flat_map(|(_, map)| map.functions.iter().map(move |function| key(map, function)));
    let begun = |procedure: &Procedure| {
        let dag = &procedure.dag;
        dag.out(dag.entry()).iter().fold(0, |sum: u64, edge| sum.saturating_add(procedure.frequencies[edge.index()]))
    };
    Ok(functions.zip(procedures::known(units, None)?.iter().map(begun)).collect())
}

/// By what functions of several programs are the same.
fn key(map: &UnitMap, function: &FunctionMap) -> FunctionKey {
    (map.source.clone(), function.name.clone(), function.version())
}

/// The copies of the paths of each function.
type Owners = HashMap<FunctionKey, BTreeMap<u64, usize>>;

/// Divides functions' paths; gives the number of copies, too: none watches for nothing.
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

/// Number of functions for whose paths several copies watch.
fn divided(owners: &Owners) -> usize {
    owners.values().filter(|own| own.values().collect::<BTreeSet<_>>().len() > 1).count()
}

impl Partition for WatchPartition {
    const STREAMS: bool = false;
    // The link recipe has what the program does at a match.
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
        let (own, elsewhere) = counted(profiles, work);
        let (image, differences) = merge(self.image.clone(), &own)?;
        if let Some(expression) = &self.reported {
            for unit in &image.units {
                for function in &unit.map.functions {
                    unit.counts_of(function).for_each(|(path, _)| log::info!("path {path} of {} matches {expression}", function.name));
                }
            }
        }
        let mut images = vec![image];
        for other in elsewhere {
            match images.iter_mut().find(|image| image.identity == other.identity) {
                // Of processes that started the program by its own name.
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

/// What the copies counted, by their numbers; and what the first of them counted elsewhere, as all of them do.
fn counted(profiles: Vec<Profile>, work: &Path) -> (Vec<(usize, ImageProfile)>, Vec<ImageProfile>) {
    let images = profiles.into_iter().enumerate().flat_map(|(copy, profile)| profile.images.into_iter().map(move |image| (copy, image)));
    let (own, elsewhere): (Vec<_>, Vec<_>) = images.partition(|(_, image)| Path::new(&image.path).starts_with(work));
    (own, elsewhere.into_iter().filter(|(copy, _)| *copy == 0).map(|(_, image)| image).collect())
}

/// A function of an image: its key, and how many units of the image with the same function come before.
type PlacedKey = (FunctionKey, usize);

/// The key of the next function; `seen` has those that come before.
fn placed(seen: &mut HashMap<FunctionKey, usize>, map: &UnitMap, function: &FunctionMap) -> PlacedKey {
    let key = key(map, function);
    let before = seen.entry(key.clone()).or_default();
    *before += 1;
    (key, *before - 1)
}

/// A path's executions as a copy counted them, and the time of the first.
struct CountedPath {
    copy: usize,
    count: u64,
    first_seen: Option<u64>,
}

/// The program's image with what its copies counted. Says where two counted the same otherwise.
fn merge(mut image: ImageProfile, copies: &[(usize, ImageProfile)]) -> Result<(ImageProfile, Vec<String>)> {
    let mut counted: HashMap<PlacedKey, BTreeMap<u64, CountedPath>> = HashMap::new();
    let mut differences = Vec::new();
    for (copy, own) in copies {
        let mut seen = HashMap::new();
        for (unit, function) in own.units.iter().flat_map(|unit| unit.map.functions.iter().map(move |function| (unit, function))) {
            let paths = counted.entry(placed(&mut seen, &unit.map, function)).or_default();
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
            for (path, known) in counted.remove(&placed(&mut seen, &map, function)).unwrap_or_default() {
                let counter = function.first_counter + path;
                unit.counts.executions.push((counter, known.count));
                unit.counts.first_seen.extend(known.first_seen.map(|time| (counter, time)));
            }
        }
        unit.counts.executions.sort_unstable();
        unit.counts.first_seen.sort_unstable();
    }
    let foreign = counted.iter().find(|(_, paths)| !paths.is_empty());
    ensure!(
        foreign.is_none(),
        "copies have a function `{}` that the program lacks: make it again",
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

    /// The copies of the paths of functions that have so many paths and such weights.
    fn copies(functions: &[(&str, u64, u64)], copies: usize) -> (Vec<Vec<usize>>, usize) {
        let watched: Vec<(FunctionKey, Vec<u64>)> =
            functions.iter().map(|(name, paths, _)| (function(name), (0..*paths).collect())).collect();
        let weights = functions.iter().map(|(name, _, weight)| (function(name), *weight)).collect();
        let (owners, used) = divide(watched.iter().map(|(key, paths)| (key, paths.clone())), &weights, copies);
        (functions.iter().map(|(name, ..)| owners[&function(name)].values().copied().collect()).collect(), used)
    }

    #[test]
    fn pieces_have_nearly_equal_weight_and_no_copy_has_nothing() {
        assert_eq!(copies(&[("f", 6, 1)], 3), (vec![vec![0, 0, 1, 1, 2, 2]], 3));
        assert_eq!(copies(&[("f", 1, 5)], 4), (vec![vec![0]], 1));
        // The heaviest function comes first, and is divided.
        assert_eq!(copies(&[("f", 1, 1), ("g", 4, 99)], 2), (vec![vec![1], vec![0, 0, 1, 1]], 2));
        assert_eq!(copies(&[("f", 2, 0), ("g", 2, 0)], 4), (vec![vec![0, 1], vec![2, 3]], 4));
    }
}
