//! Divides a set of paths among copies of a program that observes only these paths: watched paths ([`super::watched`]) or interesting paths
//! ([`super::interesting`]).
//!
//! Each path is observed independently of the others, so any division is correct. The paths are sorted by function and number, and the list
//! is cut into pieces of nearly equal weight. Thus few functions are divided, and the paths that a copy observes in a function have
//! neighbouring numbers and share prefixes. Each copy that observes a path of a function pays for the function's path register.

use super::CopyOptions;
use anyhow::{Result, bail, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use trodden_partition::{PartitionStrategy, Procedure};
use trodden_profile::procedures;
use trodden_profile::{Counts, ImageProfile, Profile, UnitProfile};
use trodden_text::words::plural;
use trodden_unit::{Frame, FunctionKey, FunctionMap, InstrumentedImage, Settings, UnitMap};

/// Rejects options that make sense only if copies count all paths. `kind` is the option that the program was built with.
pub fn check_options(options: &CopyOptions, kind: &str) -> Result<()> {
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
            bail!("{option} applies only to programs that count all paths, but this program was built with {kind}. Omit {option}")
        }
        None => Ok(()),
    }
}

pub fn settings_common_to_units(units: &[(Frame, UnitMap)], program: &Path, kind: &str) -> Result<Settings> {
    let mut all: Vec<Settings> = units.iter().map(|(_, map)| Settings::from(&map.experiment)).collect();
    all.dedup();
    ensure!(
        all.len() == 1,
        "the source files of {} were compiled with different options. Build the program again with `trodden instrument {kind}`",
        program.display()
    );
    Ok(all.remove(0))
}

pub fn image_without_counts(program: &Path, bytes: &[u8], units: Vec<(Frame, UnitMap)>) -> Result<ImageProfile> {
    let image = InstrumentedImage::read(bytes)?;
    let nothing = |(frame, map): (Frame, UnitMap)| UnitProfile { unit: frame.unit, map: Arc::new(map), counts: Counts::default() };
    let units = units.into_iter().map(nothing).collect();
    Ok(ImageProfile { identity: image.identity, path: program.display().to_string(), build_id: image.build_id, units })
}

/// Estimates how often each function is executed, from loops and calls.
pub fn estimate_executions(units: &[(Frame, UnitMap)]) -> Result<HashMap<FunctionKey, u64>> {
    let functions = units.iter().flat_map(|(_, map)| map.functions.iter().map(move |function| key_of_function(map, function)));
    let entries = |procedure: &Procedure| {
        let dag = &procedure.dag;
        dag.out(dag.entry()).iter().fold(0, |sum: u64, edge| sum.saturating_add(procedure.frequencies[edge.index()]))
    };
    Ok(functions.zip(procedures::procedures(units, None)?.iter().map(entries)).collect())
}

/// Returns a function's key. If the function occurs several times in a program, all occurrences have the same key.
pub fn key_of_function(map: &UnitMap, function: &FunctionMap) -> FunctionKey {
    (map.source.clone(), function.name.clone(), function.version())
}

/// For each function and path number, the copy that observes the path.
pub type PathOwners = HashMap<FunctionKey, BTreeMap<u64, usize>>;

/// Divides the paths of functions among at most `copies` copies. Also returns the number of copies that observe any path.
pub fn divide_paths<'a>(
    observed: impl Iterator<Item = (&'a FunctionKey, Vec<u64>)>,
    weights: &HashMap<FunctionKey, u64>,
    copies: usize,
) -> (PathOwners, usize) {
    let mut functions: Vec<(u128, &FunctionKey, Vec<u64>)> = observed
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(key, paths)| (u128::from(weights.get(key).copied().unwrap_or(1).max(1)), key, paths))
        .collect();
    functions.sort_by_key(|(weight, key, _)| (Reverse(*weight), *key));
    let all: u128 = functions.iter().map(|(weight, ..)| weight).sum();
    let mut owners = HashMap::new();
    let (mut before, mut used) = (0u128, BTreeMap::new());
    for (weight, key, paths) in functions {
        let count = paths.len() as u128;
        // The total weight is split into one interval per copy. A path belongs to the copy whose interval contains the middle of the path's
        // share.
        let copy_at =
            |index: usize| ((before * 2 * count + weight * (2 * index as u128 + 1)) * copies as u128 / (2 * count * all)) as usize;
        let own: BTreeMap<u64, usize> = paths.iter().enumerate().map(|(index, path)| (*path, copy_at(index))).collect();
        used.extend(own.values().map(|copy| (*copy, 0)));
        owners.insert(key.clone(), own);
        before += weight;
    }
    used.values_mut().zip(0..).for_each(|(number, next)| *number = next);
    owners.values_mut().flat_map(BTreeMap::values_mut).for_each(|copy| *copy = used[copy]);
    (owners, used.len())
}

/// Logs a division. `participle` says what the copies do with the paths ("watched for", "counted").
pub fn log_division(owners: &PathOwners, copies: usize, participle: &str) {
    let (paths, functions) = (owners.values().map(BTreeMap::len).sum::<usize>(), owners.len());
    let divided = owners.values().filter(|own| own.values().collect::<BTreeSet<_>>().len() > 1).count();
    log::info!(
        "{} of {} {} {participle} by {} of the program; {} divided between copies",
        plural(paths as u128, "path", "paths"),
        plural(functions as u128, "function", "functions"),
        if paths == 1 { "is" } else { "are" },
        plural(copies as u128, "copy", "copies"),
        plural(divided as u128, "function is", "functions are")
    );
}

/// Splits the images of all copies into images of the program, each with its copy's number, and images of other programs and libraries.
/// Each copy counted the latter completely, so only those of the first copy are returned.
pub fn images_of_copies(profiles: Vec<Profile>, work: &Path) -> (Vec<(usize, ImageProfile)>, Vec<ImageProfile>) {
    let images = profiles.into_iter().enumerate().flat_map(|(copy, profile)| profile.images.into_iter().map(move |image| (copy, image)));
    let (own, elsewhere): (Vec<_>, Vec<_>) = images.partition(|(_, image)| Path::new(&image.path).starts_with(work));
    (own, elsewhere.into_iter().filter(|(copy, _)| *copy == 0).map(|(_, image)| image).collect())
}

/// Appends the images of other programs and libraries to the program's merged image. If child processes ran the original program, adds
/// their counts to the merged image.
pub fn join_images(image: ImageProfile, elsewhere: Vec<ImageProfile>) -> Vec<ImageProfile> {
    let mut images = vec![image];
    for other in elsewhere {
        match images.iter_mut().find(|image| image.identity == other.identity) {
            Some(image) => image.units.iter_mut().zip(&other.units).for_each(|(unit, more)| unit.counts.merge(&more.counts)),
            None => images.push(other),
        }
    }
    images
}

/// A function's key, and the number of earlier occurrences of this function in the image.
pub type FunctionOccurrence = (FunctionKey, usize);

/// Returns the key of the next function. `seen` counts, for each key, the occurrences so far.
pub fn next_occurrence(seen: &mut HashMap<FunctionKey, usize>, map: &UnitMap, function: &FunctionMap) -> FunctionOccurrence {
    let key = key_of_function(map, function);
    let before = seen.entry(key.clone()).or_default();
    *before += 1;
    (key, *before - 1)
}

struct PathInCopy {
    copy: usize,
    count: u64,
    first_seen: Option<u64>,
}

/// The counts of one function in all copies.
#[derive(Default)]
struct CountedFunction {
    paths: BTreeMap<u64, PathInCopy>,
    /// For each copy: its number, the number of executions of the function, and the number of executions for which it counted no path.
    executions: Vec<(usize, u64, u64)>,
}

/// Returns the program's image with the counts of all copies, and how the copies differ.
///
/// The number of executions on paths that no copy observed is computed: a copy's executions of the function minus the counts of all copies'
/// paths. All copies that observe a function must have executed it equally often. Fails if a copy has a function that the program does not
/// have.
pub fn merge_copies(mut image: ImageProfile, copies: &[(usize, ImageProfile)]) -> Result<(ImageProfile, Vec<String>)> {
    let mut counted: HashMap<FunctionOccurrence, CountedFunction> = HashMap::new();
    let mut differences = Vec::new();
    for (copy, own) in copies {
        let mut seen = HashMap::new();
        for (unit, function) in own.units.iter().flat_map(|unit| unit.map.functions.iter().map(move |function| (unit, function))) {
            let known = counted.entry(next_occurrence(&mut seen, &unit.map, function)).or_default();
            let mut sum = 0u64;
            for (path, count) in unit.counts_of(function) {
                sum = sum.saturating_add(count);
                let fresh = || PathInCopy { copy: *copy, count, first_seen: unit.first_seen(function, path) };
                let before = known.paths.entry(path).or_insert_with(fresh);
                if before.count != count {
                    let (name, first, before) = (&function.name, before.copy, before.count);
                    differences
                        .push(format!("path {path} of `{name}` was executed {before} times in copy {first} and {count} in copy {copy}"));
                }
            }
            let without_path = unit.unattributed(function);
            known.executions.push((*copy, sum.saturating_add(without_path), without_path));
        }
    }
    let mut seen = HashMap::new();
    for unit in &mut image.units {
        let map = unit.map.clone();
        for function in &map.functions {
            let Some(known) = counted.remove(&next_occurrence(&mut seen, &map, function)) else { continue };
            let others = known.unattributed_executions(&function.name, function.unattributed().start, &mut differences);
            for (path, known) in known.paths {
                let counter = function.first_counter + path;
                unit.counts.executions.push((counter, known.count));
                unit.counts.first_seen.extend(known.first_seen.map(|time| (counter, time)));
            }
            unit.counts.executions.extend(others);
        }
        unit.counts.executions.sort_unstable();
        unit.counts.first_seen.sort_unstable();
    }
    let foreign = counted.iter().find(|(_, function)| !function.paths.is_empty());
    ensure!(
        foreign.is_none(),
        "the copies of the program contain a function `{}` that the program itself does not have. Build the program again",
        foreign.map_or("", |((key, _), _)| &key.1)
    );
    Ok((image, differences))
}

impl CountedFunction {
    /// Returns the function's counter for executions on other paths and their number, or `None` if there are none. Reports a difference if
    /// copies executed the function different numbers of times.
    fn unattributed_executions(&self, name: &str, counter: u64, differences: &mut Vec<String>) -> Option<(u64, u64)> {
        // Programs that watch for paths do not count executions on other paths.
        if self.executions.iter().all(|(.., without_path)| *without_path == 0) {
            return None;
        }
        let (first, all, _) = self.executions[0];
        if let Some((copy, other, _)) = self.executions.iter().find(|(_, other, _)| *other != all) {
            differences.push(format!("`{name}` was executed {all} times in copy {first} and {other} in copy {copy}"));
        }
        let of_paths = self.paths.values().fold(0u64, |sum, path| sum.saturating_add(path.count));
        let others = all.saturating_sub(of_paths);
        (others > 0).then_some((counter, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_unit::NameVersion;

    fn function_named(name: &str) -> FunctionKey {
        ("a.c".into(), name.into(), NameVersion::default())
    }

    /// Divides functions, each given by name, number of paths and weight. Returns the owning copy of each path, and the number of copies.
    fn copies_of_paths(functions: &[(&str, u64, u64)], copies: usize) -> (Vec<Vec<usize>>, usize) {
        let watched: Vec<(FunctionKey, Vec<u64>)> =
            functions.iter().map(|(name, paths, _)| (function_named(name), (0..*paths).collect())).collect();
        let weights = functions.iter().map(|(name, _, weight)| (function_named(name), *weight)).collect();
        let (owners, used) = divide_paths(watched.iter().map(|(key, paths)| (key, paths.clone())), &weights, copies);
        (functions.iter().map(|(name, ..)| owners[&function_named(name)].values().copied().collect()).collect(), used)
    }

    #[test]
    fn copies_have_nearly_equal_weight_and_at_least_one_path() {
        assert_eq!(copies_of_paths(&[("f", 6, 1)], 3), (vec![vec![0, 0, 1, 1, 2, 2]], 3));
        assert_eq!(copies_of_paths(&[("f", 1, 5)], 4), (vec![vec![0]], 1));
        // The heaviest function comes first and is divided.
        assert_eq!(copies_of_paths(&[("f", 1, 1), ("g", 4, 99)], 2), (vec![vec![1], vec![0, 0, 1, 1]], 2));
        assert_eq!(copies_of_paths(&[("f", 2, 0), ("g", 2, 0)], 4), (vec![vec![0, 1], vec![2, 3]], 4));
    }
}
