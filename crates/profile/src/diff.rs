//! Compares two profiles: which paths appeared, vanished, or changed their share of the executions.
//!
//! Paths are compared by ID, so both profiles must be of the same build. On request, functions of different builds are matched if their
//! names, graphs, numberings and instruction counts are equal; equal IDs then denote the same paths. A path's *share of its function* is
//! its fraction of the executions of all the function's complete paths. Its *share of the program* is its fraction of the instructions
//! executed on all the program's complete paths.

use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, UnitProfile};
use crate::paths::{FunctionPaths, PathCount};
use crate::sampling::Sampling;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use trodden_flow::Node;
use trodden_unit::{FunctionMap, Identity, UnitMap};

/// Options of a comparison, including the thresholds below which changes are not reported.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Whether to match unchanged functions of different builds.
    pub across_builds: bool,
    /// Minimum change of a path's share of its function, from 0 to 1. The change of a path that appeared or vanished is its entire share.
    pub min_function_share: f64,
    /// Minimum change of a path's share of the program, from 0 to 1.
    pub min_program_share: f64,
    /// Minimum number of executions of a path, which at least one of the two profiles must reach.
    pub min_count: u64,
    /// Whether to report a path whose count changed although its share did not.
    pub report_counts: bool,
}

/// The differences of two profiles.
#[derive(Clone, Debug, Default)]
pub struct ProfileDifference {
    /// Functions that changed, in descending order of [`FunctionDifference::weight`]. Includes functions of which only one profile has
    /// unfinished paths.
    pub functions: Vec<FunctionDifference>,
    /// Number of functions that both profiles have.
    pub compared: usize,
    /// Functions executed in the first profile that have no counterpart in the second, by name.
    pub only_before: Vec<String>,
    /// Functions executed in the second profile that have no counterpart in the first, by name.
    pub only_after: Vec<String>,
    /// Functions of the first profile that have no counterpart in the second, whether they were executed or not.
    pub unmatched_before: Vec<UnitAndFunctionIndex>,
    /// Functions of the second profile that have no counterpart in the first, whether they were executed or not.
    pub unmatched_after: Vec<UnitAndFunctionIndex>,
    /// Overlap of the two profiles' path frequencies.
    pub overlap: ProfileOverlap,
}

/// A function's position in a profile: the identity of its unit, and its index in the unit's map.
pub type UnitAndFunctionIndex = (Identity, usize);

/// Overlap of two profiles, from 0 (no common path) to 1 (equal shares): the sum over all paths of the smaller of the path's two shares of
/// the program. Functions that could not be compared contribute 0. Sampled profiles are compared by their estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileOverlap {
    /// Overlap, where a path's share is its fraction of all path executions.
    pub executions: f64,
    /// Overlap, where a path's share is its fraction of all executed instructions.
    pub instructions: f64,
}

/// Differences in one function.
#[derive(Clone, Debug)]
pub struct FunctionDifference {
    /// Path of the function's executable or shared library in the second profile.
    pub image: String,
    /// Map of the function's unit in the second profile.
    pub unit: Arc<UnitMap>,
    /// Its index in the unit.
    pub function: usize,
    /// Numbers of calls to the function, before and after the change.
    pub entries: (u64, u64),
    /// Numbers of executions of the function's complete paths, before and after.
    pub executions: (u64, u64),
    /// Numbers of executions of the function's unfinished paths, before and after.
    pub unfinished: (i64, i64),
    /// The function's changed paths, in descending order of [`PathDiff::program_change`].
    pub paths: Vec<PathDiff>,
    /// Sum of [`PathDiff::program_change`] over the changed paths.
    pub weight: f64,
}

/// How a path changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathChange {
    /// The path was not executed before.
    Appeared,
    /// It is no longer executed.
    Vanished,
    /// Its share changed.
    Share,
    /// The path's count changed, but not its share.
    Count,
}

/// A path that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct PathDiff {
    /// Its number.
    pub id: u64,
    /// How it changed.
    pub change: PathChange,
    /// Numbers of executions of the path, before and after.
    pub counts: (u64, u64),
    /// Shares of the function's executions before and after, from 0 to 1.
    pub function_share: (f64, f64),
    /// Shares of all instructions that the program executed, before and after, from 0 to 1.
    pub program_share: (f64, f64),
    /// Its blocks.
    pub blocks: Vec<Node>,
}

impl FunctionDifference {
    /// Returns the function's map.
    pub fn map(&self) -> &FunctionMap {
        &self.unit.functions[self.function]
    }
}

impl PathDiff {
    /// Returns the absolute change of the path's share of its function, from 0 to 1.
    pub fn function_change(&self) -> f64 {
        (self.function_share.1 - self.function_share.0).abs()
    }

    /// Returns the absolute change of the path's share of the program, from 0 to 1.
    pub fn program_change(&self) -> f64 {
        (self.program_share.1 - self.program_share.0).abs()
    }
}

/// Compares two profiles. Each is paired with the name that messages use for it. Fails if the profiles are of different builds (unless
/// `options` allows that), have no image in common, or contain a corrupt map.
pub fn diff(before: (&str, &Profile), after: (&str, &Profile), options: &DiffOptions) -> Result<ProfileDifference, ProfileError> {
    if !options.across_builds {
        check_builds(before, after)?;
    }
    let single_image = before.1.images.len() == 1 && after.1.images.len() == 1;
    let (old, new) = (DecodedProfile::new(before, options, single_image)?, DecodedProfile::new(after, options, single_image)?);
    let mut keys: Vec<&FunctionMatchKey> = old.functions.keys().chain(new.functions.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut diff = ProfileDifference::default();
    for key in keys {
        match (old.functions.get(key), new.functions.get(key)) {
            (Some(a), Some(b)) if have_same_code(a.map(), b.map()) => {
                diff.compared += 1;
                diff.overlap.add(a, b, &old, &new);
                diff.functions.extend(diff_function(a, b, (old.instructions, new.instructions), options));
            }
            (a, b) => {
                diff.only_before.extend(a.and_then(DecodedFunction::function_name_if_executed));
                diff.only_after.extend(b.and_then(DecodedFunction::function_name_if_executed));
                diff.unmatched_before.extend(a.map(DecodedFunction::place));
                diff.unmatched_after.extend(b.map(DecodedFunction::place));
            }
        }
    }
    diff.functions.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.map().name.cmp(&b.map().name)));
    Ok(diff)
}

fn check_builds(before: (&str, &Profile), after: (&str, &Profile)) -> Result<(), ProfileError> {
    let identities: HashSet<Identity> = before.1.images.iter().map(|i| i.identity).collect();
    for new in after.1.images.iter().filter(|i| !identities.contains(&i.identity)) {
        let known_elsewhere = |old: &&ImageProfile| after.1.images.iter().all(|i| i.identity != old.identity);
        if let Some(old) = before.1.images.iter().filter(known_elsewhere).find(|old| old.path == new.path && !new.path.is_empty()) {
            return Err(ProfileError::OtherBuild {
                image: new.path.clone(),
                one_name: before.0.to_owned(),
                one: old.identity,
                other_name: after.0.to_owned(),
                other: new.identity,
                alternative: ", or compare functions of different builds with `--across-builds`",
            });
        }
    }
    let common = after.1.images.iter().any(|i| identities.contains(&i.identity));
    let both_empty = before.1.images.is_empty() && after.1.images.is_empty();
    if !common && !both_empty {
        let list = |p: &Profile| match p.images.is_empty() {
            true => "nothing".to_string(),
            false => p.images.iter().map(|i| format!("`{}` build {}", i.path, i.identity)).collect::<Vec<_>>().join(", "),
        };
        return Err(ProfileError::NothingInCommon {
            one_name: before.0.to_owned(),
            one: list(before.1),
            other_name: after.0.to_owned(),
            other: list(after.1),
        });
    }
    Ok(())
}

/// Key by which functions of two profiles are matched: image, unit, function name, and a number that distinguishes functions for which
/// these three are equal. Image and unit are identities. Across builds, they are the image's file name (empty if there is only one image)
/// and the unit's source file instead.
type FunctionMatchKey = (String, String, String, usize);

struct DecodedProfile<'a> {
    functions: BTreeMap<FunctionMatchKey, DecodedFunction<'a>>,
    /// Number of instructions executed on complete paths.
    instructions: u128,
    /// Numbers of executions and of instructions of all complete paths, estimated if the profile was sampled. Only the ratios of estimates
    /// are meaningful.
    estimated: (f64, f64),
}

struct DecodedFunction<'a> {
    image: &'a ImageProfile,
    unit: &'a UnitProfile,
    function: usize,
    paths: FunctionPaths,
    /// Number of executions of each complete path; estimates if the profile was sampled.
    estimated: Vec<f64>,
}

/// Returns the number of executions of each complete path. For sampled profiles, corrects the counts for the time that counting itself
/// took.
fn estimate_executions(profile: &Profile, image: &ImageProfile, unit: &UnitProfile, map: &FunctionMap, paths: &FunctionPaths) -> Vec<f64> {
    let bursts = profile.sampling.as_ref().and_then(Sampling::bursts).filter(|_| unit.map.experiment.is_sampled());
    let estimate = |p: &PathCount| match bursts {
        Some(bursts) => bursts.weighted_count(image.identity, unit.unit, map.first_counter + p.id, p.count),
        None => p.count as f64,
    };
    paths.complete.iter().map(estimate).collect()
}

impl<'a> DecodedProfile<'a> {
    /// Decodes a profile. With `single_image`, both profiles have one image, and the two are matched even if their file names differ,
    /// because variants of a program have different names.
    fn new((name, profile): (&str, &'a Profile), options: &DiffOptions, single_image: bool) -> Result<DecodedProfile<'a>, ProfileError> {
        let mut decoded = DecodedProfile { functions: BTreeMap::new(), instructions: 0, estimated: (0.0, 0.0) };
        let mut seen = HashMap::<(String, String, String), usize>::new();
        for image in &profile.images {
            for unit in &image.units {
                let (image_key, unit_key) = match options.across_builds {
                    true if single_image => (String::new(), unit.map.source.clone()),
                    true => (file_name(&image.path), unit.map.source.clone()),
                    false => (image.identity.to_string(), unit.unit.to_string()),
                };
                for (function, map) in unit.map.functions.iter().enumerate() {
                    let key = (image_key.clone(), unit_key.clone(), map.name.clone());
                    let occurrence = seen.entry(key.clone()).or_default();
                    let paths = FunctionPaths::decode(map, unit.counts_of(map))
                        .map_err(|source| ProfileError::Map { name: name.to_owned(), source })?;
                    decoded.instructions += paths.complete.iter().map(|p| executed_instructions(map, p)).sum::<u128>();
                    let estimated = estimate_executions(profile, image, unit, map, &paths);
                    for (path, executions) in paths.complete.iter().zip(&estimated) {
                        decoded.estimated.0 += executions;
                        decoded.estimated.1 += executions * count_instructions(map, path) as f64;
                    }
                    decoded
                        .functions
                        .insert((key.0, key.1, key.2, *occurrence), DecodedFunction { image, unit, function, paths, estimated });
                    *occurrence += 1;
                }
            }
        }
        Ok(decoded)
    }
}

impl ProfileOverlap {
    fn add(&mut self, old: &DecodedFunction, new: &DecodedFunction, before: &DecodedProfile, after: &DecodedProfile) {
        let executions: HashMap<u64, f64> = old.paths.complete.iter().map(|p| p.id).zip(old.estimated.iter().copied()).collect();
        let share = |part: f64, whole: f64| if whole == 0.0 { 0.0 } else { part / whole };
        for (path, other) in new.paths.complete.iter().zip(&new.estimated) {
            let one = executions.get(&path.id).copied().unwrap_or(0.0);
            let size = count_instructions(new.map(), path) as f64;
            self.executions += share(one, before.estimated.0).min(share(*other, after.estimated.0));
            self.instructions += share(one * size, before.estimated.1).min(share(other * size, after.estimated.1));
        }
    }
}

impl DecodedFunction<'_> {
    fn map(&self) -> &FunctionMap {
        &self.unit.map.functions[self.function]
    }

    fn place(&self) -> UnitAndFunctionIndex {
        (self.unit.unit, self.function)
    }

    fn function_name_if_executed(&self) -> Option<String> {
        let is_executed = !self.paths.complete.is_empty() || !self.paths.are_all_paths_finished();
        is_executed.then(|| self.map().plain_name().to_owned())
    }

    fn unfinished_path_count(&self) -> i64 {
        self.paths.unfinished.iter().fold(0, |sum, u| sum.saturating_add(u.count))
    }
}

/// Returns whether equal path IDs of two functions denote the same path through the same code. The source lines may differ.
fn have_same_code(one: &FunctionMap, other: &FunctionMap) -> bool {
    let blocks = |f: &FunctionMap| f.blocks.iter().map(|b| (b.instructions, b.kind)).collect::<Vec<_>>();
    std::ptr::eq(one, other)
        || (one.graph == other.graph && one.dag == other.dag && one.values == other.values && blocks(one) == blocks(other))
}

fn diff_function(
    old: &DecodedFunction,
    new: &DecodedFunction,
    programs: (u128, u128),
    options: &DiffOptions,
) -> Option<FunctionDifference> {
    let totals = (old.paths.total(), new.paths.total());
    let mut pairs = BTreeMap::<u64, PathPair>::new();
    for path in &old.paths.complete {
        pairs.insert(path.id, PathPair { path, counts: (path.count, 0) });
    }
    for path in &new.paths.complete {
        pairs.entry(path.id).or_insert(PathPair { path, counts: (0, 0) }).counts.1 = path.count;
    }
    let mut paths: Vec<PathDiff> =
        pairs.into_values().filter_map(|pair| diff_path(new.map(), pair, totals, programs)).filter(|p| is_reported(p, options)).collect();
    let entries = (old.paths.call_count(), new.paths.call_count());
    let unfinished = (old.unfinished_path_count(), new.unfinished_path_count());
    let unfinished_differs = (unfinished.0 == 0) != (unfinished.1 == 0);
    let counted = options.report_counts && (entries.0 != entries.1 || unfinished.0 != unfinished.1);
    if paths.is_empty() && !unfinished_differs && !counted {
        return None;
    }
    paths.sort_by(|a, b| {
        b.program_change().total_cmp(&a.program_change()).then(b.function_change().total_cmp(&a.function_change())).then(a.id.cmp(&b.id))
    });
    let weight = paths.iter().map(PathDiff::program_change).sum();
    let (image, unit, function) = (new.image.path.clone(), new.unit.map.clone(), new.function);
    Some(FunctionDifference { image, unit, function, entries, executions: totals, unfinished, paths, weight })
}

struct PathPair<'a> {
    path: &'a PathCount,
    counts: (u64, u64),
}

fn diff_path(map: &FunctionMap, pair: PathPair, totals: (u64, u64), programs: (u128, u128)) -> Option<PathDiff> {
    let PathPair { path, counts: (old, new) } = pair;
    let change = match (old, new) {
        (0, 0) => return None,
        (0, _) => PathChange::Appeared,
        (_, 0) => PathChange::Vanished,
        // Multiplies instead of dividing, because rounding could make equal shares differ.
        (a, b) if u128::from(a) * u128::from(totals.1) != u128::from(b) * u128::from(totals.0) => PathChange::Share,
        (a, b) if a != b => PathChange::Count,
        _ => return None,
    };
    let share = |part: u128, whole: u128| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let size = u128::from(count_instructions(map, path));
    Some(PathDiff {
        id: path.id,
        change,
        counts: (old, new),
        function_share: (share(old.into(), totals.0.into()), share(new.into(), totals.1.into())),
        program_share: (share(u128::from(old) * size, programs.0), share(u128::from(new) * size, programs.1)),
        blocks: path.blocks.clone(),
    })
}

fn is_reported(path: &PathDiff, options: &DiffOptions) -> bool {
    let enough = path.counts.0.max(path.counts.1) >= options.min_count;
    match path.change {
        PathChange::Count => enough && options.report_counts,
        _ => enough && path.function_change() >= options.min_function_share && path.program_change() >= options.min_program_share,
    }
}

fn count_instructions(map: &FunctionMap, path: &PathCount) -> u64 {
    path.blocks.iter().map(|b| u64::from(map.blocks[b.index()].instructions)).sum()
}

fn executed_instructions(map: &FunctionMap, path: &PathCount) -> u128 {
    u128::from(path.count) * u128::from(count_instructions(map, path))
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
